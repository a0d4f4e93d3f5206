"""Recurrent mechanisms of make.py, in the form of its functions: loops over tokens with the papers' matrices."""

import numpy as np

from pieces import allowed_of, both_ways, convolve, linear, mamba2_maps, merge, projections, rms_norm, sigmoid, silu, softmax, softplus, split


def fading(p, x, real):
    """Gated DeltaNet's logarithms of the decays [N, H]."""
    return np.where(real[:, None], -np.exp(p["A"]) * softplus(x @ p["Wa"] + p["ba"]), 0)


def unit(x):
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)


def delta_product(config, p, x, y, real, keys_real):
    """2502.10297, section 3: a product of n Householder matrices for every token."""
    heads, n, gated, width = config["H"], config["rules"], config["gated"], x.shape[1]
    maps = np.where(real[:, None], np.concatenate([linear(p, x, name) for name in "qkv"], 1), 0)
    beta = np.where(real[:, None], sigmoid(linear(p, x, "b")) * (2 if config["reflect"] else 1), 0)
    log_alpha = fading(p, x, real) if gated else np.zeros((len(x), heads))

    def scan(maps, beta, log_alpha):
        mixed = silu(convolve(maps, p["conv"]))
        q = unit(mixed[:, :width].reshape(len(x), heads, -1))
        k = unit(mixed[:, width : (1 + n) * width].reshape(len(x), n, heads, -1))
        v = mixed[:, (1 + n) * width :].reshape(len(x), n, heads, -1)
        beta = beta.reshape(len(x), n, heads)
        out = np.zeros((len(x), heads, v.shape[3]), complex)
        for h in range(heads):
            state = np.zeros((k.shape[3], v.shape[3]), complex)
            for t in range(len(x)):
                product, added = np.eye(k.shape[3]), np.zeros(state.shape)
                for j in range(n):
                    rule = np.eye(k.shape[3]) - beta[t, j, h] * np.outer(k[t, j, h], k[t, j, h])
                    product = rule @ product
                    added = rule @ added + beta[t, j, h] * np.outer(k[t, j, h], v[t, j, h])
                state = product * np.exp(log_alpha[t, h]) @ state + added
                out[t, h] = q[t, h] @ state
        return out

    out = both_ways(config, scan, maps, beta, log_alpha)
    out = rms_norm(out, p["gain"]).reshape(len(x), -1)
    return linear(p, silu(linear(p, x, "g")) * out if gated else out, "o")


def gla(config, q, k, v, alpha):
    """S_t = diag(alpha_t) S_{t-1} + k_t^T v_t, o_t = q_t S_t of [H, N, n]; both ways a token counts itself once."""

    def scan(q, k, v, alpha):
        out = np.zeros(v.shape, complex)
        for h in range(len(q)):
            state = np.zeros((k.shape[2], v.shape[2]), complex)
            for t in range(q.shape[1]):
                state = np.diag(alpha[h, t]) @ state + np.outer(k[h, t], v[h, t])
                out[h, t] = q[h, t] @ state
        return out

    out = scan(q, k, v, alpha)
    if not config["causal"]:
        out = out + scan(*[t[:, ::-1] for t in (q, k, v, alpha)])[:, ::-1] - (q * k).sum(-1, keepdims=True) * v
    return out


