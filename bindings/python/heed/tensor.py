"""Tensors: NumPy in and out, operators, gradients."""

from __future__ import annotations

import builtins
import ctypes
import itertools
from typing import Any, Callable, Iterator, Optional, Sequence, Tuple, Union

import numpy as np

from . import _library as lib

DTYPES = {"f32": 0, "f64": 1, "i32": 2, "f16": 3, "bf16": 4}
_NAMES = {number: name for name, number in DTYPES.items()}
_NUMPY = {"f32": np.float32, "f64": np.float64, "i32": np.int32}
_OF_NUMPY = {np.dtype(kind): name for name, kind in _NUMPY.items()}

Number = Union[int, float]
Like = Union["Tensor", np.ndarray, Number, Sequence[Any]]


def _as_array(data: Any, dtype: Optional[str]) -> np.ndarray:
    """Host values in a type that heed has. By default integers become i32 and lists of numbers f32."""
    array = np.asarray(data)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"heed has no tensors of {array.dtype}")
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
            raise TypeError(f"{array.dtype} values for an i32 tensor: convert them first")
        if array.max() > np.iinfo(np.int32).max or array.min() < np.iinfo(np.int32).min:
            raise OverflowError("a value does not fit i32, heed's only type of integers")
    return np.ascontiguousarray(array, dtype=_NUMPY[dtype]).reshape(array.shape)


def _with_operand(name: str, op: bytes, swapped: bool = False) -> Callable[["Tensor", Like], "Tensor"]:
    def apply(self: "Tensor", other: Like) -> "Tensor":
        try:
            operand = self._operand(other)
        except TypeError:
            return NotImplemented
        return Tensor._result(name, op, *((operand, self) if swapped else (self, operand)))

    return apply


def _operator(op: bytes, swapped: bool = False) -> Callable[["Tensor", Like], "Tensor"]:
    return _with_operand("heed_binary", op, swapped)


def _comparison(op: bytes) -> Callable[["Tensor", Like], "Tensor"]:
    return _with_operand("heed_compare", op)


def _reduction(op: bytes) -> Callable[..., "Tensor"]:
    def reduce(self: "Tensor", axis: Optional[int] = None, keepdims: bool = False) -> "Tensor":
        over = lib.ALL_AXES if axis is None else axis
        return Tensor._result("heed_reduce", op, self, over, int(keepdims))

    return reduce


