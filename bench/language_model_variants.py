#!/usr/bin/env python3
"""Trains a small language model for a moment with every attention variant that can be causal, and prints a table.

    python3 bench/language_model_variants.py --data input.txt [--steps 100] [--program build/bin/language_model]

The loss before is that of the first batch, before any step; the loss after is measured on the last 2 % of the text,
which the model has not seen. Variants that cannot serve in a decoder are listed with the reason that the program gives.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

MODEL = ["model.width=64", "model.heads=4", "model.feed_forward=256", "model.decoder_layers=2", "model.max_length=128",
         "model.dropout=0", "data.valid_fraction=0.02", "training.batch_tokens=2048", "training.log_every=1",
         "training.schedule.warmup_steps=20", "training.schedule.learning_rate=0.003"]


def variant_names(program):
    """The names that --help lists for --attention."""
    text = subprocess.run([program, "train", "--help"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"--attention NAME\s+[^:]*:\s+((?:\w+,\s+)*\w+)", text)
    if not found:
        sys.exit(f"{program} train --help lists no names for --attention")
    return re.split(r",\s+", found.group(1))


def train(program, data, name, steps, seed, folder):
    """(parameters, loss before, loss after, milliseconds a step), or the reason why it cannot be."""
    run = pathlib.Path(folder) / name
    command = [program, "train", "--data", data, "--out", run, "--attention", name, "--steps", steps, "--seed", seed]
    for setting in MODEL + [f"training.evaluate_every={steps}", f"training.save_every={steps}"]:
        command += ["--set", setting]
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if result.returncode != 0:
        return result.stderr.strip().splitlines()[-1].split("error: ", 1)[-1].removeprefix("model: ").split("; these can:")[0]
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [record for record in records if "tokens_per_second" in record]
    after = [record["evaluation"] for record in records if "evaluation" in record][-1]
    parameters = int(re.search(r"(\d+) parameters", result.stderr).group(1))
    speed = sorted(2048 / record["tokens_per_second"] * 1000 for record in losses)[len(losses) // 2]
    return parameters, losses[0]["loss"], after["nats_per_character"], speed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="text to learn from")
    parser.add_argument("--program", default="build/bin/language_model")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if not os.access(arguments.program, os.X_OK):
        sys.exit(f"{arguments.program} is not there: build it first, or name it with --program")
    refused = []
    print("| attention | parameters | loss before | loss after | ms a step |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in variant_names(arguments.program):
            result = train(arguments.program, arguments.data, name, arguments.steps, arguments.seed, folder)
            if isinstance(result, str):
                refused.append((name, result))
                continue
            parameters, before, after, speed = result
            print(f"| `{name}` | {parameters:,} | {before:.3f} | {after:.3f} | {speed:.0f} |", flush=True)
    for name, reason in refused:
        print(f"\n`{name}`: {reason}")


if __name__ == "__main__":
    main()