def gated_deltanet2(config, p, x, y, real, keys_real):
    """2605.22791: rates for each feature of keys and values."""
    heads, width = config["H"], x.shape[1]
    maps = np.where(real[:, None], np.concatenate([linear(p, x, name) for name in "qkv"], 1), 0)
    rates = np.where(real[:, None], sigmoid(linear(p, x, "bw")), 0)
    log_alpha = np.repeat(np.exp(p["A"]), width // heads) * softplus(x @ p["Wa1"] @ p["Wa2"] + p["ba"])
    alpha = np.exp(-np.where(real[:, None], log_alpha, 0))

    def scan(maps, rates, alpha):
        mixed = silu(convolve(maps, p["conv"]))
        q, k, v = (split(t, heads) for t in (mixed[:, :width], mixed[:, width : 2 * width], mixed[:, 2 * width :]))
        q, k = unit(q), unit(k)
        b, w = split(rates[:, :width] * (2 if config["reflect"] else 1), heads), split(rates[:, width:], heads)
        out = np.zeros((len(x), heads, v.shape[2]), complex)
        for h, fade in enumerate(split(alpha, heads)):
            state = np.zeros((k.shape[2], v.shape[2]), complex)
            for t in range(len(x)):
                erase = np.eye(k.shape[2]) - np.outer(k[h, t], b[h, t] * k[h, t])
                state = erase @ np.diag(fade[t]) @ state + np.outer(k[h, t], w[h, t] * v[h, t])
                out[t, h] = q[h, t] @ state
        return out

    out = both_ways(config, scan, maps, rates, alpha)
    gate = sigmoid(x @ p["Wg1"] @ p["Wg2"] + p["bg"])
    return linear(p, gate * rms_norm(out, p["gain"]).reshape(len(x), -1), "o")


def comba(config, p, x, y, real, keys_real):
    """2506.02475: state feedback f and output feedback c."""
    heads, width = config["H"], x.shape[1]
    maps = np.where(real[:, None], np.concatenate([linear(p, x, name) for name in "qkv"], 1), 0)
    beta = np.where(real[:, None], sigmoid(linear(p, x, "b")), 0)

    def scan(maps, beta, log_alpha):
        mixed = silu(convolve(maps, p["conv"]))
        q, k, v = (split(t, heads) for t in (mixed[:, :width], mixed[:, width : 2 * width], mixed[:, 2 * width :]))
        q, k = unit(q), unit(k)
        out = np.zeros((len(x), heads, v.shape[2]), complex)
        for h in range(heads):
            state = np.zeros((k.shape[2], v.shape[2]), complex)
            for t in range(len(x)):
                state = np.exp(log_alpha[t, h]) * state
                answer = sigmoid(p["phi"][h]) * k[h, t] @ state
                state = state + beta[t, h] * np.outer(k[h, t], v[h, t] - answer)
                out[t, h] = (q[h, t] - p["c"][h] * k[h, t]) @ state
        return out

    out = rms_norm(both_ways(config, scan, maps, beta, fading(p, x, real)), p["gain"]).reshape(len(x), -1)
    return linear(p, sigmoid(linear(p, x, "g")) * out, "o")


def log_linear(config, p, x, y, real, keys_real):
    """2506.04761: Mamba-2 with a weight for each level of a Fenwick tree, as a matrix of all pairs."""
    heads, length = config["H"], len(x)
    value, b, c, dt = mamba2_maps(config, p, x, real)
    weights = softplus(linear(p, x, "l").reshape(length, heads, -1) * p["M"])

    def level(t, j):
        """That of the block of token j in the tree that token t sees: blocks as large as the bits of t, the largest first."""
        begin = 0
        for bit in (1 << n for n in reversed(range(t.bit_length())) if t >> n & 1):
            if j < begin + bit:
                return bit.bit_length()
            begin += bit
        return 0

    levels = np.array([[min(level(t, j), config["levels"] - 1) for j in range(length)] for t in range(length)])

    def scan(b, c, values, fading, weights):
        sums = fading.cumsum(0)
        pairs = np.tri(length) * (c @ b.T)
        weights = np.exp(sums[:, None] - sums) * weights.transpose(0, 2, 1)[np.arange(length)[:, None], levels]
        return np.einsum("tj,tjh,jhe->the", pairs, weights, values)

    values = value.transpose(1, 0, 2) * dt[:, :, None]
    rows = [b, c, values, -np.exp(p["A"]) * dt, weights]
    out = scan(*rows)
    if not config["causal"]:
        out = out + scan(*[t[::-1] for t in rows])[::-1]
        out = out - weights[:, :, :1] * (c * b).sum(1)[:, None, None] * values
    out = out.transpose(1, 0, 2) + p["D"][:, None, None] * value
    return linear(p, rms_norm(merge(out) * silu(linear(p, x, "z")), p["gain"]), "o")


def mamba3(config, p, x, y, real, keys_real):
    """2603.15569, section 3: the state as it is written there, with complex numbers' rotations as matrices."""
    heads, n, m, rank, length = config["H"], config["state"], config["angles"], config["rank"], len(x)
    value = np.where(real[:, None], linear(p, x, "x"), 0).reshape(length, heads, 1, -1) * p.get("Mx", 1)
    dt = np.where(real[:, None], softplus(x @ p["Wdt"] + p["bdt"]), 0)
    a, lam = -softplus(x @ p["WA"]), sigmoid(x @ p["Wl"])
    b, c = (rms_norm(linear(p, x, s).reshape(length, 1, rank, n), p["gain_" + s]) + p["c" + s] for s in "BC")
    turn = dt[:, :, None] * np.pi * np.tanh(x @ p["Wt"])[:, None] if m else np.zeros((length, heads, 0))

    def scan(value, dt, a, lam, b, c, turn):
        out = np.zeros(value.shape, complex)
        for h in range(heads):
            state, seen = np.zeros((n, value.shape[3]), complex), np.zeros((n, value.shape[3]), complex)
            rotation = np.eye(n)
            for t in range(length):
                one = np.eye(n, dtype=complex)
                for i in range(m):
                    cos, sin, j = np.cos(turn[t, h, i]), np.sin(turn[t, h, i]), i + n // 2
                    one[i, i], one[i, j], one[j, i], one[j, j] = cos, -sin, sin, cos
                rotation = one @ rotation
                now = (b[t, h] @ rotation.T).T @ value[t, h]
                fade = np.exp(dt[t, h] * a[t, h])
                state = fade * state + (1 - lam[t, h]) * dt[t, h] * fade * seen + lam[t, h] * dt[t, h] * now
                out[t, h] = c[t, h] @ rotation.T @ state
                seen = now
        return out

    out = both_ways(config, scan, value, dt, a, lam, b, c, turn)
    if not config["causal"]:
        out = out - (lam * dt)[:, :, None, None] * (c @ b.transpose(0, 1, 3, 2)) @ value
    out = out + p["D"][:, None, None] * value
    z = linear(p, x, "z").reshape(length, heads, 1, -1) * p.get("Mz", 1)
    return linear(p, (out * silu(z) * p.get("My", 1)).sum(2).reshape(length, -1), "o")


def path(config, p, x, y, real, keys_real):
    """2505.16381, section 3: the product of the reflections between a key and a query, for every pair."""
    heads, length = config["H"], len(x)
    q, k, v = (split(linear(p, x, name), heads) for name in "qkv")
    w = unit(split(silu(convolve(np.where(real[:, None], x @ p["W1"] @ p["W2"], 0), p["conv"])), heads))
    beta = np.where(real[:, None], 2 * sigmoid(x @ p["Wb"] + p["bb"]), 0)
    one = np.eye(q.shape[2])
    logits = np.zeros((heads, length, length), complex)
    for h in range(heads):
        reflections = [one - beta[t, h] * np.outer(w[h, t], w[h, t]) for t in range(length)]
        for j in range(length):
            for order in (range(j, length), range(j, -1, -1)):
                moved = k[h, j]
                for i in order:
                    moved = reflections[i] @ moved if i != j else moved
                    logits[h, i, j] = q[h, i] @ moved
    weights = softmax(logits / np.sqrt(q.shape[2]), allowed_of(config, real, keys_real))
    return linear(p, merge(weights @ v), "o")


def mesa_net(config, p, x, y, real, keys_real):
    """2506.05233, section 2: the least squares themselves."""
    heads, width = config["H"], x.shape[1]
    maps = np.where(real[:, None], np.concatenate([linear(p, x, name) for name in "qk"], 1), 0)
    gamma = np.where(real[:, None], sigmoid(x @ p["Wa"] + p["ba"]), 1)
    beta = np.where(real[:, None], sigmoid(x @ p["Wb"] + p["bb"]), 0)
    ridge = split(0.25 + softplus(p["l"])[None], heads)[:, 0]

    def scan(maps, v, gamma, beta):
        mixed = silu(convolve(maps, p["conv"]))
        q, k, v = unit(split(mixed[:, :width], heads)), unit(split(mixed[:, width:], heads)), split(v, heads)
        out = np.zeros((len(x), heads, v.shape[2]), complex)
        for h in range(heads):
            seen, held = np.zeros((k.shape[2], k.shape[2]), complex), np.zeros((k.shape[2], v.shape[2]), complex)
            for t in range(len(x)):
                seen = gamma[t, h] * seen + beta[t, h] * np.outer(k[h, t], k[h, t])
                held = gamma[t, h] * held + beta[t, h] * np.outer(k[h, t], v[h, t])
                out[t, h] = q[h, t] @ np.linalg.solve(seen + np.diag(ridge[h]), held)
        return out

    out = both_ways(config, scan, maps, linear(p, x, "v"), gamma, beta)
    return linear(p, rms_norm(out, p["gain"]).reshape(len(x), -1), "o")


def hgrn2(config, p, x, y, real, keys_real):
    """2404.07904, section 3, with lower bounds in all layers but the first."""
    heads = config["H"]
    bound = sigmoid(p["g"]) if "g" in p else 0
    forget = np.where(real[:, None], bound + (1 - bound) * sigmoid(linear(p, x, "f")), 1)
    out = gla(config, split(silu(linear(p, x, "q")), heads), split(1 - forget, heads), split(linear(p, x, "v"), heads),
              split(forget, heads))
    return linear(p, rms_norm(merge(out), p["gain"]), "o")


def rwkv6(config, p, x, y, real, keys_real):
    """2404.05892, section 4.2: S_{t-1} and the bonus, token by token."""
    heads = config["H"]
    x = np.where(real[:, None], x, 0)
    back = np.concatenate([np.zeros((1, x.shape[1])), x[:-1]]) - x
    inner = np.tanh((x + back * p["mu"][0]) @ p["Wm1"]).reshape(len(x), 5, -1)
    xw, xk, xv, xr, xg = (x + back * (p["mu"][1 + m] + inner[:, m] @ p["Wm2"][m]) for m in range(5))
    w = np.exp(-np.exp(p["w0"] + np.tanh(xw @ p["Ww1"]) @ p["Ww2"]))
    w = np.where(real[:, None], w, 1).reshape(len(x), heads, -1)
    k = np.where(real[:, None], linear(p, xk, "k"), 0).reshape(w.shape)
    r, v = linear(p, xr, "r").reshape(w.shape), linear(p, xv, "v").reshape(w.shape)
    u = p["u"].reshape(heads, -1)

    def scan(r, k, v, w, bonus):
        out = np.zeros(v.shape, complex)
        for h in range(heads):
            state = np.zeros((k.shape[2], k.shape[2]), complex)
            for t in range(len(x)):
                pair = np.outer(k[t, h], v[t, h])
                out[t, h] = r[t, h] @ (state + bonus * np.diag(u[h]) @ pair)
                state = np.diag(w[t, h]) @ state + pair
        return out

    out = scan(r, k, v, w, 1)
    if not config["causal"]:
        out = out + scan(*[t[::-1] for t in (r, k, v, w)], 0)[::-1]
    centred = out - out.mean(-1, keepdims=True)
    out = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5 * out.shape[2])
    out = out.reshape(len(x), -1) * p["gain"] + p["norm_bias"]
    return linear(p, out * silu(linear(p, xg, "g")), "o")


