"""Tensors: NumPy in and out, operators, gradients."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import functools
import itertools
import json
import operator
import re
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Type, TypeVar, Union

import numpy as np

from . import _library as lib

DTYPES = {"f32": 0, "f64": 1, "i32": 2, "f16": 3, "bf16": 4}
_NAMES = {number: name for name, number in DTYPES.items()}
_NUMPY = {"f32": np.float32, "f64": np.float64, "i32": np.int32}
_OF_NUMPY = {np.dtype(kind): name for name, kind in _NUMPY.items()}

Number = Union[int, float]
Array = np.ndarray[Any, Any]
Like = Union["Tensor", Array, Number, Sequence[Any]]
Axis = Union[None, int, Sequence[int]]
Pair = Tuple["Tensor", "Tensor"]
OPS = lib.listing("ops")
_Extents = ctypes.c_int64 * lib.NUMBERS["HEED_MAX_RANK"]


def _as_array(data: Any, dtype: Optional[str]) -> Array:
    """Converts host values to a dtype of heed; by default integers become i32 and lists of numbers f32."""
    data = data.numpy() if isinstance(data, Tensor) else data
    array = np.asarray(data)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"a tensor holds numbers, not {lib.shown(data)}, of NumPy's type {array.dtype}")
    if dtype is None:
        native = array.dtype.newbyteorder("=")
        if native in _OF_NUMPY and isinstance(data, (np.ndarray, np.generic)):
            dtype = _OF_NUMPY[native]
        elif array.dtype.kind in "biu":
            dtype = "i32"
        else:
            dtype = "f32"
    if dtype not in _NUMPY:
        raise TypeError(f"unknown dtype {dtype!r}: f32, f64 or i32 from the host")
    if dtype == "i32" and array.size and array.dtype != np.int32:
        if array.dtype.kind not in "biu":
            raise TypeError(f"{array.dtype} values for an i32 tensor: convert one of them, x.to(\"f32\") or values.astype(int)")
        if array.max() > np.iinfo(np.int32).max or array.min() < np.iinfo(np.int32).min:
            raise OverflowError("a value does not fit i32, heed's only type of integers")
    return np.ascontiguousarray(array, dtype=_NUMPY[dtype]).reshape(array.shape)


def _op(name: str, inputs: Sequence[Optional[Like]], room: int = 1, **settings: Any) -> List["Tensor"]:
    """Applies the library's op of this name; it returns at most `room` tensors."""
    try:
        given = _settings_of_op(name, **settings) if settings else None
    except TypeError:  # of what cannot be hashed, or is wrong
        given = _settings_of_op.__wrapped__(name, **settings)
    outputs, tensors = (ctypes.c_void_p * room)(), _together(*inputs)
    lib.call("heed_op", name.encode(), lib.handles_of(tensors), len(tensors), given, outputs, room, None)
    return [Tensor._of(handle) for handle in outputs if handle]


@functools.lru_cache(maxsize=1024, typed=True)
def _settings_of_op(name: str, **settings: Any) -> Optional[bytes]:
    """Encodes the settings that do not have their default."""
    if "value" in settings:  # fills elements, so that it may be a number that JSON does not have
        try:
            settings["value"] = lib.number_of(settings["value"], f"{name}: value")
        except lib.SettingsError:
            settings["value"] = str(float(settings["value"]))
    for setting, default in re.findall(r"(\w+)=([^,]+?)(?=,| ->|$)", OPS["named"].get(name, "")):
        value = json.loads(default)
        if type(settings.get(setting)) is type(value) and settings[setting] == value:
            del settings[setting]
    return lib.settings_json(settings)


def _apply(name: str, op: bytes, a: "Tensor", b: "Tensor") -> "Tensor":
    found = Tensor._result(name, op, a, b)
    found._is_mask = name == "heed_compare"
    return found


