#!/usr/bin/env python3
"""Compares all attention mechanisms on small versions of the tasks of the Long Range Arena (arXiv 2011.04006), at equal cost.

    python3 bench/arena.py --data ../shared/data --out runs/arena

Each task is a configuration, examples/configs/experiments/arena_<task>.json. Every mechanism trains on one thread for as
many steps as --seconds of processor time hold, with --seeds seeds; short trainings before find out how many steps these are.
OUT/<task>/<mechanism> is what `heed compare` writes. OUT/figures.txt has accuracy with its standard deviation over the seeds,
steps per second and MB of every cell, as they stand in apps/cli/attention_advice.json, from which the tables of the docs are
made; OUT/chart.svg draws them. The same command goes on where it was stopped. docs/explanation/experiments.md says what came
of it.

With --lengths 1000 4000 the tasks are reviews of imdb instead, read byte by byte up to these lengths.

With --patterns there is a task for each of CAB's four patterns of attention (arXiv 2210.07661), and a mechanism takes part
in those that it can serve as:

    noncausal self   text        the topic of news, by bytes: accuracy in percent, as above
    causal self      characters  the next character of Shakespeare: nats, less is better
    noncausal cross  questions   do two questions ask the same (bench/arena_questions.py): accuracy in percent
    causal cross     captions    captions of Multi30k into German, self-attention by dot products: nats a token, less is better

OUT/patterns.txt has a score for each pattern, as CAB's compositional index: by how many standard deviations a mechanism is
better than the mean of those measured. Cross-attention in Python is found through HEED_LIBRARY, else build/lib/libheed.so.
"""

import argparse
import json
import math
import os
import pathlib
import random
import statistics
import sys
import tempfile

import peers

ROOT = pathlib.Path(__file__).resolve().parent.parent
MECHANISMS = """dot_product synthesizer_dense synthesizer_random synthesizer_random_fixed synthesizer_factorized_dense
    synthesizer_factorized_random synthesizer_mixture hard_coded_gaussian fastformer clusterformer linformer sparse_transformer
    reformer routing_transformer longformer bigbird linear_transformer performer retnet fnet nystromformer
    gated_linear_attention attention_free_transformer local sinkhorn differential forgetting cosformer abc gated_deltanet mamba2
    multi_head_latent kimi_delta rwkv7 moba native_sparse mixed_heads""".split()
# A task for each pattern, and whether more is better in it.
PATTERNS = {
    "noncausal self": ("text", True),
    "causal self": ("characters", False),
    "noncausal cross": ("questions", True),
    "causal cross": ("captions", False),
}
# Task: its program, and where its data lie below --data; None: made by rule.
TASKS = {
    "listops": ("classify", None),
    "text": ("classify", "ag_news/train_sample5000.csv"),
    "retrieval": ("match", "quora/dev.tsv"),
    "pixels": ("classify", "mnist_10k/t10k-images-idx3-ubyte.gz"),
    "path": ("classify", "paths.txt"),
    "characters": ("language_model", "tinyshakespeare/input.txt"),
    "captions": ("translate", "multi30k"),
}
ARENA = [task for task in TASKS if task not in ("characters", "captions")]


# --- a path by rule: a wall from left to right, with or without a gap, among single blocks


def is_open(grid):
    """Whether a path of free cells leads from the top row to the bottom row."""
    size = len(grid)
    reached = {(0, x) for x in range(size) if not grid[0][x]}
    edge = list(reached)
    while edge:
        y, x = edge.pop()
        for cell in ((y, x + 1), (y + 1, x), (y, x - 1), (y - 1, x)):
            if min(cell) >= 0 and max(cell) < size and cell not in reached and not grid[cell[0]][cell[1]]:
                reached.add(cell)
                edge.append(cell)
    return any(y == size - 1 for y, _ in reached)


def draw_grid(draw, size, blocks):
    grid = [[draw.random() < blocks for _ in range(size)] for _ in range(size)]
    gap = draw.randrange(size) if draw.random() < 0.6 else None
    row = draw.randrange(2, size - 2)
    for column in range(size):
        following = min(size - 2, max(1, row + draw.choice((-1, 0, 0, 0, 1))))
        if column != gap:
            grid[row][column] = grid[following][column] = True
        row = following
    return grid


