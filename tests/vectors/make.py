#!/usr/bin/env python3
"""Makes the reference vectors: float64, dense and slow, from the papers' equations.

    python3 tests/vectors/make.py            # writes the cases beside this file, the same bytes every time
    python3 tests/vectors/make.py abc mamba2 # those of some mechanisms, or some cases

README.md describes the format. Each function below, in earlier.py and in recurrent.py is a mechanism as its paper writes it, token by token or
with whole matrices; nothing of heed is used. Gradients are derivatives by a complex step (f(x + ih) has the imaginary part h f'(x),
without rounding errors), so that a function must be written with analytic operations: no abs, no conjugates, and a maximum
that looks at real parts alone.
"""

import itertools
import json
import pathlib
import struct
import sys

import numpy as np

import earlier
import recurrent
from pieces import (allowed_of, both_ways, convolve, linear, mamba2_maps, merge, projections, relu, rms_norm, rotate, sigmoid, silu, softmax,
                    softplus, split, usual)

FOLDER = pathlib.Path(__file__).resolve().parent
STEP = 1e-30
MARGIN = 0.02  # by which the best candidate of a choice leads the second best one


# --- the mechanisms: (config, parameters, x, y, real, memory_real) of one sample -> O before padding becomes 0


def mha(config, p, x, y, real, keys_real):
    """Dot product (1706.03762) with grouped queries (2305.13245), a sink (2309.17453), a gate (2505.06708)."""
    heads = config["H"]
    groups = config.get("kv_heads", heads) or heads
    q = split(linear(p, x, "q"), heads)
    k, v = (np.repeat(split(linear(p, y, name), groups), heads // groups, 0) for name in "kv")
    logits = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[2])
    allowed = allowed_of(config, real, keys_real)
    if "reach" in config:
        i, j = np.arange(len(x))[:, None], np.arange(len(x))
        allowed &= (abs(i - j) <= config["reach"]) | (j < config.get("sinks", 0))
    weights = np.where(allowed, np.exp(logits), 0)
    total = weights.sum(-1, keepdims=True)
    if config.get("sink", "none") != "none":
        total = total + (np.exp(p["s"])[:, None, None] if "s" in p else 1)
    else:
        total = np.where(allowed.any(-1, keepdims=True), total, 1)
    out = merge(weights / total @ v)
    if config.get("gate", "none") != "none":
        gate = sigmoid(linear(p, x, "g"))
        out = out * np.repeat(gate, out.shape[1] // gate.shape[1], 1)
    return linear(p, out, "o")


def differential(config, p, x, y, real, keys_real):
    """2410.05258, equations 1 to 3."""
    heads = config["H"]
    q, k = (split(linear(p, source, name), 2 * heads) for source, name in ((x, "q"), (y, "k")))
    v = split(linear(p, y, "v"), heads)
    weights = softmax(q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[2]), allowed_of(config, real, keys_real))
    start = 0.8 - 0.6 * np.exp(-0.3 * config.get("layer", 0))
    factor = np.exp(p["lambda_q1"] @ p["lambda_k1"]) - np.exp(p["lambda_q2"] @ p["lambda_k2"]) + start
    out = (weights[0::2] - factor * weights[1::2]) @ v
    return linear(p, merge((1 - start) * rms_norm(out, p["gain"])), "o")


def forgetting(config, p, x, y, real, keys_real):
    """2503.02130, section 3: the gates between two tokens fade what one is to the other."""
    heads, length = config["H"], len(x)
    q, k, v = (split(linear(p, x, name), heads) for name in "qkv")
    log_f = np.where(real[:, None], np.log(sigmoid(linear(p, x, "f"))), 0)  # [N, H]
    d = np.zeros((heads, length, length), complex)
    for i in range(length):
        for j in range(length):
            d[:, i, j] = log_f[min(i, j) + 1 : max(i, j) + 1].sum(0)
    weights = softmax(q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[2]) + d, allowed_of(config, real, keys_real))
    return linear(p, merge(weights @ v), "o")


def cosformer(config, p, x, y, real, keys_real):
    """2202.08791, equations 6, 9 and 10, with M = max_length."""
    heads = config["H"]
    q, k, v = (split(linear(p, source, name), heads) for source, name in ((x, "q"), (y, "k"), (y, "v")))
    distance = np.arange(len(x))[:, None] - np.arange(len(y))
    s = relu(q) @ relu(k).transpose(0, 2, 1) * np.cos(np.pi * distance / (2 * config["L"]))
    s = np.where(allowed_of(config, real, keys_real), s, 0)
    total = s.sum(-1, keepdims=True)
    return linear(p, merge(s / np.where(total == 0, 1, total) @ v), "o")


def abc(config, p, x, y, real, keys_real):
    """2110.02488, section 4, with a memory for each query."""
    heads = config["H"]
    q, k, v, s = (split(linear(p, source, name), heads) for source, name in ((x, "q"), (y, "k"), (y, "v"), (y, "s")))
    allowed = allowed_of(config, real, keys_real)
    out = np.zeros(q.shape, complex)
    for i in range(len(x)):
        phi = np.where(allowed[i][None, :, None], np.exp(s), 0)
        phi = phi / (phi.sum(1, keepdims=True) if allowed[i].any() else 1)  # [H, M, n]
        keys, values = (phi.transpose(0, 2, 1) @ t for t in (k, v))  # [H, n, dh]
        logits = np.einsum("hc,hnc->hn", q[:, i], keys) / np.sqrt(q.shape[2])
        out[:, i] = np.einsum("hn,hnc->hc", softmax(logits, np.ones(logits.shape, bool)), values)
    return linear(p, merge(out), "o")


def gated_deltanet(config, p, x, y, real, keys_real):
    """2412.06464, equation 10; without decay and gate 2406.06484: a loop over tokens."""
    heads, gated = config["H"], config.get("gated", True)
    width = x.shape[1]
    maps = np.concatenate([linear(p, x, name) for name in "qkv"], 1)
    beta = np.where(real[:, None], sigmoid(linear(p, x, "b")), 0)
    log_alpha = np.zeros_like(beta)
    if gated:
        log_alpha = np.where(real[:, None], -np.exp(p["A"]) * softplus(x @ p["Wa"] + p["ba"]), 0)

    def scan(maps, beta, log_alpha):
        mixed = silu(convolve(maps, p["conv"]))
        q, k, v = (split(t, heads) for t in (mixed[:, :width], mixed[:, width : 2 * width], mixed[:, 2 * width :]))
        q, k = (t / np.sqrt((t * t).sum(-1, keepdims=True) + 1e-6) for t in (q, k))
        out = np.zeros((len(x), heads, v.shape[2]), complex)
        for h in range(heads):
            state = np.zeros((k.shape[2], v.shape[2]), complex)
            for t in range(len(x)):
                state = np.exp(log_alpha[t, h]) * state
                state = state + beta[t, h] * np.outer(k[h, t], v[h, t] - k[h, t] @ state)
                out[t, h] = q[h, t] @ state
        return out

    out = both_ways(config, scan, np.where(real[:, None], maps, 0), beta, log_alpha)
    out = rms_norm(out, p["gain"]).reshape(len(x), -1)
    return linear(p, silu(linear(p, x, "g")) * out if gated else out, "o")


