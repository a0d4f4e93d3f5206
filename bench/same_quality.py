#!/usr/bin/env python3
"""Trains three models with dropout in heed and in PyTorch by the same recipe on real texts, and compares what they reach.

    ninja -C build compare && python3 bench/same_quality.py ../shared/data --seeds 3

Same architecture (that of compare_torch.py, post-norm), initial distributions, optimizer, schedule, dropout, batches cut by
the same rule, and steps; the random numbers are each side's own, so that what should agree is the mean over seeds, within
their spread. heed's side is build/bin/compare. The sets, cut into words or characters here so that both sides see the same:

    classifier       subj, accuracy on a fifth of the sentences
    language_model   tinyshakespeare by characters, nats per character of its last 2 %
    translation      Multi30k by words (those met five times), nats per word of the validation pairs

Prints a line of JSON per case with mean and standard deviation of both sides, and how many standard errors apart they are.
Needs PyTorch.
"""

import argparse
import collections
import dataclasses
import gzip
import json
import math
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

import compare_torch

COMPARE = pathlib.Path(__file__).resolve().parent.parent / "build/bin/compare"
PAD, UNKNOWN, BEGIN, END = 0, 1, 2, 3
DROPOUT = 0.1


@dataclasses.dataclass(frozen=True)
class Recipe:
    model: compare_torch.Case
    steps: int
    batch_tokens: int
    learning_rate: float
    metric: str
    warmup: int = 50

    def rate(self, step):
        if step <= self.warmup:
            return self.learning_rate * step / self.warmup
        done = min((step - self.warmup) / (self.steps - self.warmup), 1)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * done))

    def settings(self, heed_model):
        """heed's configuration of the same."""
        model = {"width": self.model.width, "heads": self.model.heads, "feed_forward": self.model.hidden,
                 "dropout": DROPOUT, "attention_dropout": DROPOUT, "activation_dropout": DROPOUT,
                 "activation": self.model.activation, "norm": "post", "positions": "sinusoidal", "epsilon": 1e-5,
                 "embedding_deviation": 0.0, **heed_model}
        return {"model": model, "training": {
            "steps": self.steps, "batch_tokens": self.batch_tokens, "label_smoothing": self.model.smoothing,
            "clip_norm": 0.0, "ema_decay": 0.0, "evaluate_every": self.steps, "save_every": self.steps,
            "keep_best_by": self.metric,
            "optimizer": {"name": "adam", "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.0},
            "schedule": {"name": "cosine", "learning_rate": self.learning_rate, "warmup_steps": self.warmup}}}


# Sizes: layers, width, heads, hidden, batch (only of the example that build() makes), longest sequence, vocabulary (set by the data), activation.
RECIPES = {
    "classifier": Recipe(compare_torch.Case(2, 64, 4, 128, 1, 256, 0, "gelu", classes=2, padded=True), 400, 1024, 1e-3,
                         "accuracy"),
    "language_model": Recipe(compare_torch.Case(2, 128, 4, 512, 1, 128, 0, "gelu"), 600, 2048, 2e-3, "loss"),
    "translation": Recipe(compare_torch.Case(2, 128, 4, 256, 1, 100, 0, "relu", smoothing=0.1, padded=True), 800, 2048,
                          2e-3, "loss"),
}


class Words:
    """Ids of the words met at least `least` times; `rewritten` is a text as heed's tokenizer cuts it into the same ids."""

    def __init__(self, texts, least):
        counts = collections.Counter(word for text in texts for word in text.split())
        kept = sorted(word for word, count in counts.items() if count >= least)
        self.ids = {word: i + 4 for i, word in enumerate(kept)}
        self.size = len(kept) + 4

    def __call__(self, text):
        return [self.ids.get(word, UNKNOWN) for word in text.split()]

    def rewritten(self, text):
        return " ".join(f"w{i}" for i in self(text))


def padded(rows):
    import torch

    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def batches_by_length(sides, budget, rng):
    """As heed's BatchPlan: by length, equal ones shuffled; cut where rows x longest of each side pass the budget."""
    order = sorted(range(len(sides[0])), key=lambda i: ([len(side[i]) for side in reversed(sides)], rng.random()))
    batches, longest = [], [0] * len(sides)
    for i in order:
        wider = [max(a, len(side[i])) for a, side in zip(longest, sides)]
        if not batches or (len(batches[-1]) + 1) * sum(wider) > budget:
            batches.append([])
            wider = [len(side[i]) for side in sides]
        longest = wider
        batches[-1].append(i)
    rng.shuffle(batches)
    return batches


class Classifier:
    def __init__(self, data, folder):
        lines = [line.decode("cp1252", "replace") for line in
                 (data / "subj/subj.all").read_bytes().split(b"\n") if line.strip()]
        random.Random(1).shuffle(lines)
        cut = len(lines) // 5
        labels, texts = zip(*(line.split(" ", 1) for line in lines))
        words = Words(texts[cut:], 2)
        self.vocabulary = words.size
        self.rows = [words(text) + [END] for text in texts]
        self.labels = [int(label) for label in labels]
        self.cut = cut
        for name, begin, end in (("test", 0, cut), ("train", cut, len(lines))):
            (folder / name).write_text("".join(f"{label} {words.rewritten(text)}\n" for label, text in
                                               zip(labels[begin:end], texts[begin:end])))
        self.flags = ["--task", "classify", "--format", "lines", "--data", folder / "train", "--test", folder / "test",
                      "--set", "data.valid_fraction=0", "--set", "tokenizer.min_frequency=1",
                      "--set", "tokenizer.vocabulary=100000"]
        self.heed_model = {"encoder_layers": 2, "pooling": "mean", "word_dropout": 0.0, "word_pairs": 0, "local_width": 0}

    def epoch(self, recipe, rng):
        rows, labels = self.rows[self.cut:], self.labels[self.cut:]
        for batch in batches_by_length([rows], recipe.batch_tokens, rng):
            yield padded([rows[i] for i in batch]), [labels[i] for i in batch], None

    def measure(self, model):
        right = 0
        for i in range(0, self.cut, 100):
            rows = self.rows[i:min(i + 100, self.cut)]
            answers = model.logits(padded(rows), None).argmax(1).tolist()
            right += sum(a == b for a, b in zip(answers, self.labels[i:]))
        return right / self.cut


class LanguageModel:
    def __init__(self, data, folder):
        text = (data / "tinyshakespeare/input.txt").read_text()
        characters = {c: i for i, c in enumerate(sorted(set(text)))}
        self.vocabulary = len(characters)
        ids = [characters[c] for c in text]
        cut = len(ids) * 98 // 100
        self.train, self.valid = ids[:cut], ids[cut:]
        (folder / "train").write_text(text[:cut])
        (folder / "valid").write_text(text[cut:])
        self.length = RECIPES["language_model"].model.length
        self.flags = ["--task", "language_model", "--data", folder / "train", "--valid", folder / "valid",
                      "--set", "tokenizer.kind=characters", "--set", f"evaluation.stride={self.length}"]
        self.heed_model = {"decoder_layers": 2, "max_length": self.length, "tie_embeddings": "decoder"}

    def windows(self, ids, begins):
        import torch

        rows = torch.tensor([ids[i:i + self.length + 1] for i in begins])
        return rows[:, :-1], rows[:, 1:].contiguous(), None

    def epoch(self, recipe, rng):
        begins = list(range(rng.randrange(self.length), len(self.train) - self.length, self.length))
        rng.shuffle(begins)
        rows = recipe.batch_tokens // self.length
        for i in range(0, len(begins), rows):
            yield self.windows(self.train, begins[i:i + rows])

    def measure(self, model):
        """Windows side by side; the end of the text that fills none is left out here (under 1 % of it)."""
        begins = list(range(0, len(self.valid) - self.length, self.length))
        losses = [model.loss(*self.windows(self.valid, [i])).item() for i in begins]
        return statistics.mean(losses)


class Translation:
    def __init__(self, data, folder):
        def lines(name):
            return gzip.open(data / f"multi30k/{name}.gz", "rt", encoding="utf-8", newline="\n").read().splitlines()

        texts = {name: lines(name) for name in ("train.en", "train.de", "val.en", "val.de")}
        words = Words(texts["train.en"] + texts["train.de"], 5)
        self.vocabulary = words.size
        self.ids = {name: [words(text) for text in part] for name, part in texts.items()}
        for name, part in texts.items():
            (folder / name).write_text("".join(words.rewritten(text) + "\n" for text in part))
        self.flags = ["--task", "translate", "--source", folder / "train.en", "--target", folder / "train.de",
                      "--valid-source", folder / "val.en", "--valid-target", folder / "val.de",
                      "--set", "tokenizer.kind=words", "--set", "tokenizer.vocabulary=100000",
                      "--set", "tokenizer.min_frequency=1", "--set", "decoding.beam=1"]
        self.heed_model = {"encoder_layers": 2, "decoder_layers": 2, "max_length": 100, "tie_embeddings": "all"}

    def sides(self, part):
        return [row + [END] for row in self.ids[part + ".en"]], [row + [END] for row in self.ids[part + ".de"]]

    @staticmethod
    def batch(sources, targets, chosen):
        rows = [targets[i] for i in chosen]
        return padded([sources[i] for i in chosen]), padded(rows), padded([[BEGIN] + row[:-1] for row in rows])

    def epoch(self, recipe, rng):
        sources, targets = self.sides("train")
        for chosen in batches_by_length([sources, targets], recipe.batch_tokens, rng):
            yield self.batch(sources, targets, chosen)

    def measure(self, model):
        import torch.nn.functional as F

        sources, targets = self.sides("val")
        total = count = 0
        for i in range(0, len(sources), 64):
            ids, wanted, shifted = self.batch(sources, targets, range(i, min(i + 64, len(sources))))
            logits = model.logits(ids, shifted)
            total += F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=PAD, reduction="sum").item()
            count += (wanted != PAD).sum().item()
        return total / count


