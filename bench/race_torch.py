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
import tokenizers
import torch
import torch_models
from torch import nn
from torch.nn import functional as F

NANOGPT = {"pre_norm": True, "positions": "learned", "bias": False, "scaled": False,
           "deviation": 0.02}


def language_model(recipe, vocabulary, causal):
    """heed's default blocks, or those of nanoGPT; initialised as these are."""
    width, modern = recipe["width"], recipe["modern"]
    form = torch_models.HEED_DEFAULT | {"deviation": 0.02} if modern else NANOGPT
    model = torch_models.Transformer(torch_models.Shape(
        vocabulary, width, recipe["heads"], recipe["hidden"], recipe["layers"], recipe["context"],
        dropout=recipe["dropout"], **form), causal=causal)
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


class Training:
    """AdamW, with Muon for the layers' matrices if the recipe has it; warm-up, then half a cosine
    or a line to the last rate; clipping."""

    def __init__(self, model, recipe, compiled):
        self.model, self.recipe = model, recipe
        self.forward = torch.compile(model) if compiled else model
        matrices, rest = [], []
        for name, p in model.named_parameters():
            by_muon = "muon" in recipe and "layers" in name and p.ndim == 2
            (matrices if by_muon else rest).append(p)
        rate, decay = recipe["rate"], recipe["weight_decay"]
        groups = [{"params": [p for p in rest if p.ndim >= 2], "weight_decay": decay},
                  {"params": [p for p in rest if p.ndim < 2], "weight_decay": 0.0}]
        self.optimizers = [
            torch.optim.AdamW(groups, lr=rate, betas=(0.9, recipe["beta2"]), fused=True)]
        if matrices:
            self.optimizers.append(torch.optim.Muon(
                matrices, lr=rate, weight_decay=decay, momentum=recipe["muon"], nesterov=True,
                adjust_lr_fn="match_rms_adamw"))

    def rate(self, step):
        first, last, warmup = (self.recipe[name] for name in ("rate", "final_rate", "warmup"))
        if step <= warmup:
            return first * step / warmup
        done = (step - warmup) / max(1, self.recipe["steps"] - warmup)
        line = self.recipe.get("linear")
        return last + (first - last) * (1 - done if line else 0.5 * (1 + math.cos(math.pi * done)))

    def step(self, number, loss_of_step):
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.rate(number)
        loss = loss_of_step(number, self.forward)
        self.model.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()

    def run(self, loss_of_step, measure):
        """Yields a measurement every so many steps."""
        processor = wall = 0.0
        for number in range(1, self.recipe["steps"] + 1):
            start = time.process_time(), time.monotonic()
            self.step(number, loss_of_step)
            processor += time.process_time() - start[0]
            wall += time.monotonic() - start[1]
            if number % self.recipe["every"] == 0 or number == self.recipe["steps"]:
                self.model.eval()
                with torch.no_grad():
                    value = measure(self.model)
                self.model.train()
                yield {"step": number, "value": value, "processor": processor, "wall": wall}


def windows(recipe, ids, step, generator):
    """Random windows of a step: in the first short_share of the steps twice as many of half the
    length."""
    parts = 2 if step <= round(recipe.get("short_share", 0) * recipe["steps"]) else 1
    length = recipe["context"] // parts
    begins = torch.randint(len(ids) - length, (parts * recipe["batch"],), generator=generator)
    rows = torch.stack([ids[begin : begin + length + 1] for begin in begins])
    return rows[:, :-1], rows[:, 1:]


def characters(recipe, compiled):
    """Nats per character of the last tenth of a text."""
    text = pathlib.Path(recipe["data"]).read_text(encoding="utf-8")
    number = {character: i for i, character in enumerate(sorted(set(text)))}
    ids = torch.tensor([number[character] for character in text])
    train, valid = ids.tensor_split([int(len(ids) * 0.9)])
    model = language_model(recipe, len(number), causal=True)
    generator = torch.Generator().manual_seed(recipe["seed"])

    def loss(step, forward):
        inputs, targets = windows(recipe, train, step, generator)
        return F.cross_entropy(forward(inputs).flatten(0, 1), targets.flatten())

    def measure(network):
        """Windows side by side, which predict each character but the first once."""
        context, nats = recipe["context"], 0
        inputs, targets = valid[:-1].split(context), valid[1:].split(context)
        for first in range(0, len(inputs), 4096 // context):
            last = min(first + 4096 // context, len(inputs))
            for begin, end in ((first, last - 1), (last - 1, last)):  # the last one may be shorter
                if begin < end:
                    logits = network(torch.stack(inputs[begin:end])).flatten(0, 1)
                    expected = torch.cat(targets[begin:end])
                    nats += F.cross_entropy(logits, expected, reduction="sum").item()
        return nats / (len(valid) - 1)

    return Training(model, recipe, compiled).run(loss, measure)


def masked(recipe, compiled):
    """Nats per hidden token: 15 % of the tokens of each row are hidden, of which 80 % become a
    mark, 10 % another token (BERT's rule)."""
    tokenizer = tokenizers.Tokenizer.from_file(recipe["tokenizer"])
    mask, vocabulary = tokenizer.token_to_id("<mask>"), tokenizer.get_vocab_size()
    train, valid = (
        torch.tensor(tokenizer.encode(pathlib.Path(recipe[name]).read_text(encoding="utf-8")).ids)
        for name in ("data", "valid"))
    model = language_model(recipe, vocabulary, causal=False)
    generator = torch.Generator().manual_seed(recipe["seed"])

    def guessed(rows, forward, draws, reduction="mean"):
        count = max(1, round(0.15 * rows.shape[1]))
        places = torch.rand(rows.shape, generator=draws).argsort(1)[:, :count]
        chance = torch.rand(places.shape, generator=draws)
        others = torch.randint(vocabulary, places.shape, generator=draws)
        targets = rows.gather(1, places)
        hidden = torch.where(chance < 0.8, mask, torch.where(chance < 0.9, others, targets))
        logits = forward(rows.scatter(1, places, hidden))
        logits = logits.gather(1, places[..., None].expand(-1, -1, logits.shape[2]))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction=reduction)

    def loss(step, forward):
        return guessed(windows(recipe, train, step, generator)[0], forward, generator)

    def measure(network):
        draws, context = torch.Generator().manual_seed(0), recipe["context"]  # the same each time
        rows = valid[: len(valid) // context * context].view(-1, context)
        parts = rows.split(4096 // context)
        nats = sum(guessed(part, network, draws, "sum").item() for part in parts)
        return nats / (len(rows) * round(0.15 * context))

    return Training(model, recipe, compiled).run(loss, measure)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("race", choices=("characters", "masked"))
    parser.add_argument("recipe", type=json.loads)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    peers.set_up_torch(options.threads)
    torch.manual_seed(options.recipe["seed"])
    for measurement in globals()[options.race](options.recipe, options.compile):
        print(json.dumps(measurement), flush=True)


if __name__ == "__main__":
    main()