def write_paths(file, count=12000, size=12, blocks=0.06):
    """Grids of size * size characters, as many with a path as without one."""
    draw = random.Random(1)
    left = {"open": count // 2, "shut": count // 2}
    lines = []
    while any(left.values()):
        grid = draw_grid(draw, size, blocks)
        label = "open" if is_open(grid) else "shut"
        if left[label]:
            left[label] -= 1
            lines.append(label + " " + "".join(".#"[cell] for row in grid for cell in row) + "\n")
    draw.shuffle(lines)
    file.write_text("".join(lines))


# --- one cell


def finished(command):
    """The processor time that a command took, with all its processes, and what it printed."""
    library = os.environ.get("HEED_LIBRARY", ROOT / "build/lib/libheed.so")
    printed, usage = peers.finished(command, cwd=ROOT, env={
        **os.environ, "HEED_LIBRARY": str(library), "PYTHONPATH": str(ROOT / "bindings/python")})
    return usage.ru_utime + usage.ru_stime, printed.decode()


def processor_seconds(command):
    return finished(command)[0]


def program_of(task):
    return TASKS[task][0] if task in TASKS else "classify"


def chosen(task, mechanism):
    """The flags that choose a mechanism."""
    return ["--set", "model.cross_attention=" + mechanism] if task == "captions" else ["--attention", mechanism]


class Arena:
    def __init__(self, options):
        self.options = options
        self.out = pathlib.Path(options.out).resolve()
        self.programs = pathlib.Path(options.programs).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.paths = self.out / "paths.txt"
        if not self.paths.exists():
            write_paths(self.paths)

    def flags(self, task):
        if task.startswith("reviews_"):  # as "text", with other data
            data = pathlib.Path(self.options.data).resolve() / "imdb/aclImdb"
            return ["--config", ROOT / "examples/configs/experiments/arena_text.json", "--threads", "1",
                    "--data", data / "train", "--test", data / "test", "--set", "data.format=folders",
                    "--set", "data.encoding=latin-1", "--set", "data.label_column=",
                    "--set", f"data.max_tokens={task.partition('_')[2]}"]
        where = TASKS[task][1]
        if task == "captions":
            data = pathlib.Path(self.options.data).resolve() / where
            files = {"source": "train.en", "target": "train.de", "valid-source": "val.en", "valid-target": "val.de"}
            return ["--config", ROOT / "examples/configs/experiments/arena_captions.json", "--threads", "1",
                    *(part for flag, name in files.items() for part in ("--" + flag, data / (name + ".gz")))]
        data = self.paths if where == "paths.txt" else where and pathlib.Path(self.options.data).resolve() / where
        config = ROOT / f"examples/configs/experiments/arena_{task}.json"
        return ["--config", config, "--threads", "1", *(["--data", data] if data else [])]

    def questions(self, mechanism, steps, seed):
        return [sys.executable, ROOT / "bench/arena_questions.py", "--attention", mechanism, "--steps", str(steps), "--seed",
                str(seed), "--data", pathlib.Path(self.options.data).resolve() / "quora/dev.tsv"]

    def steps_per_second(self, task, mechanism):
        """Of processor time: a training of a few steps against one of a single step."""
        program = self.programs / program_of(task)

        def seconds(steps):
            if task == "questions":
                return processor_seconds(self.questions(mechanism, steps, 1))
            with tempfile.TemporaryDirectory() as folder:
                return processor_seconds([program, "train", *self.flags(task), *chosen(task, mechanism), "--steps",
                                          str(steps), "--out", pathlib.Path(folder) / "run"])

        alone, steps, enough = seconds(1), 7, 0.08 * self.options.seconds
        while (taken := seconds(1 + steps) - alone) < enough:
            steps = math.ceil(steps * min(10, 1.2 * enough / max(taken, 0.01)))
        return steps / taken

    def cell(self, task, mechanism):
        """Accuracy in percent, or nats, its standard deviation over the seeds, steps per second of processor time, and the peak
        of all tensors in MB."""
        rate = self.out / "rates" / task / mechanism
        if not rate.exists():
            rate.parent.mkdir(parents=True, exist_ok=True)
            rate.write_text(f"{self.steps_per_second(task, mechanism):.4g}")
        steps_per_second = float(rate.read_text())
        steps = max(1, round(steps_per_second * self.options.seconds))
        seeds = range(1, self.options.seeds + 1)
        if task == "questions":
            results = [json.loads(finished(self.questions(mechanism, steps, seed))[1]) for seed in seeds]
            accuracies = [result["accuracy"] for result in results]
        else:
            folder = self.out / task / mechanism
            processor_seconds([self.programs / "heed", "compare", "--task", program_of(task), *self.flags(task),
                               *chosen(task, mechanism), "--steps", str(steps), "--seeds", ",".join(map(str, seeds)),
                               "--out", folder])
            results = [json.loads(file.read_text()) for file in folder.glob("*/result.json")]
            found = [{metric["name"]: metric["value"] for metric in result["metrics"]} for result in results]
            accuracies = [100 * one["accuracy"] if "accuracy" in one else one["loss"] for one in found]
        return (statistics.mean(accuracies), statistics.stdev(accuracies) if len(accuracies) > 1 else 0, steps_per_second,
                max(result["peak_bytes"] for result in results) / 1e6)


# --- a score for each pattern


def patterns_of(programs):
    """{mechanism: the patterns that it can serve as}, as `heed variants` finds them out."""
    lines = finished([programs / "heed", "variants", "--markdown"])[1].splitlines()
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    causal, cross = rows[0].index("causal"), rows[0].index("cross")
    return {row[0]: ["noncausal self"] + ["causal self"] * (row[causal] != "-") + ["noncausal cross"] * (row[cross] != "-")
            + ["causal cross"] * (row[cross] == "yes") for row in rows[2:]}


def indices(cells):
    """{pattern: {mechanism: its compositional index}} of {pattern: {mechanism: (accuracy or nats, ...)}}."""
    found = {}
    for pattern, column in cells.items():
        values = {name: own[0] for name, own in column.items()}
        mean, deviation = statistics.mean(values.values()), statistics.pstdev(values.values())
        sign = 1 if PATTERNS[pattern][1] else -1
        found[pattern] = {name: sign * (value - mean) / deviation if deviation else 0 for name, value in values.items()}
    return found


def measure_patterns(arena, mechanisms):
    can = patterns_of(arena.programs)
    cells = {pattern: {} for pattern in PATTERNS}
    for pattern, (task, _) in PATTERNS.items():
        for mechanism in mechanisms:
            if pattern in can[mechanism]:
                own = cells[pattern][mechanism] = arena.cell(task, mechanism)
                print("{:17}{:32}{:8.3f} ± {:.3f}{:8.3g} steps/s{:6.0f} MB".format(pattern, mechanism, *own), flush=True)
    scores = indices({pattern: column for pattern, column in cells.items() if column})
    lines = ["| mechanism | " + " | ".join(PATTERNS) + " |", "|---|" + "---|" * len(PATTERNS)]
    for mechanism in mechanisms:
        row = ["{:.3g} ({:+.2f})".format(cells[pattern][mechanism][0], scores[pattern][mechanism])
               if mechanism in cells[pattern] else "-" for pattern in PATTERNS]
        lines.append(f"| `{mechanism}` | " + " | ".join(row) + " |")
    (arena.out / "patterns.txt").write_text("\n".join(lines) + "\n")


# --- the chart: quality against speed, as the Long Range Arena draws it


def chart(cells):
    """cells: {mechanism: [(accuracy, deviation, steps per second, MB) of each task]}, the dot product among them."""
    width, height, left, right, top, bottom = 960, 640, 60, 150, 20, 50
    speeds = {name: math.prod(own[2] / base[2] for own, base in zip(cell, cells["dot_product"])) ** (1 / len(cell))
              for name, cell in cells.items()}
    scores = {name: sum(own[0] for own in cell) / len(cell) for name, cell in cells.items()}
    sizes = {name: math.sqrt(sum(own[3] for own in cell) / len(cell)) for name, cell in cells.items()}
    low, high = math.log(min(speeds.values()) * 0.9), math.log(max(speeds.values()) * 1.1)
    least, most = math.floor(min(scores.values())) - 1, math.ceil(max(scores.values())) + 1

    def across(speed):
        return left + (math.log(speed) - low) / (high - low) * (width - left - right)

    def down(score):
        return height - bottom - (score - least) / (most - least) * (height - top - bottom)

    parts = []
    for score in range(least, most + 1, 2):
        parts.append(f'<path d="M{left} {down(score):.1f}H{width - right}" stroke="#ddd"/>'
                     f'<text x="{left - 8}" y="{down(score) + 4:.1f}" text-anchor="end">{score}</text>')
    for speed in (0.1, 0.2, 0.5, 1, 2, 4, 8):
        if low <= math.log(speed) <= high:
            parts.append(f'<path d="M{across(speed):.1f} {top}V{height - bottom}" stroke="#ddd"/><text '
                         f'x="{across(speed):.1f}" y="{height - bottom + 18}" text-anchor="middle">{speed}</text>')
    parts.append(f'<text x="{(left + width - right) / 2}" y="{height - 12}" text-anchor="middle">steps per second of '
                 f'processor time, dot_product = 1; the area of a circle is its memory</text>'
                 f'<text transform="translate(16 {height / 2}) rotate(-90)" text-anchor="middle">mean accuracy, %</text>')
    for name in cells:
        parts.append(f'<circle cx="{across(speeds[name]):.1f}" cy="{down(scores[name]):.1f}" r="{sizes[name]:.1f}" '
                     f'fill="#4878a8" fill-opacity="0.35" stroke="#4878a8"/>')
    taken = []  # boxes of names: one that would lie on another moves down
    for name in sorted(cells, key=lambda one: -scores[one]):
        x, y = across(speeds[name]) + sizes[name] * 0.7 + 3, down(scores[name]) + 4
        while any(abs(y - other_y) < 12 and x < other_end and other_x < x + 6.2 * len(name)
                  for other_x, other_end, other_y in taken):
            y += 3
        taken.append((x, x + 6.2 * len(name), y))
        parts.append(f'<text x="{x:.1f}" y="{y:.1f}">{name}</text>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
            f'font-size="11"><rect width="{width}" height="{height}" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of the public data sets")
    parser.add_argument("--out", required=True, help="folder of the results")
    parser.add_argument("--programs", default=ROOT / "build/bin", help="folder of heed's programs (default: build/bin)")
    parser.add_argument("--seconds", type=float, default=10, help="processor time of each training (default: 10)")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each cell (default: 3)")
    parser.add_argument("--tasks", nargs="*", default=ARENA, choices=ARENA)
    parser.add_argument("--patterns", action="store_true", help="a task of each pattern of attention, in place of the tasks")
    parser.add_argument("--lengths", nargs="*", type=int, help="reviews by bytes up to these lengths, in place of the tasks")
    parser.add_argument("--mechanisms", nargs="*", default=MECHANISMS)
    options = parser.parse_args()
    arena = Arena(options)
    if options.patterns:
        return measure_patterns(arena, options.mechanisms)
    cells = {mechanism: [] for mechanism in options.mechanisms}
    for task in [f"reviews_{length}" for length in options.lengths] if options.lengths else options.tasks:
        for mechanism in options.mechanisms:
            cells[mechanism].append(arena.cell(task, mechanism))
            print("{:13}{:32}{:.1f} ± {:.1f} %{:8.3g} steps/s{:6.0f} MB".format(task, mechanism, *cells[mechanism][-1]),
                  flush=True)
    (arena.out / "figures.txt").write_text("".join(
        name + " [" + ", ".join("[%.1f, %.1f, %.3g, %.0f]" % own for own in cell) + "]\n" for name, cell in cells.items()))
    if "dot_product" in cells:
        (arena.out / "chart.svg").write_text(chart(cells))


if __name__ == "__main__":
    main()
