"""What the comparisons with other programs share: options, runs in turn, memory of a process."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

BIN = pathlib.Path(__file__).resolve().parent.parent / "build/bin"  # of the release build


def plain_parser(description, **settings):
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, **settings)


def ended(process, error, stopped=False):
    """Waits for a process, and returns the resources that it and its processes used. Ends this
    program with the errors of one that fails, unless it was stopped from here."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode and not stopped:
        error.seek(0)
        sys.exit(f"{' '.join(process.args)}\n{error.read().decode(errors='replace')}")
    return usage


def finished(command):
    """What a command prints, and the resources that it used."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        usage = ended(subprocess.Popen(list(map(str, command)), stdout=out, stderr=error), error)
        out.seek(0)
        return out.read().decode(), usage


def run(*command):
    """The first line of JSON that a process prints."""
    return json.loads(finished(command)[0].splitlines()[0])


def compared(pairs, heed_command, torch_command, pick=statistics.median):
    """Time and peak memory of two commands, and what they are to each other. Both must have one
    model. They take turns, since what else a machine does moves figures."""
    rows = [(run(*heed_command), run(*torch_command)) for _ in range(pairs)]
    heed, torch = zip(*rows)
    counts = heed[0]["parameters"], torch[0]["parameters"]
    if counts[0] != counts[1]:
        sys.exit(f"heed's model has {counts[0]} parameters, PyTorch's {counts[1]}")
    heed_ms, torch_ms, heed_mb, torch_mb = (
        pick(row[key] for row in side) for key in ("ms", "peak_mb") for side in (heed, torch))
    return {
        "heed_ms": round(heed_ms, 1),
        "torch_ms": round(torch_ms, 1),
        "speedup": round(torch_ms / heed_ms, 3),
        "heed_peak_mb": round(heed_mb, 1),
        "torch_peak_mb": round(torch_mb, 1),
        "memory_ratio": round(heed_mb / torch_mb, 3),
    }


def memory_megabytes(name):
    """Memory of this process in MB of 2^20 bytes, as bench_steps reports it: VmHWM, the most ever,
    or VmRSS, now."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(name + ":"))


def set_up_torch(threads):
    import torch

    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    return torch
