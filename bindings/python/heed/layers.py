"""Attention layers, the context of a forward pass, and optimizers."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Dict, Iterable, List, Optional, Union

from . import _library as lib
from .ops import _t
from .tensor import Like, Tensor


class _Handle:
    """Owns an object of the library."""

    _free_name = ""

    def __init__(self, handle: int) -> None:
        self._handle: Optional[int] = handle
        self._free = getattr(lib.library, self._free_name)

    @property
    def _as_parameter_(self) -> Optional[int]:  # what ctypes passes
        return self._handle

    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} cannot be pickled or copied: save() its parameters")

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self._free(self._handle)
            self._handle = None


class Context(_Handle):
    """A forward pass, shared by all its layers. Numbers their dropout by (seed, step)."""

    _free_name = "heed_context_free"

    def __init__(self, training: bool = True, seed: int = 0, step: int = 0) -> None:
        super().__init__(lib.result("heed_context_create", int(training), seed, step))

    @property
    def auxiliary_loss(self) -> Optional[Tensor]:
        """The weighted sum of the losses that layers add, such as ClusterFormer's clustering loss."""
        handle = lib.result("heed_context_auxiliary_loss", self)
        return None if handle is None else Tensor._of(handle)


class Module(_Handle):
    """A layer, or the model of a run: named parameters."""

    _free_name = "heed_module_free"

    def parameters(self) -> Dict[str, Tensor]:
        """The leaves themselves by dotted name: an optimizer that updates them updates this module."""
        count = lib.result("heed_module_parameter_count", self, kind=ctypes.c_size_t)
        found = {}
        for index in range(count):
            name, handle = ctypes.c_char_p(), ctypes.c_void_p()
            lib.call("heed_module_parameter", self, index, ctypes.byref(name), ctypes.byref(handle))
            found[(name.value or b"").decode()] = Tensor._of(handle.value)
        return found

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes safetensors, completely or not at all."""
        lib.call("heed_module_save", self, lib.encoded(os.fspath(path)))

    def load(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Names, shapes and types must all match; otherwise nothing changes."""
        lib.call("heed_module_load", self, lib.encoded(os.fspath(path)))


class Attention(Module):
    """An attention layer, made by attention()."""

    def __init__(self, name: str, handle: int) -> None:
        super().__init__(handle)
        self.name = name

    def __call__(
        self, x: Like, mask: Optional[Like] = None, memory: Optional[Like] = None, memory_mask: Optional[Like] = None,
        context: Optional[Context] = None,
    ) -> Tensor:
        """x [batch, length, width] -> the same shape. Masks: 1 = real token; no context: inference."""
        tensors = [None if one is None else _t(one) for one in (x, mask, memory, memory_mask)]
        return Tensor._result("heed_attention_forward", self, *tensors, context)

    def __repr__(self) -> str:
        return f"heed.attention({self.name!r}, ...)"


def attention(
    name: str, width: int, heads: int = 1, *, dropout: Optional[float] = None, bias: Optional[bool] = None,
    causal: Optional[bool] = None, cross: Optional[bool] = None, max_length: Optional[int] = None,
    seed: Optional[int] = None, dtype: Optional[str] = None, device: Optional[str] = None, **options: Any,
) -> Attention:
    """A layer of any mechanism: attention("clusterformer", 64, heads=4, clusters=8).

    ``options`` are the mechanism's own settings: attentions() lists them with defaults and ranges.
    """
    settings = dict(options, width=width, heads=heads, dropout=dropout, bias=bias, causal=causal, cross=cross,
                    max_length=max_length, seed=seed, dtype=dtype, device=device)
    return Attention(name, lib.result("heed_attention_create", lib.encoded(name), lib.settings_json(settings)))


def attentions() -> Dict[str, Dict[str, Any]]:
    """Every mechanism by name, with its capabilities and settings."""
    return {one["name"]: one for one in lib.listing("attention")}


Parameters = Union[Tensor, Module, Dict[str, Tensor]]


def _tensors(parameters: Union[Parameters, Iterable[Parameters]]) -> List[Tensor]:
    if isinstance(parameters, Tensor):
        return [parameters]
    if isinstance(parameters, Module):
        return list(parameters.parameters().values())
    if isinstance(parameters, dict):
        return [tensor for part in parameters.values() for tensor in _tensors(part)]
    if isinstance(parameters, str):
        raise TypeError("an optimizer takes tensors, modules, dictionaries of them or a list of these, not a string")
    return [tensor for part in parameters for tensor in _tensors(part)]


class Optimizer(_Handle):
    """ "sgd", "adam" or "adamw" over parameters: tensors, modules, dictionaries, or a list of these.

    ``settings``: beta1 (for sgd the momentum), beta2, epsilon, weight_decay, decay_vectors
    (False: adamw does not decay parameters of rank 0 or 1, such as biases), clip_norm.
    """

    _free_name = "heed_optimizer_free"

    def __init__(
        self, name: str, parameters: Union[Parameters, Iterable[Parameters]], learning_rate: float = 1e-3,
        **settings: float,
    ) -> None:
        self.learning_rate = learning_rate
        tensors = _tensors(parameters)
        given = lib.encoded(name), lib.settings_json(settings), lib.handles_of(tensors), len(tensors)
        super().__init__(lib.result("heed_optimizer_create", *given))

    def step(self, learning_rate: Optional[float] = None) -> None:
        """One update in place, from the gradients."""
        lib.call("heed_optimizer_step", self, self.learning_rate if learning_rate is None else learning_rate)

    def zero_grad(self) -> None:
        lib.call("heed_optimizer_zero_gradients", self)
