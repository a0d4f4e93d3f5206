#!/usr/bin/env python3
"""Time to quality: how long heed and others train until the held-out part is predicted so well, on the same cores.

    python3 bench/race.py --data ../shared/data
    python3 bench/race.py --data ../shared/data --only characters --marks 1.88

Every side trains in a process of its own, one after the other, until the last mark is reached or its schedule ends, and
measures the whole held-out part every so many steps. Prints a Markdown table of the first measurement at or beyond each mark:

    processor, wall   seconds of training until then; what measuring takes is left out on both sides
    times             its processor seconds over those of heed's best side at this mark
    MB                peak memory of the process
    lines             of configuration: settings of heed, or lines of the model and its training in race_torch.py

| race | sides |
|---|---|
| characters | tinyshakespeare, the last tenth held out, nats per character: nanoGPT's recipe for a CPU and heed's for the same mark; then a |
| | larger model, the same in heed and in PyTorch, eager and compiled |
| classification | subj and ag_news: heed's defaults until the accuracy of TF-IDF with logistic regression, beside how long that takes |
| masked | wikitext2, trained on its validation part, measured on its test part, nats per hidden token: a BERT of one size in both |
| translation | Multi30k, German to English, BLEU of greedy translations of the validation part: nn.Transformer beside heed |

Needs PyTorch; masked and translation tokenizers, classification scikit-learn.
"""

import argparse
import inspect
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import compare_simple
import peers
import race_torch

HERE = pathlib.Path(__file__).resolve().parent
TICKS = os.sysconf("SC_CLK_TCK")


# --- sides: each gives its curve, a list of {"step", "value", "processor", "wall"}, and its memory in MB


def ended(process, out, stopped=False):
    """Waits for a process; its peak memory in MB. An error ends the program, unless the process was stopped from here."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode > 0 and not stopped:
        out.seek(0)
        sys.exit(f"{' '.join(process.args)}\n{out.read().decode(errors='replace')}")
    return usage.ru_maxrss / 1024


def processor_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def new_lines(file):
    """The whole lines that were written since the last call."""
    place, lines = file.tell(), file.read()
    whole = lines.rpartition("\n")[0]
    file.seek(place + len(whole.encode()) + bool(whole))
    return whole.splitlines()


def heed(command, metric, is_last):
    """Trains with a program. A record of the losses stands before each measurement (log_every is evaluate_every), so that
    what lies between the two is the measurement."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as out:
        run = pathlib.Path(folder) / "run"
        process = subprocess.Popen([*map(str, command), "--out", str(run)], stdout=out, stderr=out)
        start, measuring, before, curve, log, stopped = time.monotonic(), [0.0, 0.0], [0.0, 0.0], [], None, False
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            time.sleep(0.02)
            log = log or ((run / "metrics.jsonl").open() if (run / "metrics.jsonl").exists() else None)
            for line in map(json.loads, new_lines(log) if log else []):
                now = [processor_seconds(process), time.monotonic() - start]
                if "evaluation" not in line:
                    before = now
                    continue
                measuring = [spent + at - then for spent, at, then in zip(measuring, now, before)]
                curve.append({"step": line["step"], "value": line["evaluation"][metric],
                              "processor": now[0] - measuring[0], "wall": now[1] - measuring[1]})
                if is_last(curve[-1]["value"]):
                    process.terminate()
                    stopped = True
        return curve, ended(process, out, stopped)


def pytorch(race, recipe, options, compiled, is_last):
    command = [sys.executable, HERE / "race_torch.py", race, json.dumps(recipe), "--threads", options.threads]
    curve = []
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen([*map(str, command), *["--compile"] * compiled], stdout=subprocess.PIPE, stderr=out)
        for line in process.stdout:
            curve.append(json.loads(line))
            if is_last(curve[-1]["value"]):
                process.kill()
                break
        return curve, ended(process, out)


def code_lines(*parts):
    return sum(bool(line.strip()) for part in parts for line in inspect.getsource(part).splitlines())


