"""Functions of tensors, recorded if an operand is a parameter or depends on one."""

from __future__ import annotations

import contextlib
import ctypes
from dataclasses import dataclass
from typing import Any, Callable, Iterator, List, Optional, Sequence

import numpy as np

from . import _library as lib
from .tensor import DTYPES, Like, Tensor, _reduction


def _t(x: Like) -> Tensor:
    return x if isinstance(x, Tensor) else Tensor(x)


def _unary(name: str) -> Callable[[Tensor], Tensor]:
    code = name.encode()

    def op(x: Tensor) -> Tensor:
        return Tensor._result("heed_unary", code, _t(x), 0, 0)

    op.__name__ = op.__qualname__ = name
    op.__doc__ = f"{name} of every element."
    return op


neg, square, sqrt, rsqrt, reciprocal = (_unary(n) for n in ("neg", "square", "sqrt", "rsqrt", "reciprocal"))
exp, log, sin, cos, tanh, erf = (_unary(n) for n in ("exp", "log", "sin", "cos", "tanh", "erf"))
sigmoid, relu, silu, softplus, gelu = (_unary(n) for n in ("sigmoid", "relu", "silu", "softplus", "gelu"))
gelu_tanh = _unary("gelu_tanh")
abs = _unary("abs")  # as in NumPy


def leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    return Tensor._result("heed_unary", b"leaky_relu", _t(x), slope, 0)


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return Tensor._result("heed_unary", b"elu", _t(x), alpha, 0)


def clamp(x: Tensor, low: float, high: float) -> Tensor:
    return Tensor._result("heed_unary", b"clamp", _t(x), low, high)


def _pair(op: bytes, a: Like, b: Like) -> Tensor:
    a = a if isinstance(a, Tensor) else (b._operand(a) if isinstance(b, Tensor) else Tensor(a))
    return Tensor._result("heed_binary", op, a, a._operand(b))


def maximum(a: Like, b: Like) -> Tensor:
    return _pair(b"maximum", a, b)


def minimum(a: Like, b: Like) -> Tensor:
    return _pair(b"minimum", a, b)


def where(condition: Tensor, a: Like, b: Like) -> Tensor:
    """a where the condition (i32) is not 0, else b."""
    a = a if isinstance(a, Tensor) else (b._operand(a) if isinstance(b, Tensor) else Tensor(a))
    return Tensor._result("heed_where", condition, a, a._operand(b))


_log_sum_exp = _reduction(b"log_sum_exp")


def log_sum_exp(x: Tensor, axis: Optional[int] = None, keepdims: bool = False) -> Tensor:
    return _log_sum_exp(x, axis, keepdims)


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    return Tensor._result("heed_softmax", _t(x), axis)


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    return Tensor._result("heed_log_softmax", _t(x), axis)


def concat(parts: Sequence[Tensor], axis: int = 0) -> Tensor:
    parts = [_t(part) for part in parts]
    return Tensor._result("heed_concat", lib.handles_of(parts), len(parts), axis)


