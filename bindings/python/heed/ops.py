"""Functions of tensors, recorded if an operand is a parameter or depends on one."""

from __future__ import annotations

import contextlib
import ctypes
import operator
from dataclasses import dataclass
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple, cast

import numpy as np

from . import _library as lib
from .tensor import Axis, DTYPES, Like, Parameter, Tensor, _axes, _comparison, _op, _operator, _reduction


__all__ = [
    "GradcheckResult", "abs", "add", "add_layer_norm", "add_rms_norm", "arange", "argmax", "argsort",
    "attention_part", "attention_weights", "binary_cross_entropy_with_logits", "clamp", "concat", "contiguous",
    "cos", "cross_entropy", "cumsum", "cumulative_sum", "div", "dot_product_attention", "dropout", "dropout_add",
    "einsum", "elu", "embedding", "equal", "erf", "exp", "expand", "eye", "feed_forward", "flip", "fourier", "full",
    "gather",
    "gather_rows", "geglu", "gelu", "gelu_tanh", "gradcheck", "greater", "greater_equal", "index_select",
    "isfinite", "isnan", "join_attention", "kl_divergence", "layer_norm", "leaky_relu", "less", "less_equal",
    "linear", "linear_cross_entropy", "linear_maps", "log", "log_softmax", "log_sum_exp", "logical_and",
    "logical_not", "logical_or", "masked_fill", "masked_softmax", "matmul", "max", "maximum", "mean",
    "mean_squared_error", "min", "minimum", "mul", "neg", "no_grad", "norm", "normal", "not_equal", "one_hot",
    "ones", "pad", "parameter", "permutation", "permute", "pow", "prod", "reciprocal", "relu", "repeat", "reshape",
    "rms_norm", "roll", "rotary", "rsqrt", "scatter_add", "scatter_add_rows", "sigmoid", "silu", "sin", "softmax",
    "softplus", "sort", "split", "sqrt", "square", "squeeze", "stack", "standard_deviation", "std", "sub", "sum",
    "sum_to", "swiglu", "tanh", "tile", "top_k", "transpose", "tril", "triu", "uniform", "unsqueeze", "var",
    "variance", "where", "zeros",
]

Pair = Tuple[Tensor, Tensor]


def _t(x: Like) -> Tensor:
    return x if isinstance(x, Tensor) else Tensor(x)


def _maybe(x: Optional[Like]) -> Optional[Tensor]:
    return None if x is None else _t(x)


def _unary(name: str) -> Callable[[Like], Tensor]:
    code = name.encode()

    def op(x: Like) -> Tensor:
        return Tensor._result("heed_unary", code, _t(x), 0, 0)

    op.__name__ = op.__qualname__ = name
    op.__doc__ = f"{name} of every element."
    return op


def _binary(name: str, doc: str) -> Callable[[Like, Like], Tensor]:
    apply = _operator(name)

    def op(a: Like, b: Like) -> Tensor:
        return apply(*_alike(a, b))

    op.__name__ = op.__qualname__ = name
    op.__doc__ = doc + " Either may be a number or a list."
    return op


def _alike(a: Like, b: Like) -> Pair:
    """Two operands; what is not a tensor takes the dtype and device of the other."""
    first = a if isinstance(a, Tensor) else (b._operand(a) if isinstance(b, Tensor) else Tensor(a))
    return first, first._operand(b)


neg, square, sqrt, rsqrt, reciprocal = (_unary(n) for n in ("neg", "square", "sqrt", "rsqrt", "reciprocal"))
exp, log, sin, cos, tanh, erf = (_unary(n) for n in ("exp", "log", "sin", "cos", "tanh", "erf"))
sigmoid, relu, silu, softplus, gelu = (_unary(n) for n in ("sigmoid", "relu", "silu", "softplus", "gelu"))
gelu_tanh = _unary("gelu_tanh")
abs = _unary("abs")  # as in NumPy
for _name in lib.listing("ops")["unary"]:  # what the library has beyond these
    if _name not in globals() and not _name.endswith("_scalar"):
        globals()[_name] = _unary(_name)
        __all__.append(_name)