TASKS = {"classifier": Classifier, "language_model": LanguageModel, "translation": Translation}


def torch_value(name, recipe, task, seed):
    import torch
    from torch import nn

    torch.manual_seed(seed)
    rng = random.Random(seed)
    torch.set_flush_denormal(True)
    case = dataclasses.replace(recipe.model, vocabulary=task.vocabulary)
    model, _ = compare_torch.build({"classifier": "encoder"}.get(name, name), DROPOUT, case)
    for module in model.modules():  # as heed initialises: Xavier uniform, of query, key and value each; biases 0
        if isinstance(module, nn.Linear):
            parts = module.weight.shape[0] // module.weight.shape[1] if module.bias is None else 1
            for part in module.weight.chunk(parts):
                nn.init.xavier_uniform_(part)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.999), eps=1e-8)
    step = 0
    while step < recipe.steps:
        for ids, targets, shifted in task.epoch(recipe, rng):
            if step == recipe.steps:
                break
            step += 1
            model.train()
            for group in optimizer.param_groups:
                group["lr"] = recipe.rate(step)
            optimizer.zero_grad(set_to_none=True)
            model.loss(ids, torch.as_tensor(targets), shifted).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        return task.measure(model), sum(p.numel() for p in model.parameters())


def heed_values(recipe, task, folder, seeds, threads, program):
    config = folder / "recipe.json"
    config.write_text(json.dumps(recipe.settings(task.heed_model)))
    command = [program, *task.flags, "--config", config, "--seeds", ",".join(map(str, seeds)), "--threads", str(threads),
               "--jobs", "1", "--attention", "dot_product", "--out", folder / "heed"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    results = [json.loads((folder / f"heed/dot_product-seed{seed}/result.json").read_text()) for seed in seeds]
    metrics = [{metric["name"]: metric["value"] for metric in result["metrics"]} for result in results]
    return [values[recipe.metric] for values in metrics], results[0]["parameters"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--case", action="append", choices=RECIPES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compare", default=COMPARE, help="heed's program of that name")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    seeds = range(1, options.seeds + 1)
    for name in options.case or RECIPES:
        with tempfile.TemporaryDirectory() as folder:
            folder, recipe = pathlib.Path(folder), RECIPES[name]
            task = TASKS[name](options.data, folder)
            heed, parameters = heed_values(recipe, task, folder, seeds, options.threads, options.compare)
            rival, rival_parameters = zip(*(torch_value(name, recipe, task, seed) for seed in seeds))
        print(f"{name}: {parameters} parameters in heed, {rival_parameters[0]} in PyTorch", file=sys.stderr)
        error = math.sqrt((statistics.variance(heed) + statistics.variance(rival)) / len(seeds))
        print(json.dumps({
            "case": name, "metric": recipe.metric, "seeds": len(seeds),
            "heed": [round(statistics.mean(heed), 4), round(statistics.stdev(heed), 4)],
            "torch": [round(statistics.mean(rival), 4), round(statistics.stdev(rival), 4)],
            "standard_errors_apart": round(abs(statistics.mean(heed) - statistics.mean(rival)) / error, 2),
        }), flush=True)


if __name__ == "__main__":
    main()
