#!/usr/bin/env python3
"""Times heed on a GPU and PyTorch on the same GPU, one after the other for each kind of work, on the same sizes.

Prints the lines of JSON of bench_gpu, each with `torch_ms` and `speed`, PyTorch's time over heed's (null where PyTorch
is not there, or has no CUDA device), and for training steps `compiled_ms` and `speed_compiled` with torch.compile. Both
sides take the median of five rounds, numbers in [-1, 1), and the same GPU, by its identifier. PyTorch runs in its best form:
one product for query, key and value, fused attention, fused AdamW, autocast for half precision; products of f32 in f32
proper, not in TF32, those of half precision added up in f32, as heed's. Training begins with heed's weights on heed's
tokens: `torch_first_loss` is PyTorch's loss then, and `losses_agree` says whether it is heed's.
"""

import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
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
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    return torch


def same_gpu(torch, line, unmatched):
    """Makes CUDA's device of the identifier that heed's has the current one."""
    found = []
    for number in range(torch.cuda.device_count()):
        found.append(str(torch.cuda.get_device_properties(number).uuid).lower().removeprefix("gpu-"))
        if found[-1] == line["identifier"]:
            return torch.cuda.set_device(number)
    if not unmatched:
        sys.exit(f"compare_gpu: heed's device {line['name']} is {line['identifier']}, and CUDA has {', '.join(found)}; "
                 "choose with --device, or say --unmatched to compare different ones")


class Timer:
    """Milliseconds of one call, as bench_gpu takes them: the median of five rounds of many calls."""

    def __init__(self, torch, seconds, warm_up):
        self.torch, self.seconds, self.warm_up = torch, seconds, warm_up

    def __call__(self, work):
        synchronize = self.torch.cuda.synchronize
        work()
        synchronize()
        warm_until = time.perf_counter() + self.warm_up  # an idle GPU raises its clocks while it works
        once = None
        while once is None or time.perf_counter() < warm_until:
            start = time.perf_counter()
            work()
            synchronize()
            once = max(time.perf_counter() - start, 1e-7)
        calls = max(1, min(2000, int(self.seconds / 5 / once)))
        rounds = []
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(calls):
                work()
            synchronize()
            rounds.append((time.perf_counter() - start) / calls)
        return 1000 * statistics.median(rounds)


def type_of(torch, name):
    return {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[name]


def numbers(torch, *shape, dtype):
    return (2 * torch.rand(*shape, device="cuda") - 1).to(dtype)


def product(torch, timer, line):
    n, dtype = line["size"], type_of(torch, line["type"])
    a, b = (numbers(torch, n, n, dtype=dtype) for _ in range(2))
    a, b = (x.t() if how == "t" else x for x, how in zip((a, b), line["layout"]))
    out = torch.empty(n, n, device="cuda", dtype=dtype)
    return timer(lambda: torch.matmul(a, b, out=out))


def memory(torch, timer, line):
    import torch.nn.functional as F

    rows, width, dtype = line["rows"], line["width"], type_of(torch, line["type"])
    x, y = (numbers(torch, rows, width, dtype=dtype) for _ in range(2))
    out, weight = torch.empty_like(x), numbers(torch, width, dtype=dtype)
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
    q, k, v = (numbers(torch, *shape, dtype=dtype).requires_grad_() for _ in range(3))
    gradient = numbers(torch, *shape, dtype=dtype)

    def forward():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def backward(out):
        torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)

    held = forward()
    line["torch_forward_ms"], line["torch_backward_ms"] = timer(forward), timer(lambda: backward(held))
    return timer(lambda: backward(forward()))