add, sub, mul, div = (_binary(n, f"a {c} b.") for n, c in zip(("add", "sub", "mul", "div"), "+-*/"))
pow = _binary("pow", "a to the power of b.")
maximum, minimum = _binary("maximum", "The larger of a and b."), _binary("minimum", "The smaller of a and b.")
binary_cross_entropy_with_logits = _binary(
    "binary_cross_entropy_with_logits", "-b log(sigmoid(a)) - (1 - b) log(1 - sigmoid(a)) of the logit a."
)
swiglu, geglu = _binary("swiglu", "silu(a) b."), _binary("geglu", "gelu(a) b.")


def _compare(name: str) -> Callable[[Like, Like], Tensor]:
    apply = _comparison(name)

    def op(a: Like, b: Like) -> Tensor:
        return apply(*_alike(a, b))

    op.__name__ = op.__qualname__ = name
    op.__doc__ = f"{name}, element by element: i32 0 or 1."
    return op


equal, not_equal, less = _compare("equal"), _compare("not_equal"), _compare("less")
less_equal, greater, greater_equal = _compare("less_equal"), _compare("greater"), _compare("greater_equal")


logical_and, logical_or = _compare("logical_and"), _compare("logical_or")


def logical_not(x: Like) -> Tensor:
    """i32 1 where x is 0, else 0."""
    return _op("logical_not", [_t(x)])[0]


def isnan(x: Like) -> Tensor:
    """i32 1 where x is NaN, else 0."""
    return _op("isnan", [_t(x)])[0]


def isfinite(x: Like) -> Tensor:
    """i32 1 where x is neither infinite nor NaN, else 0."""
    return _op("isfinite", [_t(x)])[0]


def leaky_relu(x: Like, slope: float = 0.01) -> Tensor:
    """x where it is positive, else slope x."""
    return Tensor._result("heed_unary", b"leaky_relu", _t(x), slope, 0)


def elu(x: Like, alpha: float = 1.0) -> Tensor:
    """x where it is positive, else alpha (e^x - 1)."""
    return Tensor._result("heed_unary", b"elu", _t(x), alpha, 0)


def clamp(x: Like, low: float, high: float) -> Tensor:
    """min(max(x, low), high)."""
    return Tensor._result("heed_unary", b"clamp", _t(x), low, high)


def where(condition: Like, a: Like, b: Like) -> Tensor:
    """a where the condition (i32 or bools) is not 0, else b; all three broadcast."""
    return Tensor._result("heed_where", _t(condition), *_alike(a, b))


def masked_fill(x: Like, mask: Like, value: float) -> Tensor:
    """x with `value` where the mask (i32 or bools, broadcast to x) is not 0."""
    return _op("masked_fill", [_t(x), _t(mask)], value=value)[0]


# --- shape


def expand(x: Like, shape: Sequence[int]) -> Tensor:
    """A broadcast view: an extent of 1, or a missing leading axis, is repeated."""
    return _op("expand", [_t(x)], shape=[operator.index(one) for one in shape])[0]


def split(x: Like, sizes: Sequence[int], axis: int = 0) -> List[Tensor]:
    """Pieces of these sizes, which add up to the extent."""
    return _op("split", [_t(x)], room=len(sizes), axis=axis, sizes=list(sizes))


def pad(x: Like, axis: int, before: int, after: int, value: float = 0.0) -> Tensor:
    """x with `before` and `after` elements of `value` added to an axis."""
    return _op("pad", [_t(x)], axis=axis, before=before, after=after, value=value)[0]


def contiguous(x: Like) -> Tensor:
    """x with its elements in row-major order; x itself if they are."""
    return _op("contiguous", [_t(x)])[0]


def flip(x: Like, axis: Axis = None) -> Tensor:
    """x with the elements of these axes reversed; None: of all."""
    return _op("flip", [_t(x)], axes=_axes(axis))[0]


def roll(x: Like, shift: int, axis: int = -1) -> Tensor:
    """x with the elements of an axis moved by `shift` places; those that leave it come in on the other side."""
    return _op("roll", [_t(x)], shift=shift, axis=axis)[0]


