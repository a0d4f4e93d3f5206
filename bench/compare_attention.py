#!/usr/bin/env python3
"""Times one layer of attention, forward and backward, in heed and in PyTorch, in turn.

    python3 bench/compare_attention.py --lengths 1024 4096      # any python3 that has torch

Width 512, 8 heads, batch 1, float32, no dropout, no biases, gradients of the input and of all
parameters. heed is `heed bench attention`; PyTorch's side is attention_torch.py, and both must have
the same number of parameters. Each side runs in a process of its own, the two alternate, and the
best of their passes counts, because other work on a machine only ever adds time. A line of JSON for
each mechanism and length: `speedup` is PyTorch's time over heed's, `memory_ratio` the peak of
heed's tensors over what PyTorch's process grew by, parameters and gradients in both.
"""

import argparse
import json
import pathlib
import sys
import time

import peers

WINDOW = ["--set", "longformer.window=128", "--set", "longformer.global_tokens=1"]
BOTH_WAYS = ["dot_product", "linear_transformer", "performer", "attention_free_transformer"]
CAUSAL = ["retnet", "gated_linear_attention", "mamba2", "gated_deltanet", "kimi_delta", "rwkv7"]
# The mechanism of heed and its flags; what stands behind a colon only tells two cases apart.
CASES = {
    **{name: [] for name in BOTH_WAYS},
    **{name + ":causal": ["--causal"] for name in BOTH_WAYS},
    **{name: ["--causal"] for name in CAUSAL},
    **{name: [] for name in ("hard_coded_gaussian", "fastformer", "linformer", "bigbird", "fnet",
                             "routing_transformer", "nystromformer", "local", "sinkhorn")},
    "longformer": WINDOW,
    "clusterformer": ["--set", "clusterformer.clusters=16"],
    "reformer": ["--set", "reformer.rounds=2"],
}


def run_torch(case, length, options):
    """One process of PyTorch: prints the best time of a pass, the growth of the process, and the
    number of parameters."""
    torch = peers.set_up_torch(options.threads)
    import attention_torch

    def layer(case, length):
        return attention_torch.Layer(case.partition(":")[0], options.width, options.heads, length,
                                     "--causal" in CASES[case])

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
    module = layer(case, length)
    x, slope = inputs(length)
    times = []
    once(module, x, slope)
    while len(times) < 3 or sum(times) < 0.1:
        start = time.perf_counter()
        once(module, x, slope)
        times.append(time.perf_counter() - start)
    parameters = sum(p.numel() for p in module.parameters() if p.requires_grad)
    print(json.dumps({"ms": 1000 * min(times), "parameters": parameters,
                      "peak_mb": peers.memory_megabytes("VmHWM") - before}))


def compare(case, length, options):
    common = ["--lengths", length, "--width", options.width, "--heads", options.heads,
              "--threads", options.threads]
    heed_command = [options.heed, "bench", "attention", "--variants", case.partition(":")[0],
                    *common, "--json", *CASES[case]]
    torch_command = [sys.executable, __file__, "--run-torch", case, *common]
    found = peers.compared(options.pairs, heed_command, torch_command, min)
    print(json.dumps({"case": case, "length": length} | found), flush=True)


def main():
    parser = peers.parser_of(__doc__, "heed")
    parser.add_argument("--case", action="append", choices=CASES, help="only this; may be repeated")
    parser.add_argument("--lengths", nargs="+", type=int, default=[1024, 4096],
                        help="multiples of 64 from 1024 on")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--run-torch", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run_torch:
        return run_torch(options.run_torch, options.lengths[0], options)
    for length in options.lengths:
        for case in options.case or CASES:
            compare(case, length, options)


if __name__ == "__main__":
    main()
