#!/usr/bin/env python3
"""Times heed on a GPU and PyTorch on the same GPU, one after the other for each kind of work.

Prints a line of JSON for each kernel of ops_bench and each step of bench_steps, with `torch_ms` and
`speed`, PyTorch's time over heed's (null without PyTorch or a CUDA device), and for training steps
`compiled_ms` and `speed_compiled` with torch.compile. Both sides take the same GPU, by its
identifier. PyTorch runs in its best form (torch_models.py) with fused Adam and autocast for half
precision; products of f32 in f32 proper, not in TF32, those of half precision added up in f32.
Training begins with heed's weights and batches: `losses_agree` says whether the first losses are
the same.
"""

import json
import pathlib
import statistics
import struct
import sys
import tempfile
import time

import peers

KINDS = ("product", "memory", "attention", "step")
HERE = pathlib.Path(__file__).resolve().parent


def torch_with_cuda():
    try:
        import torch
    except ImportError:
        print("compare_gpu: Python has no torch; heed's times stand alone", file=sys.stderr)
        return None
    if not torch.cuda.is_available():
        print(f"compare_gpu: torch {torch.__version__} sees no CUDA device", file=sys.stderr)
        return None
    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    matmul.allow_fp16_reduced_precision_reduction = False
    matmul.allow_bf16_reduced_precision_reduction = False
    return torch


def same_gpu(torch, device):
    """Makes CUDA's device of the identifier that heed's has the current one."""
    found = []
    for number in range(torch.cuda.device_count()):
        identifier = str(torch.cuda.get_device_properties(number).uuid)
        found.append(identifier.lower().removeprefix("gpu-"))
        if found[-1] == device["identifier"]:
            return torch.cuda.set_device(number)
    sys.exit(f"compare_gpu: heed's device {device['device_name']} is {device['identifier']}, and "
             f"CUDA has {', '.join(found)}; choose with --device")


def milliseconds_of(torch, work):
    """The time of one call: the median of five rounds of a tenth of a second."""

    def calls(count):
        start = time.perf_counter()
        for _ in range(count):
            work()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / count

    calls(1)
    warm_until = time.perf_counter() + 0.5  # an idle GPU raises its clocks meanwhile
    while time.perf_counter() < warm_until:
        once = calls(1)
    count = max(1, min(2000, int(0.1 / max(once, 1e-7))))
    return 1000 * statistics.median(calls(count) for _ in range(5))