def repeat(x: Like, count: int, axis: int = -1) -> Tensor:
    """Every element of an axis `count` times in a row: a a b b, as in NumPy."""
    return _op("repeat", [_t(x)], count=count, axis=axis)[0]


def tile(x: Like, counts: Sequence[int]) -> Tensor:
    """The whole of x repeated counts[i] times along axis i: a b a b. More counts than axes add leading axes."""
    return _op("tile", [_t(x)], shape=[operator.index(one) for one in counts])[0]


def tril(x: Like, diagonal: int = 0) -> Tensor:
    """x [..., n, m] with zeros where column - row > diagonal."""
    return _op("tril", [_t(x)], diagonal=diagonal)[0]


def triu(x: Like, diagonal: int = 0) -> Tensor:
    """x [..., n, m] with zeros where column - row < diagonal."""
    return _op("triu", [_t(x)], diagonal=diagonal)[0]


def concat(parts: Sequence[Like], axis: int = 0) -> Tensor:
    """Tensors joined along an axis."""
    tensors = [_t(part) for part in parts]
    return Tensor._result("heed_concat", lib.handles_of(tensors), len(tensors), axis)


def stack(parts: Sequence[Like], axis: int = 0) -> Tensor:
    """Tensors of one shape joined along a new axis."""
    tensors = [_t(part) for part in parts]
    if not tensors:
        raise ValueError("nothing to stack")
    return concat([part.unsqueeze(axis) for part in tensors], axis % (tensors[0].ndim + 1))


# --- reductions: `axis` is one, several, or None for all


