#!/usr/bin/env python3
"""Time to quality: how long heed and others train until the held-out part is predicted so well.

    python3 bench/race.py --data ../shared/data
    python3 bench/race.py --data ../shared/data --only characters --sides heed eager

characters: tinyshakespeare, the last tenth held out, nats per character: nanoGPT's recipe for a CPU
and heed's for the same mark; then a larger model, the same in heed and in PyTorch.
subj, ag_news: heed's defaults until the error of TF-IDF with logistic regression.
Every side trains in a process of its own, one after the other, until the last mark is reached or
its schedule ends, and measures the whole held-out part every so many steps. Prints a Markdown table
of the first measurement at or beyond each mark:

    processor, wall   seconds of training until then, without those of measuring
    times             its processor seconds over those of heed's best side at this mark
    MB                peak memory of the process

Needs PyTorch for characters, scikit-learn for the others.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import compare_simple
import peers

HERE = pathlib.Path(__file__).resolve().parent
TICKS = os.sysconf("SC_CLK_TCK")


# --- sides: each gives its curve, a list of {"step", "value", "processor", "wall"}, and its MB


def processor_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def heed(command, mark, quality=lambda evaluation: evaluation["nats_per_character"]):
    """Trains with a program. A record of the losses stands before each measurement (log_every is
    evaluate_every), so that what lies between the two is the measurement."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as out:
        log = pathlib.Path(folder) / "run/metrics.jsonl"
        process = subprocess.Popen([*map(str, command), "--out", str(log.parent)],
                                   stdout=out, stderr=out)
        start, read, curve, stopped = time.monotonic(), 0, [], False
        measuring = before = (0.0, 0.0)
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            time.sleep(0.02)
            text = log.read_text() if log.exists() else ""
            whole = text[: text.rfind("\n") + 1]
            for line in map(json.loads, whole[read:].splitlines()):
                now = processor_seconds(process), time.monotonic() - start
                if "evaluation" not in line:
                    before = now
                    continue
                measuring = tuple(m + n - b for m, n, b in zip(measuring, now, before))
                value = quality(line["evaluation"])
                curve.append({"step": line["step"], "value": value,
                              "processor": now[0] - measuring[0], "wall": now[1] - measuring[1]})
                if value <= mark:
                    process.terminate()
                    stopped = True
            read = len(whole)
        return curve, peers.ended(process, out, stopped).ru_maxrss / 1024


def pytorch(recipe, options, mark, compiled=False):
    command = [sys.executable, HERE / "race_torch.py", json.dumps(recipe),
               "--threads", options.threads, *["--compile"] * compiled]
    curve, stopped = [], False
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=out)
        for line in process.stdout:
            curve.append(json.loads(line))
            if curve[-1]["value"] <= mark:
                process.kill()
                stopped = True
                break
        return curve, peers.ended(process, out, stopped).ru_maxrss / 1024


def rival(files, kind):
    """TF-IDF as a curve of one point; reading and importing are part of it, as with heed."""
    start = time.monotonic()
    printed, usage = peers.finished(
        [sys.executable, HERE / "compare_simple.py", "--rival", kind, *files])
    point = {"step": "", "value": 1 - json.loads(printed)["accuracy"],
             "processor": usage.ru_utime + usage.ru_stime, "wall": time.monotonic() - start}
    return [point], usage.ru_maxrss / 1024


# --- the table


