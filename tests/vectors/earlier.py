"""The mechanisms of make.py from the papers up to 2021, and DeepSeek's sparse attention, dense and slow. Those that choose (buckets, clusters, blocks) work
on a whole batch and return a dictionary: "O", losses "aux.*" and choices "disc.*". What is drawn and not learned (rotations,
centroids, random blocks, features) is among the parameters; make.py draws it as inputs of the case.
"""

import numpy as np

from pieces import allowed_of, linear, merge, projections, relu, softmax, split, usual

margins = []  # by how much the best candidates of choices led the second best ones


def lead_of(scores, count=1):
    """Notes by how much the `count` best of each row (the last axis) lead the others."""
    ordered = np.sort(scores.real, -1)[..., ::-1]
    if ordered.size and ordered.shape[-1] > count:
        margins.append((ordered[..., count - 1] - ordered[..., count]).min())


def best(scores):
    lead_of(scores)
    return scores.real.argmax(-1)


def heads_of(config, p, *sources):
    return (split(linear(p, source, name), config["H"]) for source, name in zip(sources, "qkv"))


def dot_products(config, p, x, allowed):
    """Dot products [H, N, N] over the allowed pairs, with the output map."""
    q, k, v = heads_of(config, p, x, x, x)
    return linear(p, merge(softmax(q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[2]), allowed) @ v), "o")


# --- of one sample: (config, parameters, x, y, real, memory_real) -> O


