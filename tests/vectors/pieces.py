"""What the mechanisms of make.py and earlier.py share: analytic operations on float64 or complex arrays, and shapes."""

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.log(1 + np.exp(x))


def relu(x):
    return np.where(x.real > 0, x, 0)


def softmax(logits, allowed):
    """Over the last axis; a row without an allowed entry is 0."""
    allowed = np.asarray(allowed) & np.ones(logits.shape[-1:], bool)
    weights = np.where(allowed, np.exp(np.where(allowed, logits, 0)), 0)
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(allowed.any(-1, keepdims=True), total, 1)


def rms_norm(x, gain, epsilon=1e-5):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * gain


def split(x, heads):
    """[N, H n] -> [H, N, n]."""
    return x.reshape(x.shape[0], heads, -1).transpose(1, 0, 2)


def merge(x):
    return x.transpose(1, 0, 2).reshape(x.shape[1], -1)


def linear(p, x, name):
    y = x @ p["W" + name]
    return y + p["b" + name] if "b" + name in p else y


def rotate(x, width):
    """x [N, H width]: in every head elements i and i + width / 2 are turned by n 10000^(-2i / width)."""
    half = width // 2
    angle = np.arange(x.shape[0])[:, None] * 10000.0 ** (-2 * np.arange(half) / width)
    parts = x.reshape(x.shape[0], -1, 2, half)
    a, b = parts[:, :, 0], parts[:, :, 1]
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    return np.stack([a * cos - b * sin, a * sin + b * cos], 2).reshape(x.shape)


def allowed_of(config, real, keys_real):
    """[N, M]: which keys a query sees."""
    allowed = np.broadcast_to(keys_real, (len(real), len(keys_real))).copy()
    if config["causal"]:
        allowed &= np.tri(len(real), len(keys_real), dtype=bool)
    return allowed


def both_ways(config, scan, *sequences):
    """scan(sequences) in one direction, or the sum of both."""
    forward = scan(*sequences)
    if config["causal"]:
        return forward
    return forward + scan(*[s[::-1] for s in sequences])[::-1]


def convolve(x, taps):
    """Causal, channel by channel: taps[-1] is of the token itself."""
    padded = np.concatenate([np.zeros((len(taps) - 1, x.shape[1])), x])
    return sum(padded[t : t + len(x)] * taps[t] for t in range(len(taps)))


# --- parameters, by name and shape


def projections(d, bias, *sizes):
    """A map from d for each (name, width): W, and with a bias b."""
    shapes = {}
    for name, width in sizes:
        shapes["W" + name] = (d, width)
        if bias:
            shapes["b" + name] = (width,)
    return shapes


def usual(config, d, keys=None):
    return projections(d, config["bias"], ("q", d), ("k", keys or d), ("v", keys or d), ("o", d))


def mamba2_maps(config, p, x, real):
    """The values [H, N, n], B and C [N, states] and the steps [N, H] of Mamba-2, 0 at padding."""
    states = config["state"]
    maps = np.where(real[:, None], np.concatenate([linear(p, x, name) for name in "xBC"], 1), 0)
    mixed = silu(convolve(maps, p["conv"]) + p["bconv"])
    inner = mixed.shape[1] - 2 * states
    dt = np.where(real[:, None], softplus(x @ p["Wdt"] + p["bdt"]), 0)
    return split(mixed[:, :inner], config["H"]), mixed[:, inner : inner + states], mixed[:, inner + states :], dt
