"""PyTorch in `compare_torch.py --attention`: every mechanism as well as its operations allow.

Fused attention wherever scores are a product, blocks and windows as batches of small attentions,
one product for query, key and value. A mechanism is a method of x [B, N, width] of its name."""

import math

import torch
from torch import nn
from torch.nn import functional as F

attend = F.scaled_dot_product_attention


def merge(x):  # [B, H, N, n] -> [B, N, H n]
    return x.transpose(1, 2).flatten(2)


def chunks(t, size=64):  # [B, H, N, m] -> [B, H, C, size, m]
    return t.unflatten(2, (-1, size))


def around(t, half, room=0):
    """Blocks of `half` rows with their neighbours: [B, H, N, n] -> [B, H, C, 3 half, n]."""
    return F.pad(t, (0, 0, half, half + room)).unfold(2, 3 * half, half).transpose(3, 4)


def attend_in_blocks(q, k, v, mask=None):  # [B, H, C, L, n]; fused only where blocks are samples
    y = attend(*(t.transpose(1, 2).flatten(0, 1) for t in (q, k, v)), attn_mask=mask)
    return y.unflatten(0, (q.shape[0], -1)).transpose(1, 2).flatten(2, 3)


def up_to(states, weights):
    """[B, H, C, ...], weights [C, C] or [H, C, C]: cumsum along rows of a matrix is slower."""
    return (weights @ states.flatten(3)).view_as(states)


def states_before(added, keep):  # [B, H, C, dk, dv] each; keep may broadcast
    state, states = torch.zeros_like(added[:, :, 0]), []
    for fading, new in zip(keep.unbind(2), added.unbind(2)):
        states.append(state)
        state = torch.addcmul(new, fading, state)
    return torch.stack(states, 2)


def overwrite(q, r, w, x, log_decay, k=None, v=None, size=64):
    """S' = e^g S, S = S' + w^T (x - r S') + k^T v, o = q S, in chunks as in arXiv 2406.06484,
    section 3: what a chunk writes solves a triangular system. Decays of features, [..., dk], must
    stay within the range of numbers in a chunk."""
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
    solved = torch.linalg.solve_triangular(
        pairs(r, w).tril(-1), torch.cat([x, r_since], -1), upper=False, unitriangular=True)
    x, r = solved.split([x.shape[-1], r.shape[-1]], -1)
    w_left, keep = (w * left).transpose(3, 4), whole.exp().transpose(3, 4)
    added = (k * left).transpose(3, 4) @ v if k is not None else None
    state, written, states = torch.zeros_like(w_left[:, :, 0] @ x[:, :, 0]), [], []
    for c in range(q.shape[2]):
        states.append(state)
        written.append(x[:, :, c] - r[:, :, c] @ state)
        state = keep[:, :, c] * state + w_left[:, :, c] @ written[-1]
        if added is not None:
            state = state + added[:, :, c]
    y = (q * since) @ torch.stack(states, 2) + pairs(q, w).tril() @ torch.stack(written, 2)
    if k is not None:
        y = y + pairs(q, k).tril() @ v
    return y.flatten(2, 3)


