"""User-defined parts that the library calls: functions with custom gradients, attention mechanisms."""

from __future__ import annotations

import functools
import json
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import _library as lib
from .layers import Context
from .ops import no_grad
from .tensor import Array, Like, Tensor, _handed_over, _lend, _lent, _release, _t


class Function:
    """Base class of functions with a custom gradient.

    >>> class Cube(heed.Function):
    ...     arrays = True
    ...     @staticmethod
    ...     def forward(kept, x):
    ...         kept.x = x
    ...         return x**3
    ...     @staticmethod
    ...     def backward(kept, gradient):
    ...         return 3 * kept.x**2 * gradient
    >>> Cube.apply(x)
    >>> heed.gradcheck(Cube.apply, [np.ones(3)])

    - ``forward(kept, *inputs, **settings)`` returns one tensor or array. Store in `kept` what backward needs;
      ``kept.tracked`` has a bool for each input.
    - ``backward(kept, gradient)`` returns d(loss)/d(input), with the input's shape, or None; with several inputs, a
      tuple. Its exceptions are raised by ``loss.backward()``.

    With ``arrays = True`` both get NumPy arrays, otherwise tensors. Neither is recorded.
    """

    arrays = False
    forward: Callable[..., Union[Tensor, Array]]
    backward: Callable[..., Union[None, Tensor, Array, Tuple[Union[None, Tensor, Array], ...]]]

    @classmethod
    def apply(cls, *inputs: Like, **settings: Any) -> Tensor:
        """Calls forward() on tensors, arrays or lists, and records the gradient if an input is tracked."""
        tensors = [_t(x) for x in inputs]
        kept = SimpleNamespace(tracked=tuple(tensor.tracked for tensor in tensors))
        with no_grad():
            detached = [tensor.detach() for tensor in tensors]
            given = [tensor.numpy() if cls.arrays else tensor for tensor in detached]
            value = _t(cls.forward(kept, *given, **settings))
        with _lend((cls, kept, [(tensor.dtype, tensor.device) for tensor in tensors])) as key:
            count, name = len(tensors), lib.encoded(cls.__name__)
            return Tensor._result("heed_record", name, value, lib.handles_of(tensors), count, _backward, _release, key)


def _run_backward(key: Any, gradient: Any, out: Any, count: int) -> None:
    cls, kept, inputs = _lent[key]
    grad = Tensor._of(gradient, owned=False).detach()
    found = cls.backward(kept, grad.numpy() if cls.arrays else grad)
    gradients = found if isinstance(found, tuple) else (found,)
    if len(gradients) != count:
        raise ValueError(f"{cls.__name__}.backward returned {len(gradients)} gradients for {count} inputs")
    for i, (result, (dtype, device)) in enumerate(zip(gradients, inputs)):
        if result is not None and dtype != "i32":
            out[i] = _handed_over(result if isinstance(result, Tensor) else Tensor(np.asarray(result), dtype, device))


_backward = lib.callback("heed_backward_function", _run_backward)


class AttentionCall:
    """The inputs, parameters and configuration of a call of your attention mechanism.

    B: batch, N: queries, M: keys, H: heads, dh: head width. Masks are i32, 1 for real tokens; None means all real.
    """

    x: Tensor  #: The input [B, N, width].
    mask: Optional[Tensor]  #: Real tokens [B, N].
    memory: Optional[Tensor]  #: The memory [B, M, width] in cross-attention.
    memory_mask: Optional[Tensor]  #: Real tokens of the memory [B, M].
    query: Tensor  #: [B, H, N, dh]; with projections only, like key and value.
    key: Tensor  #: [B, H, M, dh].
    value: Tensor  #: [B, H, M, dh].
    parameters: Dict[str, Tensor]  #: The parameters by name.
    config: Mapping[str, Any]  #: "width", "heads", "causal", "training", ..., and the mechanism's settings.
    context: Context  #: The context, valid only during this call.

    def __init__(self, config: Mapping[str, Any], names: Sequence[str], tensors: List[Any], context: Context) -> None:
        self.config, self.context = config, context
        self.x, self.mask, self.memory, self.memory_mask, self.query, self.key, self.value = tensors[:7]
        self.parameters = dict(zip(names, tensors[7:]))

    @property
    def allowed(self) -> Tensor:
        """A mask of the keys each query may attend to, i32 [B or 1, 1, N or 1, M]: real and, if causal, not later."""
        cross = self.memory is not None
        keys = self.memory if self.memory is not None else self.x
        mask = self.memory_mask if cross else self.mask
        length, device = keys.shape[1], self.x.device
        allowed = Tensor(np.ones((1, 1, 1, length), np.int32), device=device)
        if mask is not None:
            allowed = mask.reshape(mask.shape[0], 1, 1, length)
        if self.config["causal"]:
            allowed = allowed * Tensor(np.tri(length, dtype=np.int32).reshape(1, 1, length, length), device=device)
        return allowed

    def show(self, name: str, value: Tensor) -> None:
        """Provides a tensor to captures and reports; "weights" [B, H, N, M] become attention maps."""
        lib.call("heed_context_show", self.context, lib.encoded(self.config["path"]), lib.encoded(name), value)


