"""Functions of tensors, recorded if an operand is a parameter or depends on one. Masks are i32 or bools.

They are made from the library's own list of ops, but for those in _functions.py, to which Python adds something. Type
checkers read ops.pyi, which tests/python/test_types.py holds to this module, and writes with HEED_WRITE_DOCS=1.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from . import _functions, _library as lib
from ._functions import *  # noqa: F401, F403
from .tensor import Axis, Like, Pair, Tensor, _alike, _apply, _axes, _integers, _maybe, _op, _t

_LIST = lib.listing("ops")
_TYPES = {"number": "float", "ints": "Sequence[int]"}
_NUMPYS = {"axes": "axis", "keep_axes": "keepdims"}  # names of settings
_ELEMENTWISE = {
    "unary": ("(x: Like) -> Tensor", "Tensor._result('heed_unary', b'{}', _t(x), 0, 0)", "{}, element by element."),
    "binary": ("(a: Like, b: Like) -> Tensor", "_apply('heed_binary', b'{}', *_alike(a, b))",
               "{}, element by element. Either may be a number or a list."),
    "compare": ("(a: Like, b: Like) -> Tensor", "_apply('heed_compare', b'{}', *_alike(a, b))",
                "{}, element by element: i32 0 or 1, which also picks elements as an index."),
}


def _named(name: str, takes: str) -> Tuple[str, str]:
    """The header and the value of a function that takes "x weight?; axis=-1, rows: int -> values ids"."""
    takes, _, results = takes.partition(" -> ")
    tensors, _, settings = takes.partition(";")
    inputs, given = [], []
    needed: List[Tuple[str, Optional[str]]] = []  # parameters and their defaults
    others: List[Tuple[str, Optional[str]]] = []
    for tensor in tensors.split():
        bare = tensor.rstrip("?")
        inputs.append(f"_t({bare})" if tensor == bare else f"_maybe({bare})")
        needed.append((f"{bare}: Like", None) if tensor == bare else (f"{bare}: Optional[Like]", "None"))
    for setting in settings.split(",") if settings else []:
        declared, _, default = setting.strip().partition("=")
        setting, _, kind = declared.partition(": ")
        own = _NUMPYS.get(setting, setting)
        if setting == "axes":
            value, kind, default = "_axes(axis)", "Axis", "null"
        else:
            kind = _TYPES.get(kind, kind) or type(json.loads(default)).__name__
            value = f"_integers({own})" if kind == "Sequence[int]" else own
        given.append(f", {setting}={value}")
        (others if default else needed).append((f"{own}: {kind}", repr(json.loads(default)) if default else None))
    parameters: List[str] = []
    for parameter, default_value in reversed(needed + others):  # none has a default before one without
        has_default = default_value is not None and all(" = " in one for one in parameters)
        parameters.insert(0, f"{parameter} = {default_value}" if has_default else parameter)
    made = f"_op({name!r}, [{', '.join(inputs)}], {len(results.split()) or 1}{''.join(given)})"
    header = f"({', '.join(parameters)}) -> {'Pair' if results else 'Tensor'}"
    return header, f"tuple({made})" if results else f"{made}[0]"


def _made() -> Iterator[Tuple[str, str, str, str]]:
    """Name, header, value and documentation of each function."""
    does = _LIST["does"]
    for kind, (header, value, doc) in _ELEMENTWISE.items():
        for name in _LIST[kind]:
            if name not in _LIST["parametric"]:
                yield name, header, value.format(name), doc.format(does[name])
    for name, takes in _LIST["named"].items():
        if name in _BY_HAND:
            _BY_HAND[name].__doc__ = _BY_HAND[name].__doc__ or does[name]
        elif "..." not in takes:
            yield (name, *_named(name, takes), does[name])


_BY_HAND = {name: one for name, one in vars(_functions).items()
            if name[0] != "_" and getattr(one, "__module__", "") == _functions.__name__}
_HEADERS: Dict[str, str] = {}  # of the functions that are made
for _name, _header, _value, _doc in list(_made()):
    exec(f"def {_name}{_header}:\n    return {_value}")
    _HEADERS[_name], globals()[_name].__doc__ = _header, _doc
for _name, _named_so in {"var": "variance", "std": "standard_deviation", "cumsum": "cumulative_sum"}.items():
    _HEADERS[_name], globals()[_name] = _HEADERS[_named_so], globals()[_named_so]
__all__ = sorted([*_BY_HAND, *_HEADERS])
