#!/usr/bin/env python3
"""Throughput of two ranks with one thread each beside one process with two threads, on the same work, in turn.

    cmake -D HEED_BUILD_BENCH=ON build && ninja -C build bench_steps && python3 bench/ranks.py

Prints a line of JSON per case: `ratio` is the throughput of the ranks over that of one process (1: the same), the median
over the pairs, and `bytes` what all ranks together have sent in a step, beside what the formula of
docs/guides/processes.md says. With --torch PyTorch's DistributedDataParallel over gloo does the same work, in turn with heed: `torch_ratio` is its
throughput with two processes over that of one, and `beside_torch` heed's throughput over its, both with two processes.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from functools import partial

import compare_torch
import peers

CASES = ["encoder", "translation", "language_model"]


def measure(ranks, threads, case, batches, steps):
    return peers.run(peers.BIN / "bench_steps", "--case", case, "--ranks", ranks, "--threads", threads, "--accumulation", batches,
                     "--repeat", steps)


def run_torch(case, rank, ranks, threads, batches, steps, port):
    """One process of PyTorch: steps of `batches` batches, shared by the ranks, of which the last sends the gradients."""
    import contextlib

    torch = peers.set_up_torch(threads)
    model, loss_of_batch = compare_torch.build(case, dropout=0.1)
    loss_of = loss_of_batch
    wait_for_all = lambda: None
    if ranks > 1:
        torch.distributed.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)

        class Step(torch.nn.Module):  # so that the loss is what DistributedDataParallel calls
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self):
                return loss_of_batch()

        loss_of = torch.nn.parallel.DistributedDataParallel(Step(), gradient_as_bucket_view=True)
        wait_for_all = torch.distributed.barrier
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    times = []
    own = batches // ranks
    for _ in range(2 + steps):
        wait_for_all()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        for batch in range(own):
            last = batch == own - 1
            with contextlib.nullcontext() if last or ranks == 1 else loss_of.no_sync():
                (loss_of() / batches).backward()
        optimizer.step()
        times.append(1000 * (time.perf_counter() - start))
    if rank == 0:
        print(json.dumps({"ms": statistics.median(times[2:])}))


def measure_torch(ranks, threads, case, batches, steps):
    with socket.socket() as probe:  # a port that is free
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, __file__, "--run-torch", case, ranks, threads, batches, steps, port]
    started = [subprocess.Popen(list(map(str, command + [rank])), stdout=subprocess.PIPE, text=True, env=environment)
               for rank in range(ranks)]
    outputs = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        sys.exit("ranks.py: PyTorch failed")
    return json.loads(outputs[0].splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--batches", type=int, default=4, help="of a step (training.accumulation)")
    parser.add_argument("--steps", type=int, default=3, help="timed steps of each run")
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--torch", action="store_true", help="beside DistributedDataParallel (needs PyTorch)")
    parser.add_argument("--run-torch", nargs=7, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run_torch:
        ranks, threads, batches, steps, port, rank = map(int, options.run_torch[1:])
        return run_torch(options.run_torch[0], rank, ranks, threads, batches, steps, port)
    for case in options.case or CASES:
        work = case, options.batches, options.steps
        alone, shared, *torch_runs = peers.in_turn(options.pairs, *[
            partial(measured, ranks, 3 - ranks, *work)
            for measured in [measure] + options.torch * [measure_torch] for ranks in (1, 2)])

        def ratio(a, b):
            return round(statistics.median(one["ms"] / other["ms"] for one, other in zip(a, b)), 3)

        last, torch = shared[-1], {}
        if options.torch:
            torch_alone, torch_shared = torch_runs
            torch = {"torch_alone_ms": round(peers.median(torch_alone, "ms"), 1),
                     "torch_ranks_ms": round(peers.median(torch_shared, "ms"), 1),
                     "torch_ratio": ratio(torch_alone, torch_shared), "beside_torch": ratio(torch_shared, shared)}
        print(json.dumps({
            "case": case, "batches": options.batches, "ratio": ratio(alone, shared), "alone_ms": peers.median(alone, "ms"),
            "ranks_ms": peers.median(shared, "ms"), "model_bytes": last["model_bytes"],
            "bytes": last["bytes"], "formula_bytes": last["formula_bytes"],
            "beside_formula": round(last["bytes"] / last["formula_bytes"] - 1, 5), "messages": last["messages"], **torch}),
            flush=True)


if __name__ == "__main__":
    main()
