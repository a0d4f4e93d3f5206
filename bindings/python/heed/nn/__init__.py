"""Layers for models: heed.nn.Linear, LayerNorm, MultiheadAttention, ..., and heed.nn.functional.

Layers created in the same order after set_seed(seed) get the same initial values. Layers keep leading axes:
[..., in] -> [..., out].
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any, Callable, Iterable, Iterator, Optional, Tuple, Union

from . import functional
from ..layers import Attention, Context, Module, _entries_of, attention
from ..ops import embedding, layer_norm, linear, normal, ones, rms_norm, uniform, zeros
from ..tensor import Like, Parameter, Tensor, _t

__all__ = [
    "Activation", "Dropout", "Embedding", "GELU", "LayerNorm", "Linear", "Module", "ModuleList", "MultiheadAttention",
    "Parameter", "RMSNorm", "ReLU", "Sequential", "SiLU", "Sigmoid", "Tanh", "functional", "set_seed",
]

_INITIAL_STEP = 2**32 - 1  # as in the library: no training gets that far
_seed, _streams = 0, itertools.count()


def set_seed(seed: int) -> None:
    """Sets the seed for the initial values of new layers; 0 at program start."""
    global _seed, _streams
    _seed, _streams = seed, itertools.count()


def _drawn() -> Any:
    """Returns the key of the next initial values."""
    return dict(seed=_seed, step=_INITIAL_STEP, stream=next(_streams))


class Linear(Module):
    """Computes x W^T + b, with "weight" [out, in] (Xavier uniform) and "bias" [out] (zeros) unless bias is False."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        bound = math.sqrt(6 / (in_features + out_features))
        self.weight = Parameter(uniform((out_features, in_features), -bound, bound, **_drawn()))
        self.bias = Parameter(zeros(out_features)) if bias else None

    def forward(self, x: Like) -> Tensor:
        """Maps [..., in] to [..., out]."""
        return linear(x, self.weight, self.bias)


class Embedding(Module):
    """Looks up vectors in a table, "weight" [count, width], initially normally distributed."""

    def __init__(self, count: int, width: int, deviation: float = 1.0) -> None:
        self.weight = Parameter(normal((count, width), 0, deviation, **_drawn()))
        self.weight.exclude_from_muon()

    def forward(self, ids: Like) -> Tensor:
        """Maps ids of any shape to [..., width]; -1 gives zeros."""
        return embedding(self.weight, ids)


class LayerNorm(Module):
    """Normalizes over the last axis, with "weight" [width] (ones) and "bias" [width] (zeros)."""

    def __init__(self, width: int, epsilon: float = 1e-5) -> None:
        self.weight, self.bias, self.epsilon = Parameter(ones(width)), Parameter(zeros(width)), epsilon

    def forward(self, x: Like) -> Tensor:
        """Maps [..., width] to the same shape."""
        return layer_norm(x, self.weight, self.bias, self.epsilon)


class RMSNorm(Module):
    """Computes x / sqrt(mean(x^2) + epsilon) over the last axis, times "weight" [width] (ones)."""

    def __init__(self, width: int, epsilon: float = 1e-5) -> None:
        self.weight, self.epsilon = Parameter(ones(width)), epsilon

    def forward(self, x: Like) -> Tensor:
        """Maps [..., width] to the same shape."""
        return rms_norm(x, self.weight, self.epsilon)


class Dropout(Module):
    """Applies dropout with probability p in training; does nothing in inference."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def forward(self, x: Like, context: Optional[Context] = None) -> Tensor:
        """Maps x to the same shape. ``context`` defaults to the entered one, or inference."""
        context = context or Context.current()
        return _t(x) if context is None else context.dropout(x, self.p)


class ModuleList(Module):
    """Holds modules named "0", "1", ..."""

    def __init__(self, parts: Iterable[Any] = ()) -> None:
        self._parts = list(parts)

    def _entries(self, name: str = "") -> Iterator[Tuple[str, Union[Parameter, Module]]]:
        return _entries_of(self._parts, name)

    def append(self, part: Module) -> None:
        """Adds a module at the end."""
        self._parts.append(part)

    def __getitem__(self, index: int) -> Any:
        """Returns the module at an index, which may be negative."""
        return self._parts[index]

    def __len__(self) -> int:
        return len(self._parts)


class Sequential(ModuleList):
    """Applies layers and functions in order: Sequential(Linear(2, 8), heed.gelu, Linear(8, 1))."""

    def __init__(self, *steps: Callable[[Any], Tensor]) -> None:
        super().__init__(steps)

    def forward(self, x: Like) -> Tensor:
        """Applies the steps to x."""
        found = x
        for step in self._parts:
            found = step(found)
        return _t(found)


class Activation(Module):
    """Makes a layer of a function; nn.GELU() is Activation(heed.gelu)."""

    def __init__(self, function: Callable[[Like], Tensor]) -> None:
        self.function = function

    def forward(self, x: Like) -> Tensor:
        """Applies the function to x."""
        return self.function(x)


ReLU, GELU = partial(Activation, functional.relu), partial(Activation, functional.gelu)
SiLU, Sigmoid = partial(Activation, functional.silu), partial(Activation, functional.sigmoid)
Tanh = partial(Activation, functional.tanh)


def MultiheadAttention(width: int, heads: int = 1, mechanism: str = "dot_product", **settings: Any) -> Attention:
    """Creates an attention layer of any mechanism: heed.attention(mechanism, width, heads, ...).

    It maps x [batch, length, width] to the same shape. ``settings`` are those of heed.attention(), such as `causal`
    and `positions`. Without a `seed`, it draws the next initial values like other layers.
    """
    settings.setdefault("seed", _seed + next(_streams))
    return attention(mechanism, width, heads, **settings)