def _function(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A method of tensors as a function."""

    def op(x: Like, *arguments: Any, **settings: Any) -> Tensor:
        return method(_t(x), *arguments, **settings)

    op.__name__, op.__doc__ = method.__name__, method.__doc__
    return op


sum, mean, prod, norm = (_function(one) for one in (Tensor.sum, Tensor.mean, Tensor.prod, Tensor.norm))
max, min, argmax = _function(Tensor.max), _function(Tensor.min), _function(Tensor.argmax)
var = variance = _function(Tensor.var)


def std(x: Like, axis: Axis = None, keepdims: bool = False, correction: int = 0) -> Tensor:
    """sqrt(var(...)); its gradient is 0 where all elements are equal."""
    return _op("standard_deviation", [_t(x)], axes=_axes(axis), keep_axes=keepdims, correction=correction)[0]


standard_deviation = std
cumsum = cumulative_sum = _function(Tensor.cumsum)
squeeze, unsqueeze = _function(Tensor.squeeze), _function(Tensor.unsqueeze)
reshape, permute, transpose = _function(Tensor.reshape), _function(Tensor.permute), _function(Tensor.transpose)
_log_sum_exp = _reduction("log_sum_exp", "")


def log_sum_exp(x: Like, axis: Optional[int] = None, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))) along an axis or of all elements, without overflow."""
    return _log_sum_exp(_t(x), axis, keepdims)


def sum_to(x: Like, shape: Sequence[int]) -> Tensor:
    """x summed over the axes that broadcasting added or repeated, so that the result has this shape."""
    return _op("sum_to", [_t(x)], shape=[operator.index(one) for one in shape])[0]


def softmax(x: Like, axis: int = -1) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis."""
    return Tensor._result("heed_softmax", _t(x), axis)


def log_softmax(x: Like, axis: int = -1) -> Tensor:
    """x - log(sum(exp(x))) along an axis."""
    return Tensor._result("heed_log_softmax", _t(x), axis)


def masked_softmax(x: Like, allowed: Like) -> Tensor:
    """Softmax over the last axis where `allowed` (i32 or bools, broadcast to x) is not 0. All other weights are 0; a
    row with none allowed is all 0."""
    return _op("masked_softmax", [_t(x), _t(allowed)])[0]


# --- products


def matmul(a: Like, b: Like) -> Tensor:
    """a [..., m, k] times b [..., k, n]; leading axes broadcast."""
    return Tensor._result("heed_matmul", *_alike(a, b))


def linear(x: Like, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """x [..., in] times the transpose of weight [out, in], plus bias [out]."""
    return Tensor._result("heed_linear", _t(x), weight, bias)


def linear_maps(x: Like, maps: Sequence[Tuple[Tensor, Optional[Tensor]]]) -> List[Tensor]:
    """linear(x, weight, bias) for each of these, in one op; one backward() runs through all."""
    return _op("linear_maps", [_t(x), *(tensor for one in maps for tensor in one)], room=len(maps))


def feed_forward(
    x: Like, first: Tuple[Tensor, Optional[Tensor]], activation: str, second: Tuple[Tensor, Optional[Tensor]]
) -> Tensor:
    """linear(activation(linear(x, *first)), *second) in one op; `activation` by name: "relu", "gelu", ..."""
    return _op("feed_forward", [_t(x), *first, *second], activation=activation)[0]


def einsum(equation: str, *operands: Like) -> Tensor:
    """Einstein summation in NumPy's notation: einsum("bhid,bhjd->bhij", q, k)."""
    return _op("einsum", [_t(one) for one in operands], equation=equation)[0]


# --- indices: i32; -1 stands for "nothing" (a zero row, no gradient)


def embedding(table: Tensor, ids: Like) -> Tensor:
    """Rows of table [n, width] by ids of any shape: [..., width]; -1 gives zeros."""
    return Tensor._result("heed_embedding", table, _t(ids))


def index_select(x: Like, ids: Like, axis: int = 0) -> Tensor:
    """The slices of an axis picked by ids [m], the same for all other axes."""
    return _op("index_select", [_t(x), _t(ids)], axis=axis)[0]


def gather(x: Like, ids: Like, axis: int = -1) -> Tensor:
    """out[..., i, ...] = x[..., ids[..., i, ...], ...]; ids has the extents of x on all other axes."""
    return _op("gather", [_t(x), _t(ids)], axis=axis)[0]


def scatter_add(x: Like, ids: Like, extent: int, axis: int = -1) -> Tensor:
    """x added at ids to zeros with x's shape, but `extent` along the axis: the adjoint of gather()."""
    return _op("scatter_add", [_t(x), _t(ids)], axis=axis, extent=extent)[0]


def gather_rows(x: Like, ids: Like) -> Tensor:
    """x [batch, n, ...], ids [batch, m]: rows ids[b, i] of sample b, [batch, m, ...]."""
    return _op("gather_rows", [_t(x), _t(ids)])[0]


def scatter_add_rows(x: Like, ids: Like, rows: int) -> Tensor:
    """The adjoint of gather_rows(): out [batch, rows, ...], out[b, ids[b, i]] += x[b, i]."""
    return _op("scatter_add_rows", [_t(x), _t(ids)], rows=rows)[0]


def argsort(x: Like, descending: bool = False) -> Tensor:
    """The indices (i32) of a stable sort along the last axis."""
    return _op("argsort", [_t(x)], descending=descending)[0]


def sort(x: Like, descending: bool = False) -> Pair:
    """The sorted values along the last axis, with a gradient, and their indices."""
    return cast(Pair, tuple(_op("sort", [_t(x)], room=2, descending=descending)))


def top_k(x: Like, k: int) -> Pair:
    """The k largest elements along the last axis, in descending order, and their indices."""
    return cast(Pair, tuple(_op("top_k", [_t(x)], room=2, k=k)))


def one_hot(ids: Like, classes: int, dtype: str = "f32") -> Tensor:
    """ids [...] -> [..., classes]: 1 at the id and 0 elsewhere; a row of zeros for -1."""
    return _op("one_hot", [_t(ids)], classes=classes, dtype=dtype)[0]


# --- normalisation, dropout, losses


def layer_norm(
    x: Like, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, epsilon: float = 1e-5
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * weight + bias over the last axis."""
    return Tensor._result("heed_layer_norm", _t(x), weight, bias, epsilon)


def rms_norm(x: Like, weight: Optional[Tensor] = None, epsilon: float = 1e-5) -> Tensor:
    """x / sqrt(mean(x^2) + epsilon) * weight over the last axis."""
    return _op("rms_norm", [_t(x), weight], epsilon=epsilon)[0]


def dropout(x: Like, p: float, seed: int, step: int, stream: int = 0) -> Tensor:
    """Zeroes elements with probability p, chosen by (seed, step, stream), and divides the others by 1 - p."""
    return Tensor._result("heed_dropout", _t(x), p, seed, step, stream)


def dropout_add(x: Like, residual: Like, p: float, seed: int, step: int, stream: int = 0) -> Tensor:
    """residual + dropout(x), in one pass."""
    return _op("dropout_add", [_t(x), _t(residual)], p=p, seed=seed, step=step, stream=stream)[0]


def add_layer_norm(
    x: Like, residual: Like, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, p: float = 0.0,
    seed: int = 0, step: int = 0, stream: int = 0, epsilon: float = 1e-5,
) -> Pair:
    """dropout_add(x, residual) and its layer_norm(), in one pass each way."""
    given = dict(p=p, seed=seed, step=step, stream=stream, epsilon=epsilon)
    return cast(Pair, tuple(_op("add_layer_norm", [_t(x), _t(residual), weight, bias], room=2, **given)))


def add_rms_norm(
    x: Like, residual: Like, weight: Optional[Tensor] = None, p: float = 0.0, seed: int = 0, step: int = 0,
    stream: int = 0, epsilon: float = 1e-5,
) -> Pair:
    """dropout_add(x, residual) and its rms_norm(), in one pass each way."""
    given = dict(p=p, seed=seed, step=step, stream=stream, epsilon=epsilon)
    return cast(Pair, tuple(_op("add_rms_norm", [_t(x), _t(residual), weight], room=2, **given)))


def fourier(x: Like, lengths: Optional[Like] = None) -> Tensor:
    """The real part of a discrete Fourier transform over the positions and features of x [B, N, d]; of sample b over its
    first lengths[b] positions, and 0 beyond."""
    return _op("fourier", [_t(x), None if lengths is None else _t(lengths)])[0]


def rotary(x: Like, cosines: Like, sines: Like) -> Tensor:
    """Rotary positions: in every head of x [B, N, H, dh] the elements i and i + dh / 2 at position n are rotated by
    the angle with this cosine and sine, both [N, dh / 2]."""
    return _op("rotary", [_t(x), _t(cosines), _t(sines)])[0]


def mean_squared_error(x: Like, target: Like) -> Tensor:
    """mean((x - target)^2) of two tensors of one shape, as rank 0."""
    return _op("mean_squared_error", list(_alike(x, target)))[0]


def kl_divergence(log_p: Like, log_q: Like) -> Tensor:
    """KL(p || q) per row of log probabilities [..., classes]: [...]."""
    return _op("kl_divergence", list(_alike(log_p, log_q)))[0]


def cross_entropy(logits: Tensor, targets: Like, smoothing: float = 0.0) -> Tensor:
    """Per row of logits [..., classes], with targets i32 [...]; a target of -1 gives 0."""
    return Tensor._result("heed_cross_entropy", logits, _t(targets), smoothing)


def linear_cross_entropy(
    x: Like, weight: Tensor, bias: Optional[Tensor], targets: Like, smoothing: float = 0.0, ignored: int = -1
) -> Tensor:
    """sum(cross_entropy(linear(x, weight, bias), targets)), without ever holding all logits."""
    return _op("linear_cross_entropy", [_t(x), weight, bias, _t(targets)], smoothing=smoothing, ignored=ignored)[0]


# --- attention


def dot_product_attention(
    query: Like, key: Like, value: Like, mask: Optional[Like] = None, causal: bool = False,
    bias: Optional[Like] = None, slopes: Optional[Like] = None,
) -> Tensor:
    """softmax(q k^T / sqrt(dk) + bias) v of [batch, heads, length, width]; mask: 1 = allowed; bias: [1 or batch, 1 or
    heads, length, keys]; slopes: a number per head that each step of distance takes from a product (ALiBi)."""
    options = _maybe(mask), int(causal), _maybe(bias), _maybe(slopes)
    return Tensor._result("heed_biased_attention", _t(query), _t(key), _t(value), *options)


def attention_weights(
    query: Like, key: Like, mask: Optional[Like] = None, causal: bool = False, bias: Optional[Like] = None,
    slopes: Optional[Like] = None, scale: Optional[float] = None,
) -> Tensor:
    """The weights [batch, heads, length, keys] of dot_product_attention() alone, out of single ops."""
    given = [_t(query), _t(key), _maybe(mask), _maybe(bias), _maybe(slopes)]
    return _op("attention_weights", given, causal=causal, scale=scale)[0]


def attention_part(
    query: Like, key: Like, value: Like, mask: Optional[Like] = None, causal: bool = False,
    bias: Optional[Like] = None, slopes: Optional[Like] = None, scale: Optional[float] = None,
) -> Pair:
    """dot_product_attention() over some of the keys, and the log-sum-exp of its logits [batch, heads, length]."""
    given = [_t(query), _t(key), _t(value), _maybe(mask), _maybe(bias), _maybe(slopes)]
    return cast(Pair, tuple(_op("attention_part", given, room=2, causal=causal, scale=scale)))


def join_attention(parts: Sequence[Pair]) -> Tensor:
    """Attention with one softmax over the keys of all parts, from attention_part()."""
    return _op("join_attention", [tensor for part in parts for tensor in part])[0]


# --- new tensors


def _shape(shape: Any) -> Any:
    return (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)


def zeros(shape: Any, dtype: str = "f32", device: Optional[str] = None) -> Tensor:
    """A tensor of zeros; `shape` is a number or a sequence of them."""
    extents = _shape(shape)
    where = lib.encoded(device or "")
    return Tensor._result("heed_tensor_create", _number(dtype), len(extents), lib.longs(extents), None, where)


def ones(shape: Any, dtype: str = "f32", device: Optional[str] = None) -> Tensor:
    """A tensor of ones."""
    return full(shape, 1, dtype, device)


def full(shape: Any, value: float, dtype: str = "f32", device: Optional[str] = None) -> Tensor:
    """A tensor of one value."""
    empty = zeros(shape, dtype, device)
    return empty + empty._operand(value)


def arange(count: int, dtype: str = "i32", device: Optional[str] = None) -> Tensor:
    """0, 1, ..., count - 1."""
    return Tensor(np.arange(count), dtype, device)


def eye(count: int, dtype: str = "f32", device: Optional[str] = None) -> Tensor:
    """The identity matrix [count, count]."""
    return Tensor(np.eye(count), dtype, device)


def permutation(count: int, *, seed: int, step: int = 0, stream: int = 0, device: Optional[str] = None) -> Tensor:
    """0, ..., count - 1 (i32) in a random order, the same on every device."""
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
    shape: Any, low: float = 0.0, high: float = 1.0, *, seed: int, step: int = 0, stream: int = 0, dtype: str = "f32",
    device: Optional[str] = None,
) -> Tensor:
    """Random numbers in [low, high); equal (seed, step, stream) give equal numbers on every device."""
    return _random(b"uniform", low, high, shape, (seed, step, stream), dtype, device)


def normal(
    shape: Any, mean: float = 0.0, deviation: float = 1.0, *, seed: int, step: int = 0, stream: int = 0,
    dtype: str = "f32", device: Optional[str] = None,
) -> Tensor:
    """Normally distributed random numbers, keyed as those of uniform()."""
    return _random(b"normal", mean, deviation, shape, (seed, step, stream), dtype, device)


# --- gradients


def parameter(data: Like, dtype: Optional[str] = None, device: Optional[str] = None) -> Parameter:
    """A tensor whose gradient backward() accumulates; shares the memory of a Tensor, copies everything else."""
    return Parameter(data, dtype, device)


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

    def bridge(_context: Any, handles: Any, count: int, out: Any) -> None:
        found = function(*[Tensor._of(handles[i], owned=False) for i in range(count)])
        if not isinstance(found, Tensor):
            raise TypeError(f"the function must return a heed.Tensor, not {type(found).__name__}")
        out[0] = found._handed_over()

    given = lib.callback(lib.FUNCTION, bridge), None, lib.handles_of(tensors), len(tensors), tolerance
    found = lib.result("heed_gradcheck", *given, kind=lib.GradcheckStruct)
    return GradcheckResult(
        bool(found.passed), found.worst_error, found.worst_input, found.worst_element, found.analytic, found.numeric
    )
