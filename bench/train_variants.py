#!/usr/bin/env python3
"""Trains a sample program shortly with every attention variant and prints a table of the losses.

    python3 bench/train_variants.py classify -- --config examples/configs/subj.json --data subj.all --steps 100

What stands behind -- goes to `train`. The loss before training is that of the first batch, which is computed
before the first update; the loss after it is the mean over the last tenth of the steps.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile


def variants_of(program):
    text = subprocess.run([program, "train", "--help"], check=True, capture_output=True, text=True).stdout
    return re.search(r"--attention NAME.*?: *([a-z0-9_]+(?:,\s+[a-z0-9_]+)+)", text, re.DOTALL).group(1).replace(",", " ").split()


def train(program, variant, arguments):
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        command = [program, "train", "--out", run, "--attention", variant, *arguments, "--set", "training.log_every=1"]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            return None, result.stderr.strip().splitlines()[-1]
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()], ""


def row(variant, records):
    steps = [record for record in records if "loss" in record]
    measured = [record["evaluation"] for record in records if "evaluation" in record]
    last = steps[-max(1, len(steps) // 10):]
    mean = sum(record["loss"] for record in last) / len(last)
    metrics = ", ".join(f"{name} {value:.3f}" for name, value in measured[-1].items()) if measured else ""
    losses = ", ".join(f"{name} {value:.3f}" for name, value in steps[-1].get("auxiliary", {}).items())
    return f"| `{variant}` | {steps[0]['loss']:.3f} | {mean:.3f} | {losses} | {metrics} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="classify, translate, language_model or recommend")
    parser.add_argument("--bin", default="build/bin", help="folder of the programs")
    parser.add_argument("--variants", help="names, separated by commas; default: all")
    parser.add_argument("arguments", nargs="*", help="of train, behind --")
    options = parser.parse_args()
    program = str(pathlib.Path(options.bin) / options.program)
    variants = options.variants.split(",") if options.variants else variants_of(program)
    print("| variant | loss before | loss after | auxiliary losses | on the validation texts |")
    print("|---|---|---|---|---|")
    failed = False
    for variant in variants:
        records, error = train(program, variant, options.arguments)
        print(row(variant, records) if records else f"| `{variant}` | {error} | | | |", flush=True)
        failed = failed or not records
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