def stack(parts: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Along a new axis."""
    parts = [_t(part) for part in parts]
    if not parts:
        raise ValueError("nothing to stack")
    rank = parts[0].ndim + 1
    if not -rank <= axis < rank:
        raise IndexError(f"stack: axis {axis} is out of range for a result of {rank} axes")
    at = axis % rank
    return concat([part.reshape(part.shape[:at] + (1,) + part.shape[at:]) for part in parts], at)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    return Tensor._result("heed_matmul", _t(a), _t(b))


def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """x [..., in] times the transpose of weight [out, in], plus bias [out]."""
    return Tensor._result("heed_linear", _t(x), weight, bias)


def embedding(table: Tensor, ids: Like) -> Tensor:
    """Rows of table [n, width] by ids of any shape; -1 gives zeros."""
    return Tensor._result("heed_embedding", table, _t(ids))


def layer_norm(
    x: Tensor, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, epsilon: float = 1e-5
) -> Tensor:
    """Over the last axis."""
    return Tensor._result("heed_layer_norm", _t(x), weight, bias, epsilon)


def dropout(x: Tensor, p: float, seed: int, step: int, stream: int = 0) -> Tensor:
    """Zeroes elements with probability p, chosen by (seed, step, stream), and divides the others by 1 - p."""
    return Tensor._result("heed_dropout", _t(x), p, seed, step, stream)


def cross_entropy(logits: Tensor, targets: Like, smoothing: float = 0.0) -> Tensor:
    """Per row of logits [..., classes]; a target of -1 gives 0."""
    return Tensor._result("heed_cross_entropy", logits, _t(targets), smoothing)


def dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Optional[Like] = None, causal: bool = False,
    bias: Optional[Like] = None, slopes: Optional[Like] = None,
) -> Tensor:
    """softmax(q k^T / sqrt(dk) + bias) v of [batch, heads, length, width]; mask: 1 = allowed; bias: [1 or batch, 1 or
    heads, length, keys]; slopes: a number per head that each step of distance takes from a product (ALiBi)."""
    mask, bias, slopes = (None if given is None else _t(given) for given in (mask, bias, slopes))
    return Tensor._result("heed_biased_attention", _t(query), _t(key), _t(value), mask, int(causal), bias, slopes)


# --- new tensors


def _shape(shape: Any) -> Any:
    return (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)


def zeros(shape: Any, dtype: str = "f32", device: Optional[str] = None) -> Tensor:
    extents = _shape(shape)
    where = lib.encoded(device or "")
    return Tensor._result("heed_tensor_create", _number(dtype), len(extents), lib.longs(extents), None, where)


def ones(shape: Any, dtype: str = "f32", device: Optional[str] = None) -> Tensor:
    return full(shape, 1, dtype, device)


def full(shape: Any, value: float, dtype: str = "f32", device: Optional[str] = None) -> Tensor:
    empty = zeros(shape, dtype, device)
    return empty + empty._operand(value)


def arange(count: int, dtype: str = "i32", device: Optional[str] = None) -> Tensor:
    return Tensor(np.arange(count), dtype, device)


def _number(dtype: str) -> int:
    if dtype not in DTYPES:
        raise TypeError(f"unknown dtype {dtype!r}: {', '.join(DTYPES)}")
    return DTYPES[dtype]


def _random(kind: bytes, a: float, b: float, shape: Any, key: Any, dtype: str, device: Optional[str]) -> Tensor:
    extents = _shape(shape)
    layout = (_number(dtype), len(extents), lib.longs(extents), lib.encoded(device or ""))
    return Tensor._result("heed_tensor_random", kind, a, b, *key, *layout)


def uniform(
    shape: Any, low: float = 0.0, high: float = 1.0, *, seed: int, step: int = 0, stream: int = 0, dtype: str = "f32",
    device: Optional[str] = None,
) -> Tensor:
    """Random numbers in [low, high); equal (seed, step, stream) give equal numbers on every device."""
    return _random(b"uniform", low, high, shape, (seed, step, stream), dtype, device)


def normal(
    shape: Any, mean: float = 0.0, deviation: float = 1.0, *, seed: int, step: int = 0, stream: int = 0,
    dtype: str = "f32", device: Optional[str] = None,
) -> Tensor:
    return _random(b"normal", mean, deviation, shape, (seed, step, stream), dtype, device)


# --- gradients


def parameter(data: Like, dtype: Optional[str] = None, device: Optional[str] = None) -> Tensor:
    """A tensor whose gradient backward() accumulates; shares the memory of a Tensor, copies everything else."""
    tensor = data if isinstance(data, Tensor) else Tensor(data, dtype, device)
    return Tensor._result("heed_tensor_parameter", tensor)


@contextlib.contextmanager
def no_grad() -> Iterator[None]:
    """This thread records nothing inside."""
    before = lib.result("heed_set_recording", 0, kind=ctypes.c_int32)
    try:
        yield
    finally:
        lib.result("heed_set_recording", before, kind=ctypes.c_int32)


@dataclass(frozen=True)
class GradcheckResult:
    """True if the gradients agree with finite differences."""

    passed: bool
    worst_error: float
    worst_input: int
    worst_element: int
    analytic: float
    numeric: float

    def __bool__(self) -> bool:
        return self.passed


def gradcheck(function: Callable[..., Tensor], inputs: Sequence[Like], tolerance: float = 1e-6) -> GradcheckResult:
    """Compares backward() through function(*inputs) with central finite differences, in double precision.

    Floating inputs that are not tensors become f64, integers i32. An exception of the function is raised here.
    """
    tensors = []
    for one in inputs:
        is_integer = not isinstance(one, Tensor) and np.asarray(one).dtype.kind in "biu"
        tensors.append(one if isinstance(one, Tensor) else Tensor(one, "i32" if is_integer else "f64"))
    raised: List[BaseException] = []

    @lib.FUNCTION
    def bridge(_context: Any, handles: Any, count: int, out: Any) -> int:
        try:
            found = function(*[Tensor._of(handles[i], owned=False) for i in range(count)])
            if not isinstance(found, Tensor):
                raise TypeError(f"the function must return a heed.Tensor, not {type(found).__name__}")
            shape = found.shape
            # A new handle, which the library frees.
            out[0] = lib.result("heed_reshape", found, len(shape), lib.longs(shape))
            return 0
        except BaseException as error:  # noqa: B902 - raised again below
            raised.append(error)
            return lib.CALLBACK_FAILED

    try:
        handles = lib.handles_of(tensors)
        found = lib.result("heed_gradcheck", bridge, None, handles, len(tensors), tolerance, kind=lib.GradcheckStruct)
    except lib.CallbackFailed:
        if raised:
            raise raised[0]
        raise
    return GradcheckResult(
        bool(found.passed), found.worst_error, found.worst_input, found.worst_element, found.analytic, found.numeric
    )