def gated_slot(config, p, x, y, real, keys_real):
    """2409.07146, section 3: two memories of slots."""
    heads = config["H"]
    q, k, v = (split(silu(linear(p, x, name)), heads) for name in "qkv")
    alpha = np.where(real[:, None], sigmoid(linear(p, x, "a")) ** (1 / config["temperature"]), 1)

    def scan(q, k, v, alpha):
        out = np.zeros(v.shape, complex)
        for h in range(heads):
            keys, values = (np.zeros((alpha.shape[2], k.shape[2]), complex) for _ in range(2))
            for t in range(len(x)):
                fade, write = np.diag(alpha[t, h]), (1 - alpha[t, h])[:, None]
                keys, values = fade @ keys + write * k[t, h], fade @ values + write * v[t, h]
                out[t, h] = softmax(keys @ q[t, h], True) @ values
        return out

    out = both_ways(config, scan, *(t.transpose(1, 0, 2) for t in (q, k, v, split(alpha, heads))))
    return linear(p, rms_norm(silu(out.reshape(len(x), -1)), p["gain"]), "o")


def based(config, p, x, y, real, keys_real):
    """2402.18668, section 4: the Taylor polynomial of every pair."""
    heads = config["H"]
    q, k, v = (split(linear(p, source, name), heads) for source, name in ((x, "q"), (y, "k"), (y, "v")))
    s = q @ k.transpose(0, 2, 1) / np.sqrt(config["features"])
    allowed = allowed_of(config, real, keys_real)
    weights = np.where(allowed, 1 + s + s * s / 2, 0)
    total = np.where(allowed.any(-1)[:, None], weights.sum(-1, keepdims=True), 1)
    return linear(p, merge(weights / total @ v), "o")