# --- the table


class Table:
    def __init__(self, options):
        self.options = options
        columns = ["race", "mark", "side", "processor s", "wall s", "times", "step", "MB", "lines"]
        print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)

    def add(self, race, marks, sides, larger=False):
        """`sides`: {name: (lines of configuration, marks of its own or None, work(is_last))}. Those of heed come first."""
        marks = [mark for mark in marks if not self.options.marks or mark in self.options.marks]
        reached = (lambda value, mark: value >= mark) if larger else (lambda value, mark: value <= mark)
        found, hardest = {}, max if larger else min
        for name, (lines, own_marks, work) in sides.items():
            its_marks = [mark for mark in marks if own_marks is None or mark in own_marks]
            if not its_marks or not any(part in name for part in self.options.sides):
                continue
            curve, memory = work(lambda value: reached(value, hardest(its_marks)))
            print(f"{race}, {name}: {json.dumps(curve)}", file=sys.stderr, flush=True)
            for mark in its_marks:
                first = next((one for one in curve if reached(one["value"], mark)), None)
                found[name, mark] = first, lines, memory, curve[-1]["value"]
        for mark in marks:
            own = [one[0]["processor"] for (name, its_mark), one in found.items()
                   if its_mark == mark and name.startswith("heed") and one[0]]
            for (name, its_mark), (first, lines, memory, last) in found.items():
                if its_mark != mark:
                    continue
                if first:
                    times = f"{first['processor'] / min(own):.2f}" if own else ""
                    cells = [f"{first['processor']:.1f}", f"{first['wall']:.1f}", times, first["step"]]
                else:
                    cells = [f"not reached: {last:.3f}", "", "", ""]
                print("|", " | ".join(map(str, [race, mark, name, *cells, f"{memory:.0f}", lines])), "|", flush=True)


# --- races


def settings_of(settings):
    return [f"--set={name}={value}" for name, value in settings.items()]


def flags_of(options, every):
    """What a race adds to a recipe: how often it is measured, which is none of the recipe's lines."""
    return settings_of({"training.log_every": every, "training.evaluate_every": every, "training.shown_evaluations": 0,
                        "training.save_every": 0, "threads": options.threads, "seed": options.seed})


NANOGPT = {"modern": False, "layers": 4, "heads": 4, "width": 128, "hidden": 512, "context": 64, "batch": 12, "dropout": 0.0,
           "steps": 2000, "rate": 1e-3, "final_rate": 1e-4, "warmup": 100, "beta2": 0.99, "weight_decay": 0.1, "every": 100}
# A model of the same size in heed's default blocks, with its default optimizer; the same in PyTorch.
SMALL = {"model.width": 128, "model.heads": 4, "model.feed_forward": 344, "model.max_length": 64, "model.dropout": 0.0,
         "training.steps": 300, "training.batch_tokens": 768}
MUON = {"modern": True, "deviation": 0.02, "short_share": 0.3, "muon": 0.9, "rate": 8e-3, "linear": True, "final_rate": 0.0,
        "warmup": 10, "beta2": 0.99, "weight_decay": 0.1}
TORCH_SMALL = MUON | {"layers": 4, "heads": 4, "width": 128, "hidden": 344, "context": 64, "batch": 12, "dropout": 0.0,
                      "steps": 300, "every": 50}
LARGE = MUON | {"layers": 4, "heads": 8, "width": 256, "hidden": 704, "context": 256, "batch": 12, "dropout": 0.2,
                "steps": 1500, "rate": 6e-3, "every": 100}


