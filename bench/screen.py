#!/usr/bin/env python3
"""Which changes to a small language model predict held-out text better after the same steps, tried in PyTorch.

    python3 bench/screen.py --data ../shared/data/tinyshakespeare/input.txt --seeds 1,2

The base: 4 layers of width 128 with rotary positions, RMSNorm and SwiGLU; 300 steps of 12 windows of 64 characters; Muon for
the layers' matrices and AdamW for the rest, both at 0.008; a linear schedule after 10 steps of warm-up. Prints a row for each
change: nats per character of the last tenth of the text, less those of the base, and the processor time of its steps,
divided by that of the base's. The mean over the seeds. Needs PyTorch 2.14.
"""

import argparse
import math
import pathlib
import time

import peers
import race_torch

WIDTH, HEADS, HIDDEN, LAYERS, CONTEXT, BATCH, RATE = 128, 4, 344, 4, 64, 12, 0.008
CHANGES = {
    "warmup_1": "no warm-up",
    "warmup_50": "50 steps of warm-up",
    "constant_60": "constant rate for 60 % of the steps",
    "constant_30": "constant rate for 30 %",
    "cosine": "cosine schedule",
    "zero": "last maps of branches begin at zero",
    "smaller": "they begin smaller by sqrt(2 layers)",
    "orthogonal": "orthogonal initial maps",
    "qk_norm": "QK norm",
    "squared_relu": "squared ReLU, 1.5 times as wide",
    "value_residuals": "value residuals",
    "cap": "logits capped at 15",
    "separate_output": "separate output map",
    "short": "half the context for 40 % of the steps",
    "growing": "growing batch",
    "normalized": "normalized embeddings",
    "deviation": "embeddings of deviation 1 / sqrt(width)",
    "iterations_4": "4 iterations of Muon",
    "iterations_3": "3 iterations",
    "momentum_90": "momentum 0.9",
    "adamw": "AdamW",
}


def model_of(torch, vocabulary, changes):
    from torch import nn
    from torch.nn import functional as F

    def norm(width=WIDTH):
        return nn.RMSNorm(width, eps=1e-5)

    class Layer(nn.Module):
        def __init__(self, first):
            super().__init__()
            self.norm1, self.norm2 = norm(), norm()
            self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
            self.output = nn.Linear(WIDTH, WIDTH, bias=False)
            hidden = HIDDEN * 3 // 2 if "squared_relu" in changes else HIDDEN
            self.inner = nn.Linear(WIDTH, hidden if "squared_relu" in changes else 2 * hidden)
            self.outer = nn.Linear(hidden, WIDTH)
            if "qk_norm" in changes:
                self.query_norm, self.key_norm = norm(WIDTH // HEADS), norm(WIDTH // HEADS)
            self.share = nn.Parameter(torch.tensor(0.5)) if "value_residuals" in changes and not first else None
            fill = nn.init.orthogonal_ if "orthogonal" in changes else nn.init.xavier_uniform_
            for part in (*self.query_key_value.weight.split(WIDTH), self.output.weight, self.inner.weight, self.outer.weight):
                fill(part)
            for bias in (self.inner.bias, self.outer.bias):
                nn.init.zeros_(bias)
            with torch.no_grad():
                for last in (self.output.weight, self.outer.weight):
                    last *= 0 if "zero" in changes else (2 * LAYERS) ** -0.5 if "smaller" in changes else 1

        def forward(self, x, turn, first_values):
            batch, length, _ = x.shape
            q, k, v = self.query_key_value(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
            if "qk_norm" in changes:
                q, k = self.query_norm(q), self.key_norm(k)
            if self.share is not None:
                v = self.share * v + (1 - self.share) * first_values
            y = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True)
            x = x + self.output(y.transpose(1, 2).reshape(x.shape))
            y = self.inner(self.norm2(x))
            y = F.relu(y).square() if "squared_relu" in changes else F.silu(y[..., :HIDDEN]) * y[..., HIDDEN:]
            return x + self.outer(y), v

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(vocabulary, WIDTH)
            nn.init.normal_(self.embedding.weight, std=WIDTH**-0.5 if "deviation" in changes else 0.02)
            self.layers = nn.ModuleList(Layer(first=number == 0) for number in range(LAYERS))
            self.norm = norm()
            self.output = nn.Linear(WIDTH, vocabulary, bias=False) if "separate_output" in changes else self.embedding
            if "separate_output" in changes:
                nn.init.zeros_(self.output.weight)
            width = WIDTH // HEADS
            angles = torch.outer(torch.arange(CONTEXT), 10_000.0 ** (-torch.arange(0, width, 2) / width)).repeat(1, 2)
            self.register_buffer("cosines", angles.cos())
            self.register_buffer("sines", angles.sin())

        def turn(self, x):
            one, other = x.chunk(2, -1)
            return x * self.cosines[: x.shape[2]] + torch.cat((-other, one), -1) * self.sines[: x.shape[2]]

        def forward(self, ids):
            x = self.embedding(ids) * WIDTH**0.5
            if "normalized" in changes:
                x = F.rms_norm(x, (WIDTH,))
            first_values = None
            for layer in self.layers:
                x, values = layer(x, self.turn, first_values)
                first_values = values if first_values is None else first_values
            logits = F.linear(self.norm(x), self.output.weight)
            return 15 * torch.tanh(logits / 15) if "cap" in changes else logits

    return Model()


def optimizers_of(torch, model, changes):
    layers = dict(model.layers.named_parameters())
    matrices = [p for p in layers.values() if p.ndim == 2]
    rest = [p for p in model.parameters() if not any(p is one for one in matrices)]
    adamw = [p for p in rest if p.ndim == 2] + (matrices if "adamw" in changes else [])
    groups = [{"params": adamw, "weight_decay": 0.1}, {"params": [p for p in rest if p.ndim < 2], "weight_decay": 0.0}]
    optimizers = [torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.99), eps=1e-8, fused=True)]
    if "adamw" not in changes:
        iterations = 3 if "iterations_3" in changes else 4 if "iterations_4" in changes else 5
        optimizers.append(torch.optim.Muon(matrices, lr=RATE, weight_decay=0.1, momentum=0.9 if "momentum_90" in changes else 0.95,
                                           nesterov=True, ns_steps=iterations, adjust_lr_fn="match_rms_adamw"))
    return optimizers


