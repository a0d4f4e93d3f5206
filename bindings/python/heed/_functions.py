"""Functions of tensors written by hand; ops.py generates the others from the library's list, and documents these."""

from __future__ import annotations

import ctypes
import functools
import inspect
import operator
import types
from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Sequence, Tuple, TypeVar, cast

import numpy as np

from . import _library as lib
from .tensor import DTYPES, Like, Pair, Parameter, Tensor, _alike, _handed_over, _integers, _op, _reduction, _t, _together


_Wrapped = TypeVar("_Wrapped", bound=Callable[..., Any])


def leaky_relu(x: Like, slope: float = 0.01) -> Tensor:
    """Returns x where it is positive, otherwise slope x."""
    return Tensor._result("heed_unary", b"leaky_relu", _t(x), slope, 0)


def elu(x: Like, alpha: float = 1.0) -> Tensor:
    """Returns x where it is positive, otherwise alpha (e^x - 1)."""
    return Tensor._result("heed_unary", b"elu", _t(x), alpha, 0)


def clamp(x: Like, low: float, high: float) -> Tensor:
    """Returns min(max(x, low), high)."""
    return Tensor._result("heed_unary", b"clamp", _t(x), low, high)


# --- shape


def split(x: Like, sizes: Sequence[int], axis: int = 0) -> List[Tensor]:
    return _op("split", [x], room=len(sizes), axis=axis, sizes=tuple(sizes))


def tile(x: Like, counts: Sequence[int]) -> Tensor:
    return _op("tile", [x], shape=_integers(counts))[0]


def stack(parts: Sequence[Like], axis: int = 0) -> Tensor:
    """Joins tensors of one shape along a new axis."""
    tensors = [part.unsqueeze(axis) for part in _together(*parts) if part is not None]
    if not tensors:
        raise ValueError("nothing to stack")
    return _op("concat", tensors, axis=axis % tensors[0].ndim)[0]


# --- reductions: `axis` is one, several, or None for all