def mlstm(config, p, x, y, real, keys_real):
    """2405.04517, equations 19 to 27, without the stabiliser."""
    heads = config["H"]
    q, k, v = (linear(p, x, name).reshape(len(x), heads, -1) for name in "qkv")
    k = np.where(real[:, None, None], k, 0) / np.sqrt(k.shape[2])
    forget = np.where(real[:, None], sigmoid(x @ p["wf"] + p["bf"]), 1)

    def scan(q, k, v, i, f):
        out = np.zeros(v.shape, complex)
        for h in range(heads):
            memory, n = np.zeros((k.shape[2], v.shape[2]), complex), np.zeros(k.shape[2], complex)
            for t in range(len(x)):
                memory = f[t, h] * memory + i[t, h] * np.outer(k[t, h], v[t, h])
                n = f[t, h] * n + i[t, h] * k[t, h]
                total = q[t, h] @ n
                total = total if total.real > 0 else -total
                out[t, h] = q[t, h] @ memory / (total if total.real > 1 else 1)
        return out

    out = both_ways(config, scan, q, k, v, np.exp(x @ p["wi"] + p["bi"]), forget)
    centred = out - out.mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * p["gain"]
    return linear(p, sigmoid(linear(p, x, "g")) * normed.reshape(len(x), -1), "o")


