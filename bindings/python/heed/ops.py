"""Functions of tensors, recorded if an operand is tracked. Masks are i32 or bool.

They are generated from the library's list of ops, except those in _functions.py. Type checkers read ops.pyi, which
tests/python/test_types.py compares with this module, and writes with HEED_WRITE_DOCS=1.
"""

from __future__ import annotations

import inspect
import json
import re
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from . import _functions
from ._functions import *  # noqa: F401, F403
from .tensor import OPS, Axis, Like, Pair, Tensor, _alike, _apply, _axes, _integer, _integers, _op, _t, _with_dim

_TYPES = {"number": "float", "ints": "Sequence[int]"}
_ALIKE = ("kl_divergence", "mean_squared_error", "where")  # a number or list takes the dtype of the other operand
_NUMPYS = {"axes": "axis", "keep_axes": "keepdims"}  # names of settings
_ELEMENTWISE = {
    "unary": ("(x: Like) -> Tensor", "Tensor._result('heed_unary', b'{}', _t(x), 0, 0)", "Returns {}, element-wise."),
    "binary": ("(a: Like, b: Like) -> Tensor", "_apply('heed_binary', b'{}', *_alike(a, b))", "Returns {}, element-wise."),
    "compare": ("(a: Like, b: Like) -> Tensor", "_apply('heed_compare', b'{}', *_alike(a, b))",
                "Returns the mask {}, element-wise."),
}

_IN_WORDS = {  # instead of the library's formulas
    "binary_cross_entropy_with_logits": "log(1 + e^a) - a b, the loss of logits a and targets b from 0 to 1",
    "ceil": "the smallest integer not below x",
    "expm1": "e^x - 1, accurate near 0",
    "geglu": "gelu(a) b",
    "gelu": "0.5 x (1 + erf(x / sqrt(2)))",
    "log1p": "log(1 + x), accurate near 0",
    "logical_and": "a != 0 and b != 0",
    "logical_or": "a != 0 or b != 0",
    "round": "x rounded to integers, halves to even",
    "sign": "-1, 0 or 1",
    "softplus": "log(1 + e^x)",
    "swiglu": "silu(a) b",
}


def _returns(name: str) -> str:
    """What an op computes, as a phrase after "Returns"."""
    text: str = _IN_WORDS.get(name, OPS["does"][name])
    return text[0].lower() + text[1:] if re.match("[A-Z][a-z ]", text) else text


def _named(name: str, takes: str) -> Tuple[str, str]:
    """The header and the value of a function that takes "x weight?; axis=-1, rows: int -> values ids"."""
    takes, _, results = takes.partition(" -> ")
    tensors, _, settings = takes.partition(";")
    inputs, given = [], []
    needed: List[Tuple[str, Optional[str]]] = []  # parameters and their defaults
    others: List[Tuple[str, Optional[str]]] = []
    for tensor in tensors.split():
        bare = tensor.rstrip("?.")
        if tensor.endswith("..."):
            inputs.append(f"*{bare}")
            needed.append((f"{bare}: Sequence[Like]", None))
            continue
        inputs.append(bare)
        needed.append((f"{bare}: Like", None) if tensor == bare else (f"{bare}: Optional[Like]", "None"))
    if name in _ALIKE:
        inputs[-2:] = [f"*_alike({', '.join(inputs[-2:])})"]
    for setting in settings.split(",") if settings else []:
        declared, _, default = setting.strip().partition("=")
        setting, _, kind = declared.partition(": ")
        own = _NUMPYS.get(setting, setting)
        if setting == "axes":
            value, kind, default = "_axes(axis)", "Axis", "null"
        else:
            kind = _TYPES.get(kind, kind) or type(json.loads(default)).__name__
            value = {"Sequence[int]": f"_integers({own})", "int": f"_integer({own}, '{name}: {own}')"}.get(kind, own)
        given.append(f", {setting}={value}")
        (others if default else needed).append((f"{own}: {kind}", repr(json.loads(default)) if default else None))
    parameters: List[str] = []
    for parameter, default_value in reversed(needed + others):  # none has a default before one without
        has_default = default_value is not None and all(" = " in other for other in parameters)
        parameters.insert(0, f"{parameter} = {default_value}" if has_default else parameter)
    made = f"_op({name!r}, [{', '.join(inputs)}], {len(results.split()) or 1}{''.join(given)})"
    header = f"({', '.join(parameters)}) -> {'Pair' if results else 'Tensor'}"
    return header, f"tuple({made})" if results else f"{made}[0]"


def _made() -> Iterator[Tuple[str, str, str, str]]:
    """Name, header, value and documentation of each function."""
    does = OPS["does"]
    for kind, (header, value, doc) in _ELEMENTWISE.items():
        for name in OPS[kind]:
            if name not in OPS["parametric"]:
                yield name, header, value.format(name), doc.format(_returns(name))
    for name, takes in OPS["named"].items():
        if name in _BY_HAND:
            _BY_HAND[name].__doc__ = _BY_HAND[name].__doc__ or f"Returns {_returns(name)}"
        else:
            yield (name, *_named(name, takes), f"Returns {_returns(name)}")


_BY_HAND = {name: function for name, function in vars(_functions).items()
            if name[0] != "_" and getattr(function, "__module__", "") == _functions.__name__}
_HEADERS: Dict[str, str] = {}  # of the functions that are made
for _name, _header, _value, _doc in list(_made()):
    exec(f"def {_name}{_header}:\n    return {_value}")
    globals()[_name].__doc__ = _doc
    _HEADERS[_name], globals()[_name] = _header, _with_dim(globals()[_name]) if " axis: " in _header else globals()[_name]
for _name, _named_so in {"var": "variance", "std": "standard_deviation", "cumsum": "cumulative_sum"}.items():
    _HEADERS[_name], globals()[_name] = _HEADERS[_named_so], globals()[_named_so]
__all__ = sorted([*_BY_HAND, *_HEADERS])
for _name in __all__:  # those of x are methods, too, except where PyTorch's and NumPy's methods of the name differ
    _function = globals()[_name]
    if next(iter(inspect.signature(_function).parameters), "") in ("x", "a") and not hasattr(Tensor, _name) and _name not in ("repeat", "tile"):
        setattr(Tensor, _name, _function)
