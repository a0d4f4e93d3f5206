"""The PyTorch side of the comparisons: a Transformer in the shapes that heed trains, in PyTorch's
best form: one product for query, key and value, and fused attention."""

import dataclasses

import torch
from torch import nn
from torch.nn import functional as F


@dataclasses.dataclass(frozen=True)
class Shape:
    vocabulary: int
    width: int
    heads: int
    hidden: int
    layers: int
    length: int
    activation: str = "gelu"  # or relu, swiglu
    pre_norm: bool = False  # norms before the parts and one at the end
    rms: bool = False
    positions: str = "sinusoidal"  # or learned, rotary
    attention_bias: bool = False
    bias: bool = True
    scaled: bool = True  # embeddings by the root of the width
    deviation: float = 0.0  # of embeddings; 0: 1 / sqrt(width)
    dropout: float = 0.0
    inner_dropout: float = 0.0  # of attention weights and activations
    smoothing: float = 0.0


GPT2 = {"pre_norm": True, "positions": "learned", "attention_bias": True, "scaled": False,
        "deviation": 0.02}
HEED_DEFAULT = {"pre_norm": True, "rms": True, "positions": "rotary", "activation": "swiglu"}


def norm(c):
    return nn.RMSNorm(c.width, eps=1e-5) if c.rms else nn.LayerNorm(c.width, bias=c.bias)


class Attention(nn.Module):
    def __init__(self, c, cross=False):
        super().__init__()
        self.heads, self.dropout = c.heads, c.inner_dropout
        self.query = nn.Linear(c.width, c.width if cross else 3 * c.width, c.attention_bias)
        self.key_value = nn.Linear(c.width, 2 * c.width, c.attention_bias) if cross else None
        self.output = nn.Linear(c.width, c.width, c.attention_bias)

    def forward(self, x, memory=None, causal=False, rotate=None):
        if memory is None:
            q, k, v = self.query(x).chunk(3, -1)
        else:
            q = self.query(x)
            k, v = self.key_value(memory).chunk(2, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        if rotate is not None:
            q, k = rotate(q), rotate(k)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal)
        return self.output(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, c, causal=False, cross=False):
        super().__init__()
        self.c, self.causal = c, causal
        self.attention, self.norm1 = Attention(c), norm(c)
        self.cross, self.norm2 = (Attention(c, cross=True), norm(c)) if cross else (None, None)
        gates = 2 if c.activation == "swiglu" else 1
        self.input = nn.Linear(c.width, gates * c.hidden, c.bias)
        self.output = nn.Linear(c.hidden, c.width, c.bias)
        self.norm3 = norm(c)

    def forward(self, x, memory=None, rotate=None):
        x = self.add(x, self.norm1, lambda y: self.attention(y, None, self.causal, rotate))
        if self.cross is not None:
            x = self.add(x, self.norm2, lambda y: self.cross(y, memory))
        return self.add(x, self.norm3, self.feed_forward)

    def add(self, x, norm, part):
        if self.c.pre_norm:
            return x + F.dropout(part(norm(x)), self.c.dropout, self.training)
        return norm(x + F.dropout(part(x), self.c.dropout, self.training))

    def feed_forward(self, x):
        if self.c.activation == "swiglu":
            gate, hidden = self.input(x).chunk(2, -1)
            hidden = F.silu(gate) * hidden
        else:
            hidden = getattr(F, self.c.activation)(self.input(x))
        return self.output(F.dropout(hidden, self.c.inner_dropout, self.training))


class Transformer(nn.Module):
    """A language model (causal or not), with `decoder` an encoder-decoder, with `classes` a
    classifier of the mean. Embeddings and output share their weights."""

    def __init__(self, c, causal=False, decoder=False, classes=0):
        super().__init__()
        self.c = c
        self.embedding = nn.Embedding(c.vocabulary, c.width)
        nn.init.normal_(self.embedding.weight, std=c.deviation or c.width**-0.5)
        self.layers = nn.ModuleList(Layer(c, causal) for _ in range(c.layers))
        if decoder:
            self.decoder = nn.ModuleList(Layer(c, True, cross=True) for _ in range(c.layers))
        self.norm = norm(c) if c.pre_norm else None
        self.classifier = nn.Linear(c.width, classes) if classes else None
        if c.positions == "learned":
            self.positions = nn.Embedding(c.length, c.width)
            nn.init.normal_(self.positions.weight, std=c.deviation or c.width**-0.5)
        period = c.width if c.positions == "sinusoidal" else c.width // c.heads
        angles = torch.arange(c.length)[:, None] / 10_000 ** (torch.arange(0, period, 2) / period)
        self.register_buffer("sinusoids", torch.stack((angles.sin(), angles.cos()), -1).flatten(1))
        self.register_buffer("sines", torch.cat((angles, angles), -1).sin())
        self.register_buffer("cosines", torch.cat((angles, angles), -1).cos())

    def rotate(self, x):
        left, right = x.chunk(2, -1)
        length = x.shape[2]
        return x * self.cosines[:length] + torch.cat((-right, left), -1) * self.sines[:length]

    def embed(self, ids):
        x = self.embedding(ids) * (self.c.width**0.5 if self.c.scaled else 1)
        if self.c.positions == "learned":
            x = x + self.positions.weight[: ids.shape[1]]
        elif self.c.positions == "sinusoidal":
            x = x + self.sinusoids[: ids.shape[1]]
        return F.dropout(x, self.c.dropout, self.training)

    def forward(self, ids, shifted=None):
        """The logits of the ids' followers, of the target's, or of the classes."""
        x = self.embed(ids)
        rotate = self.rotate if self.c.positions == "rotary" else None
        for layer in self.layers:
            x = layer(x, rotate=rotate)
        if shifted is not None:
            memory, x = x, self.embed(shifted)
            for layer in self.decoder:
                x = layer(x, memory)
        if self.norm is not None:
            x = self.norm(x)
        if self.classifier is not None:
            return self.classifier(x.mean(1))
        return F.linear(x, self.embedding.weight)

    def loss(self, ids, targets, shifted=None):
        logits = self(ids, shifted)
        return F.cross_entropy(logits.flatten(0, -2), targets.flatten(),
                               label_smoothing=self.c.smoothing)