def _operator(op: str, swapped: bool = False, name: str = "heed_binary") -> Callable[["Tensor", Like], "Tensor"]:
    def apply(self: "Tensor", other: Like) -> "Tensor":
        if not isinstance(other, (Tensor, int, float, np.ndarray)) and np.asarray(other).dtype.kind not in "biuf":
            return NotImplemented  # type: ignore[no-any-return]
        operand = self._operand(other)
        return _apply(name, op.encode(), *((operand, self) if swapped else (self, operand)))

    return apply


def _comparison(op: str) -> Callable[["Tensor", Like], "Tensor"]:
    return _operator(op, name="heed_compare")


_Any = TypeVar("_Any", bound=Callable[..., Any])


def _with_dim(function: _Any) -> _Any:
    """Returns a function of `axis` and perhaps `keepdims` that also takes them as `dim` and `keepdim`."""

    @functools.wraps(function)
    def call(*arguments: Any, **settings: Any) -> Any:
        for other, own in (("dim", "axis"), ("keepdim", "keepdims")):
            if other in settings:
                settings[own] = lib.one_of(own, settings.get(own), other, settings.pop(other))
        return function(*arguments, **settings)

    return call  # type: ignore[return-value]


def _reduction(op: str, what: str) -> Callable[..., "Tensor"]:
    def reduce(self: "Tensor", axis: Axis = None, keepdims: bool = False) -> "Tensor":
        if op in OPS["reduce"] and (axis is None and not keepdims or isinstance(axis, (int, np.integer))):
            over = lib.ALL_AXES if axis is None else axis
            return Tensor._result("heed_reduce", op.encode(), self, over, int(keepdims))
        return _op(op, [self], axes=_axes(axis), keep_axes=keepdims)[0]

    reduce.__name__ = op
    reduce.__doc__ = f"Returns {what} over one axis, several or all."
    return _with_dim(reduce)


def _integer(number: int, what: str) -> int:
    try:
        return operator.index(number)
    except TypeError:
        raise TypeError(f"{what}: expected an integer, not {lib.shown(number)}") from None


def _integers(numbers: Sequence[int]) -> Tuple[int, ...]:
    return tuple(operator.index(number) for number in numbers)


def _axes(axis: Axis) -> Optional[Tuple[int, ...]]:
    """Converts axes to the library's form; None means all."""
    return None if axis is None else _integers([axis] if isinstance(axis, (int, np.integer)) else axis)


def _t(x: Like) -> "Tensor":
    return x if isinstance(x, Tensor) else Tensor(x)


def _together(*inputs: Optional[Like]) -> List[Optional["Tensor"]]:
    """Converts the inputs of an op to tensors; None stays.

    Host values go to the device of the first tensor. Floats, which NumPy has in float64 by default, take the dtype of
    the first floating tensor, as they do beside an operator.
    """
    tensors = [x for x in inputs if isinstance(x, Tensor)]
    if len(tensors) == len(inputs):
        return tensors  # type: ignore[return-value]
    dtype = next((x.dtype for x in tensors if x.dtype in ("f32", "f64")), None)
    device = tensors[0].device if tensors else None

    def made(x: Any) -> Optional["Tensor"]:
        if x is None or hasattr(x, "_as_parameter_"):
            return x  # type: ignore[no-any-return]
        is_floating = dtype is not None and np.asarray(x).dtype.kind == "f"
        return Tensor(x, dtype if is_floating else None, device)

    return [made(x) for x in inputs]


def _handed_over(found: Any, function: str = "the function") -> Any:
    """Returns a new handle of a tensor, which the library frees."""
    if not isinstance(found, Tensor):
        raise TypeError(f"{function} must return a heed.Tensor, not {type(found).__name__}")
    return lib.result("heed_permute", found, found.ndim, lib.longs(range(found.ndim)))


def _alike(a: Like, b: Like) -> Pair:
    """Converts two operands to tensors; a non-tensor takes the dtype and device of the other."""
    first = a if isinstance(a, Tensor) else (b._operand(a) if isinstance(b, Tensor) else Tensor(a))
    return first, first._operand(b)


