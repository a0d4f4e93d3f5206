#!/usr/bin/env python3
"""How many of heed's own files one training step of the translator executes, headers included.

    python3 bench/step_files.py --list

Prints a line of JSON: the number of files, of their lines, and of the lines that were executed. With --list, a line for
each file comes first: lines executed, lines, name.

It builds `translate` for the CPU with gcov's counters and trains a tiny model. The counters are reset before the backward
pass of the fourth step and written before that of the sixth, so they cover two whole steps and what the trainer does
between them. Nothing is recorded, evaluated or saved meanwhile. The build takes minutes; its folder is kept for next time.
"""

import argparse
import collections
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The trainer calls it once a step. It is in another folder, and so in another object file: the linker redirects only
# calls between object files.
BACKWARD = "_ZN4heed8backwardERKNS_6TensorES2_"  # heed::backward(const Tensor&, const Tensor&)
HOOK = """// Made by bench/step_files.py: the linker redirects calls of heed::backward() here.
#include <unistd.h>
extern "C" {
void __gcov_reset();
void __gcov_dump();
void __real_BACKWARD(const void* output, const void* start);
void __wrap_BACKWARD(const void* output, const void* start) {
  static int steps = 0;
  if (++steps == 4) __gcov_reset();
  if (steps == 6) {
    __gcov_dump();
    _exit(0);
  }
  __real_BACKWARD(output, start);
}
}
""".replace("BACKWARD", BACKWARD)
TINY = ["data.numbers=300", "data.held_out_numbers=20", "tokenizer.vocabulary=280", "model.width=16", "model.heads=2",
        "model.feed_forward=16", "model.encoder_layers=2", "model.decoder_layers=2", "training.batch_tokens=256",
        "training.log_every=1000", "training.evaluate_every=1000", "training.save_every=1000"]


def run(command, **options):
    return subprocess.run(list(map(str, command)), check=True, **options)


def build(folder, jobs):
    folder.mkdir(parents=True, exist_ok=True)
    hook = folder / "step_hook.cpp"
    if not hook.exists() or hook.read_text() != HOOK:
        hook.write_text(HOOK)
    run(["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-D", "CMAKE_BUILD_TYPE=Debug",
         "-D", "CMAKE_CXX_FLAGS_DEBUG=-O1 -fno-inline --coverage -fprofile-abs-path -fprofile-update=atomic",
         "-D", "HEED_VULKAN=OFF", "-D", "HEED_BUILD_SHARED=OFF", "-D", "HEED_BUILD_TESTS=OFF",
         "-D", "HEED_BUILD_BENCH=OFF", "-D", f"HEED_OWN_SOURCES={hook}",
         "-D", f"CMAKE_EXE_LINKER_FLAGS=-Wl,--wrap={BACKWARD}"], stdout=sys.stderr)
    run(["ninja", "-C", folder, f"-j{jobs}", "translate"], stdout=sys.stderr)


def train(folder):
    """Leaves the counters of two steps in the folder."""
    for old in folder.rglob("*.gcda"):
        old.unlink()
    with tempfile.TemporaryDirectory() as out:
        settings = [word for setting in TINY for word in ("--set", setting)]
        run([folder / "bin/translate", "train", "--out", f"{out}/run", "--threads", "2", "--steps", "20", *settings],
            stdout=sys.stderr)
        if (pathlib.Path(out) / "run/model.safetensors").exists():
            sys.exit(f"step_files: training ran to its end: {BACKWARD} is no longer the name of heed::backward()")


def executed_lines(folder):
    """The numbers of the lines that were executed, by file."""
    lines = collections.defaultdict(set)
    for counters in folder.rglob("*.gcda"):
        report = run(["gcov", "--json-format", "--stdout", counters], capture_output=True, cwd=counters.parent)
        for text in report.stdout.splitlines():
            for file in json.loads(text)["files"]:
                name = pathlib.Path(file["file"]).resolve()
                if name.is_relative_to(ROOT) and not name.is_relative_to(folder):
                    lines[name.relative_to(ROOT)].update(one["line_number"] for one in file["lines"] if one["count"])
    return {name: numbers for name, numbers in lines.items() if numbers}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build-coverage", help="folder of the build with counters")
    parser.add_argument("--jobs", type=int, default=2, help="compilations at a time")
    parser.add_argument("--list", action="store_true", help="print every file")
    arguments = parser.parse_args()
    if not shutil.which("gcov"):
        sys.exit("step_files: there is no gcov, which comes with gcc")
    folder = arguments.build.resolve()
    build(folder, arguments.jobs)
    train(folder)
    executed = executed_lines(folder)
    length = {name: len((ROOT / name).read_text().splitlines()) for name in executed}
    if arguments.list:
        for name in sorted(executed):
            print(f"{len(executed[name]):5} {length[name]:5} {name}")
    print(json.dumps({"files": len(executed), "lines": sum(length.values()),
                      "executed": sum(map(len, executed.values()))}))


if __name__ == "__main__":
    main()