def race(sides):
    """Prints the table of `sides`: {name: (marks, work(last mark))}. Those of heed come first, and
    less is better."""
    columns = ["mark", "side", "processor s", "wall s", "times", "step", "MB"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
    found = {}
    for name, (marks, work) in sides.items():
        curve, memory = work(min(marks))
        print(f"{name}: {json.dumps(curve)}", file=sys.stderr, flush=True)
        for mark in marks:
            reached = next((point for point in curve if point["value"] <= mark), None)
            found.setdefault(mark, {})[name] = reached, curve[-1]["value"], memory
    for mark, rows in found.items():
        own = [point["processor"] for name, (point, *_) in rows.items()
               if name.startswith("heed") and point]
        for name, (point, last, memory) in rows.items():
            cells = [f"not reached: {last:.3f}", "", "", ""]
            if point:
                spent, wall = point["processor"], point["wall"]
                times = f"{spent / min(own):.2f}" if own else ""
                cells = [f"{spent:.1f}", f"{wall:.1f}", times, point["step"]]
            row = [mark, name, *cells, f"{memory:.0f}"]
            print("|", " | ".join(map(str, row)), "|", flush=True)


# --- recipes


def settings(values):
    return [f"--set={name}={value}" for name, value in values.items()]


NANOGPT = {"modern": False, "layers": 4, "heads": 4, "width": 128, "hidden": 512, "context": 64,
           "batch": 12, "dropout": 0.0, "steps": 2000, "rate": 1e-3, "final_rate": 1e-4,
           "warmup": 100, "beta2": 0.99, "weight_decay": 0.1, "every": 100}
# A model of this size in heed's default blocks, with its default optimizer; the same in PyTorch.
SMALL = {"model.width": 128, "model.heads": 4, "model.feed_forward": 344, "model.max_length": 64,
         "model.dropout": 0.0, "training.steps": 300, "training.batch_tokens": 768}
MUON = {"modern": True, "short_share": 0.3, "rate": 8e-3, "final_rate": 0.0, "warmup": 10,
        "beta2": 0.99, "weight_decay": 0.1}
TORCH_SMALL = MUON | {"layers": 4, "heads": 4, "width": 128, "hidden": 344, "context": 64,
                      "batch": 12, "dropout": 0.0, "steps": 300, "every": 50}
LARGE = MUON | {"layers": 4, "heads": 8, "width": 256, "hidden": 704, "context": 256, "batch": 12,
                "dropout": 0.2, "steps": 1500, "rate": 6e-3, "every": 100}


def flags_of(options, every):
    return settings({"training.log_every": every, "training.evaluate_every": every,
                     "training.shown_evaluations": 0, "training.save_every": 0,
                     "threads": options.threads, "seed": options.seed})


def characters(options):
    data = options.data / "tinyshakespeare/input.txt"
    small, large = [1.92, 1.88], [1.70, 1.60, 1.50]
    config = HERE.parent / "examples/configs/tinyshakespeare.json"

    def own(marks, context, every, *flags):
        command = [options.bin / "language_model", "train", "--data", data, *flags,
                   *flags_of(options, every), f"--set=evaluation.stride={context}"]
        return marks, lambda mark: heed(command, mark)

    def torch(marks, recipe, compiled=False):
        recipe = recipe | {"data": str(data), "seed": options.seed}
        return marks, lambda mark: pytorch(recipe, options, mark, compiled)

    sides = {
        "heed, small": own(small, 64, 50, *settings(SMALL)),
        "heed, tinyshakespeare.json": own(large, 256, 100, "--config", config),
        "PyTorch, heed's small model, eager": torch(small, TORCH_SMALL),
        "nanoGPT's recipe, eager": torch(small, NANOGPT),
        "nanoGPT's recipe, compiled": torch(small, NANOGPT, True),
        "PyTorch, heed's model, eager": torch(large, LARGE),
        "PyTorch, heed's model, compiled": torch(large, LARGE, True),
    }
    race({name: side for name, side in sides.items()
          if any(part in name for part in options.sides)})


def classification(options, name):
    parts = compare_simple.parts_of(options.data / name, *compare_simple.SETS[name])
    with tempfile.TemporaryDirectory() as folder:
        files = compare_simple.write_parts(folder, parts, ("label", "text"))
        rivals = {kind: rival(files, kind) for kind in ("words", "chars")}
        best = min(rivals, key=lambda kind: rivals[kind][0][0]["value"])
        marks = [round(rivals[best][0][0]["value"], 4)]
        command = [options.bin / "classify", "train", "--data", files[0], "--valid", files[1],
                   "--format=jsonl", *flags_of(options, 50)]
        race({"heed, defaults": (marks, lambda mark: heed(
                  command, mark, lambda evaluation: 1 - evaluation["accuracy"])),
              f"TF-IDF of {best}, logistic regression": (marks, lambda mark: rivals[best])})


def main():
    parser = peers.plain_parser(__doc__)
    parser.add_argument("--data", type=pathlib.Path, required=True,
                        help="folder of the sets, as they are distributed")
    names = ["characters", "subj", "ag_news"]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="these alone")
    parser.add_argument("--sides", nargs="+", default=[""],
                        help="of characters: sides whose name has one of these texts (default: all)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bin", type=pathlib.Path, default=peers.BIN,
                        help="folder of heed's programs")
    options = parser.parse_args()
    for name in options.only:
        print(f"\n{name}\n", flush=True)
        characters(options) if name == "characters" else classification(options, name)


if __name__ == "__main__":
    main()