# Layers, width, heads, batch, length, vocabulary, as in bench/steps.cpp.
CASES = {
    "encoder": (2, 256, 4, 32, 128, 10_000),
    "translation": (3, 256, 4, 64, 24, 8_000),
    "language_model": (4, 256, 8, 8, 256, 8_000),
    "long_text": (2, 256, 4, 2, 2048, 10_000),
    "gpt2": (12, 768, 12, 4, 64, 50_257),
    "gpt2_124m": (12, 768, 12, 8, 1024, 50_257),
    "small": (4, 256, 8, 8, 256, 8_000),
    "tiny": (1, 32, 2, 2, 16, 50),
}
CAUSAL = ("language_model", "gpt2", "gpt2_124m", "small", "tiny")


def build(case, dropout):
    """The model of that name and a function that gives its loss."""
    layers, width, heads, batch, length, vocabulary = CASES[case]
    translation, classes = case == "translation", 2 if case in ("encoder", "long_text") else 0
    shape = Shape(
        vocabulary, width, heads, 4 * width, layers, length,
        activation="relu" if translation else "gelu", dropout=dropout, inner_dropout=dropout,
        smoothing=0.1 if translation else 0.0, **(GPT2 if case in CAUSAL[1:] else {}))
    model = Transformer(shape, causal=case in CAUSAL, decoder=translation, classes=classes)
    ids, shifted, targets = torch.randint(4, vocabulary, (3, batch, length))
    if classes:
        targets = torch.randint(0, classes, (batch,))
    return model, lambda: model.loss(ids, targets, shifted if translation else None)


def take_weights(model, tensors):
    """The weights "initial.NAME" that bench_steps records; every one must find its place."""
    left = {name.removeprefix("initial."): tensor for name, tensor in tensors.items()
            if name.startswith("initial.")}

    def fill(parameter, *names):
        parameter.copy_(torch.cat([left.pop(name) for name in names]))

    def linear(to, *names):
        fill(to.weight, *(name + ".weight" for name in names))
        if to.bias is not None:
            fill(to.bias, *(name + ".bias" for name in names))

    def attention(to, name):
        query, *key_value = (f"{name}.{part}" for part in ("query", "key", "value"))
        linear(to.query, query, *(key_value if to.key_value is None else []))
        if to.key_value is not None:
            linear(to.key_value, *key_value)
        linear(to.output, name + ".output")

    def stack(layers, name, own):
        for i, layer in enumerate(layers):
            at = f"{name}.layers.{i}."
            attention(layer.attention, at + own)
            linear(layer.norm1, at + own + "_norm")
            if layer.cross is not None:
                attention(layer.cross, at + "cross_attention")
                linear(layer.norm2, at + "cross_attention_norm")
            linear(layer.input, at + "feed_forward.input")
            linear(layer.output, at + "feed_forward.output")
            linear(layer.norm3, at + "feed_forward_norm")

    with torch.no_grad():
        fill(model.embedding.weight, "embedding.weight")
        if "input.positions.weight" in left:
            fill(model.positions.weight, "input.positions.weight")
        if "encoder.layers.0.attention.query.weight" in left:
            stack(model.layers, "encoder", "attention")
        else:
            stack(model.layers, "decoder", "self_attention")
        if hasattr(model, "decoder"):
            stack(model.decoder, "decoder", "self_attention")
        if model.norm is not None:
            linear(model.norm, "decoder.norm")
        if model.classifier is not None:
            linear(model.classifier, "output")
    if left:
        raise ValueError(f"PyTorch's model has no place for {', '.join(left)}")
