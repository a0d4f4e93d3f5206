#!/usr/bin/env python3
"""Throughput of two ranks with one thread each beside one process with two threads, on the same work, in turn.

    cmake -D HEED_BUILD_BENCH=ON build && ninja -C build bench_steps && python3 bench/ranks.py

Prints a line of JSON per case: `ratio` is the throughput of the ranks over that of one process (1: the same), the median
over the pairs, and `bytes` what all ranks together have sent in a step, beside what the formula of docs/distributed.md
says. With --model it also prints, as the tables of that page, the speed-up that follows for more ranks.
"""

import argparse
import json
import pathlib
import statistics
import subprocess

CASES = ["encoder", "translation", "language_model"]
PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "build/bin/bench_steps"
MESSAGE_SECONDS = 20e-6  # what a message costs beside its bytes, on an ordinary network


def measure(case, ranks, threads, batches, steps):
    command = [PROGRAM, "--case", case, "--ranks", ranks, "--threads", threads, "--accumulation", batches,
               "--repeat", steps]
    return json.loads(subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout)


def predicted(batch_seconds, model_bytes, largest, ranks, gigabits):
    """The speed-up over one process, for one batch per rank and step, and no overlap of computing and sending. The owner
    of the largest parameter gets its gradient from all and sends its weights to all."""
    share = max(model_bytes / ranks, largest)
    through_one = 2 * (ranks - 1) * share
    exchanges = 3 + 2 * -(-model_bytes // 2**25)  # outcome, norm, stop; and buckets of gradients and weights
    seconds = batch_seconds + through_one * 8 / (gigabits * 1e9) + 2 * exchanges * (ranks - 1) * MESSAGE_SECONDS
    return ranks * batch_seconds / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--batches", type=int, default=4, help="of a step (training.accumulation)")
    parser.add_argument("--steps", type=int, default=3, help="timed steps of each run")
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--model", action="store_true", help="print the predicted speed-up at 2 to 256 ranks")
    parser.add_argument("--batch-ms", type=float, help="with --model: the time of a batch, where it was measured better")
    options = parser.parse_args()
    for case in options.case or CASES:
        ratios, alone, shared = [], [], []
        for _ in range(options.pairs):
            alone.append(measure(case, 1, 2, options.batches, options.steps))
            shared.append(measure(case, 2, 1, options.batches, options.steps))
            ratios.append(alone[-1]["ms"] / shared[-1]["ms"])
        last = shared[-1]
        print(json.dumps({
            "case": case, "batches": options.batches, "ratio": round(statistics.median(ratios), 3),
            "alone_ms": statistics.median(one["ms"] for one in alone),
            "ranks_ms": statistics.median(one["ms"] for one in shared), "model_bytes": last["model_bytes"],
            "bytes": last["bytes"], "formula_bytes": last["formula_bytes"],
            "beside_formula": round(last["bytes"] / last["formula_bytes"] - 1, 5), "messages": last["messages"]}),
            flush=True)
        if options.model:
            measured = statistics.median(one["ms"] for one in alone) / options.batches
            batch = (options.batch_ms or measured) / 1000
            print(f"\n| {case} | " + " | ".join(f"{n} ranks" for n in (2, 4, 16, 64, 256)) + " |\n|" + "---|" * 6)
            for gigabits in (1, 10, 100):
                cells = [f"{predicted(batch, last['model_bytes'], last['largest'], n, gigabits):.3g}"
                         for n in (2, 4, 16, 64, 256)]
                print(f"| {gigabits} Gbit/s | " + " | ".join(cells) + " |")
            print(flush=True)


if __name__ == "__main__":
    main()
