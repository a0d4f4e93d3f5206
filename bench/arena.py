#!/usr/bin/env python3
"""Compares attention mechanisms on small tasks of the Long Range Arena at equal cost.

    python3 bench/arena.py --data ../shared/data --out runs/arena

Each task (arXiv 2011.04006) is a configuration, examples/configs/experiments/arena_<task>.json.
Every mechanism trains on one thread for as many steps as --seconds of processor time hold, with
--seeds seeds; short trainings before find out how many steps these are. OUT/<task>/<mechanism> is
what `heed compare` writes, and the same command goes on where it was stopped. OUT/figures.txt has
accuracy with its standard deviation over the seeds, steps per second and MB of every cell, as they
stand in apps/cli/attention_advice.json.

With --lengths 1000 4000 the tasks are reviews of imdb, read byte by byte up to these lengths; with
--exercises they are those of `heed compare --suite recall|mad|state`, for the causal mechanisms.
OUT/table.md has the accuracies of all cells.
"""

import json
import math
import pathlib
import random
import statistics
import tempfile

import peers

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "examples/configs/experiments"
ARENA = ["listops", "text", "retrieval", "pixels", "path"]
EXERCISES = ["mqar_16", "mqar_64", "recall", "fuzzy_recall", "noisy_recall", "selective_copying",
             "compression", "memorization", "parity", "s5"]


# --- a path by rule: a wall from left to right, with or without a gap, among single blocks


def is_open(grid):
    """Whether a path of free cells leads from the top row to the bottom row."""
    size = len(grid)
    reached = {(0, x) for x in range(size) if not grid[0][x]}
    edge = list(reached)
    while edge:
        y, x = edge.pop()
        for cell in ((y, x + 1), (y + 1, x), (y, x - 1), (y - 1, x)):
            inside = min(cell) >= 0 and max(cell) < size
            if inside and cell not in reached and not grid[cell[0]][cell[1]]:
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


class Arena:
    def __init__(self, options):
        self.options = options
        self.out = pathlib.Path(options.out).resolve()
        self.programs = pathlib.Path(options.programs).resolve()
        self.data = pathlib.Path(options.data).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        if not (self.out / "paths.txt").exists():
            write_paths(self.out / "paths.txt")

    def task(self, name, mechanism):
        """The program of a task and its flags."""
        if name in EXERCISES:
            rule, _, pairs = name.partition("_") if name.startswith("mqar") else (name, "", 0)
            return "language_model", ["--threads", "1", "--attention", mechanism, "--set",
                                      f"data.rule={rule}", "--set", f"data.exercise.pairs={pairs}"]
        name, _, length = name.partition("_")
        imdb = self.data / "imdb/aclImdb"
        program, *flags = {
            "listops": ["classify"],
            "text": ["classify", "--data", self.data / "ag_news/train_sample5000.csv"],
            "retrieval": ["match", "--data", self.data / "quora/dev.tsv"],
            "pixels": ["classify", "--data", self.data / "mnist_10k/t10k-images-idx3-ubyte.gz"],
            "path": ["classify", "--data", self.out / "paths.txt"],
            "reviews": [  # as "text", with other data
                "classify", "--data", imdb / "train", "--test", imdb / "test",
                "--set", "data.format=folders", "--set", "data.encoding=latin-1",
                "--set", "data.label_column=", "--set", f"data.max_tokens={length}"],
        }[name]
        config = CONFIGS / f"arena_{'text' if name == 'reviews' else name}.json"
        return program, ["--config", config, "--threads", "1", "--attention", mechanism, *flags]

    def seconds(self, task, mechanism, steps):
        program, flags = self.task(task, mechanism)
        with tempfile.TemporaryDirectory() as folder:
            _, usage = peers.finished([self.programs / program, "train", *flags, "--steps", steps,
                                       "--out", pathlib.Path(folder) / "run"])
        return usage.ru_utime + usage.ru_stime

    def steps_per_second(self, task, mechanism):
        """Of processor time: a training of a few steps against one of a single step."""
        alone, steps = self.seconds(task, mechanism, 1), 7
        enough = 0.08 * self.options.seconds
        while (taken := self.seconds(task, mechanism, 1 + steps) - alone) < enough:
            steps = math.ceil(steps * min(10, 1.2 * enough / max(taken, 0.01)))
        return steps / taken

    def cell(self, task, mechanism):
        """Accuracy in percent, its standard deviation over the seeds, steps per second of processor
        time, and the peak of all tensors in MB."""
        rate = self.out / "rates" / task / mechanism
        if not rate.exists():
            rate.parent.mkdir(parents=True, exist_ok=True)
            rate.write_text(f"{self.steps_per_second(task, mechanism):.4g}")
        steps_per_second = float(rate.read_text())
        steps = max(1, round(steps_per_second * self.options.seconds))
        seeds = range(1, self.options.seeds + 1)
        folder = self.out / task / mechanism
        program, flags = self.task(task, mechanism)
        peers.finished([
            self.programs / "heed", "compare", "--task", program, *flags, "--steps", steps,
            "--seeds", ",".join(map(str, seeds)), "--out", folder])
        results = [json.loads(file.read_text()) for file in folder.glob("*/result.json")]
        values = [100 * metric["value"] for result in results for metric in result["metrics"]
                  if metric["name"] == "accuracy"]
        return (statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0,
                steps_per_second, max(result["peak_bytes"] for result in results) / 1e6)


