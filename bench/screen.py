#!/usr/bin/env python3
"""Which changes to a small language model predict held-out text better after the same steps, tried in PyTorch.

    python3 bench/screen.py --data ../shared/data/tinyshakespeare/input.txt --seeds 1,2

The base: 4 layers of width 128 with rotary positions, RMSNorm and SwiGLU; 300 steps of 12 windows of 64 characters; Muon for
the layers' matrices and AdamW for the rest, both at 0.008; a linear schedule after 10 steps of warm-up. Prints a row for each
change: nats per character of the last tenth of the text, less those of the base, and the processor time of its steps,
divided by that of the base's. The mean over the seeds. Needs PyTorch 2.14.
"""

import argparse
import pathlib

import peers
import race
import race_torch

BASE = race.TORCH_SMALL | {"short_share": 0.0, "muon": 0.95, "every": 300}
WIDTH, HEADS, HIDDEN, LAYERS = (BASE[name] for name in ("width", "heads", "hidden", "layers"))


# --- changes to the model (race_torch.transformer)


def scaled(model, factor):
    for layer in model.layers:
        for last in (layer.output, layer.second):
            last.weight.data *= factor


def orthogonal(model):
    from torch import nn

    for layer in model.layers:
        for part in (*layer.query_key_value.weight.split(WIDTH), layer.output.weight, layer.first.weight, layer.second.weight):
            nn.init.orthogonal_(part)


def query_key_norm(model):
    from torch import nn

    model.turned_norm, turn = nn.RMSNorm(WIDTH // HEADS, eps=1e-5), model.turn
    model.turn = lambda x: turn(model.turned_norm(x))


def squared_relu(model):
    from torch import nn
    from torch.nn import functional as F

    for layer in model.layers:
        layer.first, layer.second = nn.Linear(WIDTH, HIDDEN * 3 // 2), nn.Linear(HIDDEN * 3 // 2, WIDTH)
        for part in (layer.first, layer.second):
            nn.init.xavier_uniform_(part.weight)
            nn.init.zeros_(part.bias)
        layer.activate = lambda x: F.relu(x).square()


def value_residuals(model):
    """Values are half those of the first layer, to begin with (arXiv 2410.17897)."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    first = []

    def attend_of(layer, is_first):
        layer.share = None if is_first else nn.Parameter(torch.tensor(0.5))

        def attend(x, turn):
            q, k, v = layer.query_key_value(x).view(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
            first[:] = [v] if is_first else first
            v = v if is_first else layer.share * v + (1 - layer.share) * first[0]
            y = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True)
            return layer.output(y.transpose(1, 2).reshape(x.shape))

        return attend

    for number, layer in enumerate(model.layers):
        layer.attend = attend_of(layer, number == 0)


def capped(model):
    logits = model.logits
    model.logits = lambda x: 15 * (logits(x) / 15).tanh()


def separate_output(model):
    from torch import nn

    model.output = nn.Linear(WIDTH, model.embedding.num_embeddings, bias=False)
    nn.init.zeros_(model.output.weight)
    model.logits = model.output.forward


def normalized(model):
    from torch.nn import functional as F

    embed = model.embed
    model.embed = lambda ids: F.rms_norm(embed(ids), (WIDTH,))


CHANGES = {  # each a change to the recipe or to the model
    "no warm-up": {"warmup": 1},
    "50 steps of warm-up": {"warmup": 50},
    "constant rate for 60 % of the steps": {"constant": 0.6},
    "constant rate for 30 %": {"constant": 0.3},
    "cosine": {"linear": False},
    "last maps of branches begin at zero": lambda model: scaled(model, 0),
    "they begin smaller by sqrt(2 layers)": lambda model: scaled(model, (2 * LAYERS) ** -0.5),
    "orthogonal initial maps": orthogonal,
    "QK norm": query_key_norm,
    "squared ReLU, 1.5 times as wide": squared_relu,
    "value residuals": value_residuals,
    "logits capped at 15": capped,
    "separate output map": separate_output,
    "half the context for 40 % of the steps": {"short_share": 0.4},
    "growing batch": {"growing": True},
    "normalized embeddings": normalized,
    "embeddings of deviation 1 / sqrt(width)": {"deviation": WIDTH**-0.5},
    "4 iterations of Muon": {"iterations": 4},
    "3 iterations": {"iterations": 3},
    "momentum 0.9": {"muon": 0.9},
    "AdamW": {"muon": 0},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="a text")
    parser.add_argument("--changes", default="", help="only changes whose name has one of these texts, with commas between")
    parser.add_argument("--seeds", default="1", help="with commas between (default: 1)")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch = peers.set_up_torch(options.threads)

    def trained(change):
        """Nats and processor seconds, means over the seeds."""
        recipe, alter = (BASE | change, lambda model: None) if isinstance(change, dict) else (BASE, change)
        found = []
        for seed in map(int, options.seeds.split(",")):
            torch.manual_seed(seed)
            run = race_torch.characters(torch, recipe | {"data": options.data, "seed": seed}, False, alter)
            *_, last = run
            found.append((last["value"], last["processor"]))
        return [sum(values) / len(found) for values in zip(*found)]

    base, seconds = trained({})
    print(f"| change | nats ({base:.3f}) | time ({seconds:.1f} s) |\n|---|---|---|", flush=True)
    for name, change in CHANGES.items():
        if any(part in name for part in options.changes.split(",")):
            nats, spent = trained(change)
            print(f"| {name} | {nats - base:+.3f} | {spent / seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()
