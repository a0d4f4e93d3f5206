#!/usr/bin/env python3
"""Times one layer of attention, forward and backward, in heed and in PyTorch on the same work, in turn.

    python3 bench/compare_attention.py --lengths 1024 4096      # any python3 that has torch

Width 512, 8 heads, batch 1, float32, no dropout, no biases, gradients of the input and of all parameters. heed is `heed bench
attention`; PyTorch's side is written here as well as its operations allow: fused attention (scaled_dot_product_attention)
wherever scores are a product, blocks and windows as batches of small attentions, one product for query, key and value. Both
must have the same number of parameters. Each side runs in a process of its own, the two alternate, and the best of their
passes counts, because other work on a machine only ever adds time. A line of JSON for each mechanism and length: `speedup`
is PyTorch's time over heed's, `memory_ratio` the peak of heed's tensors over what PyTorch's process grew by, parameters
and gradients in both.
"""

import argparse
import json
import math
import pathlib
import sys
import time

import peers

# The mechanism of heed, its class in layers(), and heed's settings; what stands behind a colon only tells two cases apart.
CASES = {
    "dot_product": ["DotProduct"],
    "dot_product:causal": ["DotProduct", "--causal"],
    "synthesizer_dense": ["SynthesizerDense"],
    "synthesizer_random": ["SynthesizerRandom"],
    "synthesizer_random_fixed": ["SynthesizerRandomFixed"],
    "synthesizer_factorized_dense": ["SynthesizerFactorizedDense"],
    "synthesizer_factorized_random": ["SynthesizerFactorizedRandom"],
    "synthesizer_mixture": ["SynthesizerMixture"],
    "hard_coded_gaussian": ["HardCodedGaussian"],
    "fastformer": ["Fastformer"],
    "linformer": ["Linformer"],
    "longformer": ["Longformer", "--set", "longformer.window=128", "--set", "longformer.global_tokens=1"],
    "bigbird": ["BigBird"],
    "clusterformer": ["ClusterFormer", "--set", "clusterformer.clusters=16"],
    "routing_transformer": ["Routing"],
    "reformer": ["Reformer", "--set", "reformer.rounds=2"],
    "linear_transformer": ["LinearTransformer"],
    "linear_transformer:causal": ["LinearTransformer", "--causal"],
    "performer": ["Performer"],
    "performer:causal": ["Performer", "--causal"],
    "retnet": ["RetNet", "--causal"],
    "gated_linear_attention": ["GatedLinearAttention", "--causal"],
    "mamba2": ["Mamba2", "--causal"],
    "gated_deltanet": ["GatedDeltaNet", "--causal"],
    "kimi_delta": ["KimiDelta", "--causal"],
    "rwkv7": ["Rwkv7", "--causal"],
    "attention_free_transformer": ["AttentionFree"],
    "attention_free_transformer:causal": ["AttentionFree", "--causal"],
    "fnet": ["FNet"],
    "nystromformer": ["Nystromformer"],
    "local": ["Local"],
    "sinkhorn": ["Sinkhorn"],
}


