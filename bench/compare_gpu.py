#!/usr/bin/env python3
"""Times heed on a GPU and PyTorch on the same GPU, one after the other for each kind of work, on the same sizes.

Prints the lines of JSON of bench_gpu, each with `torch_ms` and `speed`, PyTorch's time over heed's (null where PyTorch
is not there, or has no CUDA device). PyTorch runs in its best form: one product for query, key and value, fused
attention, fused AdamW, autocast for half precision; f32 products in f32 proper, not in TF32.
"""

import argparse
import json
import os
import subprocess
import sys
import time

KINDS = ("product", "memory", "attention", "step", "recording")


def torch_with_cuda():
    try:
        import torch
    except ImportError:
        print("compare_gpu: Python has no torch; heed's times stand alone", file=sys.stderr)
        return None
    if not torch.cuda.is_available():
        print(f"compare_gpu: torch {torch.__version__} sees no CUDA device; heed's times stand alone", file=sys.stderr)
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    return torch


class Timer:
    """Milliseconds of one call, as bench_gpu takes them: the best of three rounds of many calls."""

    def __init__(self, torch, seconds):
        self.torch, self.seconds = torch, seconds

    def __call__(self, work):
        synchronize = self.torch.cuda.synchronize
        work()
        synchronize()
        start = time.perf_counter()
        work()
        synchronize()
        once = max(time.perf_counter() - start, 1e-7)
        calls = max(1, min(2000, int(self.seconds / 3 / once)))
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            for _ in range(calls):
                work()
            synchronize()
            best = min(best, (time.perf_counter() - start) / calls)
        return 1000 * best


def type_of(torch, name):
    return {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[name]


def product(torch, timer, line):
    n, dtype = line["size"], type_of(torch, line["type"])
    a, b = (torch.rand(n, n, device="cuda", dtype=dtype) for _ in range(2))
    a, b = (x.t() if how == "t" else x for x, how in zip((a, b), line["layout"]))
    out = torch.empty(n, n, device="cuda", dtype=dtype)
    return timer(lambda: torch.matmul(a, b, out=out))


def memory(torch, timer, line):
    import torch.nn.functional as F

    rows, width, dtype = line["rows"], line["width"], type_of(torch, line["type"])
    x, y = (torch.rand(rows, width, device="cuda", dtype=dtype) for _ in range(2))
    out, weight = torch.empty_like(x), torch.rand(width, device="cuda", dtype=dtype)
    if line["op"] == "adam":
        parameter = torch.nn.Parameter(x)
        parameter.grad = y
        adam = torch.optim.Adam([parameter], lr=1e-4, fused=True)
        return timer(adam.step)
    with torch.no_grad():
        return timer({
            "copy": lambda: out.copy_(x),
            "add": lambda: torch.add(x, y, out=out),
            "gelu": lambda: F.gelu(x),
            "layer_norm": lambda: F.layer_norm(x, (width,), weight, weight),
            "softmax": lambda: torch.softmax(x, -1),
        }[line["op"]])


def attention(torch, timer, line):
    import torch.nn.functional as F

    shape = line["batch"], line["heads"], line["length"], line["width"]
    dtype = type_of(torch, line["type"])
    q, k, v = (torch.rand(shape, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3))
    gradient = torch.rand(shape, device="cuda", dtype=dtype)

    def both():
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        torch.autograd.grad(out, (q, k, v), gradient)

    return timer(both)


def language_model(torch, line):
    """A GPT-2-shaped model with the sizes that bench/gpu.cpp gives it, and the function that gives its loss."""
    import torch.nn.functional as F
    from torch import nn

    width, heads, length, vocabulary = line["width"], line["heads"], line["length"], line["vocabulary"]

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            q, k, v = (t.view(*t.shape[:2], heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.output(y.transpose(1, 2).reshape(x.shape))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.layers = nn.ModuleList(Layer() for _ in range(line["layers"]))
            self.norm = nn.LayerNorm(width)
            for table in (self.embedding, self.positions):
                nn.init.normal_(table.weight, std=0.02)

        def loss(self, ids, targets):
            x = self.embedding(ids) + self.positions.weight
            for layer in self.layers:
                x = layer(x)
            logits = F.linear(self.norm(x), self.embedding.weight)
            return F.cross_entropy(logits.view(-1, vocabulary), targets.view(-1))

    model = Model().cuda()
    ids = torch.randint(4, vocabulary, (line["batch"], length + 1), device="cuda")
    return model, lambda: model.loss(ids[:, :-1], ids[:, 1:])


def step(torch, timer, line):
    model, loss_of = language_model(torch, line)
    line["torch_parameters"] = sum(p.numel() for p in model.parameters())
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    half = line["precision"] != "f32"
    scaler = torch.amp.GradScaler("cuda", enabled=line["precision"] == "f16")

    def one():
        with torch.autocast("cuda", dtype=type_of(torch, line["precision"]) if half else torch.bfloat16, enabled=half):
            loss = loss_of()
        scaler.scale(loss).backward()
        scaler.step(adam)
        scaler.update()
        adam.zero_grad(set_to_none=True)

    return timer(one)


def recording(torch, timer, line):
    x = torch.rand(32, 32, device="cuda")
    out = torch.empty_like(x)
    calls = 2000
    torch.matmul(x, x, out=out)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        torch.matmul(x, x, out=out)
    line["torch_us_per_op"] = 1e6 * (time.perf_counter() - start) / calls
    torch.cuda.synchronize()
    return None


def torch_time(torch, timer, line):
    measure = {"product": product, "memory": memory, "attention": attention, "step": step, "recording": recording}
    try:
        return measure[line["bench"]](torch, timer, line)
    finally:
        torch.cuda.empty_cache()


def compare(kind, options, torch):
    command = [options.heed, "--device", options.device, "--only", kind, "--seconds", str(options.seconds)]
    if options.quick:
        command.append("--quick")
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    timer = torch and Timer(torch, options.seconds)
    for text in done.stdout.splitlines():
        line = json.loads(text)
        if line["bench"] == "device":
            if kind == options.only[0]:
                line["torch"] = torch and f"{torch.__version__}, {torch.cuda.get_device_name()}"
                print(json.dumps(line), flush=True)
            continue
        milliseconds = torch_time(torch, timer, line) if torch else None
        line["torch_ms"] = milliseconds
        line["speed"] = milliseconds and round(milliseconds / line["ms"], 3)
        print(json.dumps(line), flush=True)
    if done.returncode != 0:
        sys.exit(f"compare_gpu: {' '.join(command)} ended with status {done.returncode}")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heed", default=os.path.join(here, "..", "build", "bin", "bench_gpu"),
                        help="the program bench_gpu (default: the one of the release build)")
    parser.add_argument("--device", default="vulkan", help="as bench_gpu takes it (default: the first GPU)")
    parser.add_argument("--only", action="append", choices=KINDS, help="this kind of work only; may be repeated")
    parser.add_argument("--seconds", type=float, default=0.5, help="for one measurement (default 0.5)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one call each: tests the comparison itself")
    options = parser.parse_args()
    options.only = options.only or list(KINDS)
    torch = torch_with_cuda()
    for kind in options.only:
        compare(kind, options, torch)


if __name__ == "__main__":
    main()
