"""The functions and types that heed.h declares, for ctypes."""

from __future__ import annotations

import ctypes
import operator
import pathlib
import re
from typing import Any, Dict, List, Tuple


def shown(value: Any) -> str:
    """Returns a value for a message; its type where it is long."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:
        return f"a {type(value).__name__} of the shape {shape}"
    said = repr(value)
    return said if len(said) <= 60 and "\n" not in said else f"a {type(value).__name__}"


def _checked(kind: Any) -> Any:
    """An integer argument that raises OverflowError where ctypes alone would truncate."""

    class Checked:
        @staticmethod
        def from_param(value: Any) -> Any:
            try:
                made = kind(operator.index(value))
            except TypeError:
                raise TypeError(f"expected an integer, not {shown(value)}") from None
            if made.value != value:
                raise OverflowError(f"{value} does not fit {kind.__name__}")
            return made

    return Checked


class _Handle:
    """An argument that is an object of this package, or None."""

    @staticmethod
    def from_param(value: Any) -> Any:
        if value is not None and not hasattr(value, "_as_parameter_"):
            raise TypeError(f"expected a heed.Tensor or another heed object, not {type(value).__name__}")
        return None if value is None else ctypes.c_void_p(value._as_parameter_)


class _Real:
    """A floating argument: any number."""

    @staticmethod
    def from_param(value: Any) -> Any:
        try:
            return ctypes.c_double(value)
        except TypeError:
            raise TypeError(f"expected a number, not {shown(value)}") from None


STOP, RELEASE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p), ctypes.CFUNCTYPE(None, ctypes.c_void_p)
#: Types by name: structs, and functions of the caller's.
TYPES: Dict[str, Any] = {"int32_t_of_context": STOP, "void_of_context": RELEASE}
_PLAIN: Dict[str, Any] = {
    "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t, "double": ctypes.c_double, "void": None,
    "heed_status": ctypes.c_int32, "heed_dtype": ctypes.c_int32,
}
_CHECKED: Dict[str, Any] = {name: _checked(kind) for name, kind in _PLAIN.items() if kind}
_CHECKED.update(double=_Real, size_t=ctypes.c_size_t)  # sizes are lengths of what the package made


def _type(declared: str, is_argument: bool) -> Any:
    """The type of "const heed_tensor* x". An argument of a function of the library is checked."""
    base, stars = declared.replace("const ", "").split("*")[0].split()[0], declared.count("*")
    if base in TYPES:
        return ctypes.POINTER(TYPES[base]) if stars else TYPES[base]
    if not stars:
        return (_CHECKED if is_argument else _PLAIN)[base]
    if "* const*" in declared or stars == 2 and not is_argument:
        return ctypes.POINTER(ctypes.c_char_p if base == "char" else ctypes.c_void_p)
    if stars == 1 and is_argument and base.startswith("heed_") and base not in _PLAIN:
        return _Handle
    if stars == 1 and base == "char" and "const" in declared:
        return ctypes.c_char_p
    return ctypes.POINTER(ctypes.c_int64) if base == "int64_t" else ctypes.c_void_p


def _types(declared: str, is_argument: bool = False) -> List[Any]:
    parts = [] if declared == "void" else declared.split(",")
    return [_type(part.strip(), is_argument) for part in parts]


def _read() -> Tuple[Dict[str, int], Dict[str, Tuple[Any, List[Any]]]]:
    """Fills TYPES. Returns the numbers of the header, and the result and arguments of each function."""
    here = pathlib.Path(__file__).parent
    paths = here / "heed.h", here.parents[1] / "c/heed.h"  # of a wheel, and of the source tree
    text = next((path for path in paths if path.exists()), paths[0]).read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
    text = re.sub(r"(\w+) \(\*\w+\)\(void\* context\)", r"\1_of_context call", text)
    text = re.sub(r"char\* (\w+), size_t", r"void* \1, size_t", text)  # bytes, of which one may be 0
    for back, name, arguments in re.findall(r"typedef (\w+) \(\*(\w+)\)\(([^)]*)\);", text):
        TYPES[name] = ctypes.CFUNCTYPE(_PLAIN[back], *_types(arguments))
    for members, name in re.findall(r"typedef struct \w+ \{([^}]*)\} (\w+);", text):
        fields = [(word.split()[-1].strip("*"), _type(member.strip(), False))
                  for member in members.split(";")[:-1] for word in member.split(",")]
        TYPES[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    functions = {}
    for back, name, arguments in re.findall(r"(?m)^([\w ]+\*?) (heed_\w+)\(([^)]*)\);", text):
        frees = back == "void"  # handles are numbers there
        kind = ctypes.c_char_p if "*" in back else _PLAIN[back]
        functions[name] = kind, _types(arguments, is_argument=not frees)
    return {name: int(value) for name, value in re.findall(r"(HEED_\w+)(?: =)? (\d+)", text)}, functions


NUMBERS, FUNCTIONS = _read()
