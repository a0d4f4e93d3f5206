#!/usr/bin/env python3
"""Times one training step (forward, backward, Adam) of heed and of PyTorch on the same work, in turn.

Each side runs in its own process, so that its peak memory is its own, and the two alternate, because other work on the
machine moves figures by 10 to 15 %. Prints one line of JSON per case; `speedup` is PyTorch's time over heed's, and
`memory_ratio` heed's peak memory over PyTorch's.

PyTorch runs in its best form: one product for query, key and value, fused attention, fused Adam. With `--precision bf16`
both multiply in bf16 (heed with Bf16Products, PyTorch under autocast).
"""

import argparse
import dataclasses
import json
import statistics
import sys
import time

import compare_gpu
import peers

@dataclasses.dataclass(frozen=True)
class Case:
    """The sizes of one model and its batch; bench/steps.cpp has the same numbers."""

    layers: int
    width: int
    heads: int
    hidden: int
    batch: int
    length: int
    vocabulary: int
    activation: str
    classes: int = 0
    smoothing: float = 0.0


CASES = {
    "encoder": Case(2, 256, 4, 1024, 32, 128, 10_000, "gelu", classes=2),
    "translation": Case(3, 256, 4, 1024, 64, 24, 8_000, "relu", smoothing=0.1),
    "language_model": Case(4, 256, 8, 1024, 8, 256, 8_000, "gelu"),
    "long_text": Case(2, 256, 4, 1024, 2, 2048, 10_000, "gelu", classes=2),
    "gpt2": Case(12, 768, 12, 3072, 4, 64, 50_257, "gelu"),
}