class Tensor:
    """A tensor: a strided view of memory that other tensors may share.

    The data, a number, list or array, is copied. Arrays of float32, float64 and int32 keep their dtype; otherwise
    integers become i32 and floats f32. ``device`` is "cpu", "vulkan", "vulkan:N", "vulkan:NAME" or "auto"; None means
    the environment variable HEED_DEVICE or, if it is not set, the CPU.
    """

    __slots__ = ("_handle", "_owned", "_is_mask", "_copied_by", "__weakref__")
    __array_ufunc__ = None  # array * tensor calls the tensor's operator
    _handle: Optional[int]
    _owned: bool
    _is_mask: bool  # whether it picks elements as an index, not by their numbers
    _copied_by: str  # what copied the elements of another tensor, of which this one might be taken for a view

    def __init__(self, data: Like, dtype: Optional[str] = None, device: Optional[str] = None) -> None:
        self._handle = None
        self._owned = True
        self._copied_by = ""
        self._is_mask = data._is_mask if isinstance(data, Tensor) else _is_bool(data)
        array = _as_array(data, dtype)
        self._handle = lib.result(
            "heed_tensor_create",
            DTYPES[_OF_NUMPY[array.dtype]],
            array.ndim,
            lib.longs(array.shape),
            array.ctypes.data if array.size else None,
            lib.encoded(device or ""),
        )

    @classmethod
    def _of(cls: Type[AnyTensor], handle: Optional[int], owned: bool = True) -> AnyTensor:
        made = cls.__new__(cls)
        made._handle = handle
        made._owned = owned
        made._is_mask = False
        made._copied_by = ""
        return made

    @classmethod
    def _result(cls: Type[AnyTensor], name: str, *arguments: Any) -> AnyTensor:
        """Wraps the tensor that a library function returns."""
        return cls._of(lib.result(name, *arguments))

    @property
    def _as_parameter_(self) -> Optional[int]:  # what ctypes passes
        return self._handle

    def __del__(self, _free: Any = lib.freeing("heed_tensor_free")) -> None:
        if getattr(self, "_owned", False) and self._handle is not None:
            _free(self._handle)
            self._handle = None

    def __reduce__(self) -> Any:
        raise TypeError("a Tensor cannot be pickled, or copied without its elements: pickle its numpy(), or take copy.deepcopy()")

    def __deepcopy__(self, memo: Any) -> "Tensor":
        """Copies the elements of an untracked tensor."""
        if self.tracked:
            raise TypeError("a Tensor that was computed from parameters cannot be copied: copy its detach()")
        copied = Tensor(self).to(self.device)
        return copied if copied.dtype == self.dtype else copied.to(self.dtype)

    # --- what it is

    def _layout(self) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
        shape, strides, rank = _Extents(), _Extents(), ctypes.c_int32()
        lib.call("heed_tensor_shape", self, ctypes.byref(rank), shape, strides)
        return tuple(shape[: rank.value]), tuple(strides[: rank.value])

    @property
    def shape(self) -> Tuple[int, ...]:
        """The size of each axis."""
        return self._layout()[0]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def dtype(self) -> str:
        """The dtype: "f32", "f64" (CPU only), "i32", "f16" or "bf16" (GPU only)."""
        return _NAMES[lib.result("heed_tensor_dtype", self, kind=ctypes.c_int32)]

    @property
    def device(self) -> str:
        """The device: "cpu" or "vulkan:N"."""
        return lib.result_text("heed_tensor_device", self)

    @property
    def tracked(self) -> bool:
        """Whether gradients flow to this tensor: it is a parameter or was computed from one."""
        return bool(lib.result("heed_tensor_is_tracked", self, kind=ctypes.c_int32))

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError("a tensor of rank 0 has no length")
        return shape[0]

    def __repr__(self) -> str:
        text = np.array2string(self.numpy(), separator=", ", prefix="Tensor(", threshold=100, precision=4)
        notes = [self.dtype] + ([self.device] if self.device != "cpu" else []) + (["tracked"] if self.tracked else [])
        return f"Tensor({text}, {', '.join(notes)})"

    # --- to NumPy and other libraries

    def _view(self, writable: bool) -> Array:
        """Returns an array that shares the elements, on the CPU."""
        shape, strides = self._layout()
        kind = np.dtype(_NUMPY[self.dtype])
        address = lib.result("heed_tensor_data", self)
        if not address or 0 in shape:
            return np.empty(shape, kind)
        keeper = self if self._owned else self.detach()  # a borrowed handle ends before the array may
        return np.asarray(_Elements(keeper, address, shape, strides, kind, writable))

    def numpy(self, copy: bool = False) -> Array:
        """Returns the elements as an array. On the CPU it shares memory and is read-only unless ``copy``; f16 and bf16
        become float32.
        """
        if not copy and self.device == "cpu":
            return self._view(writable=False)
        array = np.empty(self.shape, _NUMPY.get(self.dtype, np.float32))
        lib.call("heed_tensor_read", self, array.ctypes.data, array.nbytes)
        return array

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Array:
        converts = dtype is not None and np.dtype(dtype) != _NUMPY.get(self.dtype, np.float32)
        if copy is False and (converts or self.device != "cpu"):
            raise ValueError(f"a {self.dtype} tensor on {self.device} cannot become this array without a copy")
        array = self.numpy(copy=bool(copy))
        return array.astype(dtype) if converts else array

    def __dlpack_device__(self) -> Tuple[int, int]:
        if self.device != "cpu":
            raise BufferError(f"memory of {self.device} cannot be shared: copy it to the CPU with to('cpu')")
        return (1, 0)

    def __dlpack__(self, *, max_version: Optional[Tuple[int, int]] = None, **options: Any) -> Any:
        """Exports the tensor to from_dlpack() of other libraries without a copy; only version 1 is read-only."""
        self.__dlpack_device__()
        if max_version is not None and max_version[0] >= 1:
            return self._view(writable=False).__dlpack__(max_version=max_version, **options)
        options = {name: value for name, value in options.items() if value is not None}
        return self._view(writable=True).__dlpack__(**options)

    def item(self) -> float:
        """Returns the only element as a float."""
        return float(lib.result("heed_tensor_item", self, kind=ctypes.c_double))

    def tolist(self) -> Any:
        """Returns the elements as nested lists."""
        return self.numpy().tolist()

    def __float__(self) -> float:
        return self.item()

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return self.item() != 0

    def __array_function__(self, function: Any, _types: Any, arguments: Any, keywords: Any) -> Any:
        """NumPy's functions see the array that the tensor holds."""
        return function(*_in_numpy(arguments), **{name: _in_numpy(value) for name, value in keywords.items()})

    def assign(self, data: Like) -> None:
        """Overwrites the elements in place, also those of a view such as x[:, 1]. The shape must match.

        Raises heed.Error for a copy, such as x[[0, 2]], since the tensor that it is a copy of would stay.
        """
        if self._copied_by:
            raise lib.Error(f"assign: {self._copied_by} made a copy, and the tensor that it was made from would stay as it"
                            " is: assign to that one, or to a copy of your own, heed.Tensor(x)")
        array = _as_array(data, self.dtype)
        if array.shape != self.shape:
            raise ValueError(f"values of shape {array.shape} for a tensor of shape {self.shape}")
        lib.call("heed_tensor_assign", self, array.ctypes.data, array.nbytes)

    def to(self, where: str) -> "Tensor":
        """Returns the tensor in another dtype ("f32", ...) or on another device ("cpu", "vulkan", ...), differentiably.

        The result for a parameter is not a parameter; Module.to() moves parameters in place. Raises heed.Error for
        an unavailable device, for f64 on a GPU, and for f16 and bf16 on the CPU.
        """
        if where in DTYPES:
            return Tensor._result("heed_cast", self, DTYPES[where])
        moved = Tensor._result("heed_tensor_to_device", self, lib.encoded(where, "where"))
        moved._is_mask = self._is_mask
        return moved

    # --- gradients

    def backward(self, gradient: Optional["Tensor"] = None) -> None:
        """Adds the derivatives of this scalar, or of its product with ``gradient``, to the parameters' gradients."""
        lib.call("heed_backward", self, gradient)

    @property
    def grad(self) -> Optional["Tensor"]:
        """The gradient accumulated in a parameter, or None."""
        handle = lib.result("heed_tensor_gradient", self)
        return None if handle is None else Tensor._of(handle)

    def zero_grad(self) -> None:
        """Clears the gradient of this parameter."""
        lib.call("heed_tensor_zero_gradient", self)

    def detach(self) -> "Tensor":
        """Returns the same elements, untracked."""
        return Tensor._result("heed_tensor_detach", self)

    # --- operators

    def _operand(self, other: Like) -> "Tensor":
        if isinstance(other, Tensor):
            return other
        if isinstance(other, (int, float, np.integer, np.floating)):
            return Tensor._result("heed_scalar_like", self, float(other))
        return Tensor(other, self.dtype if self.dtype in _NUMPY else "f32", self.device)

    __add__, __radd__ = _operator("add"), _operator("add", swapped=True)
    __sub__, __rsub__ = _operator("sub"), _operator("sub", swapped=True)
    __mul__, __rmul__ = _operator("mul"), _operator("mul", swapped=True)
    __truediv__, __rtruediv__ = _operator("div"), _operator("div", swapped=True)
    __rpow__ = _operator("pow", swapped=True)

    def __pow__(self, exponent: Like) -> "Tensor":
        if isinstance(exponent, (int, float)):
            return Tensor._result("heed_unary", b"pow_scalar", self, exponent, 0)
        return _operator("pow")(self, exponent)

    def __matmul__(self, other: Like) -> "Tensor":
        return Tensor._result("heed_matmul", self, self._operand(other))

    def __rmatmul__(self, other: Like) -> "Tensor":
        return Tensor._result("heed_matmul", self._operand(other), self)

    def __neg__(self) -> "Tensor":
        return Tensor._result("heed_unary", b"neg", self, 0, 0)

    def __abs__(self) -> "Tensor":
        return Tensor._result("heed_unary", b"abs", self, 0, 0)

    __eq__, __ne__ = _comparison("equal"), _comparison("not_equal")  # type: ignore[assignment]
    __lt__, __le__ = _comparison("less"), _comparison("less_equal")
    __gt__, __ge__ = _comparison("greater"), _comparison("greater_equal")
    __hash__ = object.__hash__

    # --- shape

    def reshape(self, *shape: Any) -> "Tensor":
        """Returns the elements with another shape; one size may be -1."""
        extents = shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)) else shape
        made = Tensor._result("heed_reshape", self, len(extents), lib.longs(extents))
        before, strides = self._layout()
        made._copied_by = self._copied_by
        if not _is_contiguous(before, strides) and [n for n in before if n != 1] != [n for n in made.shape if n != 1]:
            made._copied_by = "reshape() of elements that are not in order"
        return made

    view = reshape

    def permute(self, *order: Any) -> "Tensor":
        """Returns a view whose axis i is axis order[i]."""
        axes = order[0] if len(order) == 1 and not isinstance(order[0], (int, np.integer)) else order
        made = Tensor._result("heed_permute", self, len(axes), lib.longs(axes))
        made._copied_by = self._copied_by
        return made

    def transpose(self, axis_a: int = -1, axis_b: int = -2) -> "Tensor":
        """Returns a view with two axes swapped."""
        order = list(range(self.ndim))
        order[axis_a], order[axis_b] = order[axis_b], order[axis_a]
        return self.permute(order)

    def squeeze(self, axis: Axis = None) -> "Tensor":
        """Returns the tensor without these axes of size 1; None removes all of them."""
        shape = self.shape
        axes = _axes(axis) if axis is not None else [i for i, extent in enumerate(shape) if extent == 1]
        for squeezed in axes or []:
            if not -len(shape) <= squeezed < len(shape) or shape[squeezed] != 1:
                raise IndexError(f"squeeze: axis {squeezed} of shape {shape} does not have extent 1")
        gone = {squeezed % len(shape) for squeezed in axes or []}
        return self.reshape([extent for i, extent in enumerate(shape) if i not in gone])

    def unsqueeze(self, axis: int) -> "Tensor":
        """Returns the tensor with a new axis of size 1 at this position."""
        rank = self.ndim + 1
        if not -rank <= axis < rank:
            raise IndexError(f"unsqueeze: axis {axis} is out of range for a result of {rank} axes")
        at = axis % rank
        return self.reshape(self.shape[:at] + (1,) + self.shape[at:])

    def flatten(self) -> "Tensor":
        """Returns all elements along one axis."""
        return self.reshape(-1)

    @property
    def T(self) -> "Tensor":
        """A view with the axes in reverse order."""
        return self.permute(list(reversed(range(self.ndim))))

    def __getitem__(self, key: Any) -> "Tensor":
        """Returns the selected elements, differentiably.

        Indices are those of NumPy: numbers, slices with a positive step, None, ..., and lists of indices or masks.
        Several lists must be adjacent and broadcast together: x[rows, columns] selects single elements. Masks are
        bool arrays and results of comparisons, such as x[x > 0]; other i32 tensors are indices.
        """
        shape = self.shape
        found, extents, axis = self, [], 0
        lists: List[Array] = []  # of indices
        first = place = 0  # the axis of the first of them, and where it is in the result
        for part in _each_key(key, shape):
            if part is None:
                extents.append(1)
            elif isinstance(part, slice):
                begin, end, step = part.indices(shape[axis])
                if step < 1:
                    raise IndexError("the step of a slice must be positive")
                end = max(begin, end)
                if (begin, end, step) != (0, shape[axis], 1):
                    found = found._slice(axis, begin, end, step)
                extents.append(-(-(end - begin) // step))
                axis += 1
            elif isinstance(part, tuple):
                if lists and (axis != first + len(lists) or place != len(extents)):
                    raise IndexError("lists of indices must follow each other: index twice, x[...][...]")
                if not lists:
                    first, place = axis, len(extents)
                for indices, extent in part:
                    if extent not in (None, shape[axis]):
                        raise IndexError(f"a mask of extent {extent} for an axis of {shape[axis]}")
                    lists.append(_in_range(indices, shape[axis]))
                    axis += 1
            elif isinstance(part, (int, np.integer)) and not isinstance(part, bool):
                at = int(part) + (shape[axis] if part < 0 else 0)
                if not 0 <= at < shape[axis]:
                    raise IndexError(f"index {part} is out of range for an axis of {shape[axis]}")
                found = found._slice(axis, at, at + 1, 1)
                axis += 1
            else:
                raise TypeError(f"a tensor is indexed by numbers, slices, lists and masks, not by {type(part).__name__}")
        if not lists:
            return found.reshape(extents)
        merged = found.shape[first : first + len(lists)]
        ids = np.zeros((), np.int64)
        for indices, extent in zip(lists, merged):
            ids = ids * extent + indices
        before, after = found.shape[:first], found.shape[first + len(lists) :]
        rows = found.reshape(before + (int(np.prod(merged)),) + after)
        picked = _op("index_select", [rows, Tensor(ids.reshape(-1), device=self.device)], axis=first)[0]
        picked = picked.reshape(extents[:place] + list(ids.shape) + extents[place:])
        picked._copied_by = "indexing by a list or mask"
        return picked

    def _slice(self, axis: int, begin: int, end: int, step: int) -> "Tensor":
        made = Tensor._result("heed_slice", self, axis, begin, end, step)
        made._copied_by = self._copied_by
        return made

    def __iter__(self) -> Iterator["Tensor"]:
        return (self[i] for i in range(len(self)))

    if TYPE_CHECKING:  # the methods that ops.py adds: its functions of x
        def __getattr__(self, name: str) -> Callable[..., Any]: ...

    # --- reductions

    sum, mean, prod = _reduction("sum", "the sum"), _reduction("mean", "the mean"), _reduction("prod", "the product")
    max, min = _reduction("max", "the largest element"), _reduction("min", "the smallest element")
    norm = _reduction("norm", "sqrt(sum(x^2))")

    def argmax(self, axis: Optional[int] = None, keepdims: bool = False) -> "Tensor":
        """Returns the index (i32) of the first largest element along an axis, or of all elements in row-major order."""
        over = lib.ALL_AXES if axis is None else axis
        return Tensor._result("heed_reduce", b"argmax", self, over, int(keepdims))

    def var(self, axis: Axis = None, keepdims: bool = False, correction: int = 0) -> "Tensor":
        """Returns the mean squared deviation. With ``correction`` 1, the sum is divided by n - 1 (unbiased)."""
        return _op("variance", [self], axes=_axes(axis), keep_axes=keepdims, correction=correction)[0]

    def cumsum(self, axis: int = -1, reverse: bool = False) -> "Tensor":
        """Returns the running sum along an axis, from its end if ``reverse``."""
        return _op("cumulative_sum", [self], axis=axis, reverse=reverse)[0]


for _name in ("squeeze", "unsqueeze", "argmax", "var", "cumsum"):
    setattr(Tensor, _name, _with_dim(getattr(Tensor, _name)))
AnyTensor = TypeVar("AnyTensor", bound=Tensor)


class Parameter(Tensor):
    """A leaf that accumulates gradients in backward(). It shares the memory of a Tensor and copies other data."""

    __slots__ = ("_no_map",)  # whether muon leaves it to adamw

    def __init__(self, data: Like, dtype: Optional[str] = None, device: Optional[str] = None) -> None:
        self._handle, self._owned, self._is_mask, self._copied_by = None, True, False, ""
        tensor = data if isinstance(data, Tensor) else Tensor(data, dtype, device)
        self._handle = lib.result("heed_tensor_parameter", tensor)

    def exclude_from_muon(self) -> None:
        """Tells that this matrix is no map between layers, such as a table of vectors: muon leaves it to adamw."""
        lib.call("heed_tensor_set_hidden_map", self, 0)
        self._no_map = True

    def __deepcopy__(self, memo: Any) -> "Parameter":
        """Returns a parameter with the same elements, without their gradient."""
        copied = Parameter(self.detach().__deepcopy__(memo))
        if getattr(self, "_no_map", False):
            copied.exclude_from_muon()
        return copied


def _is_contiguous(shape: Tuple[int, ...], strides: Tuple[int, ...]) -> bool:
    """Whether the elements are in row-major order without gaps, as the library asks."""
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != step:
            return 0 in shape
        step *= extent
    return True


def _in_numpy(value: Any) -> Any:
    """Replaces the tensors in arguments by arrays."""
    if isinstance(value, (list, tuple)):
        return [_in_numpy(element) for element in value] if isinstance(value, list) else tuple(map(_in_numpy, value))
    return value.numpy() if isinstance(value, Tensor) else value


def _is_bool(data: Any) -> bool:
    return getattr(data, "dtype", None) == np.bool_ or isinstance(data, list) and np.asarray(data).dtype == np.bool_


def _each_key(key: Any, shape: Tuple[int, ...]) -> List[Any]:
    """Converts an index to a list of numbers, slices, lists (from _picks()) and None; expands "..."."""
    keys = list(key) if isinstance(key, tuple) else [key]
    keys = [_picks(part) if isinstance(part, (list, np.ndarray, Tensor)) else part for part in keys]
    given = builtins.sum(len(part) if isinstance(part, tuple) else part is not None and part is not ... for part in keys)
    if given > len(shape):
        raise IndexError(f"{given} indices for a tensor of shape {shape}")
    dots = [at for at, part in enumerate(keys) if part is ...] or [len(keys)]
    if len(dots) > 1:
        raise IndexError("an index can have only one '...'")
    keys[dots[0] : dots[0] + 1] = [slice(None)] * (len(shape) - given)
    return keys


def _picks(key: Any) -> Tuple[Tuple[Array, Optional[int]], ...]:
    """Converts a list of indices, or a mask (one list for each of its axes, with its size)."""
    is_mask = key._is_mask if isinstance(key, Tensor) else _is_bool(key)
    array = key.numpy() if isinstance(key, Tensor) else np.asarray(key)
    if is_mask:
        return tuple(zip(np.nonzero(array), array.shape))
    if array.size == 0 and not isinstance(key, Tensor):
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"a tensor is indexed by integers or bools, not by {array.dtype}")
    return ((array, None),)


def _in_range(indices: Array, extent: int) -> Array:
    """Returns indices counted from the beginning of the axis."""
    if indices.size and not (-extent <= indices.min() and indices.max() < extent):
        raise IndexError(f"an index from {indices.min()} to {indices.max()} is out of range for an axis of {extent}")
    return np.where(indices < 0, indices + extent, indices)


class _Elements:
    """Keeps a tensor alive while an array uses its memory."""

    def __init__(self, tensor: Tensor, address: int, shape: Any, strides: Any, kind: np.dtype, writable: bool):
        self.tensor = tensor
        self.__array_interface__ = {
            "data": (address, not writable),
            "shape": shape,
            "strides": tuple(stride * kind.itemsize for stride in strides),
            "typestr": kind.str,
            "version": 3,
        }


_lent: Dict[int, Any] = {}
_keys = itertools.count(1)  # next() is atomic


def _forget(key: int) -> None:
    _lent.pop(key, None)


_release = lib.RELEASE(_forget)


@contextlib.contextmanager
def _lend(value: Any) -> Iterator[int]:
    """Keeps an object alive under a key until the library calls _release(), or the call inside fails."""
    key = next(_keys)
    _lent[key] = value
    try:
        yield key
    except BaseException:
        _forget(key)
        raise


def from_numpy(array: Array) -> Tensor:
    """Returns a tensor that shares an array's memory and keeps the array alive.

    The array must be writable float32, float64 or int32 in row-major order; otherwise it raises TypeError. The
    tensor sees later writes to the array, so do not write between a forward pass and its backward pass.
    """
    if not isinstance(array, np.ndarray) or array.dtype not in _OF_NUMPY or not array.flags.c_contiguous or not array.flags.aligned:
        raise TypeError("from_numpy() shares float32, float64 and int32 in row-major order; heed.Tensor(array) copies")
    if not array.flags.writeable:
        raise TypeError("from_numpy() shares writable memory, and this array is read-only; heed.Tensor(array) copies")
    kind, extents = DTYPES[_OF_NUMPY[array.dtype]], lib.longs(array.shape)
    with _lend(array) as key:
        return Tensor._result("heed_tensor_borrow", kind, array.ndim, extents, array.ctypes.data, _release, key)


def from_dlpack(other: Any) -> Tensor:
    """Returns a tensor that shares the memory of another library's CPU tensor. It copies unless that is row-major and
    writable.
    """
    array = np.from_dlpack(other)
    shared = array.flags.c_contiguous and array.flags.writeable
    return from_numpy(array if shared else np.array(array, order="C"))