def type_of(torch, name):
    return {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[name]


def kernel(torch, name):
    """The work in PyTorch of a line of ops_bench, KIND/TYPE/WHAT[/HOW]."""
    from torch.nn import functional as F

    kind, dtype, what, *how = name.split("/")
    dtype = type_of(torch, dtype)

    def numbers(*shape):
        return (2 * torch.rand(*shape, device="cuda") - 1).to(dtype)

    if kind == "product":
        a, b = (x.t() if transposed == "t" else x
                for x, transposed in zip(numbers(2, int(what), int(what)), how[0]))
        out = torch.empty_like(a)
        return lambda: torch.matmul(a, b, out=out)
    if kind == "attention":
        length = int(what)
        q, k, v, gradient = numbers(4, 8192 // length, 12, length, 64)
        leaves = [x.requires_grad_() for x in (q, k, v)]

        def forward():
            return F.scaled_dot_product_attention(*leaves, is_causal=True)

        return (lambda: torch.autograd.grad(forward(), leaves, gradient)) if how else forward
    if what == "adam":
        leaf = numbers(8 << 20).requires_grad_()
        leaf.grad = torch.ones_like(leaf)
        return torch.optim.Adam([leaf], fused=True).step
    x, y, out = numbers(3, 65_536, 1024)
    weight = numbers(1024)
    return {
        "copy": lambda: out.copy_(x),
        "add": lambda: torch.add(x, y, out=out),
        "gelu": lambda: F.gelu(x),
        "layer_norm": lambda: F.layer_norm(x, (1024,), weight, weight),
        "softmax": lambda: torch.softmax(x, -1),
    }[what]


def read_safetensors(torch, path):
    """Tensors by name, without the package: the machine may have little else than torch."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    header.pop("__metadata__", None)
    types = {"F32": torch.float32, "F64": torch.float64, "I32": torch.int32}
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        flat = torch.frombuffer(data[begin:end], dtype=types[entry["dtype"]])
        tensors[name] = flat.view(entry["shape"])
    return tensors


def step(torch, line, recorded):
    import torch_models

    model, _ = torch_models.build(line["case"], 0.0)
    torch_models.take_weights(model, recorded)
    model.cuda()
    ids, targets = (recorded["batch.0." + name].cuda().long() for name in ("ids", "targets"))
    half = line["precision"] != "f32"

    def training_step(loss_of):
        # A fresh optimizer for each form: a step changes the weights, but not what one takes.
        adam = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
        scaler = torch.amp.GradScaler("cuda", enabled=line["precision"] == "f16")

        def once():
            with torch.autocast("cuda", dtype=type_of(torch, line["precision"]), enabled=half):
                loss = loss_of(ids, targets)
            scaler.scale(loss).backward()
            scaler.step(adam)
            scaler.update()
            adam.zero_grad(set_to_none=True)
            return loss

        return once

    eager = training_step(model.loss)
    first = recorded["losses"][0].item()
    line["losses_agree"] = abs(eager().item() / first - 1) < (1e-2 if half else 1e-4)
    milliseconds = milliseconds_of(torch, eager)
    line["compiled_ms"] = line["speed_compiled"] = None
    try:
        line["compiled_ms"] = milliseconds_of(torch, training_step(torch.compile(model.loss)))
        line["speed_compiled"] = round(line["compiled_ms"] / line["ms"], 3)
    except Exception as error:  # it needs a C compiler and Triton
        print(f"compare_gpu: torch.compile does not work here: {error}"[:300], file=sys.stderr)
    return milliseconds


def show(line, torch_ms):
    line["torch_ms"] = torch_ms
    line["speed"] = torch_ms and round(torch_ms / line["ms"], 3)
    print(json.dumps(line), flush=True)


def compare_steps(options, torch):
    for case in options.cases:
        for precision in ("f32", "f16", "bf16"):
            command = [options.programs / "bench_steps", "--case", case, "--device", options.device,
                       "--precision", precision, "--dropout", 0]
            line = {"precision": precision} | peers.run(*command, "--repeat", 5)
            milliseconds = None
            if torch:
                with tempfile.TemporaryDirectory() as folder:
                    file = f"{folder}/recorded.safetensors"
                    peers.finished([*command, "--repeat", 1, "--record", file])
                    milliseconds = step(torch, line, read_safetensors(torch, file))
            show(line, milliseconds)


def compare_kernels(options, torch):
    printed = json.loads(peers.finished([
        options.programs / "ops_bench", "--device", options.device, "--benchmark_format=json",
        f"--benchmark_filter={options.kernels}", *options.flags])[0])
    if torch:
        same_gpu(torch, printed["context"])
        printed["context"]["torch"] = f"{torch.__version__}, {torch.cuda.get_device_name()}"
    print(json.dumps(printed["context"]), flush=True)
    for found in printed["benchmarks"]:
        name = found["name"].removesuffix("/real_time")
        rates = {key: found[key] for key in ("FLOP/s", "B/s") if key in found}
        show({"name": name, "ms": found["real_time"] / 1e6} | rates,
             milliseconds_of(torch, kernel(torch, name)) if torch else None)
        if torch:
            torch.cuda.empty_cache()


def main():
    # In the folder that the target gpu_bundle makes, the programs are beside this file.
    programs = HERE if (HERE / "bench_steps").exists() else peers.BIN
    parser = peers.plain_parser(__doc__)
    parser.add_argument("--programs", type=pathlib.Path, default=programs,
                        help="folder of ops_bench and bench_steps")
    parser.add_argument("--device", default="vulkan",
                        help="a Vulkan device (default: the first GPU)")
    parser.add_argument("--only", action="append", choices=KINDS,
                        help="this kind of work only; may be repeated")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: tests the comparison")
    options = parser.parse_args()
    only = options.only or KINDS
    options.kernels = f"^({'|'.join(set(only) - {'step'})})/"
    options.cases, options.flags = ["gpt2_124m", "small"], []
    if options.quick:
        options.kernels, options.cases = "^memory/f32/layer_norm", ["tiny"]
        options.flags = ["--benchmark_min_time=0.001"]
    torch = torch_with_cuda()
    if set(only) - {"step"}:
        compare_kernels(options, torch)
    if "step" in only:
        compare_steps(options, torch)


if __name__ == "__main__":
    main()