def synthesizer(config, p, x, y, real, keys_real):
    """2005.00743 v3, sections 3.1 to 3.5: logits that no pair of tokens makes."""
    heads, length, kinds = config["H"], len(x), config["kinds"]

    def logits_of(kind):
        own = {name.removeprefix(kind + "."): value for name, value in p.items()}
        if kind == "dot":
            q, k = (split(linear(own, x, name), heads) for name in "qk")
            return q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[2])
        if kind in ("random", "random_fixed"):
            return own["R"][:, :length, :length]
        if kind == "fact_random":
            return own["R1"][:, :length] @ own["R2"][:, :length].transpose(0, 2, 1)

        def row(name):  # a bias [H, n] or [n] for every token
            return own[name][:, None] if name in own else 0

        hidden = relu(x @ own["W1"] + row("b1"))  # [H, N, df]
        if kind == "dense":
            return (hidden @ own["W2"] + row("b2"))[:, :, :length]
        first, second = hidden @ own["WA"] + row("bA"), hidden @ own["WB"] + row("bB")
        at, (a, b) = np.arange(length), (config["a"], config["b"])
        return first[:, :, at // b if config["tiling"] == "outer" else at % a] * second[:, :, at % b]

    logits = logits_of(kinds[0])
    if len(kinds) > 1:
        share = softmax(p["alpha"].T, True).T  # [components, H]
        logits = sum(share[m][:, None, None] * logits_of(kind) for m, kind in enumerate(kinds))
    weights = softmax(logits, allowed_of(config, real, keys_real))
    return linear(p, merge(weights @ split(linear(p, x, "v"), heads)), "o")


def hardcoded(config, p, x, y, real, keys_real):
    """You, Sun and Iyyer 2020 (2005.00742), section 3: densities that are not normalised."""
    heads, sigma = config["H"], config["sigma"]
    offset = np.resize(config["offsets"], heads)[:, None, None]
    distance = np.arange(len(y)) - (config.get("gamma", 1) * np.arange(len(x))[:, None] + offset)
    density = np.exp(-distance ** 2 / (2 * sigma ** 2)) / (sigma * np.sqrt(2 * np.pi))
    weights = np.where(allowed_of(config, real, keys_real), density, 0)
    return linear(p, merge(weights @ split(linear(p, y, "v"), heads)), "o")


def fastformer(config, p, x, y, real, keys_real):
    """2108.09084, section 3, with sqrt(dh) and biases as in the authors' code; causal: sums over prefixes."""
    heads, width = config["H"], x.shape[1] // config["H"]
    query, key = linear(p, x, "q"), linear(p, y, "k")
    value = query if config["share_qv"] else linear(p, x, "v")

    def pooled(scores, values, visible):  # [M, H], [H, T or 1, M, dh] -> [H, T, dh]
        weights = softmax(scores.transpose(1, 0)[:, None] / np.sqrt(width), visible)  # [H, T, M]
        return (weights[..., None] * values).sum(2)

    rows = len(x) if config["causal"] else 1
    in_x, in_y = (allowed_of(config, np.ones(rows, bool), seen) for seen in (real, keys_real))
    global_query = pooled(query @ p["wq"] + p.get("cq", 0), split(query, heads)[:, None], in_x)  # [H, T, dh]
    pairs = merge(global_query * split(key, heads))
    global_key = pooled(pairs @ p["wk"] + p.get("ck", 0), split(pairs, heads)[:, None], in_y)
    return linear(p, merge(global_key * split(value, heads)), "r") + query


def linformer(config, p, x, y, real, keys_real):
    """2006.04768, equation 7; keys and values of padding are 0."""
    q, k, v = heads_of(config, p, x, y, y)
    k, v = (np.where(keys_real[:, None], t, 0) for t in (k, v))
    keys = p["E"][..., : len(y)] @ k
    values = p["E" if config["share_kv"] else "F"][..., : len(y)] @ v
    return linear(p, merge(softmax(q @ keys.transpose(0, 2, 1) / np.sqrt(q.shape[2]), True) @ values), "o")


def performer(config, p, x, y, real, keys_real):
    """2009.14794, lemma 1 and equation 5, with the features of the case: weights of all pairs."""
    q, k, v = heads_of(config, p, x, y, y)

    def phi(t):
        t = t / q.shape[2] ** 0.25
        return np.exp(t @ p["features"].T - (t * t).sum(-1, keepdims=True) / 2) / np.sqrt(len(p["features"]))

    weights = np.where(allowed_of(config, real, keys_real), phi(q) @ phi(k).transpose(0, 2, 1), 0)
    total = weights.sum(-1, keepdims=True)
    return linear(p, merge(weights / np.where(total == 0, 1, total) @ v), "o")


def longformer(config, p, x, y, real, keys_real):
    """2004.05150, section 3: rows of global tokens have maps of their own."""
    heads, far = config["H"], config["half"] * config["dilation"]
    at = np.arange(len(x))
    distance = abs(at[:, None] - at)
    is_global = p["glob"].astype(bool) if "glob" in p else np.zeros(len(x), bool)
    allowed = allowed_of(config, real, keys_real)
    near = (distance <= far) & (distance % config["dilation"] == 0)

    def attended(names, visible):
        q, k, v = (split(linear(p, x, name), heads) for name in names)
        return merge(softmax(q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[2]), visible) @ v)

    ordinary = attended(("q", "k", "v"), allowed & (near | is_global))
    return linear(p, np.where(is_global[:, None], attended(("qg", "kg", "vg"), allowed), ordinary), "o")


# --- of a whole batch: (config, parameters, x, real) -> outputs, losses and choices


