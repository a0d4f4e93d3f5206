"""What the comparisons with other programs share: options, runs in turn, and what a process measures of itself."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

BIN = pathlib.Path(__file__).resolve().parent.parent / "build/bin"  # of the release build


def parser_of(description, program):
    """The options of a comparison of `program` with something else."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heed", default=BIN / program, help=f"the program {program} (default: the one of the release build)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=3, help="alternating runs of each side (default 3)")
    return parser


def run(*command):
    """The first line of JSON that a process prints."""
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[0])


def finished(command, **settings):
    """What a command prints, and the resources that it and its processes used; ends this program with its errors where it
    fails. `settings` are those of subprocess.Popen, such as cwd and env."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        process = subprocess.Popen(list(map(str, command)), stdout=out, stderr=error, **settings)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), error.seek(0)
        if process.returncode:
            sys.exit(f"{' '.join(process.args)}\n{error.read().decode(errors='replace')}")
        return out.read(), usage


def in_turn(pairs, *works):
    """What each of the works gives, time after time; they take turns, since what else a machine does moves figures."""
    return zip(*[[work() for work in works] for _ in range(pairs)])


def median(rows, key):
    return statistics.median(row[key] for row in rows)


def memory_megabytes(name):
    """Memory of this process in MB of 2^20 bytes, as bench_steps reports it: VmHWM, the most ever, or VmRSS, now."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(name + ":"))


def set_up_torch(threads):
    import torch

    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    return torch