def characters(options, table):
    data = options.data / "tinyshakespeare/input.txt"
    base = [options.bin / "language_model", "train", "--data", data]
    config = HERE.parent / "examples/configs/tinyshakespeare.json"
    torch_lines = code_lines(race_torch.transformer, race_torch.Run, race_torch.characters, race_torch.windows_of,
                             race_torch.window_shape)

    def torch(recipe, compiled=False):
        recipe = recipe | {"data": str(data), "seed": options.seed}
        return lambda is_last: pytorch("characters", recipe, options, compiled, is_last)

    def own(settings, context, every, *flags):
        command = [*base, *flags, *settings_of(settings), "--set", f"evaluation.stride={context}", *flags_of(options, every)]
        return lambda is_last: heed(command, "nats_per_character", is_last)

    lines = sum('"' in line for line in config.read_text().splitlines())
    table.add("characters", [1.92, 1.88, 1.70, 1.60, 1.50], {
        "heed, small": (len(SMALL), [1.92, 1.88], own(SMALL, 64, 50)),
        "heed, tinyshakespeare.json": (lines, [1.70, 1.60, 1.50], own({}, 256, 100, "--config", config)),
        "PyTorch, heed's small model, eager": (torch_lines, [1.92, 1.88], torch(TORCH_SMALL)),
        "nanoGPT's recipe, eager": (torch_lines, [1.92, 1.88], torch(NANOGPT)),
        "nanoGPT's recipe, compiled": (torch_lines, [1.92, 1.88], torch(NANOGPT, True)),
        "PyTorch, heed's model, eager": (torch_lines, [1.70, 1.60, 1.50], torch(LARGE)),
        "PyTorch, heed's model, compiled": (torch_lines, [1.70, 1.60, 1.50], torch(LARGE, True)),
    })


def classification(options, table):
    for name in ("subj", "ag_news"):
        parts = compare_simple.parts_of(options.data / name, False, *compare_simple.SETS[name])
        with tempfile.TemporaryDirectory() as folder:
            files = [f"{folder}/{part}.jsonl" for part in ("train", "test")]
            for file, rows in zip(files, parts):
                pathlib.Path(file).write_text("".join(json.dumps({"label": label, "text": text}, ensure_ascii=False) + "\n"
                                                      for label, text in rows), encoding="utf-8")
            compare = HERE / "compare_simple.py"
            measure = {kind: [sys.executable, compare, "--rival", kind, "accuracy", *files] for kind in ("words", "chars")}
            rivals = {kind: timed(command) for kind, command in measure.items()}
            best = max(rivals, key=lambda kind: rivals[kind][0][0]["value"])
            mark = round(rivals[best][0][0]["value"], 4)
            command = [options.bin / "classify", "train", "--data", files[0], "--valid", files[1], "--format=jsonl",
                       *flags_of(options, 50)]
            table.add(f"classification, {name}", [mark], {
                "heed, defaults": (0, None, lambda is_last: heed(command, "accuracy", is_last)),
                f"TF-IDF of {best}, logistic regression": (code_lines(compare_simple.rival), None,
                                                          lambda is_last: rivals[best]),
            }, larger=True)


def timed(command):
    """A program that prints an accuracy, as a curve of one point; reading and importing are part of it, as with heed."""
    start = time.monotonic()
    printed, usage = peers.finished(command)
    value = json.loads(printed)["accuracy"]
    spent = {"step": "", "value": value, "processor": usage.ru_utime + usage.ru_stime, "wall": time.monotonic() - start}
    return [spent], usage.ru_maxrss / 1024