class Tensor:
    """A tensor of f32, f64 (on the CPU) or i32; a strided view of memory that others may share.

    ``Tensor(data, dtype=None, device=None)`` copies lists, numbers or an array. ``device`` is "cpu", "vulkan",
    "vulkan:N", "vulkan:NAME" or "auto"; None: the environment variable HEED_DEVICE, or the CPU.
    """

    __slots__ = ("_handle", "_owned", "__weakref__")
    __array_ufunc__ = None  # array * tensor calls the tensor's operator
    _handle: Optional[int]

    def __init__(self, data: Like, dtype: Optional[str] = None, device: Optional[str] = None) -> None:
        self._handle = None
        self._owned = True
        array = _as_array(data.numpy() if isinstance(data, Tensor) else data, dtype)
        self._handle = lib.result(
            "heed_tensor_create",
            DTYPES[_OF_NUMPY[array.dtype]],
            array.ndim,
            lib.longs(array.shape),
            array.ctypes.data if array.size else None,
            lib.encoded(device or ""),
        )

    @classmethod
    def _of(cls, handle: Optional[int], owned: bool = True) -> "Tensor":
        made = cls.__new__(cls)
        made._handle = handle
        made._owned = owned
        return made

    @classmethod
    def _result(cls, name: str, *arguments: Any) -> "Tensor":
        """What a function of the library returns."""
        return cls._of(lib.result(name, *arguments))

    @property
    def _as_parameter_(self) -> Optional[int]:  # what ctypes passes
        return self._handle

    def __del__(self, _free: Any = lib.library.heed_tensor_free) -> None:
        if getattr(self, "_owned", False) and self._handle is not None:
            _free(self._handle)
            self._handle = None

    def __reduce__(self) -> Any:
        raise TypeError("a Tensor cannot be pickled or copied: pickle its numpy()")

    # --- what it is

    def _layout(self) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
        shape, strides = (ctypes.c_int64 * lib.MAX_RANK)(), (ctypes.c_int64 * lib.MAX_RANK)()
        rank = ctypes.c_int32()
        lib.call("heed_tensor_shape", self, ctypes.byref(rank), shape, strides)
        return tuple(shape[: rank.value]), tuple(strides[: rank.value])

    @property
    def shape(self) -> Tuple[int, ...]:
        return self._layout()[0]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def dtype(self) -> str:
        """"f32", "f64", "i32", "f16" or "bf16"."""
        return _NAMES[lib.result("heed_tensor_dtype", self, kind=ctypes.c_int32)]

    @property
    def device(self) -> str:
        return lib.result_text("heed_tensor_device", self)

    @property
    def tracked(self) -> bool:
        """Whether it is a parameter or was computed from one."""
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

    def _view(self, writable: bool) -> np.ndarray:
        """The elements in place, on the CPU."""
        shape, strides = self._layout()
        kind = np.dtype(_NUMPY[self.dtype])
        address = lib.result("heed_tensor_data", self)
        if not address or 0 in shape:
            return np.empty(shape, kind)
        return np.asarray(_Elements(self, address, shape, strides, kind, writable))

    def numpy(self, copy: bool = False) -> np.ndarray:
        """The elements as an array: read-only and without a copy on the CPU; f16 and bf16 as float32."""
        if not copy and self.device == "cpu":
            return self._view(writable=False)
        array = np.empty(self.shape, _NUMPY.get(self.dtype, np.float32))
        lib.call("heed_tensor_read", self, array.ctypes.data, array.nbytes)
        return array

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
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
        """For from_dlpack of other libraries, without a copy. Only version 1 can mark the memory read-only."""
        self.__dlpack_device__()
        if max_version is not None and max_version[0] >= 1:
            return self._view(writable=False).__dlpack__(max_version=max_version, **options)
        options = {name: value for name, value in options.items() if value is not None}
        return self._view(writable=True).__dlpack__(**options)

    def item(self) -> float:
        """The only element."""
        return lib.result("heed_tensor_item", self, kind=ctypes.c_double)

    def tolist(self) -> Any:
        return self.numpy().tolist()

    def __float__(self) -> float:
        return self.item()

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return self.item() != 0

    def assign(self, data: Like) -> None:
        """Overwrites the elements in place; the shape stays."""
        array = _as_array(data.numpy() if isinstance(data, Tensor) else data, self.dtype)
        if array.shape != self.shape:
            raise ValueError(f"values of shape {array.shape} for a tensor of shape {self.shape}")
        lib.call("heed_tensor_assign", self, array.ctypes.data, array.nbytes)

    def to(self, where: str) -> "Tensor":
        """Another dtype ("f32", ...), with a gradient, or a copy on another device, without one."""
        if where in DTYPES:
            return Tensor._result("heed_cast", self, DTYPES[where])
        return Tensor._result("heed_tensor_to_device", self, lib.encoded(where))

    # --- gradients

    def backward(self, gradient: Optional["Tensor"] = None) -> None:
        """Adds the derivatives of this number (or of its product with `gradient`) to the parameters' gradients."""
        lib.call("heed_backward", self, gradient)

    @property
    def grad(self) -> Optional["Tensor"]:
        """The gradient that backward() has accumulated in a parameter; None if there is none."""
        handle = lib.result("heed_tensor_gradient", self)
        return None if handle is None else Tensor._of(handle)

    def zero_grad(self) -> None:
        lib.call("heed_tensor_zero_gradient", self)

    def detach(self) -> "Tensor":
        return Tensor._result("heed_tensor_detach", self)

    # --- operators

    def _operand(self, other: Like) -> "Tensor":
        if isinstance(other, Tensor):
            return other
        if isinstance(other, (int, float, np.integer, np.floating)):
            return Tensor._result("heed_scalar_like", self, float(other))
        return Tensor(_as_array(other, self.dtype), device=self.device)

    __add__, __radd__ = _operator(b"add"), _operator(b"add", swapped=True)
    __sub__, __rsub__ = _operator(b"sub"), _operator(b"sub", swapped=True)
    __mul__, __rmul__ = _operator(b"mul"), _operator(b"mul", swapped=True)
    __truediv__, __rtruediv__ = _operator(b"div"), _operator(b"div", swapped=True)
    __rpow__ = _operator(b"pow", swapped=True)

    def __pow__(self, exponent: Like) -> "Tensor":
        if isinstance(exponent, (int, float)):
            return Tensor._result("heed_unary", b"pow_scalar", self, exponent, 0)
        return _operator(b"pow")(self, exponent)

    def __matmul__(self, other: Like) -> "Tensor":
        return Tensor._result("heed_matmul", self, self._operand(other))

    def __rmatmul__(self, other: Like) -> "Tensor":
        return Tensor._result("heed_matmul", self._operand(other), self)

    def __neg__(self) -> "Tensor":
        return Tensor._result("heed_unary", b"neg", self, 0, 0)

    def __abs__(self) -> "Tensor":
        return Tensor._result("heed_unary", b"abs", self, 0, 0)

    __eq__, __ne__ = _comparison(b"equal"), _comparison(b"not_equal")  # type: ignore[assignment]
    __lt__, __le__ = _comparison(b"less"), _comparison(b"less_equal")
    __gt__, __ge__ = _comparison(b"greater"), _comparison(b"greater_equal")
    __hash__ = object.__hash__

    # --- shape

    def reshape(self, *shape: Any) -> "Tensor":
        """One extent may be -1."""
        extents = shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)) else shape
        return Tensor._result("heed_reshape", self, len(extents), lib.longs(extents))

    def permute(self, *order: Any) -> "Tensor":
        axes = order[0] if len(order) == 1 and not isinstance(order[0], (int, np.integer)) else order
        return Tensor._result("heed_permute", self, len(axes), lib.longs(axes))

    def transpose(self, axis_a: int = -1, axis_b: int = -2) -> "Tensor":
        order = list(range(self.ndim))
        order[axis_a], order[axis_b] = order[axis_b], order[axis_a]
        return self.permute(order)

    @property
    def T(self) -> "Tensor":
        return self.permute(list(reversed(range(self.ndim))))

    def __getitem__(self, key: Any) -> "Tensor":
        """Numbers, slices of positive step, None and ... ; for rows by a list of indices use heed.embedding()."""
        keys = list(key) if isinstance(key, tuple) else [key]
        shape = self.shape
        given = builtins.sum(1 for one in keys if one is not None and one is not Ellipsis)
        if given > len(shape):
            raise IndexError(f"{given} indices for a tensor of shape {shape}")
        if not any(one is Ellipsis for one in keys):
            keys.append(Ellipsis)
        found, extents, axis, seen = self, [], 0, False
        for one in keys:
            if one is None:
                extents.append(1)
            elif one is Ellipsis:
                if seen:
                    raise IndexError("an index can have only one '...'")
                seen = True
                rest = len(shape) - given
                extents.extend(shape[axis : axis + rest])
                axis += rest
            elif isinstance(one, slice):
                begin, end, step = one.indices(shape[axis])
                if step < 1:
                    raise IndexError("the step of a slice must be positive")
                end = max(begin, end)
                found = found._slice(axis, begin, end, step)
                extents.append(-(-(end - begin) // step))
                axis += 1
            elif isinstance(one, (int, np.integer)) and not isinstance(one, bool):
                at = int(one) + (shape[axis] if one < 0 else 0)
                if not 0 <= at < shape[axis]:
                    raise IndexError(f"index {one} is out of range for an axis of {shape[axis]}")
                found = found._slice(axis, at, at + 1, 1)
                axis += 1
            else:
                raise TypeError(f"a tensor is indexed by numbers and slices, not by {type(one).__name__}")
        return found.reshape(extents)

    def _slice(self, axis: int, begin: int, end: int, step: int) -> "Tensor":
        return Tensor._result("heed_slice", self, axis, begin, end, step)

    def __iter__(self) -> Iterator["Tensor"]:
        return (self[i] for i in range(len(self)))

    # --- reductions

    sum, mean, argmax = _reduction(b"sum"), _reduction(b"mean"), _reduction(b"argmax")
    max, min = _reduction(b"max"), _reduction(b"min")


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


_lent: dict = {}
_keys = itertools.count(1)  # next() is atomic


@lib.RELEASE
def _release(key: Optional[int]) -> None:
    _lent.pop(key, None)


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor in the memory of an array, without a copy; the array lives as long as anything uses that memory.

    Takes float32, float64 and int32 in row-major order. The tensor sees what is written to the array: do not write
    between a forward pass and its backward pass.
    """
    if array.dtype not in _OF_NUMPY or not array.flags.c_contiguous or not array.flags.aligned:
        raise TypeError("from_numpy() shares float32, float64 and int32 in row-major order; heed.Tensor(array) copies")
    if not array.flags.writeable:
        raise TypeError("from_numpy() shares writable memory, and this array is read-only; heed.Tensor(array) copies")
    key = next(_keys)
    _lent[key] = array
    try:
        kind, extents = DTYPES[_OF_NUMPY[array.dtype]], lib.longs(array.shape)
        return Tensor._result("heed_tensor_borrow", kind, array.ndim, extents, array.ctypes.data, _release, key)
    except BaseException:
        _lent.pop(key, None)
        raise


def from_dlpack(other: Any) -> Tensor:
    """A tensor in the memory of another library's CPU tensor, without a copy if that is row-major and writable."""
    array = np.from_dlpack(other)
    shared = array.flags.c_contiguous and array.flags.writeable
    return from_numpy(array if shared else np.array(array, order="C"))