def layers(width, heads, length):
    """A function that makes the module of a case."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    dh = width // heads
    attend = F.scaled_dot_product_attention

    def split(x):  # [B, N, d] -> [B, H, N, dh]
        return x.view(x.shape[0], x.shape[1], -1, dh).transpose(1, 2)

    def merge(x):
        return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)

    def linear(to=width):
        return nn.Linear(width, to, bias=False)

    def weight(*shape):
        return nn.Parameter(torch.randn(shape) / math.sqrt(shape[-2]))

    class Projected(nn.Module):
        def __init__(self, maps=3):
            super().__init__()
            self.input, self.output = linear(maps * width), linear()

        def parts(self, x):
            return [split(part) for part in self.input(x).split(width, -1)]

    class DotProduct(Projected):
        def __init__(self, causal=False):
            super().__init__()
            self.causal = causal

        def forward(self, x):
            return self.output(merge(attend(*self.parts(x), is_causal=self.causal)))

    class Synthesizer(Projected):
        """softmax(logits) v; the logits are what kinds differ in."""

        def __init__(self):
            super().__init__(1)

        def forward(self, x):
            (v,) = self.parts(x)
            return self.output(merge(torch.softmax(self.logits(x), -1) @ v))

        def hidden(self, x):  # [B, H, N, dh]
            return torch.relu(split(x @ self.w1.transpose(0, 1).reshape(width, -1)))

    class SynthesizerDense(Synthesizer):
        def __init__(self):
            super().__init__()
            self.w1, self.w2 = weight(heads, width, dh), weight(heads, dh, length)

        def forward(self, x):
            (v,) = self.parts(x)
            columns = self.w2.transpose(1, 2).expand(x.shape[0], -1, -1, -1)
            return self.output(merge(attend(self.hidden(x), columns, v, scale=1.0)))

    class SynthesizerRandom(Synthesizer):
        trained = True

        def __init__(self):
            super().__init__()
            self.r = nn.Parameter(torch.randn(1, heads, length, length), requires_grad=self.trained)

        def logits(self, x):
            return self.r

    class SynthesizerRandomFixed(SynthesizerRandom):
        trained = False

    class SynthesizerFactorizedDense(Synthesizer):
        def __init__(self):
            super().__init__()
            a = math.ceil(math.sqrt(length))
            b = math.ceil(length / a)
            while math.gcd(a, b) > 1:
                b += 1
            self.w1, self.wa, self.wb = weight(heads, width, dh), weight(heads, dh, a), weight(heads, dh, b)

        def logits(self, x):
            hidden = self.hidden(x)

            def tiled(rows):
                return rows.repeat(1, 1, 1, math.ceil(length / rows.shape[-1]))[..., :length]

            return tiled(hidden @ self.wa) * tiled(hidden @ self.wb)

    class SynthesizerFactorizedRandom(Synthesizer):
        def __init__(self):
            super().__init__()
            self.r1, self.r2 = weight(heads, length, 8), weight(heads, length, 8)

        def forward(self, x):
            (v,) = self.parts(x)
            rows, columns = (r.expand(x.shape[0], -1, -1, -1) for r in (self.r1, self.r2))
            return self.output(merge(attend(rows, columns, v, scale=1.0)))

    class SynthesizerMixture(Projected):
        def __init__(self):
            super().__init__()
            self.r, self.alpha = nn.Parameter(torch.randn(1, heads, length, length)), nn.Parameter(torch.zeros(2, heads))

        def forward(self, x):
            q, k, v = self.parts(x)
            random, dot = torch.softmax(self.alpha, 0).view(2, 1, heads, 1, 1)
            scores = (q * (dot / math.sqrt(dh))) @ k.transpose(2, 3) + random * self.r
            return self.output(merge(torch.softmax(scores, -1) @ v))

    class HardCodedGaussian(Projected):
        """A convolution of every channel with the density of its head, which is no longer than seven deviations."""

        reach = 7

        def __init__(self):
            super().__init__(1)
            steps = torch.arange(-self.reach, self.reach + 1, dtype=torch.float32)
            rows = [torch.exp(-(steps - (-1, 1)[head % 2]) ** 2 / 2) / math.sqrt(2 * math.pi) for head in range(heads)]
            self.register_buffer("kernel", torch.stack(rows).repeat_interleave(dh, 0)[:, None])

        def forward(self, x):
            y = F.conv1d(self.input(x).transpose(1, 2), self.kernel, padding=self.reach, groups=width)
            return self.output(y.transpose(1, 2))

    class Fastformer(Projected):
        def __init__(self):
            super().__init__(2)
            self.query_score, self.key_score = linear(heads), linear(heads)

        def forward(self, x):
            flat, key = self.input(x).split(width, -1)

            def pooled(rows, score):  # [B, N, d] -> [B, H, 1, dh]
                weights = torch.softmax(score(rows) / math.sqrt(dh), 1).transpose(1, 2)
                return weights[:, :, None] @ split(rows)

            p = pooled(flat, self.query_score) * split(key)
            u = pooled(merge(p), self.key_score) * split(flat)
            return self.output(merge(u)) + flat

    class Linformer(Projected):
        def __init__(self):
            super().__init__()
            k = min(256, length)
            self.e, self.f = weight(k, length), weight(k, length)

        def forward(self, x):
            q, k, v = self.parts(x)
            return self.output(merge(attend(q, self.e @ k, self.f @ v)))

    class Longformer(Projected):
        """Blocks of half a window see their neighbours; the first token sees all and is seen by all."""

        half, globals = 64, 1

        def __init__(self):
            super().__init__()
            self.of_global = linear(3 * width)
            blocks = -(-length // self.half)
            rows = torch.arange(blocks * self.half).view(blocks, self.half, 1)
            near = (torch.arange(blocks)[:, None] - 1) * self.half + torch.arange(3 * self.half)
            seen = ((rows - near[:, None]).abs() <= self.half) & (near[:, None] >= self.globals) & (near[:, None] < length)
            first = torch.ones(blocks, self.half, self.globals, dtype=torch.bool)
            self.register_buffer("seen", torch.cat([first, seen], -1), persistent=False)

        def forward(self, x):
            q, k, v = self.parts(x)
            blocks, half = self.seen.shape[0], self.half
            room = blocks * half - length

            def around(t):  # [B, H, N, dh] -> [B, H, blocks, g + 3 half, dh]
                padded = F.pad(t, (0, 0, half, half + room))
                near = padded.unfold(2, 3 * half, half).transpose(3, 4)
                first = t[:, :, None, : self.globals].expand(-1, -1, blocks, -1, -1)
                return torch.cat([first, near], 3)

            rows = F.pad(q, (0, 0, 0, room)).unflatten(2, (blocks, half))
            y = attend(rows, around(k), around(v), attn_mask=self.seen).flatten(2, 3)[:, :, :length]
            wq, wk, wv = self.of_global.weight.split(width)
            gq = split(F.linear(x[:, : self.globals], wq))
            gk, gv = split(F.linear(x, wk)), split(F.linear(x, wv))
            y = torch.cat([attend(gq, gk, gv), y[:, :, self.globals:]], 2)
            return self.output(merge(y))

    class BigBird(Projected):
        """Blocks of 64: the first and the last see all and are seen by all, the others three around them and three at random."""

        block = 64

        def __init__(self):
            super().__init__()
            count = length // self.block
            middle = torch.arange(1, count - 1)
            near = [middle - 1, middle, middle + 1]
            drawn = torch.stack([torch.stack([
                torch.tensor([j for j in torch.randperm(count).tolist() if 0 < j < count - 1 and abs(j - i) > 1][:3])
                for i in middle.tolist()]) for _ in range(heads)])  # [H, blocks, 3]
            own = torch.stack([torch.zeros_like(middle), *near, torch.full_like(middle, count - 1)], 1)
            columns = torch.cat([own.expand(heads, -1, -1), drawn], 2)
            # a neighbour that is a global block is there once
            twice = (own[:, 1:4] == 0) | (own[:, 1:4] == count - 1)
            allowed = torch.ones(columns.shape, dtype=torch.bool)
            allowed[:, :, 1:4] &= ~twice
            self.register_buffer("columns", columns)
            self.register_buffer("allowed", allowed.repeat_interleave(self.block, 2)[None, :, :, None])

        def forward(self, x):
            q, k, v = self.parts(x)
            count = length // self.block
            rows = q.unflatten(2, (count, self.block))[:, :, 1:-1]
            head = torch.arange(heads)[:, None, None]

            def seen(t):  # [B, H, blocks, 8 block, dh]
                return t.unflatten(2, (count, self.block))[:, head, self.columns].flatten(3, 4)

            middle = attend(rows, seen(k), seen(v), attn_mask=self.allowed).flatten(2, 3)
            b = self.block
            ends = attend(torch.cat([q[:, :, :b], q[:, :, -b:]], 2), k, v)
            return self.output(merge(torch.cat([ends[:, :, :b], middle, ends[:, :, b:]], 2)))

    def sorted_blocks(q, k, v, order, blocks):
        """Rows in `order` [B, H or 1, N], cut into blocks that see themselves and the next, back at their places."""
        at = order[..., None].expand(q.shape)
        q, k, v = (t.gather(2, at).unflatten(2, (blocks, -1)) for t in (q, k, v))

        def with_next(t):
            return torch.cat([t, F.pad(t[:, :, 1:], (0, 0, 0, 0, 0, 1))], 3)

        size = q.shape[3]
        mask = torch.ones(blocks, 1, 2 * size, dtype=torch.bool)
        mask[-1, :, size:] = False
        y = attend(q, with_next(k), with_next(v), attn_mask=mask).flatten(2, 3)
        return torch.zeros_like(y).scatter(2, at, y)

    class ClusterFormer(Projected):
        clusters = 16

        def __init__(self):
            super().__init__()
            self.similarity, self.centroids = linear(), weight(self.clusters, width)

        def forward(self, x):
            units = F.normalize(self.similarity(x), dim=-1) @ F.normalize(self.centroids, dim=-1).T  # [B, N, K]
            new = torch.softmax(units, 1).transpose(1, 2) @ x
            order = units.argmax(-1).argsort(dim=-1, stable=True)[:, None]
            q, k, v = self.parts(x)
            y = sorted_blocks(q, k, v, order, self.clusters)
            # the two losses: words at their centroid, centroids in order
            own = units.gather(2, units.argmax(-1, keepdim=True)).mean()
            apart = (F.normalize(new[:, 1:], dim=-1) * F.normalize(new[:, :-1], dim=-1)).sum(-1).mean()
            return self.output(merge(y)) - 0.01 * (own + apart)

    class Routing(Projected):
        def __init__(self):
            super().__init__()
            self.clusters = math.ceil(math.sqrt(length))
            self.window = -(-length // self.clusters)
            self.register_buffer("centroids", torch.randn(heads, self.clusters, dh))

        def forward(self, x):
            q, k, v = self.parts(x)
            q, k = F.layer_norm(q, (dh,)), F.layer_norm(k, (dh,))

            def of_clusters(t):  # [B, H, C w]
                with torch.no_grad():
                    return (self.centroids @ t.transpose(2, 3)).topk(self.window, -1).indices.sort(-1).values.flatten(2)

            def rows(t, places):
                return t.gather(2, places[..., None].expand(-1, -1, -1, dh)).unflatten(2, (self.clusters, self.window))

            of_q, of_k = of_clusters(q), of_clusters(k)
            y = attend(rows(q, of_q), rows(k, of_k), rows(v, of_k)).flatten(2, 3)
            at = of_q[..., None].expand(-1, -1, -1, dh)
            total = torch.zeros_like(q).scatter_add(2, at, y)
            count = torch.zeros_like(q).scatter_add(2, at, torch.ones_like(y))
            with torch.no_grad():
                nearest = [(t @ self.centroids.transpose(1, 2)).argmax(-1) for t in (q, k)]
            commitment = sum(((t - self.centroids[torch.arange(heads)[:, None], at]) ** 2).mean()
                             for t, at in zip((q, k), nearest))
            return self.output(merge(total / count.clamp(min=1))) + 5e-5 * commitment

    class Reformer(Projected):
        rounds, chunk = 2, 64

        def __init__(self):
            super().__init__(2)

        def forward(self, x):
            q, v = self.parts(x)
            k = F.normalize(q, dim=-1) * math.sqrt(dh)  # heed divides by sqrt(dh) once more
            buckets = 2 * -(-length // self.chunk)
            outputs, sums = [], []
            for _ in range(self.rounds):
                with torch.no_grad():
                    turned = q @ torch.randn(heads, dh, buckets // 2)
                    bucket = torch.cat([turned, -turned], -1).argmax(-1)
                    order = bucket.argsort(dim=-1, stable=True)
                at = order[..., None].expand(q.shape)
                blocks = length // self.chunk

                def with_previous(t):
                    return torch.cat([F.pad(t[:, :, :-1], (0, 0) * (t.dim() - 3) + (1, 0)), t], 3)

                sq, sk, sv = (t.gather(2, at).unflatten(2, (blocks, -1)) for t in (q, k, v))
                sb, place = bucket.gather(2, order).unflatten(2, (blocks, -1)), order.unflatten(2, (blocks, -1))
                own, own_place = with_previous(sb[..., None])[..., 0], with_previous(place[..., None])[..., 0]
                scores = sq @ with_previous(sk).transpose(3, 4) / math.sqrt(dh)
                scores = scores.masked_fill(sb[..., None] != own[..., None, :], -math.inf)
                scores = scores - 1e5 * (place[..., None] == own_place[..., None, :])
                lse = torch.logsumexp(scores, -1, keepdim=True)
                y = (torch.exp(scores - lse) @ with_previous(sv)).flatten(2, 3)
                outputs.append(torch.zeros_like(y).scatter(2, at, y))
                flat = lse.flatten(2, 3)
                sums.append(torch.zeros_like(flat).scatter(2, order[..., None], flat))
            weights = torch.softmax(torch.stack(sums), 0)
            return self.output(merge((torch.stack(outputs) * weights).sum(0)))

    # Sums over all tokens so far, in chunks: within a chunk as a product of queries and keys, and from the chunks before by
    # way of their states.

    def chunks(t, size=64):  # [B, H, N, m] -> [B, H, C, L, m]
        return t.unflatten(2, (-1, size))

    def up_to(states, weights):  # [B, H, C, ...], weights [C, C] or [H, C, C]: cumsum along rows of a matrix is slower
        return (weights @ states.flatten(3)).view_as(states)

    def below(count):
        return torch.ones(count, count).tril(-1)

    class FeatureAttention(Projected):
        """phi(q) (phi(k)^T v), divided by phi(q) times the sum of phi(k); phi is what kinds differ in."""

        def __init__(self, causal=False):
            super().__init__()
            self.causal = causal
            self.register_buffer("before", below(length // 64))

        def forward(self, x):
            q, k, v = self.parts(x)
            q, k = self.of_queries(q), self.of_keys(k)
            if not self.causal:
                return self.output(merge((q @ (k.transpose(2, 3) @ v)) / (q @ k.sum(2)[..., None])))
            q, k, v = chunks(q), chunks(k), chunks(v)
            scores = (q @ k.transpose(3, 4)).tril()
            states, totals = up_to(k.transpose(3, 4) @ v, self.before), up_to(k.sum(3), self.before)
            total = scores.sum(-1, keepdim=True) + q @ totals[..., None]
            return self.output(merge(((scores @ v + q @ states) / total).flatten(2, 3)))

    class LinearTransformer(FeatureAttention):
        def of_queries(self, x):
            return F.elu(x) + 1

        of_keys = of_queries

    class Performer(FeatureAttention):
        """What all features of a query, or of all keys, have in common cancels."""

        def __init__(self, causal=False):
            super().__init__(causal)
            rows = [torch.linalg.qr(torch.randn(dh, dh)).Q for _ in range(math.ceil(math.log(dh)))]
            w = torch.cat(rows)[: int(dh * math.log(dh))]
            self.register_buffer("w", w * torch.randn(w.shape).norm(dim=1, keepdim=True) * dh**-0.25)

        def of_queries(self, x):
            exponents = x @ self.w.T
            return torch.exp(exponents - exponents.detach().amax(-1, keepdim=True))

        def of_keys(self, x):
            exponents = x @ self.w.T - x.square().sum(-1, keepdim=True) / (2 * math.sqrt(dh))
            return torch.exp(exponents - exponents.detach().amax((2, 3), keepdim=True))

    class RetNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.input, self.output = linear(6 * width), nn.Linear(2 * width, width, bias=False)
            angles = torch.arange(length)[:, None] * 10000 ** (-torch.arange(0, dh, 2) / dh)
            self.register_buffer("cos", angles.cos()), self.register_buffer("sin", angles.sin())
            log_gamma = torch.log1p(-(2.0 ** (-5 - torch.arange(heads))))[:, None, None]

            def powers(count):  # gamma^(i - j) where i >= j
                at = torch.arange(count)
                return torch.exp(log_gamma * (at[:, None] - at)).tril()

            at, count = torch.arange(64)[:, None], length // 64
            positions_between = 64 * (torch.arange(count)[:, None] - torch.arange(count) - 1)
            self.register_buffer("within", powers(64)[:, None] / math.sqrt(dh))
            self.register_buffer("since", torch.exp(log_gamma * (at + 1))[:, None] / math.sqrt(dh))
            self.register_buffer("until", torch.exp(log_gamma * (63 - at))[:, None])
            self.register_buffer("before", torch.exp(log_gamma * positions_between).tril(-1))

        def forward(self, x):
            qk, v, gate = self.input(x).split(2 * width, -1)
            left, right = split(qk).chunk(2, -1)  # each head of the queries, then of the keys
            turned = torch.cat([left * self.cos - right * self.sin, left * self.sin + right * self.cos], -1)
            q, k = (chunks(t) for t in turned.chunk(2, 1))
            v = chunks(v.unflatten(2, (heads, -1)).transpose(1, 2))
            states = up_to((k * self.until).transpose(3, 4) @ v, self.before)
            y = ((q @ k.transpose(3, 4)) * self.within) @ v + (q * self.since) @ states
            y = F.layer_norm(y, y.shape[-1:])
            return self.output(F.silu(gate) * merge(y.flatten(2, 3)))

    class GatedLinearAttention(nn.Module):
        rank, temperature, chunk = 16, 16, 16  # of more tokens, e^-5 for each would leave the range of numbers

        def __init__(self):
            super().__init__()
            self.input, self.output = linear(3 * width + self.rank), linear()
            self.gate_bias = nn.Parameter(torch.zeros(width))
            self.fade = nn.Linear(self.rank, width // 2)

        def forward(self, x):
            q, k, v, gate, fade = self.input(x).split([width // 2, width // 2, width, width, self.rank], -1)
            log_decay = (F.logsigmoid(self.fade(fade)) / self.temperature).clamp(min=-5)
            q, k, v, a = (chunks(t.unflatten(2, (heads, -1)).transpose(1, 2), self.chunk) for t in (q, k, v, log_decay))
            a = a.cumsum(3)
            whole = a[:, :, :, -1:]
            q, scaled = q * a.exp() / math.sqrt(dh // 2), k * (-a).exp()
            states = states_before((k * (whole - a).exp()).transpose(3, 4) @ v, whole.exp().transpose(3, 4))
            y = (q @ scaled.transpose(3, 4)).tril() @ v + q @ states
            y = F.layer_norm(y, y.shape[-1:])
            return self.output(F.silu(gate + self.gate_bias) * merge(y.flatten(2, 3)))

    def of_heads(x):  # [B, N, H n] -> [B, H, N, n]
        return x.unflatten(2, (heads, -1)).transpose(1, 2)

    def states_before(added, keep):  # [B, H, C, dk, dv] each; keep may broadcast
        state, states = torch.zeros_like(added[:, :, 0]), []
        for fading, new in zip(keep.unbind(2), added.unbind(2)):
            states.append(state)
            state = torch.addcmul(new, fading, state)
        return torch.stack(states, 2)

    class ShortConvolution(nn.Conv1d):
        def __init__(self, channels, bias=False):
            super().__init__(channels, channels, 4, padding=3, groups=channels, bias=bias)

        def forward(self, x):
            return F.silu(super().forward(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))

    class Mamba2(nn.Module):
        """State space duality (arXiv 2405.21060, section 6), in chunks of 64."""

        states = 64

        def __init__(self):
            super().__init__()
            self.inner = 2 * width
            self.input = linear(2 * self.inner + 2 * self.states + heads)
            self.output = nn.Linear(self.inner, width, bias=False)
            self.convolution = ShortConvolution(self.inner + 2 * self.states, bias=True)
            self.rate, self.step = nn.Parameter(torch.rand(heads)), nn.Parameter(torch.zeros(heads) - 4)
            self.skip, self.norm = nn.Parameter(torch.ones(heads)), nn.Parameter(torch.ones(self.inner))

        def forward(self, x):
            gate, xbc, dt = self.input(x).split([self.inner, self.inner + 2 * self.states, heads], -1)
            x, b, c = self.convolution(xbc).split([self.inner, self.states, self.states], -1)
            x, dt = chunks(of_heads(x)), chunks(F.softplus(dt + self.step).transpose(1, 2)[..., None])
            b, c = (chunks(t[:, None]) for t in (b, c))  # the same for all heads
            a = (-dt * self.rate.exp()[:, None, None, None]).cumsum(3)
            whole, v = a[:, :, :, -1:], x * dt
            states = states_before((b * (whole - a).exp()).transpose(3, 4) @ v, whole.exp())
            weights = (c @ b.transpose(3, 4)) * (a - a.transpose(3, 4)).tril().exp().tril()
            y = weights @ v + (c * a.exp()) @ states + x * self.skip[:, None, None, None]
            y = merge(y.flatten(2, 3)) * F.silu(gate)
            return self.output(F.rms_norm(y, y.shape[-1:], self.norm, 1e-5))

    def overwrite(q, r, w, x, log_decay, k=None, v=None, size=64):
        """S' = e^g S, S = S' + w^T (x - r S') + k^T v, o = q S, in chunks as in arXiv 2406.06484, section 3: what a chunk
        writes solves a triangular system. Decays of features, [..., dk], must stay within the range of numbers in a chunk."""
        q, r, w, a = (chunks(t, size) for t in (q, r, w, log_decay))
        a = a.cumsum(3)
        whole, since = a[:, :, :, -1:], a.exp()
        if a.shape[-1] == 1:
            between = (a - a.transpose(3, 4)).tril().exp()

            def pairs(left, right):
                return (left @ right.transpose(3, 4)) * between
        else:
            before = (-a).exp()

            def pairs(left, right):
                return (left * since) @ (right * before).transpose(3, 4)

        left, r_since = (whole - a).exp(), r * since
        x = chunks(x, size) if x is not None else 0
        if k is not None:
            k, v = chunks(k, size), chunks(v, size)
            x = x - pairs(r, k).tril(-1) @ v
        solved = torch.linalg.solve_triangular(pairs(r, w).tril(-1), torch.cat([x, r_since], -1), upper=False,
                                               unitriangular=True)
        x, r = solved.split([x.shape[-1], r.shape[-1]], -1)
        of_w, w_left, keep = pairs(q, w).tril(), (w * left).transpose(3, 4), whole.exp().transpose(3, 4)
        added = (k * left).transpose(3, 4) @ v if k is not None else None
        state, written, states = torch.zeros_like(w_left[:, :, 0] @ x[:, :, 0]), [], []
        for c in range(q.shape[2]):
            states.append(state)
            written.append(x[:, :, c] - r[:, :, c] @ state)
            state = keep[:, :, c] * state + w_left[:, :, c] @ written[-1]
            if added is not None:
                state = state + added[:, :, c]
        y = (q * since) @ torch.stack(states, 2) + of_w @ torch.stack(written, 2)
        if k is not None:
            y = y + pairs(q, k).tril() @ v
        return y.flatten(2, 3)

    def unit(x):
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)

    class DeltaNet(nn.Module):
        def __init__(self, further, rates):
            super().__init__()
            self.input, self.output = linear(3 * width + heads + further), linear()
            self.convolution, self.norm = ShortConvolution(3 * width), nn.Parameter(torch.ones(dh))
            self.rate, self.step = nn.Parameter(torch.rand(heads)), nn.Parameter(torch.zeros(rates) - 4)

        def recurred(self, qkv, strength, log_decay, size):
            q, k, v = (of_heads(t) for t in self.convolution(qkv).split(width, -1))
            k, strength = unit(k), torch.sigmoid(strength).transpose(1, 2)[..., None]
            y = overwrite(unit(q), k * strength, k, v * strength, log_decay, size=size)
            return merge(F.rms_norm(y, (dh,), self.norm, 1e-5))

    class GatedDeltaNet(DeltaNet):
        def __init__(self):
            super().__init__(heads + width, heads)

        def forward(self, x):
            qkv, strength, fading, gate = self.input(x).split([3 * width, heads, heads, width], -1)
            log_decay = (-F.softplus(fading + self.step) * self.rate.exp()).transpose(1, 2)[..., None]
            return self.output(F.silu(gate) * self.recurred(qkv, strength, log_decay, 64))

    class KimiDelta(DeltaNet):
        def __init__(self):
            super().__init__(2 * dh, width)
            self.fade, self.gate = nn.Linear(dh, width, bias=False), nn.Linear(dh, width)

        def forward(self, x):
            qkv, strength, fading, gate = self.input(x).split([3 * width, heads, dh, dh], -1)
            log_decay = of_heads(-F.softplus(self.fade(fading) + self.step)) * self.rate.exp()[:, None, None]
            return self.output(torch.sigmoid(self.gate(gate)) * self.recurred(qkv, strength, log_decay, 32))

    class Rwkv7(nn.Module):
        rank, gate_rank = 64, 128

        def __init__(self):
            super().__init__()
            self.r, self.k, self.v, self.output = linear(), linear(), linear(), linear()
            for name, rank in (("w", self.rank), ("a", self.rank), ("g", self.gate_rank)):
                setattr(self, name + "_in", linear(rank)), setattr(self, name + "_out", nn.Linear(rank, width, bias=False))
            self.mix = nn.Parameter(torch.rand(6, width))
            self.w0, self.a0, self.bonus = (nn.Parameter(torch.zeros(width)) for _ in range(3))
            self.removal, self.replacement = (nn.Parameter(torch.ones(width)) for _ in range(2))
            self.norm, self.norm_bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

        def forward(self, x):
            difference = F.pad(x, (0, 0, 1, -1)) - x
            r, w, k, v, a, g = (torch.addcmul(x, difference, share) for share in self.mix)
            r, k, v = self.r(r), self.k(k), of_heads(self.v(v))
            log_w = of_heads(torch.sigmoid(self.w_out(torch.tanh(self.w_in(w))) + self.w0) * -math.exp(-0.5))
            a = torch.sigmoid(self.a_out(self.a_in(a)) + self.a0)
            kappa = F.normalize(of_heads(k * self.removal), dim=-1)
            replacing, r_heads = of_heads(k * ((a - 1) * self.replacement + 1)), of_heads(r)
            y = overwrite(r_heads, kappa * torch.exp(-log_w), kappa * of_heads(a), None, log_w, replacing, v, size=32)
            y = F.group_norm(merge(y).flatten(0, 1), heads, self.norm, self.norm_bias, 1e-5 * dh).view_as(x)
            y = y + merge((of_heads(r * self.bonus) * replacing).sum(-1, keepdim=True) * v)
            return self.output(y * self.g_out(torch.sigmoid(self.g_in(g))))

    class AttentionFree(Projected):
        def __init__(self, causal=False):
            super().__init__()
            self.causal = causal

        def forward(self, x):
            q, k, v = self.input(x).split(width, -1)
            if not self.causal:
                return self.output(torch.sigmoid(q) * (torch.softmax(k, 1) * v).sum(1, keepdim=True))
            weights = torch.exp(k - k.detach().amax(1, keepdim=True))
            return self.output(torch.sigmoid(q) * (weights * v).cumsum(1) / weights.cumsum(1))

    class FNet(nn.Module):
        def forward(self, x):
            return torch.fft.fft2(x).real

    class Nystromformer(Projected):
        landmarks, steps = 64, 6

        def forward(self, x):
            q, k, v = self.parts(x)
            of_q, of_k = (t.unflatten(2, (self.landmarks, -1)).mean(3) for t in (q, k))
            a = torch.softmax(of_q @ of_k.transpose(2, 3) / math.sqrt(dh), -1)
            z = a.transpose(2, 3) / a.sum(2).amax(-1)[..., None, None]  # rows add up to 1
            one = torch.eye(self.landmarks)
            for _ in range(self.steps):
                az = a @ z
                z = 0.25 * z @ (13 * one - az @ (15 * one - az @ (7 * one - az)))
            return self.output(merge(attend(q, of_k, z @ attend(of_q, k, v))))

    def attend_in_blocks(q, k, v, mask=None):  # [B, H, C, L, dh]; fused only where blocks are samples
        y = attend(*(t.transpose(1, 2).flatten(0, 1) for t in (q, k, v)), attn_mask=mask)
        return y.unflatten(0, (q.shape[0], -1)).transpose(1, 2).flatten(2, 3)

    class Local(Projected):
        """Blocks of the reach see their neighbours."""

        reach = 64

        def __init__(self):
            super().__init__()
            rows, near = torch.arange(self.reach)[:, None], torch.arange(-self.reach, 2 * self.reach)
            at = torch.arange(0, length, self.reach)[:, None, None] + near
            self.register_buffer("seen", ((rows - near).abs() <= self.reach) & (at >= 0) & (at < length))

        def forward(self, x):
            q, k, v = self.parts(x)

            def around(t):
                return F.pad(t, (0, 0, self.reach, self.reach)).unfold(2, 3 * self.reach, self.reach).transpose(3, 4)

            seen = self.seen[:, None].repeat(x.shape[0], 1, 1, 1)
            return self.output(merge(attend_in_blocks(chunks(q), around(k), around(v), seen)))

    class Sinkhorn(Projected):
        block, steps, temperature = 64, 7, 0.75

        def __init__(self):
            super().__init__()
            self.count = length // self.block
            self.hidden, self.order = nn.Linear(width, width), nn.Linear(width, heads * self.count)

        def forward(self, x):
            means = x.unflatten(1, (self.count, self.block)).mean(2)
            r = self.order(torch.relu(self.hidden(means))).unflatten(2, (heads, -1)).transpose(1, 2)
            if self.training:
                r = r - torch.empty_like(r).exponential_().log()
            r = r / self.temperature
            for _ in range(self.steps):
                r = torch.log_softmax(torch.log_softmax(r, 3), 2)
            sorting = r.exp()

            def with_sorted(t):
                own = chunks(t, self.block)
                return torch.cat([(sorting @ own.flatten(3)).view(own.shape), own], 3)

            q, k, v = self.parts(x)
            return self.output(merge(attend_in_blocks(chunks(q, self.block), with_sorted(k), with_sorted(v))))

    own = locals()

    def layer(case):
        kind = own[CASES[case][0]]
        return kind(causal=True) if case.endswith(":causal") else kind()

    return layer


def run_torch(case, length, options):
    """One process of PyTorch: prints the best time of a pass, the growth of the process, and the number of parameters."""
    torch = peers.set_up_torch(options.threads)

    def once(module, x, slope):
        module.zero_grad(set_to_none=True)
        x.grad = None
        (module(x) * slope).sum().backward()

    def inputs(n):
        return torch.randn(1, n, options.width, requires_grad=True), torch.randn(1, n, options.width)

    once(layers(options.width, options.heads, 256)("dot_product"), *inputs(256))  # libraries and threads are there
    before = peers.memory_megabytes("VmRSS")
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    module = layers(options.width, options.heads, length)(case)
    x, slope = inputs(length)
    times = []
    once(module, x, slope)
    while len(times) < 3 or sum(times) < 0.1:
        start = time.perf_counter()
        once(module, x, slope)
        times.append(time.perf_counter() - start)
    print(json.dumps({"ms": 1000 * min(times), "peak_mb": peers.memory_megabytes("VmHWM") - before,
                      "parameters": sum(p.numel() for p in module.parameters() if p.requires_grad)}))


def compare(case, length, options):
    common = ["--width", str(options.width), "--heads", str(options.heads), "--threads", str(options.threads)]
    heed_command = [options.heed, "bench", "attention", "--variants", case.partition(":")[0], "--lengths", str(length), *common,
                    "--json", *CASES[case][1:]]
    torch_command = [sys.executable, __file__, "--run-torch", case, "--lengths", str(length), *common]
    heed, torch = peers.in_turn(options.pairs, lambda: peers.run(*heed_command), lambda: peers.run(*torch_command))
    if heed[0]["parameters"] != torch[0]["parameters"]:
        sys.exit(f"{case}: {heed[0]['parameters']} parameters in heed, {torch[0]['parameters']} in PyTorch: not the same layer")
    heed_ms, torch_ms, heed_mb, torch_mb = (
        min(run[key] for run in runs) for key in ("ms", "peak_mb") for runs in (heed, torch))
    print(json.dumps({"case": case, "length": length, "heed_ms": round(heed_ms, 1), "torch_ms": round(torch_ms, 1),
                      "speedup": round(torch_ms / heed_ms, 2), "heed_mb": round(heed_mb, 1), "torch_mb": round(torch_mb, 1),
                      "memory_ratio": round(heed_mb / torch_mb, 2)}), flush=True)


def main():
    parser = peers.parser_of(__doc__, "heed")
    parser.add_argument("--case", action="append", choices=CASES, help="only this one; may be repeated")
    parser.add_argument("--lengths", nargs="+", type=int, default=[1024, 4096], help="multiples of 64 from 1024 on")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--run-torch", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run_torch:
        run_torch(options.run_torch, options.lengths[0], options)
        return
    for length in options.lengths:
        for case in options.case or CASES:
            compare(case, length, options)


if __name__ == "__main__":
    main()