def mamba2(config, p, x, y, real, keys_real):
    """2405.21060: y = (C B^T * L) (dt x) + D x, with the matrix L itself."""
    heads, length = config["H"], len(x)
    value, b, c, dt = mamba2_maps(config, p, x, real)
    dt = dt.T  # [H, N]
    fading = -np.exp(p["A"])[:, None] * dt
    mask = np.zeros((heads, length, length), complex)
    for t in range(length):
        for j in range(t + 1 if config["causal"] else length):
            between = slice(j + 1, t + 1) if j <= t else slice(t, j)
            mask[:, t, j] = np.exp(fading[:, between].sum(1))
    out = (c @ b.T * mask) @ (value * dt[:, :, None]) + p["D"][:, None, None] * value
    return linear(p, rms_norm(merge(out) * silu(linear(p, x, "z")), p["gain"]), "o")


def multi_head_latent(config, p, x, y, real, keys_real):
    """2405.04434, equations 9 to 18, with keys and values made of the latent."""
    heads, rotary = config["H"], config["rotary_width"]
    latent = rms_norm(linear(p, x, "dkv"), p["gain_c"])
    asking = rms_norm(linear(p, x, "dq"), p["gain_q"]) if "Wdq" in p else x
    q = np.concatenate([split(linear(p, asking, "q"), heads),
                        split(rotate(linear(p, asking, "qr"), rotary), heads)], 2)
    shared = np.repeat(rotate(linear(p, x, "kr"), rotary)[None], heads, 0)
    k = np.concatenate([split(latent @ p["Wuk"], heads), shared], 2)
    weights = softmax(q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[2]), allowed_of(config, real, keys_real))
    return linear(p, merge(weights @ split(linear(p, latent, "uv"), heads)), "o")


def kimi_delta(config, p, x, y, real, keys_real):
    """2510.26692, equation 1, with the gates of its section 4: a loop over tokens."""
    heads, width = config["H"], x.shape[1]
    maps = np.concatenate([linear(p, x, name) for name in "qkv"], 1)
    beta = np.where(real[:, None], sigmoid(linear(p, x, "b")), 0)
    rates = np.repeat(np.exp(p["A"]), width // heads)
    log_alpha = np.where(real[:, None], -rates * softplus(x @ p["Wa1"] @ p["Wa2"] + p["ba"]), 0)

    def scan(maps, beta, log_alpha):
        mixed = silu(convolve(maps, p["conv"]))
        q, k, v = (split(t, heads) for t in (mixed[:, :width], mixed[:, width : 2 * width], mixed[:, 2 * width :]))
        q, k = (t / np.sqrt((t * t).sum(-1, keepdims=True) + 1e-6) for t in (q, k))
        alpha = np.exp(split(log_alpha, heads))
        out = np.zeros((len(x), heads, v.shape[2]), complex)
        for h in range(heads):
            state = np.zeros((k.shape[2], v.shape[2]), complex)
            for t in range(len(x)):
                faded = np.diag(alpha[h, t]) @ state
                state = (np.eye(len(faded)) - beta[t, h] * np.outer(k[h, t], k[h, t])) @ faded
                state = state + beta[t, h] * np.outer(k[h, t], v[h, t])
                out[t, h] = q[h, t] @ state
        return out

    out = both_ways(config, scan, np.where(real[:, None], maps, 0), beta, log_alpha)
    gate = sigmoid(x @ p["Wg1"] @ p["Wg2"] + p["bg"])
    return linear(p, gate * rms_norm(out, p["gain"]).reshape(len(x), -1), "o")


def rwkv7(config, p, x, y, real, keys_real):
    """2503.14456, equations 3 to 22, in one layer: a loop over tokens; S has values as rows, as in the paper."""
    heads = config["H"]
    x = np.where(real[:, None], x, 0)
    before = np.concatenate([np.zeros((1, x.shape[1])), x[:-1]])
    xr, xw, xk, xv, xa, xg = (x + (before - x) * mu for mu in p["mu"])
    r, k, v = linear(p, xr, "r"), linear(p, xk, "k"), np.where(real[:, None], linear(p, xv, "v"), 0)
    w = np.exp(-np.exp(-0.5) * sigmoid(p["w0"] + np.tanh(xw @ p["Ww1"]) @ p["Ww2"]))
    w = np.where(real[:, None], w, 1)
    a = np.where(real[:, None], sigmoid(p["a0"] + xa @ p["Wa1"] @ p["Wa2"]), 0)
    gate = sigmoid(xg @ p["Wg1"]) @ p["Wg2"]
    kappa = split(k * p["xi"], heads)
    length = np.sqrt((kappa * kappa).sum(-1, keepdims=True))
    kappa = kappa / np.where(length == 0, 1, length)
    replacing = split(k * (1 + (a - 1) * p["alpha"]), heads)
    rho, r, v, w, a = split(p["rho"][None], heads), *(split(t, heads) for t in (r, v, w, a))
    rows = [t.transpose(1, 0, 2) for t in (r, kappa, replacing, v, w, a)]

    def scan(r, kappa, replacing, v, w, a):
        out = np.zeros(r.shape, complex)
        for h in range(heads):
            state = np.zeros((r.shape[2], r.shape[2]), complex)
            for t in range(len(r)):
                change = np.diag(w[t, h]) - np.outer(kappa[t, h], a[t, h] * kappa[t, h])
                state = state @ change + np.outer(v[t, h], replacing[t, h])
                out[t, h] = state @ r[t, h]
        return out

    out = both_ways(config, scan, *rows)
    centred = out - out.mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5 * out.shape[2])
    normed = normed.reshape(len(x), -1) * p["gain"] + p["norm_bias"]
    bonus = merge((r * rho * replacing).sum(-1, keepdims=True) * v)
    return linear(p, (normed + bonus) * gate, "o")


def moba(config, p, x, y, real, keys_real):
    """2502.13189, equations 2, 5 and 6, with a loop over queries."""
    heads, block, length = config["H"], config["block"], len(x)
    q, k, v = (split(linear(p, x, name), heads) for name in "qkv")
    block_of = np.arange(length) // block
    allowed = np.zeros((heads, length, length), bool)
    for h in range(heads):
        for i in range(length):
            scores = {}
            for b in range(block_of[-1] + 1):
                members = (block_of == b) & keys_real
                if b != block_of[i] and members.any() and (b < block_of[i] or not config["causal"]):
                    scores[b] = (q[h, i] @ k[h, members].mean(0)).real
            chosen = sorted(scores, key=scores.get)[::-1][: config["blocks"] - 1] + [block_of[i]]
            allowed[h, i] = np.isin(block_of, chosen)
    allowed &= allowed_of(config, real, keys_real)
    return linear(p, merge(softmax(q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[2]), allowed) @ v), "o")