def build(case_name, dropout):
    """The model of that name and a function that gives its loss, in PyTorch."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    case = CASES[case_name]
    d = case.width

    def dropped(x, module):
        return F.dropout(x, dropout, module.training) if dropout else x

    class Attention(nn.Module):
        def __init__(self, cross=False):
            super().__init__()
            self.query = nn.Linear(d, d if cross else 3 * d, bias=False)
            self.key_value = nn.Linear(d, 2 * d, bias=False) if cross else None
            self.output = nn.Linear(d, d, bias=False)

        def forward(self, x, memory=None, causal=False):
            def heads(t):
                return t.view(t.shape[0], t.shape[1], case.heads, -1).transpose(1, 2)

            if memory is None:
                q, k, v = self.query(x).chunk(3, dim=-1)
            else:
                q = self.query(x)
                k, v = self.key_value(memory).chunk(2, dim=-1)
            p = dropout if self.training else 0.0
            y = F.scaled_dot_product_attention(heads(q), heads(k), heads(v), dropout_p=p, is_causal=causal)
            return self.output(y.transpose(1, 2).reshape(x.shape))

    class Layer(nn.Module):
        """Post-norm: x = norm(x + dropout(sublayer(x)))."""

        def __init__(self, cross=False, causal=False):
            super().__init__()
            self.causal = causal
            self.attention, self.norm1 = Attention(), nn.LayerNorm(d)
            if cross:
                self.cross, self.norm2 = Attention(cross=True), nn.LayerNorm(d)
            self.input, self.output = nn.Linear(d, case.hidden), nn.Linear(case.hidden, d)
            self.norm3 = nn.LayerNorm(d)

        def forward(self, x, memory=None):
            x = self.norm1(x + dropped(self.attention(x, causal=self.causal), self))
            if memory is not None:
                x = self.norm2(x + dropped(self.cross(x, memory), self))
            hidden = getattr(F, case.activation)(self.input(x))
            return self.norm3(x + dropped(self.output(dropped(hidden, self)), self))

    class Model(nn.Module):
        """The stacks share one table of embeddings with the output, and add sinusoidal positions."""

        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(case.vocabulary, d)
            nn.init.normal_(self.embedding.weight, std=d**-0.5)
            angles = torch.arange(case.length)[:, None] / 10_000 ** (torch.arange(0, d, 2) / d)
            self.register_buffer("positions", torch.stack((angles.sin(), angles.cos()), -1).view(-1, d))
            translation, language_model = case_name == "translation", case_name == "language_model"
            self.layers = nn.ModuleList(Layer(causal=language_model) for _ in range(case.layers))
            if translation:
                self.decoder = nn.ModuleList(Layer(cross=True, causal=True) for _ in range(case.layers))
            if case.classes:
                self.classifier = nn.Linear(d, case.classes)

        def embed(self, ids):
            return dropped(self.embedding(ids) * d**0.5 + self.positions[: ids.shape[1]], self)

        def logits(self, ids, shifted):
            x = self.embed(ids)
            for layer in self.layers:
                x = layer(x)
            if case.classes:
                return self.classifier(x.mean(dim=1))
            if case_name == "translation":
                memory, x = x, self.embed(shifted)
                for layer in self.decoder:
                    x = layer(x, memory)
            return F.linear(x, self.embedding.weight)

        def loss(self, ids, targets, shifted):
            logits = self.logits(ids, shifted)
            return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1), label_smoothing=case.smoothing)

    model = compare_gpu.gpt2(torch, dataclasses.asdict(case), dropout) if case_name == "gpt2" else Model()
    ids, shifted = torch.randint(4, case.vocabulary, (2, case.batch, case.length))
    targets = torch.randint(0, case.classes, (case.batch,)) if case.classes else torch.randint(
        4, case.vocabulary, (case.batch, case.length))
    inputs = (ids, targets) if case_name == "gpt2" else (ids, targets, shifted)
    return model, lambda: model.loss(*inputs)


def run_torch(case_name, dropout, threads, repeat, compile_model, precision):
    """One process of PyTorch: prints the median time of a step, peak memory and the number of parameters."""
    torch = peers.set_up_torch(threads)
    model, loss_of = build(case_name, dropout)
    if compile_model:
        loss_of = torch.compile(loss_of)
    try:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    except (RuntimeError, TypeError):  # before PyTorch 2.4 there is no fused Adam for the CPU
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss

    times = []
    for _ in range(3 + repeat):
        start = time.perf_counter()
        loss = step()
        times.append(1000 * (time.perf_counter() - start))
    print(json.dumps({
        "case": case_name,
        "ms": statistics.median(times[3:]),
        "peak_mb": peers.memory_megabytes("VmHWM"),
        "parameters": sum(p.numel() for p in model.parameters()),
        "loss": loss.item(),
    }))


def compare(name, options):
    case_name, without = name.removesuffix("_no_dropout"), name.endswith("_no_dropout")
    shared = ["--threads", str(options.threads), "--repeat", str(options.repeat), "--dropout", "0" if without else "0.1",
              "--precision", options.precision]
    heed_command = [options.heed, "--case", case_name, *shared]
    torch_command = [sys.executable, __file__, "--run-torch", case_name, *shared]
    if options.compile:
        torch_command.append("--compile")
    heed, torch = peers.in_turn(options.pairs, lambda: peers.run(*heed_command), lambda: peers.run(*torch_command))
    counts = heed[0]["parameters"], torch[0]["parameters"]
    print(f"{name}: {counts[0]} parameters in heed, {counts[1]} in PyTorch", file=sys.stderr)
    if counts[0] != counts[1]:
        sys.exit(f"{name}: the two models differ, so that a comparison means nothing")
    heed_ms, torch_ms, heed_mb, torch_mb = (peers.median(side, key) for key in ("ms", "peak_mb") for side in (heed, torch))
    print(json.dumps({
        "case": name,
        "heed_ms": round(heed_ms, 1),
        "torch_ms": round(torch_ms, 1),
        "speedup": round(torch_ms / heed_ms, 3),
        "heed_peak_mb": round(heed_mb, 1),
        "torch_peak_mb": round(torch_mb, 1),
        "memory_ratio": round(heed_mb / torch_mb, 3),
    }), flush=True)


def main():
    names = [name + suffix for name in CASES for suffix in ("", "_no_dropout")]
    parser = peers.parser_of(__doc__, "bench_steps")
    parser.add_argument("--case", action="append", choices=names, help="only this case; may be repeated")
    parser.add_argument("--repeat", type=int, default=10, help="timed steps in a run (default 10)")
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32", help="of what is multiplied (default f32)")
    parser.add_argument("--compile", action="store_true", help="let torch.compile translate the model (needs a C++ compiler)")
    parser.add_argument("--run-torch", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--dropout", type=float, default=0.1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run_torch:
        run_torch(options.run_torch, options.dropout, options.threads, options.repeat, options.compile,
                  options.precision)
        return
    for name in options.case or names:
        compare(name, options)


if __name__ == "__main__":
    main()