def learned_tokenizer(command, folder):
    """The vocabulary that heed learns from the training part, for the other side: what a run of one step leaves."""
    run = f"{folder}/tokenizer"
    done = subprocess.run([*map(str, command), "--steps", "1", "--out", run], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return f"{run}/tokenizer.json"


BERT = MUON | {"layers": 4, "heads": 4, "width": 128, "hidden": 344, "context": 128, "batch": 32, "dropout": 0.1,
               "steps": 2000, "rate": 4e-3, "warmup": 50, "every": 100}
BERT_SETTINGS = {"objective": "masked", "model.width": 128, "model.heads": 4, "model.feed_forward": 344,
                 "model.decoder_layers": 4, "model.max_length": 128, "model.dropout": 0.1, "tokenizer.kind": "bpe",
                 "tokenizer.vocabulary": 4000, "training.keep_best_by": "loss", "training.steps": 2000,
                 "training.batch_tokens": 4096, "training.schedule.learning_rate": 0.004,
                 "training.schedule.warmup_steps": 50}


def masked(options, table):
    files = {"data": str(options.data / "wikitext2/valid.txt"), "valid": str(options.data / "wikitext2/test.txt")}
    command = [options.bin / "language_model", "train", "--data", files["data"], "--valid", files["valid"],
               *settings_of(BERT_SETTINGS)]
    with tempfile.TemporaryDirectory() as folder:
        recipe = BERT | files | {"tokenizer": learned_tokenizer(command, folder), "seed": options.seed}
        lines = code_lines(race_torch.transformer, race_torch.Run, race_torch.masked, race_torch.windows_of,
                           race_torch.window_shape)
        sides = {"heed": (len(BERT_SETTINGS), None,
                          lambda is_last: heed([*command, *flags_of(options, 100)], "loss", is_last))}
        for name, compiled in (("PyTorch, eager", False), ("PyTorch, compiled", True)):
            sides[name] = (lines, None, lambda is_last, compiled=compiled: pytorch("masked", recipe, options, compiled, is_last))
        table.add("masked", [5.5, 4.5], sides)


# nn.Transformer has LayerNorm, relu and sinusoidal positions: heed's model is the same, that of multi30k.json.
TRANSLATOR = {"layers": 4, "heads": 4, "width": 128, "hidden": 256, "dropout": 0.3, "max_tokens": 100, "batch_tokens": 6000,
              "label_smoothing": 0.1, "steps": 6000, "rate": 4e-3, "final_rate": 0.0, "warmup": 1000, "beta2": 0.98,
              "epsilon": 1e-9, "weight_decay": 0.0, "ema": 0.999, "every": 250}


def translation(options, table):
    folder_of_data = options.data / "multi30k"
    names = {"source": "train.de.gz", "target": "train.en.gz", "valid_source": "val.de.gz", "valid_target": "val.en.gz"}
    files = {name: str(folder_of_data / file) for name, file in names.items()}

    def command(config):
        return [options.bin / "translate", "train", "--config", HERE.parent / f"examples/configs/{config}.json",
                *settings_of({f"data.{name}": file for name, file in files.items()})]

    def own(config):
        lines = sum('"' in line for line in (HERE.parent / f"examples/configs/{config}.json").read_text().splitlines())
        return lines, None, lambda is_last: heed([*command(config), *flags_of(options, 250)], "bleu", is_last)

    with tempfile.TemporaryDirectory() as folder:
        recipe = TRANSLATOR | files | {"tokenizer": learned_tokenizer(command("multi30k"), folder), "seed": options.seed}
        lines = code_lines(race_torch.translation, race_torch.Run)
        table.add("translation", [30, 35], {
            "heed, multi30k_rotary.json": own("multi30k_rotary"),
            "heed, multi30k.json": own("multi30k"),
            "nn.Transformer": (lines, None, lambda is_last: pytorch("translation", recipe, options, False, is_last)),
        }, larger=True)


RACES = {"characters": characters, "classification": classification, "masked": masked, "translation": translation}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder of the sets, as they are distributed")
    parser.add_argument("--only", default=",".join(RACES), help="races, with commas between (default: all)")
    parser.add_argument("--marks", type=float, nargs="+", help="these marks only")
    parser.add_argument("--sides", nargs="+", default=[""], help="sides whose name has one of these texts (default: all)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bin", type=pathlib.Path, default=peers.BIN, help="folder of heed's programs")
    options = parser.parse_args()
    unknown = set(options.only.split(",")) - set(RACES)
    if unknown:
        parser.error(f"there is no race {', '.join(sorted(unknown))}; there are {', '.join(RACES)}")
    table = Table(options)
    for name in options.only.split(","):
        RACES[name](options, table)


if __name__ == "__main__":
    main()
