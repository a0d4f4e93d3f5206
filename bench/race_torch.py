"""The side of PyTorch in bench/race.py: trains and prints a line of JSON for each measurement.

    {"step": 500, "value": 1.93, "processor": 41.2, "wall": 21.0}

Processor and wall seconds are those of training alone: nobody need measure as often.
"""

import argparse
import json
import math
import pathlib
import time

import peers
import torch
import torch_models
from torch import nn
from torch.nn import functional as F

NANOGPT = {"pre_norm": True, "positions": "learned", "bias": False, "scaled": False,
           "deviation": 0.02}


def language_model(recipe, vocabulary):
    """heed's default blocks, or those of nanoGPT; initialised as these are."""
    width, modern = recipe["width"], recipe["modern"]
    form = torch_models.HEED_DEFAULT | {"deviation": 0.02} if modern else NANOGPT
    model = torch_models.Transformer(torch_models.Shape(
        vocabulary, width, recipe["heads"], recipe["hidden"], recipe["layers"], recipe["context"],
        dropout=recipe["dropout"], **form), causal=True)
    for name, weight in model.layers.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(weight)
        elif weight.ndim == 2 and modern:
            for part in weight.split(width if "query" in name else len(weight)):
                nn.init.xavier_uniform_(part)
        elif weight.ndim == 2:  # what ends a branch begins smaller
            ends = name.endswith("output.weight")
            nn.init.normal_(weight, std=0.02 / (2 * recipe["layers"]) ** 0.5 if ends else 0.02)
    return model


def optimizers_of(model, recipe):
    """AdamW, in a recipe of heed's with Muon for the layers' matrices."""
    matrices, rest = [], []
    for name, p in model.named_parameters():
        by_muon = recipe["modern"] and "layers" in name and p.ndim == 2
        (matrices if by_muon else rest).append(p)
    rate, decay = recipe["rate"], recipe["weight_decay"]
    groups = [{"params": [p for p in rest if p.ndim >= 2], "weight_decay": decay},
              {"params": [p for p in rest if p.ndim < 2], "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, lr=rate, betas=(0.9, recipe["beta2"]), fused=True)
    return [adam] if not matrices else [adam, torch.optim.Muon(
        matrices, lr=rate, weight_decay=decay, momentum=0.9, nesterov=True,
        adjust_lr_fn="match_rms_adamw")]


def learning_rate(recipe, step):
    """A warm-up, then a line to the last rate in a recipe of heed's, otherwise half a cosine."""
    first, last, warmup = (recipe[name] for name in ("rate", "final_rate", "warmup"))
    if step <= warmup:
        return first * step / warmup
    done = (step - warmup) / max(1, recipe["steps"] - warmup)
    left = 1 - done if recipe["modern"] else 0.5 * (1 + math.cos(math.pi * done))
    return last + (first - last) * left


def windows(recipe, ids, step, generator):
    """Random windows of a step: in the first short_share of the steps twice as many of half the
    length."""
    parts = 2 if step <= round(recipe.get("short_share", 0) * recipe["steps"]) else 1
    length = recipe["context"] // parts
    begins = torch.randint(len(ids) - length, (parts * recipe["batch"],), generator=generator)
    rows = torch.stack([ids[begin : begin + length + 1] for begin in begins])
    return rows[:, :-1], rows[:, 1:]


@torch.no_grad()
def measure(model, valid, context):
    """Nats per character, by windows side by side, which predict each but the first once."""
    nats = 0
    inputs, targets = valid[:-1].split(context), valid[1:].split(context)
    for first in range(0, len(inputs), 4096 // context):
        last = min(first + 4096 // context, len(inputs))
        for begin, end in ((first, last - 1), (last - 1, last)):  # the last one may be shorter
            if begin < end:
                logits = model(torch.stack(inputs[begin:end])).flatten(0, 1)
                expected = torch.cat(targets[begin:end])
                nats += F.cross_entropy(logits, expected, reduction="sum").item()
    return nats / (len(valid) - 1)


def train(recipe, compiled):
    """Yields a measurement on the last tenth of the text every so many steps."""
    text = pathlib.Path(recipe["data"]).read_text(encoding="utf-8")
    number = {character: i for i, character in enumerate(sorted(set(text)))}
    ids = torch.tensor([number[character] for character in text])
    learned, valid = ids.tensor_split([int(len(ids) * 0.9)])
    model = language_model(recipe, len(number))
    forward = torch.compile(model) if compiled else model
    optimizers = optimizers_of(model, recipe)
    generator = torch.Generator().manual_seed(recipe["seed"])
    processor = wall = 0.0
    for step in range(1, recipe["steps"] + 1):
        start = time.process_time(), time.monotonic()
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            group["lr"] = learning_rate(recipe, step)
        inputs, targets = windows(recipe, learned, step, generator)
        loss = F.cross_entropy(forward(inputs).flatten(0, 1), targets.flatten())
        model.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        processor += time.process_time() - start[0]
        wall += time.monotonic() - start[1]
        if step % recipe["every"] == 0 or step == recipe["steps"]:
            model.eval()
            value = measure(model, valid, recipe["context"])
            model.train()
            yield {"step": step, "value": value, "processor": processor, "wall": wall}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", type=json.loads)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    peers.set_up_torch(options.threads)
    torch.manual_seed(options.recipe["seed"])
    for measurement in train(options.recipe, options.compile):
        print(json.dumps(measurement), flush=True)


if __name__ == "__main__":
    main()