class Layer(nn.Module):
    """Its parameters are made where the mechanism first asks for them."""

    def __init__(self, mechanism, width, heads, length, causal):
        super().__init__()
        self.mechanism, self.causal = getattr(self, mechanism), causal
        self.width, self.heads, self.size, self.length = width, heads, width // heads, length
        self.made = {}

    def forward(self, x):
        return self.mechanism(x)

    def module(self, name, make):
        if name not in self._modules:
            self.add_module(name, make())
        return self._modules[name]

    def linear(self, name, x, to=None, bias=False):
        return self.module(name, lambda: nn.Linear(x.shape[-1], to or self.width, bias))(x)

    def weight(self, name, *shape, fill=None):
        if name not in self._parameters:
            scale = math.sqrt(shape[-2]) if fill is None else 1
            values = torch.randn(shape) / scale if fill is None else torch.full(shape, float(fill))
            self.register_parameter(name, nn.Parameter(values))
        return self._parameters[name]

    def constant(self, name, make):
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]

    def split(self, x):  # [B, N, H n] -> [B, H, N, n]
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)

    def parts(self, x, maps=3):
        rows = self.linear("input", x, maps * self.width)
        return [self.split(part) for part in rows.split(self.width, -1)]

    def project(self, y):
        return self.linear("output", merge(y))

    # --- scores that are a product

    def dot_product(self, x):
        return self.project(attend(*self.parts(x), is_causal=self.causal))

    def hard_coded_gaussian(self, x, reach=7):
        """A convolution of every channel with the density of its head, of seven deviations."""

        def densities():
            steps = torch.arange(-reach, reach + 1, dtype=torch.float32)
            rows = [torch.exp(-((steps - (-1, 1)[h % 2]) ** 2) / 2) for h in range(self.heads)]
            rows = torch.stack(rows) / math.sqrt(2 * math.pi)
            return rows.repeat_interleave(self.size, 0)[:, None]

        kernel = self.constant("kernel", densities)
        values = self.linear("input", x).transpose(1, 2)
        y = F.conv1d(values, kernel, padding=reach, groups=self.width)
        return self.linear("output", y.transpose(1, 2))

    def fastformer(self, x):
        flat, key = self.linear("input", x, 2 * self.width).split(self.width, -1)

        def pooled(rows, name):  # [B, N, d] -> [B, H, 1, n]
            scores = self.linear(name, rows, self.heads) / math.sqrt(self.size)
            return torch.softmax(scores, 1).transpose(1, 2)[:, :, None] @ self.split(rows)

        p = pooled(flat, "query_score") * self.split(key)
        u = pooled(merge(p), "key_score") * self.split(flat)
        return self.project(u) + flat

    def linformer(self, x):
        q, k, v = self.parts(x)
        e, f = (self.weight(name, min(256, self.length), self.length) for name in ("e", "f"))
        return self.project(attend(q, e @ k, f @ v))

    def nystromformer(self, x, landmarks=64, steps=6):
        q, k, v = self.parts(x)
        of_q, of_k = (t.unflatten(2, (landmarks, -1)).mean(3) for t in (q, k))
        a = torch.softmax(of_q @ of_k.transpose(2, 3) / math.sqrt(self.size), -1)
        z = a.transpose(2, 3) / a.sum(2).amax(-1)[..., None, None]  # rows add up to 1
        one = torch.eye(landmarks)
        for _ in range(steps):
            az = a @ z
            z = 0.25 * z @ (13 * one - az @ (15 * one - az @ (7 * one - az)))
        return self.project(attend(q, of_k, z @ attend(of_q, k, v)))

    def fnet(self, x):
        return torch.fft.fft2(x).real

    # --- windows and blocks

    def local(self, x, reach=64):
        """Blocks of the reach see their neighbours."""
        q, k, v = self.parts(x)

        def visible():
            rows, near = torch.arange(reach)[:, None], torch.arange(-reach, 2 * reach)
            at = torch.arange(0, self.length, reach)[:, None, None] + near
            return ((rows - near).abs() <= reach) & (at >= 0) & (at < self.length)

        seen = self.constant("seen", visible)[:, None].repeat(x.shape[0], 1, 1, 1)
        return self.project(attend_in_blocks(chunks(q), around(k, reach), around(v, reach), seen))

    def longformer(self, x, half=64, first=1):
        """Blocks of half a window see their neighbours; the first token sees all and all see it."""
        q, k, v = self.parts(x)
        blocks = -(-self.length // half)
        room = blocks * half - self.length

        def visible():
            rows = torch.arange(blocks * half).view(blocks, half, 1)
            near = ((torch.arange(blocks)[:, None] - 1) * half + torch.arange(3 * half))[:, None]
            seen = ((rows - near).abs() <= half) & (near >= first) & (near < self.length)
            return torch.cat([torch.ones(blocks, half, first, dtype=torch.bool), seen], -1)

        def seen(t):  # [B, H, N, n] -> [B, H, blocks, first + 3 half, n]
            global_rows = t[:, :, None, :first].expand(-1, -1, blocks, -1, -1)
            return torch.cat([global_rows, around(t, half, room)], 3)

        rows = F.pad(q, (0, 0, 0, room)).unflatten(2, (blocks, half))
        y = attend(rows, seen(k), seen(v), attn_mask=self.constant("visible", visible))
        self.module("of_global", lambda: nn.Linear(self.width, 3 * self.width, bias=False))
        wq, wk, wv = self.of_global.weight.split(self.width)
        global_q = self.split(F.linear(x[:, :first], wq))
        ends = attend(global_q, self.split(F.linear(x, wk)), self.split(F.linear(x, wv)))
        return self.project(torch.cat([ends, y.flatten(2, 3)[:, :, first : self.length]], 2))

    def bigbird(self, x, block=64):
        """The first and the last block see all and all see them; the others three around them and
        three at random."""
        q, k, v = self.parts(x)
        count = self.length // block

        def pattern():
            middle = torch.arange(1, count - 1)
            near = [middle - 1, middle, middle + 1]
            drawn = torch.stack([
                torch.tensor([j for j in torch.randperm(count).tolist()
                              if 0 < j < count - 1 and abs(j - i) > 1][:3])
                for _ in range(self.heads) for i in middle.tolist()])
            own = torch.stack([0 * middle, *near, 0 * middle + count - 1], 1)
            columns = torch.cat([own.expand(self.heads, -1, -1),
                                 drawn.view(self.heads, count - 2, 3)], 2)
            # a neighbour that is a global block is there once
            allowed = torch.ones(columns.shape, dtype=torch.bool)
            allowed[:, :, 1:4] &= (own[:, 1:4] != 0) & (own[:, 1:4] != count - 1)
            return columns, allowed.repeat_interleave(block, 2)[None, :, :, None]

        columns, allowed = self.constant("pattern", pattern)
        head = torch.arange(self.heads)[:, None, None]

        def seen(t):  # [B, H, blocks, 8 block, n]
            return t.unflatten(2, (count, block))[:, head, columns].flatten(3, 4)

        rows = q.unflatten(2, (count, block))[:, :, 1:-1]
        middle = attend(rows, seen(k), seen(v), attn_mask=allowed).flatten(2, 3)
        ends = attend(torch.cat([q[:, :, :block], q[:, :, -block:]], 2), k, v)
        return self.project(torch.cat([ends[:, :, :block], middle, ends[:, :, block:]], 2))

    def sinkhorn(self, x, block=64, steps=7, temperature=0.75):
        count = self.length // block
        means = x.unflatten(1, (count, block)).mean(2)
        hidden = torch.relu(self.linear("hidden", means, bias=True))
        r = self.split(self.linear("order", hidden, self.heads * count, bias=True))
        if self.training:
            r = r - torch.empty_like(r).exponential_().log()
        r = r / temperature
        for _ in range(steps):
            r = torch.log_softmax(torch.log_softmax(r, 3), 2)
        sorting = r.exp()

        def with_sorted(t):
            own = chunks(t, block)
            return torch.cat([(sorting @ own.flatten(3)).view(own.shape), own], 3)

        q, k, v = self.parts(x)
        return self.project(attend_in_blocks(chunks(q, block), with_sorted(k), with_sorted(v)))

    # --- rows in clusters

    def clusterformer(self, x, clusters=16):
        centroids = self.weight("centroids", clusters, self.width)
        similarity = F.normalize(self.linear("similarity", x), dim=-1)
        units = similarity @ F.normalize(centroids, dim=-1).T  # [B, N, clusters]
        new = torch.softmax(units, 1).transpose(1, 2) @ x
        order = units.argmax(-1).argsort(dim=-1, stable=True)[:, None]
        q, k, v = self.parts(x)
        at = order[..., None].expand(q.shape)
        # Rows in this order, cut into blocks that see themselves and the next.
        q, k, v = (t.gather(2, at).unflatten(2, (clusters, -1)) for t in (q, k, v))
        k, v = (torch.cat([t, F.pad(t[:, :, 1:], (0, 0, 0, 0, 0, 1))], 3) for t in (k, v))
        mask = torch.ones(clusters, 1, k.shape[3], dtype=torch.bool)
        mask[-1, :, q.shape[3] :] = False
        y = attend(q, k, v, attn_mask=mask).flatten(2, 3)
        y = torch.zeros_like(y).scatter(2, at, y)
        # The two losses: words at their centroid, centroids in order.
        own = units.gather(2, units.argmax(-1, keepdim=True)).mean()
        new = F.normalize(new, dim=-1)
        return self.project(y) - 0.01 * (own + (new[:, 1:] * new[:, :-1]).sum(-1).mean())

    def routing_transformer(self, x):
        clusters = math.ceil(math.sqrt(self.length))
        window = -(-self.length // clusters)
        centroids = self.constant(
            "centroids", lambda: torch.randn(self.heads, clusters, self.size))
        q, k, v = self.parts(x)
        q, k = F.layer_norm(q, (self.size,)), F.layer_norm(k, (self.size,))

        def members(t):  # [B, H, clusters window]
            with torch.no_grad():
                nearest = (centroids @ t.transpose(2, 3)).topk(window, -1).indices
                return nearest.sort(-1).values.flatten(2)[..., None].expand(-1, -1, -1, self.size)

        def rows(t, places):
            return t.gather(2, places).unflatten(2, (clusters, window))

        of_q, of_k = members(q), members(k)
        y = attend(rows(q, of_q), rows(k, of_k), rows(v, of_k)).flatten(2, 3)
        total = torch.zeros_like(q).scatter_add(2, of_q, y)
        count = torch.zeros_like(q).scatter_add(2, of_q, torch.ones_like(y))
        commitment = 0
        for t in (q, k):
            with torch.no_grad():
                nearest = (t @ centroids.transpose(1, 2)).argmax(-1)
                means = centroids[torch.arange(self.heads)[:, None], nearest]
            commitment = commitment + ((t - means) ** 2).mean()
        return self.project(total / count.clamp(min=1)) + 5e-5 * commitment

    def reformer(self, x, rounds=2, chunk=64):
        q, v = self.parts(x, 2)
        root = math.sqrt(self.size)
        k = F.normalize(q, dim=-1) * root  # divided by the root once more below
        buckets, blocks = 2 * -(-self.length // chunk), self.length // chunk

        def with_previous(t):
            return torch.cat([F.pad(t[:, :, :-1], (0, 0) * (t.dim() - 3) + (1, 0)), t], 3)

        outputs, sums = [], []
        for _ in range(rounds):
            with torch.no_grad():
                rotated = q @ torch.randn(self.heads, self.size, buckets // 2)
                bucket = torch.cat([rotated, -rotated], -1).argmax(-1)
                order = bucket.argsort(dim=-1, stable=True)
            at = order[..., None].expand(q.shape)
            sq, sk, sv = (t.gather(2, at).unflatten(2, (blocks, -1)) for t in (q, k, v))
            own, place = (t.unflatten(2, (blocks, -1))[..., None]
                          for t in (bucket.gather(2, order), order))
            scores = sq @ with_previous(sk).transpose(3, 4) / root
            scores = scores.masked_fill(own != with_previous(own).transpose(3, 4), -math.inf)
            scores = scores - 1e5 * (place == with_previous(place).transpose(3, 4))
            lse = torch.logsumexp(scores, -1, keepdim=True)
            y = (torch.exp(scores - lse) @ with_previous(sv)).flatten(2, 3)
            outputs.append(torch.zeros_like(y).scatter(2, at, y))
            flat = lse.flatten(2, 3)
            sums.append(torch.zeros_like(flat).scatter(2, order[..., None], flat))
        weights = torch.softmax(torch.stack(sums), 0)
        return self.project((torch.stack(outputs) * weights).sum(0))

    # --- sums over all tokens, causal ones in chunks: within a chunk as a product of queries and
    # keys, and from the chunks before by way of their states

    def feature_attention(self, q, k, v):
        """phi(q) (phi(k)^T v), divided by phi(q) times the sum of phi(k)."""
        if not self.causal:
            return self.project((q @ (k.transpose(2, 3) @ v)) / (q @ k.sum(2)[..., None]))
        count = self.length // 64
        before = self.constant("before", lambda: torch.ones(count, count).tril(-1))
        q, k, v = chunks(q), chunks(k), chunks(v)
        scores = (q @ k.transpose(3, 4)).tril()
        states, totals = up_to(k.transpose(3, 4) @ v, before), up_to(k.sum(3), before)
        total = scores.sum(-1, keepdim=True) + q @ totals[..., None]
        return self.project(((scores @ v + q @ states) / total).flatten(2, 3))

    def linear_transformer(self, x):
        q, k, v = self.parts(x)
        return self.feature_attention(F.elu(q) + 1, F.elu(k) + 1, v)

    def performer(self, x):
        """What all features of a query, or of all keys, have in common cancels."""
        size = self.size

        def directions():
            count = math.ceil(math.log(size))
            rows = [torch.linalg.qr(torch.randn(size, size)).Q for _ in range(count)]
            w = torch.cat(rows)[: int(size * math.log(size))]
            return w * torch.randn(w.shape).norm(dim=1, keepdim=True) * size**-0.25

        w = self.constant("w", directions)
        q, k, v = self.parts(x)
        of_q = q @ w.T
        of_k = k @ w.T - k.square().sum(-1, keepdim=True) / (2 * math.sqrt(size))
        of_q = torch.exp(of_q - of_q.detach().amax(-1, keepdim=True))
        of_k = torch.exp(of_k - of_k.detach().amax((2, 3), keepdim=True))
        return self.feature_attention(of_q, of_k, v)

    def attention_free_transformer(self, x):
        q, k, v = self.linear("input", x, 3 * self.width).split(self.width, -1)
        if self.causal:
            weights = torch.exp(k - k.detach().amax(1, keepdim=True))
            found = (weights * v).cumsum(1) / weights.cumsum(1)
        else:
            found = (torch.softmax(k, 1) * v).sum(1, keepdim=True)
        return self.linear("output", torch.sigmoid(q) * found)

    def retnet(self, x):
        heads, size, root = self.heads, self.size, math.sqrt(self.size)

        def tables():
            rates = 10000 ** (-torch.arange(0, size, 2) / size)
            angles = torch.arange(self.length)[:, None] * rates
            log_gamma = torch.log1p(-(2.0 ** (-5 - torch.arange(heads))))[:, None, None]
            at, count = torch.arange(64), torch.arange(self.length // 64)
            within = torch.exp(log_gamma * (at[:, None] - at)).tril()[:, None] / root
            since = torch.exp(log_gamma * (at[:, None] + 1))[:, None] / root
            until = torch.exp(log_gamma * (63 - at[:, None]))[:, None]
            before = torch.exp(log_gamma * 64 * (count[:, None] - count - 1)).tril(-1)
            return angles.cos(), angles.sin(), within, since, until, before

        cos, sin, within, since, until, before = self.constant("tables", tables)
        qk, v, gate = self.linear("input", x, 6 * self.width).split(2 * self.width, -1)
        qk = qk.unflatten(2, (2 * heads, -1)).transpose(1, 2)  # each head of queries, then of keys
        left, right = qk.chunk(2, -1)
        rotated = torch.cat([left * cos - right * sin, left * sin + right * cos], -1)
        q, k = (chunks(t) for t in rotated.chunk(2, 1))
        v = chunks(self.split(v))
        states = up_to((k * until).transpose(3, 4) @ v, before)
        y = ((q @ k.transpose(3, 4)) * within) @ v + (q * since) @ states
        y = F.layer_norm(y, y.shape[-1:])
        return self.linear("output", F.silu(gate) * merge(y.flatten(2, 3)))

    def gated_linear_attention(self, x, rank=16, temperature=16, chunk=16):
        # chunk: of more tokens, e^-5 for each would leave the range of numbers
        d, half = self.width, self.width // 2
        rows = self.linear("input", x, 3 * d + rank)
        q, k, v, gate, fade = rows.split([half, half, d, d, rank], -1)
        fade = F.logsigmoid(self.linear("fade", fade, half, bias=True))
        log_decay = (fade / temperature).clamp(min=-5)
        q, k, v, a = (chunks(self.split(t), chunk) for t in (q, k, v, log_decay))
        a = a.cumsum(3)
        whole = a[:, :, :, -1:]
        q, scaled = q * a.exp() / math.sqrt(self.size // 2), k * (-a).exp()
        added = (k * (whole - a).exp()).transpose(3, 4) @ v
        states = states_before(added, whole.exp().transpose(3, 4))
        y = (q @ scaled.transpose(3, 4)).tril() @ v + q @ states
        y = merge(F.layer_norm(y, y.shape[-1:]).flatten(2, 3))
        return self.linear("output", F.silu(gate + self.weight("gate_bias", d, fill=0)) * y)

    def short_convolution(self, x, bias=False):
        channels, length = x.shape[2], x.shape[1]
        convolution = self.module("convolution", lambda: nn.Conv1d(
            channels, channels, 4, padding=3, groups=channels, bias=bias))
        return F.silu(convolution(x.transpose(1, 2))[..., :length].transpose(1, 2))

    def mamba2(self, x, states=64):
        """State space duality (arXiv 2405.21060, section 6), in chunks of 64."""
        inner, heads = 2 * self.width, self.heads
        rows = self.linear("input", x, 2 * inner + 2 * states + heads)
        gate, xbc, dt = rows.split([inner, inner + 2 * states, heads], -1)
        x, b, c = self.short_convolution(xbc, bias=True).split([inner, states, states], -1)
        step, rate = self.weight("step", heads, fill=-4), self.weight("rate", heads, fill=0.5)
        x, dt = chunks(self.split(x)), chunks(F.softplus(dt + step).transpose(1, 2)[..., None])
        b, c = (chunks(t[:, None]) for t in (b, c))  # the same for all heads
        a = (-dt * rate.exp()[:, None, None, None]).cumsum(3)
        whole, v = a[:, :, :, -1:], x * dt
        state = states_before((b * (whole - a).exp()).transpose(3, 4) @ v, whole.exp())
        weights = (c @ b.transpose(3, 4)) * (a - a.transpose(3, 4)).tril().exp().tril()
        skip = self.weight("skip", heads, fill=1)[:, None, None, None]
        y = weights @ v + (c * a.exp()) @ state + x * skip
        y = merge(y.flatten(2, 3)) * F.silu(gate)
        y = F.rms_norm(y, (inner,), self.weight("norm", inner, fill=1), 1e-5)
        return self.linear("output", y)

    def delta_rule(self, qkv, strength, log_decay, size):
        def unit(t):
            return t * torch.rsqrt(t.square().sum(-1, keepdim=True) + 1e-6)

        q, k, v = (self.split(t) for t in self.short_convolution(qkv).split(self.width, -1))
        k, strength = unit(k), torch.sigmoid(strength).transpose(1, 2)[..., None]
        y = overwrite(unit(q), k * strength, k, v * strength, log_decay, size=size)
        return merge(F.rms_norm(y, (self.size,), self.weight("norm", self.size, fill=1), 1e-5))

    def gated_deltanet(self, x):
        d, heads = self.width, self.heads
        rows = self.linear("input", x, 4 * d + 2 * heads)
        qkv, strength, fading, gate = rows.split([3 * d, heads, heads, d], -1)
        step, rate = self.weight("step", heads, fill=-4), self.weight("rate", heads, fill=0.5)
        log_decay = (-F.softplus(fading + step) * rate.exp()).transpose(1, 2)[..., None]
        y = self.delta_rule(qkv, strength, log_decay, 64)
        return self.linear("output", F.silu(gate) * y)

    def kimi_delta(self, x):
        d, heads, size = self.width, self.heads, self.size
        rows = self.linear("input", x, 3 * d + heads + 2 * size)
        qkv, strength, fading, gate = rows.split([3 * d, heads, size, size], -1)
        step, rate = self.weight("step", d, fill=-4), self.weight("rate", heads, fill=0.5)
        fading = -F.softplus(self.linear("fade", fading) + step)
        y = self.delta_rule(qkv, strength, self.split(fading) * rate.exp()[:, None, None], 32)
        return self.linear("output", torch.sigmoid(self.linear("gate", gate, bias=True)) * y)

    def rwkv7(self, x, rank=64, gate_rank=128):
        d, split = self.width, self.split

        def low_rank(name, x, activation, rank=rank):
            return self.linear(name + "_out", activation(self.linear(name + "_in", x, rank)))

        difference = F.pad(x, (0, 0, 1, -1)) - x
        mix = self.weight("mix", 6, d)
        r, w, k, v, a, g = (torch.addcmul(x, difference, share) for share in mix)
        r, k, v = self.linear("r", r), self.linear("k", k), split(self.linear("v", v))
        w0, a0, bonus, norm_bias = (
            self.weight(name, d, fill=0) for name in ("w0", "a0", "bonus", "norm_bias"))
        removal, replacement, norm = (
            self.weight(name, d, fill=1) for name in ("removal", "replacement", "norm"))
        log_w = split(torch.sigmoid(low_rank("w", w, torch.tanh) + w0) * -math.exp(-0.5))
        a = torch.sigmoid(low_rank("a", a, nn.Identity()) + a0)
        kappa = F.normalize(split(k * removal), dim=-1)
        replacing = split(k * ((a - 1) * replacement + 1))
        w = kappa * split(a)
        y = overwrite(split(r), kappa * torch.exp(-log_w), w, None, log_w, replacing, v, size=32)
        y = F.group_norm(merge(y).flatten(0, 1), self.heads, norm, norm_bias, 1e-5 * self.size)
        y = y.view_as(x) + merge((split(r * bonus) * replacing).sum(-1, keepdim=True) * v)
        return self.linear("output", y * low_rank("g", g, torch.sigmoid, gate_rank))