def known_mechanisms(programs, causal):
    printed, _ = peers.finished([programs / "heed", "variants", "--markdown"])
    rows = [line.split(" | ") for line in printed.splitlines() if line.startswith("| `")]
    return [row[0].split("`")[1] for row in rows if not causal or row[1].strip() != "-"]


def main():
    parser = peers.plain_parser(__doc__)
    parser.add_argument("--data", required=True, help="folder of the public data sets")
    parser.add_argument("--out", required=True, help="folder of the results")
    parser.add_argument("--programs", default=peers.BIN, help="folder of heed's programs")
    parser.add_argument("--seconds", type=float, default=10,
                        help="processor time of each training (default: 10)")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each cell (default: 3)")
    parser.add_argument("--tasks", nargs="*", choices=ARENA + EXERCISES, help="default: the arena's")
    parser.add_argument("--exercises", action="store_true", help="exercises for language models")
    parser.add_argument("--lengths", nargs="*", type=int,
                        help="reviews by bytes up to these lengths, in place of the tasks")
    parser.add_argument("--mechanisms", nargs="*", help="default: all")
    options = parser.parse_args()
    arena = Arena(options)
    mechanisms = options.mechanisms or known_mechanisms(arena.programs, options.exercises)
    cells = {mechanism: [] for mechanism in mechanisms}
    tasks = options.tasks or (EXERCISES if options.exercises else ARENA)
    if options.lengths:
        tasks = [f"reviews_{n}" for n in options.lengths]
    for task in tasks:
        for mechanism in mechanisms:
            cell = arena.cell(task, mechanism)
            cells[mechanism].append(cell)
            form = "{:18}{:32}{:.1f} ± {:.1f} %{:8.3g} steps/s{:6.0f} MB"
            print(form.format(task, mechanism, *cell), flush=True)
    figures, table = "", f"| accuracy, % | {' | '.join(tasks)} |\n|{'---|' * (1 + len(tasks))}\n"
    for name, own in cells.items():
        figures += f"{name} [{', '.join('[%.1f, %.1f, %.3g, %.0f]' % cell for cell in own)}]\n"
        table += f"| `{name}` | {' | '.join('%.1f ± %.1f' % cell[:2] for cell in own)} |\n"
    (arena.out / "figures.txt").write_text(figures)
    (arena.out / "table.md").write_text(table)


if __name__ == "__main__":
    main()
