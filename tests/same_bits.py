#!/usr/bin/env python3
"""Trains the same runs with the programs of two builds and compares the bits of their weights and metrics.

    python3 tests/same_bits.py OLD/bin NEW/bin [--steps 40] [--only NAME] [--data FOLDER]

For changes that must change no result: every task with its defaults, and every attention mechanism and kind of
positions on classify, translate and language_model where it can serve. With --data (folders as in examples/configs),
three configurations of examples/configs on real data, too. Names each run whose weights differ; ends with 1 where one
does.
"""

import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

TASKS = ["translate", "summarize", "converse", "classify", "match", "recommend", "language_model", "embed_text", "rate", "tag", "own_task"]


def mechanisms(programs):
    table = subprocess.run([programs / "heed", "variants"], capture_output=True, text=True, check=True).stdout
    return [line.split()[0] for line in table.splitlines()[1:] if line.strip()]


def runs(programs, data):
    """Yields (name, program, arguments)."""
    for task in TASKS:
        yield task, task, []
    yield "masked", "language_model", ["--masked"]
    for kind in ["learned", "sinusoidal_halves", "rotary", "alibi", "relative", "none"]:
        for task in ["classify", "translate", "language_model"]:
            yield f"{task} {kind}", task, ["--set", f"model.positions={kind}"]
    for name in mechanisms(programs):
        for task in ["classify", "translate", "language_model"]:
            yield f"{task} {name}", task, ["--attention", name]
    if data:
        root = pathlib.Path(__file__).resolve().parent.parent / "examples" / "configs"
        yield "subj", "classify", ["--config", root / "subj.json", "--data", data / "subj" / "subj.all"]
        yield "multi30k", "translate", ["--config", root / "multi30k.json",
                                        "--source", data / "multi30k" / "train.en.gz",
                                        "--target", data / "multi30k" / "train.de.gz"]
        yield "tinyshakespeare", "language_model", ["--config", root / "tinyshakespeare.json",
                                                    "--data", data / "tinyshakespeare" / "input.txt"]


def digests(folder):
    """Of the weights, and of the metrics without what a clock or the memory pool measured."""
    measured = {"tokens_per_second", "elapsed_seconds", "memory_bytes"}
    weights = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    records = [{key: value for key, value in record.items() if key not in measured} for record in records]
    return weights, hashlib.sha256(json.dumps(records).encode()).hexdigest()


def train(programs, program, arguments, steps, folder):
    command = [programs / program, "train", "--out", folder, "--threads", "2",
               "--set", f"training.steps={steps}", "--set", "training.epochs=0",
               "--set", f"training.log_every={max(steps // 4, 1)}",
               "--set", f"training.evaluate_every={steps}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"status {done.returncode}"
    return digests(pathlib.Path(folder)), ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--only", default="", help="runs whose names contain this")
    parser.add_argument("--data", type=pathlib.Path)
    options = parser.parse_args()
    same = refused = 0
    different = []
    for name, program, arguments in runs(options.old, options.data):
        if options.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            old, old_error = train(options.old, program, arguments, options.steps, root / "old")
            new, new_error = train(options.new, program, arguments, options.steps, root / "new")
        if old is None and new is None:  # the mechanism cannot serve there
            refused += 1
        elif old == new:
            same += 1
            print(f"same       {name}", flush=True)
        else:
            different.append(name)
            what = old_error or new_error or ("weights" if old[0] != new[0] else "metrics")
            print(f"DIFFERENT  {name}: {what}", flush=True)
    print(f"{same} runs have the same bits, {len(different)} differ, {refused} are refused by both builds")
    sys.exit(1 if different or same == 0 else 0)


if __name__ == "__main__":
    main()