def shapes_of(config, d):
    kind, heads, bias = config["variant"], config["H"], config["bias"]
    if kind == "delta_product":
        inner, n = d * config["value_width"], config["rules"]
        shapes = projections(d, bias, ("q", d), ("k", n * d), ("v", n * inner), ("b", n * heads))
        shapes |= projections(inner, bias, ("o", d))
        shapes |= {"conv": (config["convolution"], d + n * (d + inner)), "gain": (inner // heads,)}
        if config["gated"]:
            shapes |= projections(d, bias, ("g", inner)) | {"Wa": (d, heads), "ba": (heads,), "A": (heads,)}
        return shapes
    if kind in ("comba", "gated_deltanet2"):
        inner, featured = d * config["value_width"], kind == "gated_deltanet2"
        shapes = projections(d, bias, ("q", d), ("k", d), ("v", inner)) | projections(inner, bias, ("o", d))
        shapes |= projections(d, bias, ("bw", d + inner) if featured else ("b", heads))
        shapes |= {"conv": (config["convolution"], 2 * d + inner), "gain": (inner // heads,), "A": (heads,)}
        if featured:
            rank = config["gate_rank"]
            return shapes | {"Wa1": (d, rank), "Wa2": (rank, d), "ba": (d,), "Wg1": (d, rank), "Wg2": (rank, inner),
                             "bg": (inner,)}
        shapes |= projections(d, bias, ("g", inner)) | {"Wa": (d, heads), "ba": (heads,)}
        return shapes | {"phi": (heads,), "c": (heads,)}
    if kind == "log_linear":
        inner, states = d * config["expand"], config["state"]
        shapes = projections(d, bias, ("z", inner), ("x", inner), ("B", states), ("C", states), ("l", heads * config["levels"]))
        shapes |= projections(inner, bias, ("o", d)) | {"Wdt": (d, heads), "bdt": (heads,), "A": (heads,), "D": (heads,)}
        return shapes | {"conv": (config["convolution"], inner + 2 * states), "bconv": (inner + 2 * states,),
                         "gain": (inner,), "M": (heads, config["levels"])}
    if kind == "mamba3":
        inner, n, m, rank = d * config["expand"], config["state"], config["angles"], config["rank"]
        shapes = projections(d, bias, ("z", inner), ("x", inner), ("B", rank * n), ("C", rank * n))
        shapes |= projections(inner, bias, ("o", d)) | {"W" + s: (d, heads) for s in ("dt", "A", "l")}
        shapes |= {"cB": (heads, rank, n), "cC": (heads, rank, n), "gain_B": (n,), "gain_C": (n,), "bdt": (heads,), "D": (heads,)}
        shapes |= {"Wt": (d, m)} if m else {}
        return shapes | ({"M" + s: (heads, rank, inner // heads) for s in "xzy"} if rank > 1 else {})
    if kind == "path":
        shapes = projections(d, bias, ("q", d), ("k", d), ("v", d), ("o", d))
        return shapes | {"W1": (d, config["rank"]), "W2": (config["rank"], d), "Wb": (d, heads), "bb": (heads,),
                         "conv": (config["convolution"], d)}
    if kind == "mesa_net":
        shapes = projections(d, bias, ("q", d), ("k", d), ("v", d), ("o", d)) | projections(d, True, ("a", heads), ("b", heads))
        return shapes | {"conv": (config["convolution"], 2 * d), "l": (d,), "gain": (d // heads,)}
    if kind == "hgrn2":
        shapes = projections(d, bias, ("q", d), ("f", d), ("v", d), ("o", d)) | {"gain": (d,)}
        return shapes | ({"g": (d,)} if config.get("layer", 0) else {})
    if kind == "gated_slot":
        return projections(d, bias, ("q", d), ("k", d), ("v", d), ("a", heads * config["slots"]), ("o", d)) | {"gain": (d,)}
    if kind == "based":
        width = heads * config["features"]
        return projections(d, bias, ("q", width), ("k", width), ("v", d), ("o", d))
    if kind == "mlstm":
        shapes = projections(d, bias, ("q", d), ("k", d), ("v", d), ("g", d), ("o", d)) | {"gain": (d // heads,)}
        return shapes | {"wi": (d, heads), "wf": (d, heads), "bi": (heads,), "bf": (heads,)}
    if kind == "rwkv6":
        mixes, rank = config["mix_rank"], config["rank"]
        shapes = projections(d, bias, ("r", d), ("k", d), ("v", d), ("g", d), ("o", d))
        shapes |= {"mu": (6, d), "Wm1": (d, 5 * mixes), "Wm2": (5, mixes, d), "Ww1": (d, rank), "Ww2": (rank, d)}
        return shapes | {name: (d,) for name in ("w0", "u", "gain", "norm_bias")}


FUNCTIONS = {"delta_product": delta_product, "gated_deltanet2": gated_deltanet2, "comba": comba, "hgrn2": hgrn2, "rwkv6": rwkv6, "gated_slot": gated_slot, "based": based,
             "mlstm": mlstm, "log_linear": log_linear, "path": path, "mesa_net": mesa_net, "mamba3": mamba3}

PRODUCT = {"rules": 2, "reflect": True, "gated": True, "value_width": 1, "convolution": 4}
TWO_RATES = {"reflect": False, "value_width": 1, "convolution": 4, "gate_rank": 3}
LEVELS = {"expand": 2, "state": 3, "convolution": 4, "levels": 8}
TURNS = {"expand": 2, "state": 6, "angles": 2, "rank": 1}
CONTROL = {"value_width": 1, "convolution": 4}
CASES = [
    ("gated_deltanet2__causal", {"causal": True, **TWO_RATES}, 37, 2),
    ("gated_deltanet2__reflect_causal_pad", {"causal": True, "pad": True, **TWO_RATES, "reflect": True, "value_width": 2,
                                             "bias": False}, 11, 4),
    ("gated_deltanet2__both_ways_pad", {"pad": True, **TWO_RATES}, 9, 2),
    ("comba__causal", {"causal": True, **CONTROL}, 37, 2),
    ("comba__causal_pad", {"causal": True, "pad": True, **CONTROL, "value_width": 2, "bias": False}, 11, 4),
    ("comba__both_ways_pad", {"pad": True, **CONTROL}, 9, 2),
    ("delta_product__causal", {"causal": True, **PRODUCT}, 37, 2),
    ("delta_product__causal_pad", {"causal": True, "pad": True, **PRODUCT, "rules": 3, "value_width": 2, "bias": False}, 11, 4),
    ("delta_product__both_ways_pad", {"pad": True, **PRODUCT}, 9, 2),
    ("delta_product__plain_causal_pad", {"causal": True, "pad": True, **PRODUCT, "gated": False, "reflect": False}, 13, 2),
    ("hgrn2__causal", {"causal": True}, 37, 2),
    ("hgrn2__bound_causal_pad", {"causal": True, "pad": True, "layer": 2, "bias": False}, 11, 4),
    ("hgrn2__bound_pad", {"pad": True, "layer": 1}, 9, 2),
    ("rwkv6__causal", {"causal": True, "mix_rank": 2, "rank": 3}, 37, 2),
    ("rwkv6__causal_pad", {"causal": True, "pad": True, "mix_rank": 3, "rank": 2, "bias": False}, 11, 4),
    ("rwkv6__both_ways_pad", {"pad": True, "mix_rank": 2, "rank": 3}, 9, 2),
    ("gated_slot__causal", {"causal": True, "slots": 4, "temperature": 8}, 37, 2),
    ("gated_slot__causal_pad", {"causal": True, "pad": True, "slots": 3, "temperature": 1, "bias": False}, 21, 4),
    ("gated_slot__both_ways_pad", {"pad": True, "slots": 5, "temperature": 4}, 18, 2),
    ("log_linear__causal", {"causal": True, **LEVELS}, 37, 2),
    ("log_linear__causal_pad", {"causal": True, "pad": True, **LEVELS, "expand": 1, "levels": 2, "bias": False}, 13, 4),
    ("log_linear__both_ways_pad", {"pad": True, **LEVELS, "state": 2}, 9, 2),
    ("log_linear__long_causal_hole", {"pad": True, "hole": True, "causal": True, **LEVELS, "expand": 1}, 70, 2),
    ("mamba3__causal", {"causal": True, **TURNS}, 37, 2),
    ("mamba3__causal_pad", {"causal": True, "pad": True, **TURNS, "expand": 1, "angles": 0, "bias": False}, 11, 4),
    ("mamba3__rank_causal_hole", {"pad": True, "hole": True, "causal": True, **TURNS, "rank": 3}, 13, 2),
    ("mamba3__both_ways_pad", {"pad": True, **TURNS, "state": 5, "rank": 2}, 9, 2),
    ("path__causal", {"causal": True, "rank": 3, "convolution": 3}, 19, 2),
    ("path__causal_pad", {"causal": True, "pad": True, "rank": 2, "convolution": 2, "bias": False}, 11, 4),
    ("path__both_ways_pad", {"pad": True, "rank": 4, "convolution": 3}, 9, 2),
    ("mesa_net__causal", {"causal": True, "iterations": 30, "convolution": 4}, 37, 2),
    ("mesa_net__causal_pad", {"causal": True, "pad": True, "iterations": 8, "convolution": 2, "bias": False}, 11, 4),
    ("mesa_net__both_ways_pad", {"pad": True, "iterations": 12, "convolution": 4}, 9, 2),
    ("mlstm__causal", {"causal": True}, 37, 2),
    ("mlstm__causal_pad", {"causal": True, "pad": True, "bias": False}, 11, 4),
    ("mlstm__both_ways_pad", {"pad": True}, 9, 2),
    ("based__causal", {"causal": True, "features": 3}, 37, 2),
    ("based__causal_pad", {"causal": True, "pad": True, "features": 5, "bias": False}, 11, 4),
    ("based__pad", {"pad": True, "features": 2}, 9, 2),
    ("based__cross_pad", {"pad": True, "features": 4, "memory": 7}, 8, 2),
]