def sparse(config, p, x, real):
    """1904.10509, sections 4.2 and 4.3."""
    heads, l, at = config["H"], config["l"], np.arange(x.shape[1])
    back = at[:, None] - at
    if config["pattern"] == "strided":
        sets = [abs(back) <= l, back % l == 0]
    else:
        sets = [at[:, None] // l == at // l, np.broadcast_to(at % l >= l - config["c"], back.shape)]
    turn = {"heads": range(heads), "interleaved": [config["layer"]] * heads, "merged": None}[config["mode"]]
    pattern = np.stack([sets[0] | sets[1] if turn is None else sets[turn[h] % 2] for h in range(heads)])
    if config["causal"]:
        pattern = pattern & (back >= 0)
    out = [dot_products(config, p, x[b], pattern & real[b]) for b in range(len(x))]
    return {"O": np.stack(out), "disc.pattern": pattern.astype(np.int64)}


def bigbird(config, p, x, real):
    """2007.14062, section 2: blocks that are global, near, or drawn."""
    block, width, edge = config["block"], config["window_blocks"] // 2, config["global_blocks"]
    count = -(-x.shape[1] // block)
    layout = np.zeros((config["H"], count, count), bool)
    for h, i, j in np.ndindex(*layout.shape):
        at_edge = min(i, j) < edge or max(i, j) >= count - edge
        layout[h, i, j] = at_edge or abs(i - j) <= width or j in p["rand_blocks"][h, i]
    pattern = layout.repeat(block, 1).repeat(block, 2)[:, : x.shape[1], : x.shape[1]]
    out = [dot_products(config, p, x[b], pattern & allowed_of(config, real[b], real[b])) for b in range(len(x))]
    return {"O": np.stack(out)} | ({} if config["causal"] else {"disc.layout": layout.astype(np.int64)})


def reformer(config, p, x, real):
    """2001.04451, section 2, round by round, with the log of how often a pair occurs (equation 4)."""
    heads, buckets, chunk, length = config["H"], config["n_buckets"], config["chunk"], x.shape[1]
    rounds, batch, at = config["rounds"], len(x), np.arange(length)
    bucket = np.zeros((rounds, batch, heads, length), np.int64)
    order = np.zeros_like(bucket)
    out = np.zeros(x.shape, complex)
    for b in range(batch):
        q, v = split(linear(p, x[b], "qk"), heads), split(linear(p, x[b], "v"), heads)
        k = q / np.sqrt((q * q).sum(-1, keepdims=True))
        products = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[2])
        attended = np.zeros(v.shape, complex)
        for h in range(heads):
            seen = []
            for r in range(rounds):
                sides = q[h] @ p["rot"][r, h]
                sides = np.concatenate([sides, -sides], 1)
                lead_of(sides[real[b]])
                own = bucket[r, b, h] = np.where(real[b], sides.real.argmax(1), buckets)
                order[r, b, h] = np.argsort(own, kind="stable")
                place = np.argsort(order[r, b, h]) // chunk
                near = (place == place[:, None]) | (place == place[:, None] - 1)
                pairs = near & (own == own[:, None]) & real[b]
                seen.append(pairs & (at <= at[:, None]) if config["causal"] else pairs)
            times = sum(pairs.astype(int) for pairs in seen)
            logits = products[h] - np.where(np.eye(length, dtype=bool), 1e5, np.log(np.maximum(times, 1)))
            weights = np.zeros((rounds, length, length), complex)  # e^(logits - largest of all rounds)
            for i in np.flatnonzero(real[b]):
                largest = max(logits.real[i, pairs[i]].max() for pairs in seen if pairs[i].any())
                for r, pairs in enumerate(seen):
                    weights[r, i] = np.where(pairs[i], np.exp(logits[i] - largest), 0)
            total = weights.sum((0, 2))  # z_r(i) is the log of one round's part of it
            attended[h] = weights.sum(0) / np.where(total == 0, 1, total)[:, None] @ v[h]
        out[b] = linear(p, merge(attended), "o")
    return {"O": out, "disc.bucket": bucket, "disc.order": order}


def routing(config, p, x, real):
    """2003.05997, algorithm 1, with keys that are the queries; "mid.*": the centroids after the pass."""
    heads, clusters, window = config["H"], config["clusters"], config["window"]
    batch, length = real.shape
    taken = np.full((batch, heads, clusters, window), -1)
    nearest = np.full((batch, heads, length), -1)
    out = np.zeros(x.shape, complex)
    sphere = np.zeros((batch, heads, length, x.shape[2] // heads), complex)
    loss, entries = 0, 0
    for b in range(batch):
        q, v = split(linear(p, x[b], "qk"), heads), split(linear(p, x[b], "v"), heads)
        q = q - q.mean(-1, keepdims=True)
        q = sphere[b] = q / np.sqrt((q * q).mean(-1, keepdims=True) + 1e-6)
        words = np.flatnonzero(real[b])
        sums, count = np.zeros(v.shape, complex), np.zeros((heads, length, 1))
        for h in range(heads):
            scores = p["mu"][h] @ q[h, words].T  # [C, real words]
            lead_of(scores, window)
            nearest[b, h, words] = best(scores.T)
            loss = loss + ((q[h, words] - p["mu"][h, nearest[b, h, words]]) ** 2).sum()
            entries += q[h, words].size
            for c in range(clusters):
                members = np.sort(words[np.argsort(-scores[c].real)[:window]])
                taken[b, h, c, : len(members)] = members
                logits = q[h, members] @ q[h, members].T / np.sqrt(q.shape[2])
                allowed = members <= members[:, None] if config["causal"] else np.ones(logits.shape, bool)
                sums[h, members] += softmax(logits, allowed) @ v[h, members]
                count[h, members] += 1
        out[b] = linear(p, merge(sums / np.maximum(count, 1)), "o")
    decay = config["decay"]
    member = nearest[:, :, None] == np.arange(clusters)[:, None]  # [B, H, C, N]
    number, total = member.sum((0, 3)), np.einsum("bhcn,bhnd->hcd", member, sphere)
    counts, moved = (decay * p[old] + (1 - decay) * new for old, new in (("ema_count", number), ("ema_sum", total)))
    everything = counts.sum(1, keepdims=True)
    smooth = (counts + 1e-5) / (everything + clusters * 1e-5) * everything
    return {"O": out, "aux.Lc": config["beta"] * loss / entries, "disc.q_idx": taken, "disc.k_idx": taken,
            "disc.q_assign": nearest, "disc.k_assign": nearest, "mid.ema_count": counts, "mid.ema_sum": moved.real,
            "mid.mu_ema": (moved / smooth[..., None]).real, "mid.mu_paper": (decay * p["mu"] + (1 - decay) * total).real}


def clusterformer(config, p, x, real):
    """2022.acl-long.170, section 3: each token with the block of its place among the sorted ones. Causal (extension): with
    the last w tokens of its cluster, whose centroids stay."""
    heads, clusters, (batch, length) = config["H"], config["K"], real.shape
    width = config.get("w", -(-length // clusters))

    def prepared(t):
        return t / np.sqrt((t * t).sum(-1, keepdims=True)) if config["cosine"] else t

    def phi(a, b):
        return config["phi_scale"] * (prepared(a) * prepared(b)).sum(-1)

    out, centroids = np.zeros(x.shape, complex), np.zeros((batch, clusters, x.shape[2]), complex)
    assignment, order = np.full((batch, length), clusters), np.zeros((batch, length), np.int64)
    clustering, sorting = 0, 0
    for b in range(batch):
        words = np.flatnonzero(real[b])
        logits = phi(p["C0"][:, None], x[b, words] @ p["Wc"])  # [K, real words]
        if config["causal"]:
            scores, centroids[b] = logits, p["C0"]
        elif config["assoc"] == "words":
            weights = softmax(logits, True)
            scores, centroids[b] = np.log(weights), weights @ x[b, words]
        else:
            weights = softmax(logits.T, True).T
            scores, centroids[b] = logits, weights @ x[b, words] / weights.sum(1, keepdims=True)
        own = assignment[b, words] = best(scores.T)
        order[b] = np.argsort(assignment[b], kind="stable")
        clustering = clustering - phi(x[b, words], centroids[b, own]).sum() / real.sum()
        sorting = sorting - phi(centroids[b, :-1], centroids[b, 1:]).sum() / (clusters - 1) / batch
        rank, at = np.argsort(order[b]), np.arange(length)
        if config["causal"]:
            same = assignment[b] == assignment[b][:, None]
            behind = np.cumsum(same & (at <= at[:, None]), 1)  # of the same cluster up to each key
            allowed = same & (at <= at[:, None]) & (behind[:, -1:] - behind < width)
        else:
            blocks = -(-length // width)
            block = rank // width
            last = max(blocks - 2, 0)
            first = np.minimum(block, last) if config["window"] == "next" else np.maximum(block - 1, 0)
            allowed = (block >= first[:, None]) & (block <= first[:, None] + 1)
        out[b] = dot_products(config, p, x[b], allowed & real[b])
    found = {"O": out, "aux.L1": clustering, "aux.L2": sorting, "disc.I": assignment, "disc.order": order}
    return found if config["causal"] else found | {"C_hat": centroids}


FUNCTIONS = {"synthesizer": synthesizer, "hardcoded": hardcoded, "fastformer": fastformer, "linformer": linformer,
             "performer": performer, "longformer": longformer}
def deepseek_sparse(config, p, x, real):
    """2512.02556, equations 1, 2 and 4. What the indexer reads, and learns from, is constant: without imaginary part."""
    heads, index_heads, most = config["H"], config["index_heads"], config["tokens"]
    out, loss = np.zeros(x.shape, complex), 0
    for b in range(len(x)):
        q, k, v = heads_of(config, p, x[b], x[b], x[b])
        allowed = allowed_of(config, real[b], real[b])
        seen = x[b].real
        asked = split(linear(p, seen, "a"), index_heads)
        keys = linear(p, seen, "b")
        keys = keys - keys.mean(-1, keepdims=True)
        keys = keys / np.sqrt((keys * keys).mean(-1, keepdims=True) + 1e-5) * p["gain_b"] + p["shift_b"]
        scale = np.sqrt(index_heads * keys.shape[1])
        scores = np.einsum("nj,jnm->nm", seen @ p["Ww"], relu(asked @ keys.T)) / scale
        for i in np.flatnonzero(real[b]):
            candidates = np.flatnonzero(allowed[i])
            lead_of(scores[i, candidates], most)
            chosen = candidates[np.argsort(-scores[i, candidates].real)[:most]]
            weights = softmax(np.einsum("hd,hcd->hc", q[:, i], k[:, chosen]) / np.sqrt(q.shape[2]), True)
            out[b, i] = np.einsum("hc,hcd->hd", weights, v[:, chosen]).reshape(-1)
            target, index = weights.real.mean(0), np.exp(scores[i, chosen])
            loss = loss + (target * np.log(target / (index / index.sum()))).sum()
        out[b] = linear(p, out[b], "o")
    return {"O": out, "aux.indexer": config["beta"] * loss / real.sum()}


FUNCTIONS_OF_BATCHES = {"deepseek_sparse": deepseek_sparse, "sparse": sparse, "bigbird": bigbird, "reformer": reformer, "routing": routing,
                        "clusterformer": clusterformer}


# --- parameters, by name and shape


def shapes_of(config, d):
    kind, heads, bias = config["variant"], config["H"], config["bias"]
    if kind == "synthesizer":
        return synthesizer_shapes(config, d) | projections(d, bias, ("v", d), ("o", d))
    if kind == "hardcoded":
        return projections(d, bias, ("v", d), ("o", d))
    if kind == "fastformer":
        names = ("q", "k", "r") if config["share_qv"] else ("q", "k", "v", "r")
        shapes = projections(d, bias, *((name, d) for name in names)) | {"wq": (d, heads), "wk": (d, heads)}
        return shapes | ({"cq": (heads,), "ck": (heads,)} if bias else {})
    if kind == "linformer":
        shape = (heads,) * config["per_head"] + (config["k"], config["L"])
        return usual(config, d) | {"E": shape} | ({} if config["share_kv"] else {"F": shape})
    if kind == "longformer":
        return usual(config, d) | projections(d, bias, ("qg", d), ("kg", d), ("vg", d))
    if kind in ("reformer", "routing"):
        return projections(d, bias, ("qk", d), ("v", d), ("o", d))
    if kind == "deepseek_sparse":
        width, index_heads = config["index_width"], config["index_heads"]
        shapes = usual(config, d) | projections(d, bias, ("a", index_heads * width), ("b", width))
        return shapes | {"Ww": (d, index_heads), "gain_b": (width,), "shift_b": (width,)}
    if kind == "clusterformer":
        return usual(config, d) | {"Wc": (d, d), "C0": (config["K"], d)}
    return usual(config, d)


def synthesizer_shapes(config, d):
    heads, hidden, length, several = config["H"], config["df"], config["L"], len(config["kinds"]) > 1
    shapes = {"alpha": (len(config["kinds"]), heads)} if several else {}
    for kind in config["kinds"]:
        sets = 1 if config.get("share_w2") else heads
        own = {"dot": {"Wq": (d, d), "Wk": (d, d)} | ({"bq": (d,), "bk": (d,)} if config["bias"] else {}),
               "random": {"R": (heads, length, length)}, "random_fixed": {"R": (heads, length, length)},
               "fact_random": {name: (heads, length, config.get("k")) for name in ("R1", "R2")},
               "dense": {"W1": (heads, d, hidden), "W2": (sets, hidden, length)},
               "fact_dense": {"W1": (heads, d, hidden), "WA": (heads, hidden, config.get("a")),
                              "WB": (heads, hidden, config.get("b"))}}[kind]
        if config["bias"] and kind == "dense":
            own |= {"b1": (heads, hidden), "b2": (sets, length)}
        if config["bias"] and kind == "fact_dense":
            own |= {"b1": (heads, hidden), "bA": (heads, config["a"]), "bB": (heads, config["b"])}
        shapes |= {(kind + "." if several else "") + name: shape for name, shape in own.items()}
    return shapes


def frozen_in(config):
    """Parameters without gradients."""
    if config["variant"] == "synthesizer":
        kinds = config["kinds"]
        return ["random_fixed.R" if len(kinds) > 1 else "R"] if "random_fixed" in kinds else []
    return ["Wc"] if config["variant"] == "clusterformer" and config["causal"] else []


def drawn_of(config, draw, d, real):
    """What is drawn once and not learned: inputs without gradients."""
    kind, heads = config["variant"], config["H"]
    if kind == "performer":
        return {"features": draw.standard_normal((config["features"], d // heads))}
    if kind == "reformer":
        return {"rot": draw.standard_normal((config["rounds"], heads, d // heads, config["n_buckets"] // 2))}
    if kind == "longformer" and config["glob"]:
        some = np.zeros(real.shape, np.int64)
        some[:, config["glob"]] = 1
        return {"glob": some * real}
    if kind == "routing":
        mu = draw.standard_normal((heads, config["clusters"], d // heads))
        return {"mu": mu, "ema_count": draw.uniform(1, 3, mu.shape[:2]), "ema_sum": draw.standard_normal(mu.shape)}
    if kind == "bigbird":
        count = -(-real.shape[1] // config["block"])
        rows = np.full((heads, count, config["random_blocks"]), -1)
        edge, near = config["global_blocks"], config["window_blocks"] // 2
        for h, i in np.ndindex(heads, count):
            others = [j for j in range(edge, count - edge) if abs(i - j) > near and (j < i or not config["causal"])]
            others = others if edge <= i < count - edge else []
            chosen = draw.permutation(others)[: config["random_blocks"]]
            rows[h, i, : len(chosen)] = chosen
        return {"rand_blocks": rows}
    return {}