def native_sparse(config, p, x, y, real, keys_real):
    """2502.11089, equations 5 to 12, for blocks that do not overlap and are those that are chosen."""
    heads, groups, block, length = config["H"], config["kv_heads"], config["block"], len(x)
    q = split(linear(p, x, "q"), heads)
    k, v = (split(linear(p, x, name), 3 * groups).reshape(3, groups, length, -1) for name in "kv")
    gates = sigmoid(linear(p, x, "g")).reshape(length, 3, heads)
    width, blocks = q.shape[2], -(-length // block)

    def in_short(t, name):  # [G, N, dh] -> [G, blocks, dh]
        padded = np.zeros((groups, blocks * block, width), complex)
        padded[:, :length] = t
        padded = padded.reshape(groups, blocks, block, width) + p["e" + name]
        exists = np.zeros(blocks * block, bool)
        exists[:length] = keys_real
        padded = np.where(exists.reshape(blocks, block, 1), padded, 0).reshape(groups, blocks, -1)
        return silu(padded @ p[f"W{name}1"] + p[f"b{name}1"]) @ p[f"W{name}2"] + p[f"b{name}2"]

    short_k, short_v = in_short(k[0], "k"), in_short(v[0], "v")
    block_of = np.arange(length) // block
    visible = np.array([[keys_real[block_of == b].any() and (not config["causal"] or (b + 1) * block <= i + 1)
                         for b in range(blocks)] for i in range(length)])
    allowed = allowed_of(config, real, keys_real)
    distance = np.arange(length)[:, None] - np.arange(length)
    near = allowed & (abs(distance) < config["window"])
    out = np.zeros(q.shape, complex)
    for g in range(groups):
        members = range(g * heads // groups, (g + 1) * heads // groups)
        p_short = {h: softmax(q[h] @ short_k[g].T / np.sqrt(width), visible) for h in members}
        total = sum(p_short.values()).real
        chosen = np.zeros((length, length), bool)
        for i in range(length):
            others = [b for b in range(blocks) if visible[i, b] and b != block_of[i]]
            others.sort(key=lambda b: (b not in (0, block_of[i] - 1), -total[i, b]))
            chosen[i] = np.isin(block_of, others[: config["blocks"] - 1] + [block_of[i]])
        for h in members:
            logits = [q[h] @ k[m, g].T / np.sqrt(width) for m in (1, 2)]
            branches = (p_short[h] @ short_v[g], softmax(logits[0], allowed & chosen) @ v[1, g],
                        softmax(logits[1], near) @ v[2, g])
            out[h] = sum(gates[:, m, h, None] * branch for m, branch in enumerate(branches))
    return linear(p, merge(out), "o")


# --- mechanisms of the years before


def linear_transformer(config, p, x, y, real, keys_real):
    """2006.16236, equations 4 and 7: weights of features, of all pairs."""
    heads = config["H"]
    q, k, v = (split(linear(p, source, name), heads) for source, name in ((x, "q"), (y, "k"), (y, "v")))
    q, k = (np.where(t.real > 0, t + 1, np.exp(np.where(t.real > 0, 0, t))) for t in (q, k))
    weights = np.where(allowed_of(config, real, keys_real), q @ k.transpose(0, 2, 1), 0)
    total = weights.sum(-1, keepdims=True)
    return linear(p, merge(weights / np.where(total == 0, 1, total) @ v), "o")


def normalised_heads(sums):
    """[H, N, n]: each head and token by itself."""
    centred = sums - sums.mean(-1, keepdims=True)
    return merge(centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5))


def retnet(config, p, x, y, real, keys_real):
    """2307.08621, equation 5, with the matrix D."""
    heads, length = config["H"], len(x)
    width = x.shape[1] // heads
    q, k = (split(rotate(linear(p, x, name), width), heads) for name in "qk")
    gamma = 1 - 2.0 ** (-5 - np.arange(heads))
    distance = np.arange(length)[:, None] - np.arange(length)
    d = np.where(allowed_of(config, real, keys_real), gamma[:, None, None] ** abs(distance), 0)
    sums = (q @ k.transpose(0, 2, 1) * d) @ split(linear(p, x, "v"), heads) / np.sqrt(width)
    return linear(p, silu(linear(p, x, "g")) * normalised_heads(sums), "o")


def gated_linear_attention(config, p, x, y, real, keys_real):
    """2312.06635, equation 3: a loop over tokens. In both directions a token counts itself once."""
    heads = config["H"]
    q, k, v = (split(linear(p, x, name), heads) for name in "qkv")
    k = np.where(real[:, None], k, 0)
    alpha = sigmoid(x @ p["Wa1"] @ p["Wa2"] + p["ba"]) ** (1 / config["temperature"])
    alpha = np.where(real[:, None], split(alpha, heads), 1)

    def scan(alpha, k, v, q):
        out = np.zeros(v.shape, complex)
        for h in range(heads):
            state = np.zeros((k.shape[2], v.shape[2]), complex)
            for t in range(len(x)):
                state = alpha[h, t][:, None] * state + np.outer(k[h, t], v[h, t])
                out[h, t] = q[h, t] @ state
        return out

    out = scan(alpha, k, v, q)
    if not config["causal"]:
        back = [t[:, ::-1] for t in (alpha, k, v, q)]
        out = out + scan(*back)[:, ::-1] - (q * k).sum(-1, keepdims=True) * v
    gate = silu(x @ p["Wr"] + p["br"])
    return linear(p, gate * normalised_heads(out / np.sqrt(k.shape[2])), "o")


def attention_free_transformer(config, p, x, y, real, keys_real):
    """2105.14103, equations 2 and 3."""
    length = len(x)
    q, k, v = (linear(p, x, name) for name in "qkv")
    bias = np.zeros((length, length))
    if config["form"] != "simple":
        distance = abs(np.arange(length)[:, None] - np.arange(length))
        near = distance < config.get("window", length)
        bias = np.where(near, p["of_queries"][:length] @ p["of_keys"][:length].T, 0)
    weights = np.where(allowed_of(config, real, keys_real)[:, :, None], np.exp(k[None] + bias[:, :, None]), 0)
    total = weights.sum(1)
    return linear(p, sigmoid(q) * (weights * v[None]).sum(1) / np.where(total == 0, 1, total), "o")


def fnet(config, p, x, y, real, keys_real):
    """2105.03824, equation 3, over the real tokens; padding counted: over all."""
    real = real | (config.get("padding") == "counted")

    def waves(count):
        turns = np.outer(np.arange(count), np.arange(count)) % count * (2 * np.pi / max(count, 1))
        return np.cos(turns), np.sin(turns)

    (cos_n, sin_n), (cos_d, sin_d) = waves(real.sum()), waves(x.shape[1])
    out = np.zeros(x.shape, complex)
    out[real] = cos_n @ x[real] @ cos_d - sin_n @ x[real] @ sin_d
    return out / np.sqrt(real.sum() * x.shape[1]) if config["unitary"] else out


def nystromformer(config, p, x, y, real, keys_real):
    """2102.03902, equations 11 and 13, over the real tokens; padding counted: over all, but padding is no key of a softmax."""
    heads = config["H"]
    seen = keys_real
    if config.get("padding") == "counted":
        real, keys_real = np.ones_like(real), np.ones_like(keys_real)
    out = np.zeros(x.shape, complex)
    q = split(linear(p, x[real], "q"), heads)
    k, v = (split(linear(p, y[keys_real], name), heads) for name in "kv")

    def landmarks(t):
        count = min(config["landmarks"], t.shape[1])
        segment = np.arange(t.shape[1]) * count // t.shape[1]
        return np.stack([t[:, segment == s].mean(1) for s in range(count)], 1)

    def weights(a, b, allowed=True):
        return softmax(a @ b.transpose(0, 2, 1) / np.sqrt(q.shape[2]), allowed)

    def largest(sums):
        return np.take_along_axis(sums, sums.real.argmax(1)[:, None], 1)[:, :, None]

    asking, asked = landmarks(q), landmarks(k)
    a = weights(asking, asked)
    z = a.transpose(0, 2, 1) / (largest(a.sum(1)) * largest(a.sum(2)))
    one = np.eye(a.shape[1])
    for _ in range(config["iterations"]):
        az = a @ z
        z = z @ (13 * one - az @ (15 * one - az @ (7 * one - az))) / 4
    mixed = weights(q, asked) @ z @ weights(asking, k, seen[keys_real]) @ v
    if "kernels" in p:
        taps = p["kernels"].shape[1]
        placed = np.zeros((heads, len(x), v.shape[2]), complex)
        placed[:, real] = v
        wide = np.pad(placed, ((0, 0), (taps // 2, taps // 2), (0, 0)))
        near = sum(wide[:, t : t + len(x)] * p["kernels"][:, t, None, None] for t in range(taps))
        mixed = mixed + near[:, real]
    out[real] = linear(p, merge(mixed), "o")
    return out


def sinkhorn(config, p, x, y, real, keys_real):
    """2002.11296, section 3, with means for sums, without noise: token by token."""
    heads, block, length, causal = config["H"], config["block"], len(x), config["causal"]
    count = -(-length // block)
    place, block_of = np.arange(length) % block, np.arange(length) // block
    exists = np.array([real[block_of == i].any() for i in range(count)])
    means = np.zeros((count, x.shape[1]), complex)
    for i in range(count):
        members = real & ((block_of < i) | (np.arange(length) == i * block) if causal else block_of == i)
        means[i] = x[members].sum(0) / max(members.sum(), 1)
    wants = (relu(means @ p["W1"] + p["c1"]) @ p["W2"] + p["c2"]).reshape(count, heads, -1)[:, :, :count]
    pairs = exists[:, None] & exists & (np.tri(count, k=-1, dtype=bool) if causal else True)
    q, k, v = (split(linear(p, x, name), heads) for name in "qkv")
    out = np.zeros(q.shape, complex)
    for h in range(heads):
        moves = np.where(pairs, np.exp(wants[:, h] / config["temperature"]), 0)
        for _ in range(config["iterations"]):
            rows = moves.sum(1, keepdims=True)
            moves = moves / np.where(rows == 0, 1, rows)
            columns = np.cumsum(moves, 0) if causal else moves.sum(0, keepdims=True)
            moves = moves / np.where(columns == 0, 1, columns)
        for t in np.flatnonzero(real):
            i = block_of[t]
            keys, values = [], []
            for at in range(block):
                others = np.flatnonzero(real & (place == at) & ((block_of < i) | (not causal)))
                if len(others):
                    keys.append(moves[i, block_of[others]] @ k[h, others])
                    values.append(moves[i, block_of[others]] @ v[h, others])
            own = np.flatnonzero(real & (block_of == i) & ((np.arange(length) <= t) | (not causal)))
            weights = np.exp(np.concatenate([np.array(keys).reshape(-1, q.shape[2]), k[h, own]]) @ q[h, t] / np.sqrt(q.shape[2]))
            out[h, t] = weights / weights.sum() @ np.concatenate([np.array(values).reshape(-1, q.shape[2]), v[h, own]])
    return linear(p, merge(out), "o")


def mixed_heads(config, p, x, y, real, keys_real):
    """2005.00742, section 3: each part has some of the heads, with its rows of Wo."""
    functions = {"dot_product": mha, "local": mha, "hard_coded_gaussian": earlier.hardcoded,
                 "linear_transformer": linear_transformer}
    total = 0
    for i, (name, heads) in enumerate(zip(config["parts"], config["part_heads"])):
        own = {key.removeprefix(f"{i}."): value for key, value in p.items() if key.startswith(f"{i}.")}
        settings = {key.removeprefix(name + "."): value for key, value in config.items()}
        total = total + functions[name]({**settings, "H": heads}, own, x, y, real, keys_real)
    return total


# --- parameters, by name and shape


def shapes_of(config, d):
    kind, heads, bias = config["variant"], config["H"], config["bias"]
    width = d // heads
    if kind in ("mha", "local"):
        shapes = usual(config, d, config.get("kv_heads", heads) * width)
        if config.get("sink") == "learned":
            shapes["s"] = (heads,)
        if config.get("gate", "none") != "none":
            shapes |= projections(d, bias, ("g", heads if config["gate"] == "headwise" else d))
        return shapes
    if kind == "differential":
        return usual(config, d) | {f"lambda_{n}": (width // 2,) for n in ("q1", "k1", "q2", "k2")} | {"gain": (width,)}
    if kind == "forgetting":
        return usual(config, d) | {"Wf": (d, heads), "bf": (heads,)}
    if kind == "abc":
        return usual(config, d) | projections(d, bias, ("s", heads * config["slots"]))
    if kind == "gated_deltanet":
        inner = d * config["value_width"]
        shapes = projections(d, bias, ("q", d), ("k", d), ("v", inner), ("b", heads)) | projections(inner, bias, ("o", d))
        shapes |= {"conv": (config["convolution"], 2 * d + inner), "gain": (inner // heads,)}
        if config["gated"]:
            shapes |= projections(d, bias, ("g", inner)) | {"Wa": (d, heads), "ba": (heads,), "A": (heads,)}
        return shapes
    if kind == "mamba2":
        inner, states = d * config["expand"], config["state"]
        shapes = projections(d, bias, ("z", inner), ("x", inner), ("B", states), ("C", states))
        shapes |= projections(inner, bias, ("o", d)) | {"Wdt": (d, heads), "bdt": (heads,), "A": (heads,), "D": (heads,)}
        return shapes | {"conv": (config["convolution"], inner + 2 * states), "bconv": (inner + 2 * states,),
                         "gain": (inner,)}
    if kind == "multi_head_latent":
        rank, asking, rotary = config["kv_rank"], config["query_rank"], config["rotary_width"]
        shapes = projections(asking or d, bias, ("q", d), ("qr", heads * rotary))
        shapes |= projections(d, bias, ("dkv", rank), ("kr", rotary), ("o", d)) | projections(rank, bias, ("uv", d))
        shapes |= {"Wuk": (rank, d), "gain_c": (rank,)}
        if asking:
            shapes |= projections(d, bias, ("dq", asking)) | {"gain_q": (asking,)}
        return shapes
    if kind == "kimi_delta":
        inner, rank = d * config["value_width"], config["gate_rank"]
        shapes = projections(d, bias, ("q", d), ("k", d), ("v", inner), ("b", heads)) | projections(inner, bias, ("o", d))
        shapes |= {"conv": (config["convolution"], 2 * d + inner), "gain": (inner // heads,)}
        shapes |= {"Wa1": (d, rank), "Wa2": (rank, d), "ba": (d,), "A": (heads,)}
        return shapes | {"Wg1": (d, rank), "Wg2": (rank, inner), "bg": (inner,)}
    if kind == "rwkv7":
        rank, gate_rank = config["rank"], config["gate_rank"]
        shapes = projections(d, bias, ("r", d), ("k", d), ("v", d), ("o", d)) | {"mu": (6, d)}
        shapes |= {"Ww1": (d, rank), "Ww2": (rank, d), "Wa1": (d, rank), "Wa2": (rank, d), "Wg1": (d, gate_rank),
                   "Wg2": (gate_rank, d)}
        return shapes | {name: (d,) for name in ("w0", "a0", "xi", "alpha", "rho", "gain", "norm_bias")}
    if kind in recurrent.FUNCTIONS:
        return recurrent.shapes_of(config, d)
    if kind in earlier.FUNCTIONS | earlier.FUNCTIONS_OF_BATCHES:
        return earlier.shapes_of(config, d)
    if kind == "mixed_heads":
        shapes = {}
        for i, (name, own) in enumerate(zip(config["parts"], config["part_heads"])):
            maps = "vo" if name == "hard_coded_gaussian" else "qkvo"
            for key in (key + map for key in ("Wb" if bias else "W") for map in maps):
                rows = own * width if key == "Wo" else d
                columns = d if key.endswith("o") else own * width
                shapes[f"{i}.{key}"] = (rows, columns) if key[0] == "W" else (columns,)
        return shapes
    if kind == "fnet":
        return {}
    if kind == "nystromformer" and config.get("convolution"):
        return usual(config, d) | {"kernels": (heads, config["convolution"])}
    if kind == "retnet":
        inner = d * config["value_width"]
        return projections(d, bias, ("q", d), ("k", d), ("v", inner), ("g", inner)) | projections(inner, bias, ("o", d))
    if kind == "gated_linear_attention":
        keys, rank = d // 2, config["gate_rank"]
        shapes = projections(d, bias, ("q", keys), ("k", keys), ("v", d), ("o", d))
        return shapes | {"Wr": (d, d), "br": (d,), "Wa1": (d, rank), "Wa2": (rank, keys), "ba": (keys,)}
    if kind == "attention_free_transformer" and config["form"] != "simple":
        return usual(config, d) | {"of_queries": (config["L"], config["rank"]), "of_keys": (config["L"], config["rank"])}
    if kind == "sinkhorn":
        blocks = -(-config["L"] // config["block"])
        return usual(config, d) | {"W1": (d, d), "c1": (d,), "W2": (d, heads * blocks), "c2": (heads * blocks,)}
    if kind == "native_sparse":
        keys = 3 * config["kv_heads"] * width
        shapes = usual(config, d, keys) | projections(d, bias, ("g", 3 * heads))
        for name in "kv":
            shapes |= {"e" + name: (config["block"], width), f"W{name}1": (config["block"] * width, width),
                       f"b{name}1": (width,), f"W{name}2": (width, width), f"b{name}2": (width,)}
        return shapes
    return usual(config, d)


# --- a case


def masks_of(config, length, batch):
    """The second sample has padding at both ends; hole: and within."""
    real = np.ones((batch, length), bool)
    if config.pop("pad", False):
        real[1, :2] = real[1, -3:] = False
    if config.pop("hole", False):
        real[1, length // 2] = False
    return real


def outputs(config, p, tensors, real, keys_real):
    """{"O": with zeros at padding, further outputs, losses "aux.*", choices "disc.*", "mid.*"}"""
    x = tensors["X"]
    y = tensors.get("Y", x)
    p = {**p, **tensors}
    if config["variant"] in earlier.FUNCTIONS_OF_BATCHES:
        found = earlier.FUNCTIONS_OF_BATCHES[config["variant"]](config, p, x, real)
    else:
        function = FUNCTIONS[config["variant"]]
        of_samples = [{**p, "glob": p["glob"][b]} if "glob" in p else p for b in range(len(x))]
        found = {"O": np.stack([function(config, of_samples[b], x[b], y[b], real[b], keys_real[b]) for b in range(len(x))])}
    if config.get("padding") != "counted":
        found["O"] = np.where(real[:, :, None], found["O"], 0)
    return found


def make(name, config, length, heads, d=8, memory=None, batch=2):
    config = {"variant": name.partition("__")[0], "H": heads, "causal": False, "cross": memory is not None, "bias": True,
              **config}
    padded = config.get("pad", False)
    real = masks_of(config, length, batch)
    keys_real = real if memory is None else np.arange(memory)[None] < np.array([[memory], [memory - 2 * padded]])
    frozen = earlier.frozen_in(config)
    for seed in itertools.count(1):
        draw = np.random.default_rng([seed, *name.encode()])
        inputs = {"X": draw.standard_normal((batch, length, d))}
        if memory is not None:
            inputs["Y"] = draw.standard_normal((batch, memory, d))
        parameters = {}
        for key, shape in shapes_of(config, d).items():
            scale = 1 / np.sqrt(shape[0]) if len(shape) == 2 else 0.3
            parameters[key] = draw.standard_normal(shape) * scale + (1 if key.startswith("gain") or key == "D" else 0)
        drawn = earlier.drawn_of(config, draw, d, real)
        earlier.margins.clear()
        values = outputs(config, parameters, inputs | drawn, real, keys_real)
        if min(earlier.margins, default=MARGIN) >= MARGIN:
            break
    names = [key for key in values if "." not in key]
    cotangents = {key: draw.standard_normal(values[key].shape) for key in names}
    cotangents["O"] *= real[:, :, None]

    def loss():
        found = outputs(config, parameters, inputs | drawn, real, keys_real)
        return sum((cotangents[key] * found[key]).sum() for key in names) + sum(
            value for key, value in found.items() if key.startswith("aux."))

    tensors = {"in." + key: value for key, value in (inputs | drawn).items()}
    if padded:
        tensors["in.mask"] = real.astype(np.int64)
        if memory is not None:
            tensors["in.mask_mem"] = keys_real.astype(np.int64)
    tensors |= {"param." + key: value for key, value in parameters.items()}
    tensors |= {"out." + key: values.pop(key).real for key in names}
    tensors |= {"cot." + key: value for key, value in cotangents.items()}
    tensors |= {key: np.atleast_1d(value.real) for key, value in values.items()}
    tensors["loss"] = np.array([loss().real])
    for prefix, group in (("grad.in.", inputs), ("grad.param.", parameters)):
        for key, value in list(group.items()):
            if key in frozen:
                continue
            gradient = np.zeros(value.shape)
            for at in np.ndindex(*value.shape):
                group[key] = value.astype(complex)
                group[key][at] += 1j * STEP
                gradient[at] = loss().imag / STEP
            group[key] = value
            tensors[prefix + key] = gradient
    losses = [key.removeprefix("aux.") for key in values if key.startswith("aux.")]
    write(name, config, tensors, {"frozen": frozen, "aux": losses, "outputs": names})


def write(name, config, tensors, lists):
    header = {"__metadata__": {"case": name, "config": json.dumps(config)} | {
        key: json.dumps(value) for key, value in lists.items()}}
    data = b""
    for key, value in tensors.items():
        content = np.ascontiguousarray(value).tobytes()
        header[key] = {"dtype": "I64" if value.dtype == np.int64 else "F64", "shape": list(value.shape),
                       "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (FOLDER / f"{name}.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


FUNCTIONS = {"mha": mha, "local": mha, "differential": differential, "forgetting": forgetting, "cosformer": cosformer,
             "abc": abc, "gated_deltanet": gated_deltanet, "mamba2": mamba2, "multi_head_latent": multi_head_latent,
             "kimi_delta": kimi_delta, "rwkv7": rwkv7, "moba": moba, "native_sparse": native_sparse,
             "linear_transformer": linear_transformer, "retnet": retnet, "gated_linear_attention": gated_linear_attention,
             "attention_free_transformer": attention_free_transformer, "fnet": fnet, "nystromformer": nystromformer,
             "sinkhorn": sinkhorn, "mixed_heads": mixed_heads, **earlier.FUNCTIONS, **recurrent.FUNCTIONS}

DELTA = {"gated": True, "value_width": 1, "convolution": 4}
STATE = {"expand": 2, "state": 3, "convolution": 4}
KIMI = {"value_width": 1, "convolution": 4, "gate_rank": 3}
GOOSE = {"rank": 3, "gate_rank": 5}
SYNTHESIZER = {"variant": "synthesizer", "df": 3}
SPARSE = {"l": 3, "c": 1, "layer": 0}
BLOCKS = {"block": 2, "global_blocks": 1, "window_blocks": 3, "random_blocks": 1}
HASHES = {"rounds": 3, "n_buckets": 4, "chunk": 3}
ROUTES = {"clusters": 3, "window": 4, "shared_qk": True, "decay": 0.9, "beta": 0.25}
CLUSTERS = {"K": 3, "cosine": True, "phi_scale": 0.5, "lambda1": 1.0, "lambda2": 1.0}
GAUSSIAN = {"variant": "hardcoded"}
LATENT = {"kv_rank": 5, "query_rank": 0, "rotary_width": 2}
HOLE = {"pad": True, "hole": True}
INDEX = {"index_heads": 3, "index_width": 4, "beta": 1}
CASES = [
    ("mha__sink_zero_pad", {"sink": "zero", "pad": True}, 9, 2),
    ("mha__sink_learned_causal", {"sink": "learned", "causal": True, "kv_heads": 2}, 7, 4),
    ("mha__sink_gate_cross_pad", {"sink": "learned", "gate": "elementwise", "pad": True, "memory": 6}, 8, 2),
    ("mha__gate_pad", {"gate": "elementwise", "pad": True}, 9, 2),
    ("mha__gate_headwise_causal", {"gate": "headwise", "causal": True}, 7, 4),
    ("local__sinks_pad", {"reach": 2, "sinks": 3, "pad": True}, 11, 2),
    ("local__sinks_causal", {"reach": 2, "sinks": 1, "causal": True}, 11, 4),
    ("local__sink_gate_causal", {"reach": 1, "sinks": 2, "sink": "learned", "gate": "headwise", "causal": True}, 7, 2),
    ("differential__pad", {"pad": True, "layer": 2}, 9, 2),
    ("differential__causal", {"causal": True}, 7, 4),
    ("differential__cross_pad", {"pad": True, "memory": 6}, 8, 2),
    ("forgetting__pad", {"pad": True}, 9, 2),
    ("forgetting__causal", {"causal": True}, 11, 4),
    ("forgetting__causal_pad", {"causal": True, "pad": True, "bias": False}, 13, 2),
    ("cosformer__pad", {"pad": True, "L": 16}, 9, 2),
    ("cosformer__causal", {"causal": True, "L": 7}, 7, 4),
    ("cosformer__cross_pad", {"pad": True, "L": 11, "memory": 6}, 8, 2),
    ("abc__pad", {"pad": True, "slots": 3}, 9, 2),
    ("abc__causal", {"causal": True, "slots": 5}, 11, 4),
    ("abc__causal_pad", {"causal": True, "pad": True, "slots": 2, "bias": False}, 9, 2),
    ("abc__cross_pad", {"pad": True, "slots": 3, "memory": 7}, 8, 2),
    ("gated_deltanet__causal", {"causal": True, **DELTA}, 37, 2),
    ("gated_deltanet__causal_pad", {"causal": True, "pad": True, **DELTA, "value_width": 2, "bias": False}, 11, 4),
    ("gated_deltanet__both_ways_pad", {"pad": True, **DELTA}, 9, 2),
    ("gated_deltanet__delta_causal_pad", {"causal": True, "pad": True, **DELTA, "gated": False}, 13, 2),
    ("mamba2__causal", {"causal": True, **STATE}, 13, 4),
    ("mamba2__causal_pad", {"causal": True, "pad": True, **STATE, "bias": False}, 11, 2),
    ("mamba2__both_ways_pad", {"pad": True, **STATE, "expand": 1}, 9, 2),
    ("multi_head_latent__pad", {"pad": True, **LATENT}, 9, 2),
    ("multi_head_latent__causal", {"causal": True, **LATENT, "rotary_width": 4}, 11, 4),
    ("multi_head_latent__query_rank_causal_pad", {"causal": True, "pad": True, **LATENT, "query_rank": 3}, 9, 2),
    ("kimi_delta__causal", {"causal": True, **KIMI}, 37, 2),
    ("kimi_delta__causal_pad", {"causal": True, "pad": True, **KIMI, "value_width": 2, "bias": False}, 11, 4),
    ("kimi_delta__both_ways_pad", {"pad": True, **KIMI}, 9, 2),
    ("rwkv7__causal", {"causal": True, **GOOSE}, 37, 2),
    ("rwkv7__causal_pad", {"causal": True, "pad": True, **GOOSE, "bias": False}, 11, 4),
    ("rwkv7__both_ways_pad", {"pad": True, **GOOSE}, 9, 2),
    ("deepseek_sparse__causal", {"causal": True, "tokens": 4, **INDEX}, 11, 2),
    ("deepseek_sparse__causal_pad", {"causal": True, "pad": True, "tokens": 3, **INDEX, "beta": 0.5, "bias": False}, 9, 4),
    ("deepseek_sparse__pad", {"pad": True, "tokens": 5, **INDEX}, 8, 2),
    ("deepseek_sparse__dense_causal_hole", {"causal": True, "pad": True, "hole": True, "tokens": 13, **INDEX}, 13, 2),
    ("moba__causal", {"causal": True, "block": 3, "blocks": 2}, 17, 4),
    ("moba__causal_pad", {"causal": True, "pad": True, "block": 4, "blocks": 3}, 22, 2),
    ("moba__pad", {"pad": True, "block": 2, "blocks": 3}, 13, 2),
    ("native_sparse__causal", {"causal": True, "kv_heads": 2, "block": 2, "blocks": 3, "window": 3}, 15, 4),
    ("native_sparse__causal_pad", {"causal": True, "pad": True, "kv_heads": 1, "block": 3, "blocks": 4, "window": 4,
                                   "bias": False}, 20, 2),
    ("native_sparse__pad", {"pad": True, "kv_heads": 2, "block": 2, "blocks": 4, "window": 2}, 13, 2),
    ("linear_transformer__pad", {"pad": True}, 9, 2),
    ("linear_transformer__causal", {"causal": True}, 11, 4),
    ("linear_transformer__cross_pad", {"pad": True, "memory": 7, "bias": False}, 8, 2),
    ("retnet__pad", {"pad": True, "value_width": 2}, 9, 2),
    ("retnet__causal", {"causal": True, "value_width": 1}, 11, 4),
    ("retnet__causal_pad", {"causal": True, "pad": True, "value_width": 2, "bias": False}, 13, 2),
    ("gated_linear_attention__pad", {"pad": True, "gate_rank": 3, "temperature": 2}, 9, 2),
    ("gated_linear_attention__causal", {"causal": True, "gate_rank": 5, "temperature": 16}, 19, 2),
    ("gated_linear_attention__causal_pad", {"causal": True, "pad": True, "gate_rank": 2, "temperature": 4}, 13, 2),
    ("attention_free_transformer__pad", {"pad": True, "form": "simple"}, 9, 2),
    ("attention_free_transformer__causal", {"causal": True, "form": "full", "rank": 3, "L": 11}, 11, 4),
    ("attention_free_transformer__causal_pad", {"causal": True, "pad": True, "form": "local", "rank": 2, "window": 3,
                                                "L": 13}, 13, 2),
    ("sinkhorn__pad", {"pad": True, "block": 3, "iterations": 7, "temperature": 0.75, "L": 16}, 14, 2),
    ("sinkhorn__causal", {"causal": True, "block": 3, "iterations": 7, "temperature": 0.75, "L": 11}, 11, 4),
    ("sinkhorn__causal_pad", {"causal": True, "pad": True, "block": 2, "iterations": 3, "temperature": 2, "L": 13,
                              "bias": False}, 13, 2),
    ("fnet__plain", {"unitary": False}, 7, 2),
    ("fnet__pad", {"pad": True, "unitary": False}, 11, 4),
    ("fnet__unitary_pad", {"pad": True, "unitary": True}, 12, 2),
    ("nystromformer__pad", {"pad": True, "landmarks": 3, "iterations": 6}, 13, 2),
    ("nystromformer__plain", {"landmarks": 4, "iterations": 3, "bias": False}, 11, 4),
    ("nystromformer__cross_pad", {"pad": True, "landmarks": 5, "iterations": 6, "memory": 6}, 9, 2),
    ("fnet__counted_pad", {"pad": True, "unitary": True, "padding": "counted"}, 9, 2),
    ("nystromformer__counted_pad", {"pad": True, "landmarks": 3, "iterations": 4, "convolution": 3, "padding": "counted"}, 12, 2),
    ("synth_dense__causal", {**SYNTHESIZER, "kinds": ["dense"], "causal": True, "L": 12, "share_w2": True}, 11, 4),
    ("synth_dense__causal_pad", {**SYNTHESIZER, "kinds": ["dense"], "causal": True, "pad": True, "L": 9, "bias": False}, 9, 2),
    ("synth_random__causal", {**SYNTHESIZER, "kinds": ["random"], "causal": True, "L": 12}, 11, 4),
    ("synth_random__causal_pad", {**SYNTHESIZER, "kinds": ["random"], "causal": True, "pad": True, "L": 9}, 9, 2),
    ("synth_random_fixed__pad", {**SYNTHESIZER, "kinds": ["random_fixed"], "pad": True, "L": 14}, 13, 4),
    ("synth_random_fixed__causal_pad", {**SYNTHESIZER, "kinds": ["random_fixed"], "causal": True, "pad": True, "L": 9}, 9, 2),
    ("synth_fact_dense__causal", {**SYNTHESIZER, "kinds": ["fact_dense"], "causal": True, "L": 12, "tiling": "outer", "a": 3,
                                  "b": 4}, 11, 4),
    ("synth_fact_dense__causal_pad", {**SYNTHESIZER, "kinds": ["fact_dense"], "causal": True, "pad": True, "L": 9,
                                      "tiling": "tile", "a": 2, "b": 5, "bias": False}, 9, 2),
    ("synth_fact_random__causal", {**SYNTHESIZER, "kinds": ["fact_random"], "causal": True, "L": 12, "k": 3}, 11, 4),
    ("synth_fact_random__causal_pad", {**SYNTHESIZER, "kinds": ["fact_random"], "causal": True, "pad": True, "L": 9, "k": 2},
     9, 2),
    ("synth_mixture__all_causal", {**SYNTHESIZER, "causal": True, "L": 12, "tiling": "tile", "a": 3, "b": 4, "k": 3, "bias": False,
                                   "kinds": ["dense", "random", "random_fixed", "fact_dense", "fact_random", "dot"]}, 11, 4),
    ("synth_mixture__dense_dot_causal_pad", {**SYNTHESIZER, "kinds": ["dense", "dot"], "causal": True, "pad": True, "L": 9}, 9, 2),
    ("fastformer__causal", {"share_qv": True, "causal": True}, 11, 4),
    ("fastformer__causal_pad", {"share_qv": False, "causal": True, "pad": True, "bias": False}, 9, 2),
    ("fastformer__cross_pad", {"share_qv": False, "pad": True, "memory": 7}, 9, 4),
    ("clusterformer__prev_pad", {**CLUSTERS, "window": "prev", "assoc": "clusters", "pad": True, "bias": False}, 11, 2),
    ("clusterformer__next", {**CLUSTERS, "window": "next", "assoc": "words", "cosine": False, "K": 4}, 11, 4),
    ("clusterformer__causal", {**CLUSTERS, "w": 3, "causal": True}, 13, 4),
    ("clusterformer__causal_pad", {**CLUSTERS, "w": 2, "causal": True, "pad": True, "cosine": False}, 11, 2),
    ("linformer__per_head", {"k": 3, "L": 11, "share_kv": False, "per_head": True}, 11, 4),
    ("linformer__shared_cross_pad", {"k": 4, "L": 9, "share_kv": True, "per_head": False, "pad": True, "memory": 7}, 9, 2),
    ("sparse__interleaved_causal_pad", {**SPARSE, "pattern": "strided", "mode": "interleaved", "layer": 1, "causal": True,
                                        "pad": True}, 11, 4),
    ("sparse__strided_merged_pad", {**SPARSE, "pattern": "strided", "mode": "merged", "pad": True, "bias": False}, 13, 2),
    ("reformer__causal_pad", {**HASHES, "causal": True, "pad": True}, 11, 4),
    ("routing__causal_pad", {**ROUTES, "causal": True, "pad": True}, 11, 2),
    ("longformer__dilated_causal", {"half": 2, "dilation": 2, "glob": [], "causal": True}, 13, 4),
    ("longformer__global_causal_pad", {"half": 1, "dilation": 1, "glob": [2, 7], "causal": True, "pad": True}, 11, 2),
    ("bigbird__causal", {**BLOCKS, "causal": True}, 15, 4),
    ("bigbird__causal_pad", {**BLOCKS, "random_blocks": 2, "causal": True, "pad": True, "bias": False}, 13, 2),
    ("performer__pad", {"pad": True, "features": 5}, 9, 2),
    ("performer__causal", {"causal": True, "features": 3}, 11, 4),
    ("performer__causal_pad", {"causal": True, "pad": True, "features": 7, "bias": False}, 9, 2),
    ("performer__cross_pad", {"pad": True, "features": 5, "memory": 7}, 8, 2),
    ("mixed_heads__pad", {"parts": ["dot_product", "hard_coded_gaussian"], "part_heads": [3, 1], "pad": True,
                          "hard_coded_gaussian.offsets": [1], "hard_coded_gaussian.sigma": 2}, 9, 4),
    ("mixed_heads__causal", {"parts": ["local", "linear_transformer", "dot_product"], "part_heads": [1, 2, 1], "causal": True,
                             "local.reach": 2}, 11, 4),
    ("mixed_heads__cross_pad", {"parts": ["hard_coded_gaussian", "linear_transformer"], "part_heads": [1, 1], "pad": True,
                                "hard_coded_gaussian.offsets": [-1, 0], "hard_coded_gaussian.sigma": 1,
                                "hard_coded_gaussian.gamma": 0.75, "memory": 7}, 9, 2),
    ("retnet__long_hole", {**HOLE, "value_width": 2}, 70, 2),
    ("gated_linear_attention__long_hole", {**HOLE, "gate_rank": 3, "temperature": 16}, 70, 2),
    ("gated_linear_attention__long_causal_hole", {**HOLE, "causal": True, "gate_rank": 3, "temperature": 16}, 70, 2),
    ("mamba2__long_causal_hole", {**HOLE, "causal": True, **STATE}, 70, 2),
    ("linear_transformer__causal_hole", {**HOLE, "causal": True}, 20, 2),
    ("performer__causal_hole", {**HOLE, "causal": True, "features": 11}, 20, 2),
    ("attention_free_transformer__full_hole", {**HOLE, "form": "full", "rank": 3, "L": 20}, 20, 2),
    ("attention_free_transformer__local_hole", {**HOLE, "form": "local", "rank": 3, "window": 4, "L": 24}, 20, 2),
    ("local__hole", {**HOLE, "reach": 3}, 20, 2),
    ("sinkhorn__hole", {**HOLE, "block": 4, "iterations": 7, "temperature": 0.75, "L": 32}, 30, 2),
    ("sinkhorn__causal_hole", {**HOLE, "causal": True, "block": 4, "iterations": 7, "temperature": 0.75, "L": 32}, 30, 2),
    ("fnet__hole", {**HOLE, "unitary": True}, 17, 2),
    ("nystromformer__hole", {**HOLE, "landmarks": 5, "iterations": 6}, 33, 2),
    ("nystromformer__convolution_hole", {**HOLE, "landmarks": 5, "iterations": 6, "convolution": 7}, 21, 2),
    ("hc_self__long", {**GAUSSIAN, "offsets": [-1, 1], "sigma": 1.0}, 150, 2),
    ("hc_self__long_causal", {**GAUSSIAN, "offsets": [-1, 0], "sigma": 1.0, "causal": True}, 150, 2),
    ("hc_cross__slow", {**GAUSSIAN, "offsets": [-1, 1], "sigma": 1.5, "gamma": 0.4, "memory": 66}, 150, 2),
    ("hc_cross__fast", {**GAUSSIAN, "offsets": [-1, 1], "sigma": 1.5, "gamma": 1.3, "memory": 131}, 70, 2),
    ("reformer__single_rounds_pad", {"rounds": 2, "n_buckets": 4, "chunk": 2, "pad": True}, 13, 2),
    ("reformer__single_rounds_causal_pad", {"rounds": 2, "n_buckets": 4, "chunk": 2, "causal": True, "pad": True}, 13, 2),
    ("clusterformer__causal_wide_hole", {**CLUSTERS, **HOLE, "w": 50, "causal": True}, 13, 2),
    *recurrent.CASES,
]


def main():
    wanted = sys.argv[1:]
    for name, config, length, heads in CASES:
        if not wanted or name.partition("__")[0] in wanted or name in wanted:
            config = dict(config)
            make(name, config, length, heads, memory=config.pop("memory", None))


if __name__ == "__main__":
    main()
