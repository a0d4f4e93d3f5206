#!/usr/bin/env python3
"""Trains the models of bench/compare_torch.py in heed and in PyTorch from the same weights on the same batches.

    ninja -C build bench_steps && python3 tests/published/same_recipe.py

heed trains first, without dropout, and records its initial weights, its batches (eight, in turn) and the loss of every
step (bench_steps --record); PyTorch begins with these weights and reads these batches, with its own kernels, gradients
and Adam. Prints a line of JSON per case: the first and the last loss, and the largest difference between the two curves.
With --double PyTorch trains in float64 as well, and both largest differences from that are printed: a training in float32
leaves its own path in float64, and two of them cannot be nearer to each other than to that. Exit status 1 when the
difference of the two exceeds --tolerance. Needs PyTorch and its package safetensors.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import compare_torch  # noqa: E402
import peers  # noqa: E402

ADAM = {"lr": 1e-4, "betas": (0.9, 0.999), "eps": 1e-8}  # as in bench/steps.cpp


def losses_of_torch(case, recorded, threads):
    torch = peers.set_up_torch(threads)
    import torch_models

    model, _ = torch_models.build(case, dropout=0.0)
    torch_models.take_weights(model, recorded)
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), **ADAM)
    batches = sum(name.startswith("batch.") and name.endswith(".ids") for name in recorded)
    losses = []
    for step in range(len(recorded["losses"])):
        ids, targets, shifted = (recorded.get(f"batch.{step % batches}.{part}") for part in ("ids", "targets", "shifted"))
        optimizer.zero_grad(set_to_none=True)
        loss = model.loss(ids.long(), targets.long(), shifted.long() if shifted is not None else None)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def losses_in_double(case, recorded, threads):
    import torch

    torch.set_default_dtype(torch.float64)
    try:
        return losses_of_torch(case, {name: value.double() if value.is_floating_point() else value
                                      for name, value in recorded.items()}, threads)
    finally:
        torch.set_default_dtype(torch.float32)


def largest_difference(a, b):
    return float(f"{max(abs(x - y) for x, y in zip(a, b)):.2g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=compare_torch.CASES)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--double", action="store_true", help="PyTorch in float64, too")
    parser.add_argument("--tolerance", type=float, default=1e-3)
    options = parser.parse_args()
    from safetensors.torch import load_file

    worst = 0.0
    for case in options.case or compare_torch.CASES:
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/recorded.safetensors"
            subprocess.run([peers.BIN / "bench_steps", "--case", case, "--record", file, "--repeat", str(options.steps),
                            "--threads", str(options.threads)], check=True)
            recorded = load_file(file)
        heed = recorded["losses"].tolist()
        torch = losses_of_torch(case, recorded, options.threads)
        difference = largest_difference(heed, torch)
        worst = max(worst, difference)
        line = {"case": case, "steps": len(heed), "first_loss": round(heed[0], 4), "last_loss": round(heed[-1], 4),
                "torch_last_loss": round(torch[-1], 4), "largest_difference": difference}
        if options.double:
            exact = losses_in_double(case, recorded, options.threads)
            line["heed_from_double"] = largest_difference(heed, exact)
            line["torch_from_double"] = largest_difference(torch, exact)
        print(json.dumps(line), flush=True)
    sys.exit(worst > options.tolerance)


if __name__ == "__main__":
    main()