def rate(step, steps, changes):
    """The learning rate, in multiples of the highest."""
    warmup = 1 if "warmup_1" in changes else 50 if "warmup_50" in changes else 10
    if step <= warmup:
        return step / warmup
    left = 1 - (step - warmup) / (steps - warmup)
    if "cosine" in changes:
        return 0.5 * (1 - math.cos(math.pi * left))
    return min(1, left / (0.4 if "constant_60" in changes else 0.7 if "constant_30" in changes else 1))


def shape_of(step, steps, changes):
    """The windows of a step: their length and number."""
    if "short" in changes and step < 0.4 * steps:
        return CONTEXT // 2, 2 * BATCH
    return CONTEXT, round(BATCH * (0.5 + step / steps)) if "growing" in changes else BATCH


def trained(torch, ids, vocabulary, changes, seed, steps):
    """Nats per character after training, and the processor seconds of the steps."""
    from torch.nn import functional as F

    torch.manual_seed(seed)
    cut = int(len(ids) * 0.9)
    model = model_of(torch, vocabulary, changes)
    optimizers = optimizers_of(torch, model, changes)
    generator, start = torch.Generator().manual_seed(seed), time.process_time()
    for step in range(1, steps + 1):
        for group in (group for one in optimizers for group in one.param_groups):
            group["lr"] = RATE * rate(step, steps, changes)
        inputs, targets = race_torch.windows_of(torch, ids[:cut], *shape_of(step, steps, changes), generator)
        model.zero_grad(set_to_none=True)
        F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
    seconds = time.process_time() - start
    return race_torch.nats_of(torch, model, ids[cut:], CONTEXT), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="a text")
    parser.add_argument("--changes", nargs="+", default=list(CHANGES), metavar="CHANGE",
                        help=f"rows, each one change or several joined by + (default: each alone): {', '.join(CHANGES)}")
    parser.add_argument("--seeds", default="1", help="with commas between (default: 1)")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    rows = [frozenset(row.split("+")) for row in options.changes]
    if unknown := frozenset().union(*rows) - set(CHANGES):
        parser.error(f"there is no change {', '.join(sorted(unknown))}; there are {', '.join(CHANGES)}")
    torch = peers.set_up_torch(options.threads)
    ids, vocabulary = race_torch.characters_of(torch, options.data)

    def mean(changes):
        seeds = [int(seed) for seed in options.seeds.split(",")]
        found = [trained(torch, ids, vocabulary, changes, seed, options.steps) for seed in seeds]
        return [sum(values) / len(seeds) for values in zip(*found)]

    base, seconds = mean(frozenset())
    print(f"| change | nats ({base:.3f}) | time ({seconds:.1f} s) |\n|---|---|---|", flush=True)
    for changes in rows:
        nats, spent = mean(changes)
        name = ", ".join(CHANGES[change] for change in CHANGES if change in changes)
        print(f"| {name} | {nats - base:+.3f} | {spent / seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()