Initial = Union[Like, Callable[[Mapping[str, Any]], Like]]
_mechanisms: List[Any] = []  # the library keeps pointers to these


def register_attention(
    name: str, forward: Callable[[AttentionCall], Tensor], *, causal: bool = False, cross: bool = False,
    strictly_causal: bool = True, cross_by_step: bool = True, any_length: bool = True, as_heads: bool = False,
    deterministic: bool = True, padding: bool = True, reason: str = "", projections: bool = True,
    parameters: Optional[Mapping[str, Initial]] = None, settings: Optional[Mapping[str, Any]] = None,
) -> None:
    """Registers an attention mechanism under a name that works wherever built-in names do, in this process.

    >>> def cosine(call):
    ...     q, k = (t / ((t * t).sum(-1, keepdims=True) + 1e-6) ** 0.5 for t in (call.query, call.key))
    ...     weights = heed.masked_softmax(q @ k.transpose() * call.parameters["scale"], call.allowed)
    ...     call.show("weights", weights)
    ...     return weights @ call.value
    >>> heed.register_attention("cosine", cosine, causal=True, cross=True, parameters={"scale": 8.0})
    >>> layer = heed.attention("cosine", 16, heads=2, causal=True)

    - ``forward(call)`` computes [B, H, N, dh] from call.query, call.key and call.value, which heed projects. With
      ``projections=False`` it computes [B, N, width] from call.x.
    - ``parameters``: initial values by name, or functions of the configuration, which has a "seed".
    - ``settings``: defaults of the mechanism's settings by name: numbers, strings, bools.
    - Capabilities, which check_attention() tests: ``strictly_causal`` (later tokens change nothing),
      ``cross_by_step`` (cross-attention treats queries independently), ``any_length`` (no parameter depends on
      "max_length"), ``as_heads`` (works as some heads of a layer), ``padding`` (masked tokens change nothing).
      Errors about other uses include ``reason``.

    Raises heed.SettingsError if the name is taken.
    """
    declared: Dict[str, Any] = dict(
        causal=causal, cross=cross, strictly_causal=strictly_causal, cross_by_step=cross_by_step, any_length=any_length,
        as_heads=as_heads, deterministic=deterministic, padding=padding, reason=reason, projections=projections,
    )
    declared.update({f"settings.{setting}": value for setting, value in (settings or {}).items()})
    names = list(parameters or {})
    if names:
        declared["parameters"] = names

    def initial(_context: Any, config: bytes, out: Any, _count: int) -> None:
        for i, made in enumerate((parameters or {}).values()):
            value = made(_config(config)) if callable(made) else made
            out[i] = _handed_over(Tensor(value, "f32", "cpu"))

    def run(_context: Any, config: bytes, inputs: Any, count: int, context: Any, out: Any) -> None:
        tensors = [None if inputs[i] is None else Tensor._of(inputs[i], owned=False) for i in range(count)]
        call = AttentionCall(_config(config), names, tensors, Context._lent(context))
        out[0] = _handed_over(forward(call), name)

    functions = lib.callback("heed_initial_function", initial), lib.callback("heed_attention_function", run)
    _mechanisms.append(functions)
    lib.call("heed_register_attention", lib.encoded(name), lib.settings_json(declared), *functions, None)


def check_attention(name: str, **settings: Any) -> None:
    """Tests whether a mechanism with these settings does what it declares.

    It checks, in double precision on random sequences: shapes, lengths, padding, causality, decoding against the
    full pass, gradients, independence of samples, and random numbers. Raises heed.Error with the position and values
    of a failure.
    """
    lib.call("heed_check_attention", lib.encoded(name), lib.settings_json(settings))


@functools.lru_cache(maxsize=256)
def _config(text: bytes) -> Mapping[str, Any]:
    return dict(json.loads(text))
