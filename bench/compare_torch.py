#!/usr/bin/env python3
"""Times one training step (forward, backward, Adam) of heed and of PyTorch, in turn.

Each side runs in its own process, so that its peak memory is its own, and the two alternate,
because other work on the machine moves figures by 10 to 15 %. Prints one line of JSON per case;
`speedup` is PyTorch's time over heed's, and `memory_ratio` heed's peak memory over PyTorch's.

PyTorch runs in its best form (torch_models.py) with fused Adam. With `--precision bf16` both
multiply in bf16 (heed with Bf16Products, PyTorch under autocast).
"""

import argparse
import json
import statistics
import sys
import time

import peers

CASES = ("encoder", "translation", "language_model", "long_text", "gpt2")


def run_torch(case, options):
    """One process of PyTorch: prints the median time of a step, peak memory and parameters."""
    torch = peers.set_up_torch(options.threads)
    import torch_models

    model, loss_of = torch_models.build(case, options.dropout)
    if options.compile:
        loss_of = torch.compile(loss_of)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    times = []
    for _ in range(3 + options.repeat):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.precision == "bf16"):
            loss = loss_of()
        loss.backward()
        optimizer.step()
        times.append(1000 * (time.perf_counter() - start))
    print(json.dumps({
        "case": case,
        "ms": statistics.median(times[3:]),
        "peak_mb": peers.memory_megabytes("VmHWM"),
        "parameters": sum(p.numel() for p in model.parameters()),
        "loss": loss.item(),
    }))


def compare(name, options):
    case = name.removesuffix("_no_dropout")
    shared = ["--threads", options.threads, "--repeat", options.repeat,
              "--dropout", options.dropout if name == case else 0, "--precision", options.precision]
    heed_command = [options.heed, "--case", case, *shared]
    torch_command = [sys.executable, __file__, "--run-torch", case, *shared]
    torch_command += ["--compile"] * options.compile
    found = peers.compared(options.pairs, heed_command, torch_command)
    print(json.dumps({"case": name} | found), flush=True)


def main():
    names = [name + suffix for name in CASES for suffix in ("", "_no_dropout")]
    parser = peers.parser_of(__doc__, "bench_steps")
    parser.add_argument("--case", action="append", choices=names, help="only this; may be repeated")
    parser.add_argument("--repeat", type=int, default=10, help="timed steps in a run (default 10)")
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32", help="of products")
    parser.add_argument("--compile", action="store_true", help="PyTorch with torch.compile")
    parser.add_argument("--dropout", type=float, default=0.1,
                        help="of the cases that do not end in _no_dropout (default 0.1)")
    parser.add_argument("--run-torch", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run_torch:
        return run_torch(options.run_torch, options)
    for name in options.case or names:
        compare(name, options)


if __name__ == "__main__":
    main()