def _function(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Converts a method of tensors to a function."""

    def op(x: Like, *arguments: Any, **settings: Any) -> Tensor:
        return method(_t(x), *arguments, **settings)

    op.__name__, op.__doc__ = method.__name__, method.__doc__
    op.__wrapped__ = method  # type: ignore[attr-defined]  # for its signature
    return op


sum, mean, max, min = (_function(method) for method in (Tensor.sum, Tensor.mean, Tensor.max, Tensor.min))
argmax = _function(Tensor.argmax)
squeeze, unsqueeze = _function(Tensor.squeeze), _function(Tensor.unsqueeze)
reshape, permute, transpose = _function(Tensor.reshape), _function(Tensor.permute), _function(Tensor.transpose)
_log_sum_exp = _reduction("log_sum_exp", "")


def log_sum_exp(x: Like, axis: Optional[int] = None, keepdims: bool = False) -> Tensor:
    """Returns log(sum(exp(x))) over one or all axes, without overflow."""
    return _log_sum_exp(_t(x), axis, keepdims)


# --- products


def matmul(a: Like, b: Like) -> Tensor:
    """Returns the matrix product of a [..., m, k] and b [..., k, n]; leading axes broadcast."""
    return Tensor._result("heed_matmul", *_alike(a, b))


def linear(x: Like, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """Returns x [..., in] times the transpose of weight [out, in], plus bias [out]."""
    return Tensor._result("heed_linear", *_together(x, weight, bias))


def linear_maps(x: Like, maps: Sequence[Tuple[Tensor, Optional[Tensor]]]) -> List[Tensor]:
    return _op("linear_maps", [x, *(tensor for parameters in maps for tensor in parameters)], room=len(maps))


def feed_forward(
    x: Like, first: Tuple[Tensor, Optional[Tensor]], activation: str, second: Tuple[Tensor, Optional[Tensor]],
) -> Tensor:
    """Returns linear(activation(linear(x, *first)), *second) in one op; activation: "relu", "gelu", ..."""
    return _op("feed_forward", [x, *first, *second], activation=activation)[0]


def einsum(equation: str, *operands: Like) -> Tensor:
    """Returns an Einstein summation in NumPy's notation: einsum("bhid,bhjd->bhij", q, k)."""
    return _op("einsum", operands, equation=equation)[0]


# --- dropout, losses


def dropout(x: Like, p: float, seed: int, step: int, stream: int = 0) -> Tensor:
    """Zeroes elements with probability p, chosen by (seed, step, stream), and divides the others by 1 - p."""
    return Tensor._result("heed_dropout", _t(x), p, seed, step, stream)


def cross_entropy(logits: Tensor, targets: Like, smoothing: float = 0.0) -> Tensor:
    """Returns the loss of each row of logits [..., classes] with targets i32 [...]; a target of -1 gives 0."""
    return Tensor._result("heed_cross_entropy", *_together(logits, targets), smoothing)


# --- attention


def dot_product_attention(
    query: Like, key: Like, value: Like, mask: Optional[Like] = None, causal: bool = False,
    bias: Optional[Like] = None, slopes: Optional[Like] = None,
) -> Tensor:
    """Returns softmax(q k^T / sqrt(dk) + bias) v for tensors [batch, heads, length, width]. mask: 1 = allowed; bias: [1
    or batch, 1 or heads, length, keys]; slopes: per head, subtracted per step of distance (ALiBi).
    """
    return _op("dot_product_attention", [query, key, value, mask, bias, slopes], causal=bool(causal))[0]


def attention_weights(
    query: Like, key: Like, mask: Optional[Like] = None, causal: bool = False, bias: Optional[Like] = None,
    slopes: Optional[Like] = None, scale: Optional[float] = None,
) -> Tensor:
    return _op("attention_weights", [query, key, mask, bias, slopes], causal=causal, scale=scale)[0]


def attention_part(
    query: Like, key: Like, value: Like, mask: Optional[Like] = None, causal: bool = False,
    bias: Optional[Like] = None, slopes: Optional[Like] = None, scale: Optional[float] = None,
) -> Pair:
    given = [query, key, value, mask, bias, slopes]
    return cast(Pair, tuple(_op("attention_part", given, room=2, causal=causal, scale=scale)))


def join_attention(parts: Sequence[Pair]) -> Tensor:
    return _op("join_attention", [tensor for part in parts for tensor in part])[0]


# --- new tensors


def _shape(shape: Any) -> Any:
    try:
        return (shape,) if isinstance(shape, (int, np.integer)) else tuple(operator.index(extent) for extent in shape)
    except TypeError:
        raise TypeError(f"the shape is {lib.shown(shape)}; expected an integer or a list of them") from None


def zeros(shape: Any, dtype: str = "f32", device: Optional[str] = None) -> Tensor:
    """Returns a tensor of zeros; `shape` is an integer or a sequence."""
    extents = _shape(shape)
    where = lib.encoded(device or "")
    return Tensor._result("heed_tensor_create", _number(dtype), len(extents), lib.longs(extents), None, where)


def ones(shape: Any, dtype: str = "f32", device: Optional[str] = None) -> Tensor:
    """Returns a tensor of ones."""
    return full(shape, 1, dtype, device)


def full(shape: Any, value: float, dtype: str = "f32", device: Optional[str] = None) -> Tensor:
    """Returns a tensor filled with one value."""
    empty = zeros(shape, dtype, device)
    return empty + empty._operand(value)


def arange(count: int, dtype: str = "i32", device: Optional[str] = None) -> Tensor:
    """Returns 0, 1, ..., count - 1."""
    return Tensor(np.arange(count), dtype, device)


def eye(count: int, dtype: str = "f32", device: Optional[str] = None) -> Tensor:
    """Returns the identity matrix [count, count]."""
    return Tensor(np.eye(count), dtype, device)


def permutation(count: int, *, seed: int, step: int = 0, stream: int = 0, device: Optional[str] = None) -> Tensor:
    return _op("permutation", [], count=count, seed=seed, step=step, stream=stream, device=device)[0]


def _number(dtype: str) -> int:
    if dtype not in DTYPES:
        raise TypeError(f"unknown dtype {dtype!r}: {', '.join(DTYPES)}")
    return DTYPES[dtype]


def _random(kind: bytes, a: float, b: float, shape: Any, key: Any, dtype: str, device: Optional[str]) -> Tensor:
    extents = _shape(shape)
    layout = (_number(dtype), len(extents), lib.longs(extents), lib.encoded(device or ""))
    return Tensor._result("heed_tensor_random", kind, a, b, *key, *layout)


def uniform(
    shape: Any, low: float = 0.0, high: float = 1.0, *, seed: int, step: int = 0, stream: int = 0,
    dtype: str = "f32", device: Optional[str] = None,
) -> Tensor:
    """Returns random numbers in [low, high); equal (seed, step, stream) give equal numbers on every device."""
    return _random(b"uniform", low, high, shape, (seed, step, stream), dtype, device)


def normal(
    shape: Any, mean: float = 0.0, deviation: float = 1.0, *, seed: int, step: int = 0, stream: int = 0,
    dtype: str = "f32", device: Optional[str] = None,
) -> Tensor:
    """Returns normally distributed random numbers, keyed like those of uniform()."""
    return _random(b"normal", mean, deviation, shape, (seed, step, stream), dtype, device)


# --- gradients


def parameter(data: Like, dtype: Optional[str] = None, device: Optional[str] = None) -> Parameter:
    """Creates a leaf that accumulates gradients; it shares the memory of a Tensor and copies other data."""
    return Parameter(data, dtype, device)


class no_grad:  # noqa: N801 - used like a function
    """Disables recording in this thread: ``with heed.no_grad():``, or as a decorator of any function, generator or
    coroutine.
    """

    def __init__(self) -> None:
        self._before: List[int] = []

    def __enter__(self) -> None:
        self._before.append(lib.result("heed_set_recording", 0, kind=ctypes.c_int32))

    def __exit__(self, *_error: Any) -> None:
        lib.result("heed_set_recording", self._before.pop(), kind=ctypes.c_int32)

    def __call__(self, function: _Wrapped) -> _Wrapped:
        """Returns the function, whose calls and steps do not record."""

        def apply(*arguments: Any, **settings: Any) -> Any:
            with no_grad():
                return function(*arguments, **settings)

        def generate(*arguments: Any, **settings: Any) -> Any:
            return (yield from _steps(function(*arguments, **settings)))

        async def wait(*arguments: Any, **settings: Any) -> Any:
            return await _awaited(function(*arguments, **settings))

        async def generate_waiting(*arguments: Any, **settings: Any) -> Any:
            given = function(*arguments, **settings)
            step, sent = given.asend, None
            while True:
                try:
                    found = await _awaited(step(sent))
                except StopAsyncIteration:
                    return
                try:
                    step, sent = given.asend, (yield found)
                except BaseException as error:  # noqa: B902 - thrown into the function
                    step, sent = given.athrow, error

        kinds = (inspect.isgeneratorfunction, generate), (inspect.iscoroutinefunction, wait), (inspect.isasyncgenfunction, generate_waiting)
        made: Any = next((made for matches, made in kinds if matches(function)), apply)
        return cast(_Wrapped, functools.wraps(function)(made))


def _steps(given: Any) -> Any:
    """Runs a generator or coroutine, of which no step records."""
    step, sent = given.send, None
    while True:
        try:
            with no_grad():
                found = step(sent)
        except StopIteration as end:
            return end.value
        try:
            step, sent = given.send, (yield found)
        except BaseException as error:  # noqa: B902 - thrown into the function
            step, sent = given.throw, error


_awaited = types.coroutine(_steps)


@dataclass(frozen=True)
class GradcheckResult:
    """The result of gradcheck(); true if the gradients agree with finite differences."""

    passed: bool
    worst_error: float
    worst_input: int
    worst_element: int
    analytic: float
    numeric: float

    def __bool__(self) -> bool:
        return self.passed


def gradcheck(function: Callable[..., Tensor], inputs: Sequence[Like], tolerance: float = 1e-6) -> GradcheckResult:
    """Compares the gradients of function(*inputs) with central finite differences, in double precision.

    Floating inputs that are not tensors become f64, integers i32. Exceptions of the function are raised here.
    """
    tensors = []
    for x in inputs:
        is_integer = not isinstance(x, Tensor) and np.asarray(x).dtype.kind in "biu"
        tensors.append(x if isinstance(x, Tensor) else Tensor(x, "i32" if is_integer else "f64"))

    def bridge(_context: Any, handles: Any, count: int, out: Any) -> None:
        out[0] = _handed_over(function(*[Tensor._of(handles[i], owned=False) for i in range(count)]))

    given = lib.callback("heed_function", bridge), None, lib.handles_of(tensors), len(tensors), lib.number_of(tolerance, "tolerance")
    found = lib.result("heed_gradcheck", *given, kind=lib.TYPES["heed_gradcheck_result"])
    return GradcheckResult(
        bool(found.passed), found.worst_error, found.worst_input, found.worst_element, found.analytic, found.numeric
    )
