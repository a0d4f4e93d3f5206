#!/usr/bin/env python3
"""Times heed and PyTorch in turn: a training step (forward, backward, Adam), or attention.

    python3 bench/compare_torch.py                                    # any python3 that has torch
    python3 bench/compare_torch.py --attention --lengths 1024 4096

Each side runs in its own process, so that its peak memory is its own, and the two alternate,
because other work on the machine moves figures by 10 to 15 %. Prints one line of JSON per case;
`speedup` is PyTorch's time over heed's, and `memory_ratio` heed's peak memory over PyTorch's.

Steps: PyTorch runs in its best form (torch_models.py) with fused Adam. With `--precision bf16` both
multiply in bf16, PyTorch under autocast; with `high` heed alone multiplies in parts of bf16.

Attention: one layer, forward and backward, of width 512 and 8 heads, batch 1, float32, no dropout,
no biases, gradients of the input and of all parameters. heed is `heed bench attention`; PyTorch's
side is attention_torch.py. The best of their passes counts. Memory is the peak of heed's tensors,
and what PyTorch's process grew by, parameters and gradients in both.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

import peers

CASES = ("encoder", "translation", "language_model", "long_text", "gpt2")

WINDOW = ["--set", "longformer.window=128", "--set", "longformer.global_tokens=1"]
BOTH_WAYS = ["dot_product", "linear_transformer", "performer", "attention_free_transformer"]
CAUSAL = ["retnet", "gated_linear_attention", "mamba2", "gated_deltanet", "kimi_delta", "rwkv7"]
# The mechanism of heed and its flags; what stands behind a colon only tells two cases apart.
MECHANISMS = {
    **{name: [] for name in BOTH_WAYS},
    **{name + ":causal": ["--causal"] for name in BOTH_WAYS},
    **{name: ["--causal"] for name in CAUSAL},
    **{name: [] for name in ("hard_coded_gaussian", "fastformer", "linformer", "bigbird", "fnet",
                             "routing_transformer", "nystromformer", "local", "sinkhorn")},
    "longformer": WINDOW,
    "clusterformer": ["--set", "clusterformer.clusters=16"],
    "reformer": ["--set", "reformer.rounds=2"],
}


def torch_step(torch, case, options):
    """Times a step: the median, peak memory and parameters."""
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
    return {"ms": statistics.median(times[3:]), "peak_mb": peers.memory_megabytes("VmHWM"),
            "parameters": sum(p.numel() for p in model.parameters())}


def torch_attention(torch, case, options):
    """Times a pass: the best, the growth of the process and parameters."""
    import attention_torch

    def layer(case, length):
        return attention_torch.Layer(case.partition(":")[0], options.width, options.heads, length,
                                     "--causal" in MECHANISMS[case])

    def inputs(length):
        shape = 1, length, options.width
        return torch.randn(shape, requires_grad=True), torch.randn(shape)

    def once(module, x, slope):
        module.zero_grad(set_to_none=True)
        x.grad = None
        (module(x) * slope).sum().backward()

    once(layer("dot_product", 256), *inputs(256))  # libraries and threads are there
    before = peers.memory_megabytes("VmRSS")
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    module = layer(case, options.lengths[0])
    x, slope = inputs(options.lengths[0])
    times = []
    once(module, x, slope)
    while len(times) < 3 or sum(times) < 0.1:
        start = time.perf_counter()
        once(module, x, slope)
        times.append(time.perf_counter() - start)
    return {"ms": 1000 * min(times), "peak_mb": peers.memory_megabytes("VmHWM") - before,
            "parameters": sum(p.numel() for p in module.parameters() if p.requires_grad)}


def compare(line, case, options, heed_command, shared, pick, torch_flags=()):
    torch_command = [sys.executable, __file__, "--run-torch", case, *shared, *torch_flags]
    found = peers.compared(options.pairs, [*heed_command, *shared], torch_command, pick)
    print(json.dumps(line | found), flush=True)


def compare_steps(name, options):
    case = name.removesuffix("_no_dropout")
    shared = ["--threads", options.threads, "--repeat", options.repeat,
              "--dropout", options.dropout if name == case else 0, "--precision", options.precision]
    command = [options.heed or peers.BIN / "bench_steps", "--case", case]
    compare({"case": name}, case, options, command, shared, statistics.median,
            ["--compile"] * options.compile)


def compare_attention(case, length, options):
    shared = ["--lengths", length, "--width", options.width, "--heads", options.heads,
              "--threads", options.threads, "--precision", options.precision]
    command = [options.heed or peers.BIN / "heed", "bench", "attention", "--variants",
               case.partition(":")[0], "--json", *MECHANISMS[case]]
    compare({"case": case, "length": length}, case, options, command, shared, min)


def main():
    names = [name + suffix for name in CASES for suffix in ("", "_no_dropout")]
    parser = peers.plain_parser(__doc__)
    parser.add_argument("--attention", action="store_true", help="layers instead of steps")
    parser.add_argument("--case", action="append", choices=[*names, *MECHANISMS],
                        help="only this, of steps or of layers; may be repeated")
    parser.add_argument("--heed", help="the program bench_steps, or for layers heed (default: that "
                                       "of the release build)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=3,
                        help="alternating runs of each side (default 3)")
    parser.add_argument("--repeat", type=int, default=10, help="timed steps in a run (default 10)")
    parser.add_argument("--precision", choices=("f32", "high", "bf16"), default="f32",
                        help="of products")
    parser.add_argument("--compile", action="store_true", help="PyTorch with torch.compile")
    parser.add_argument("--dropout", type=float, default=0.1,
                        help="of the cases that do not end in _no_dropout (default 0.1)")
    parser.add_argument("--lengths", nargs="+", type=int, default=[1024, 4096],
                        help="of layers: multiples of 64 from 1024 on")
    parser.add_argument("--width", type=int, default=512, help="of layers")
    parser.add_argument("--heads", type=int, default=8, help="of layers")
    parser.add_argument("--run-torch", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run_torch:
        work = torch_step if options.run_torch in CASES else torch_attention
        print(json.dumps(work(peers.set_up_torch(options.threads), options.run_torch, options)))
        return
    cases = options.case or (MECHANISMS if options.attention else names)
    for name in [case for case in cases if case in names]:
        compare_steps(name, options)
    for length in options.lengths:
        for case in [case for case in cases if case in MECHANISMS]:
            compare_attention(case, length, options)


if __name__ == "__main__":
    main()