def read_safetensors(torch, path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    header.pop("__metadata__", None)
    return {
        name: torch.frombuffer(data, dtype=torch.float32)[one["data_offsets"][0] // 4:one["data_offsets"][1] // 4].view(one["shape"])
        for name, one in header.items()
    }


def gpt2(torch, sizes, dropout=0.0):
    """A model of GPT-2's shape; `sizes` has its width, heads, layers, length and vocabulary. Its loss takes ids and targets."""
    import torch.nn.functional as F
    from torch import nn

    width, heads, length, vocabulary = sizes["width"], sizes["heads"], sizes["length"], sizes["vocabulary"]

    def dropped(x, module):
        return F.dropout(x, dropout, module.training) if dropout else x

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            q, k, v = (t.view(*t.shape[:2], heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1))
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout if self.training else 0.0, is_causal=True)
            x = x + dropped(self.output(y.transpose(1, 2).reshape(x.shape)), self)
            hidden = dropped(F.gelu(self.up(self.norm2(x))), self)
            return x + dropped(self.down(hidden), self)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            nn.init.normal_(self.embedding.weight, std=0.02)
            self.layers = nn.ModuleList(Layer() for _ in range(sizes["layers"]))
            self.norm = nn.LayerNorm(width)

        def loss(self, ids, targets):
            x = dropped(self.embedding(ids) + self.positions.weight, self)
            for layer in self.layers:
                x = layer(x)
            logits = F.linear(self.norm(x), self.embedding.weight)
            return F.cross_entropy(logits.view(-1, vocabulary), targets.reshape(-1))

    return Model()


def language_model(torch, line):
    """A GPT-2-shaped model with the sizes that bench/gpu.cpp gives it, and the function that gives its loss."""
    model = gpt2(torch, line)
    take_weights(torch, model, read_safetensors(torch, line["weights"]))
    rows = torch.arange(line["batch"], device="cuda").unsqueeze(1)
    columns = torch.arange(line["length"] + 1, device="cuda")
    ids = 4 + (rows * 7919 + columns * 104729) % (line["vocabulary"] - 4)  # those of bench/gpu.cpp
    return model.cuda(), lambda: model.loss(ids[:, :-1], ids[:, 1:])


def take_weights(torch, model, heeds):
    """heed's weights; query, key and value are one map here."""
    def linear(name):
        return {"weight": heeds[name + ".weight"], "bias": heeds[name + ".bias"]}

    model.embedding.load_state_dict({"weight": heeds["embedding.weight"]})
    model.positions.load_state_dict({"weight": heeds["input.positions.weight"]})
    model.norm.load_state_dict(linear("decoder.norm"))
    for number, layer in enumerate(model.layers):
        name = f"decoder.layers.{number}."
        maps = [linear(name + "self_attention." + one) for one in ("query", "key", "value")]
        layer.qkv.load_state_dict({part: torch.cat([one[part] for one in maps]) for part in ("weight", "bias")})
        layer.output.load_state_dict(linear(name + "self_attention.output"))
        layer.up.load_state_dict(linear(name + "feed_forward.input"))
        layer.down.load_state_dict(linear(name + "feed_forward.output"))
        layer.norm1.load_state_dict(linear(name + "self_attention_norm"))
        layer.norm2.load_state_dict(linear(name + "feed_forward_norm"))


def step(torch, timer, line):
    model, eager = language_model(torch, line)
    line["torch_parameters"] = sum(p.numel() for p in model.parameters())
    half = line["precision"] != "f32"
    dtype = type_of(torch, line["precision"]) if half else torch.bfloat16

    def under(loss_of):
        with torch.autocast("cuda", dtype=dtype, enabled=half):
            return loss_of()

    with torch.no_grad():
        line["torch_first_loss"] = under(eager).item()
    difference = abs(line["torch_first_loss"] - line["first_loss"])
    line["losses_agree"] = difference < (1e-2 if half else 1e-4) * abs(line["first_loss"])
    # A fresh optimizer for each form: a step changes the weights, but not what one takes.
    compiled_ms = None
    milliseconds = timer(training_step(torch, model, lambda: under(eager), line["precision"] == "f16"))
    try:
        compiled = torch.compile(eager)
        compiled_ms = timer(training_step(torch, model, lambda: under(compiled), line["precision"] == "f16"))
    except Exception as error:  # it needs a C compiler and Triton
        print(f"compare_gpu: torch.compile does not work here: {error}"[:300], file=sys.stderr)
    line["compiled_ms"], line["speed_compiled"] = compiled_ms, compiled_ms and round(compiled_ms / line["ms"], 3)
    return milliseconds


def training_step(torch, model, loss_of, scaled):
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    scaler = torch.amp.GradScaler("cuda", enabled=scaled)

    def one():
        scaler.scale(loss_of()).backward()
        scaler.step(adam)
        scaler.update()
        adam.zero_grad(set_to_none=True)

    return one


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
    with tempfile.TemporaryDirectory() as weights:
        command = [options.heed, "--device", options.device, "--only", kind, "--seconds", str(options.seconds),
                   "--warm-up", str(options.warm_up)]
        if options.quick:
            command.append("--quick")
        if torch and kind == "step":
            command += ["--weights", weights]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        timer = torch and Timer(torch, options.seconds, options.warm_up)
        for text in done.stdout.splitlines():
            line = json.loads(text)
            if line["bench"] == "device":
                if torch:
                    same_gpu(torch, line, options.unmatched)
                    line["torch"] = f"{torch.__version__}, {torch.cuda.get_device_name()}"
                if kind == options.only[0]:
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
    beside = os.path.join(here, "bench_gpu")  # in the folder that the target gpu_bundle makes
    built = os.path.join(here, "..", "build", "bin", "bench_gpu")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heed", default=beside if os.path.exists(beside) else built,
                        help="the program bench_gpu (default: the one beside this file, or of the release build)")
    parser.add_argument("--device", default="vulkan", help="as bench_gpu takes it (default: the first GPU)")
    parser.add_argument("--unmatched", action="store_true", help="PyTorch may run on another GPU than heed")
    parser.add_argument("--only", action="append", choices=KINDS, help="this kind of work only; may be repeated")
    parser.add_argument("--seconds", type=float, default=0.5, help="for one measurement (default 0.5)")
    parser.add_argument("--warm-up", type=float, default=0.5, help="seconds of work before it (default 0.5)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one call each: tests the comparison itself")
    options = parser.parse_args()
    options.only = options.only or list(KINDS)
    torch = torch_with_cuda()
    for kind in options.only:
        compare(kind, options, torch)


if __name__ == "__main__":
    main()
