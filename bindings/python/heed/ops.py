"""Functions of tensors, recorded if an operand is tracked. Masks are i32 or bool.

They are generated from the library's list of ops, except those in _functions.py. Type checkers read ops.pyi, which
tests/python/test_types.py compares with this module, and writes with HEED_WRITE_DOCS=1.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from . import _functions, _library as lib
from ._functions import *  # noqa: F401, F403
from .tensor import Axis, Like, Pair, Tensor, _alike, _apply, _axes, _integers, _op, _t

_LIST = lib.listing("ops")
_TYPES = {"number": "float", "ints": "Sequence[int]"}
_NUMPYS = {"axes": "axis", "keep_axes": "keepdims"}  # names of settings
_ELEMENTWISE = {
    "unary": ("(x: Like) -> Tensor", "Tensor._result('heed_unary', b'{}', _t(x), 0, 0)", "Returns {}, element-wise."),
    "binary": ("(a: Like, b: Like) -> Tensor", "_apply('heed_binary', b'{}', *_alike(a, b))", "Returns {}, element-wise."),
    "compare": ("(a: Like, b: Like) -> Tensor", "_apply('heed_compare', b'{}', *_alike(a, b))",
                "Returns the mask {}, element-wise."),
}

_IN_WORDS = {  # instead of the library's formulas, or where its text does not begin with the result
    "add_layer_norm": "dropout_add(x, residual) and its layer_norm, in one pass each way.",
    "add_rms_norm": "dropout_add(x, residual) and its rms_norm, in one pass each way.",
    "attention_weights": "the attention weights [batch, heads, length, keys].",
    "binary_cross_entropy_with_logits": "log(1 + e^a) - a b, the loss of logits a and targets b from 0 to 1",
    "ceil": "the smallest integer not below x",
    "expm1": "e^x - 1, accurate near 0",
    "flip": "x with the elements of these axes reversed, by default of all.",
    "gather_rows": "rows ids[b, i] of each sample b of x [batch, n, ...] by ids [batch, m], as [batch, m, ...].",
    "geglu": "gelu(a) b",
    "gelu": "0.5 x (1 + erf(x / sqrt(2)))",
    "linear_maps": "linear(x, weight, bias) for each of the maps, in one op.",
    "log1p": "log(1 + x), accurate near 0",
    "logical_and": "a != 0 and b != 0",
    "logical_or": "a != 0 or b != 0",
    "one_hot": "1 at each of the ids [...] and 0 elsewhere, [..., classes]; a row of zeros for -1.",
    "recurrence": "q S and the last state S [B, H, dk, dv] for a state that each token changes: S' = diag(e^g) S; "
                  "S = S' + k^T v + w^T (x - r S'), with q, k, r, w [B, H, N, dk], v, x [B, H, N, dv] and g [B, H, N] or "
                  "[B, H, N, dk].",
    "rotary": "x [B, N, H, dh] with elements i and i + dh / 2 at position n rotated by the angle whose cosine and sine, "
              "both [N, dh / 2], are given (rotary positions).",
    "round": "x rounded to integers, halves to even",
    "sign": "-1, 0 or 1",
    "softplus": "log(1 + e^x)",
    "split": "pieces of an axis with these sizes, which add up to its size.",
    "swiglu": "silu(a) b",
    "tile": "x repeated as a whole, `counts` times along each axis: a b a b. More counts than axes add leading axes.",
}


def _returns(name: str) -> str:
    """What an op computes, as a phrase after "Returns"."""
    text: str = _IN_WORDS.get(name, _LIST["does"][name])
    article = text.startswith(("The ", "A ", "Every ", "Attention ", "Softmax "))
    return text[0].lower() + text[1:] if article else text


def _named(name: str, takes: str) -> Tuple[str, str]:
    """The header and the value of a function that takes "x weight?; axis=-1, rows: int -> values ids"."""
    takes, _, results = takes.partition(" -> ")
    tensors, _, settings = takes.partition(";")
    inputs, given = [], []
    needed: List[Tuple[str, Optional[str]]] = []  # parameters and their defaults
    others: List[Tuple[str, Optional[str]]] = []
    for tensor in tensors.split():
        bare = tensor.rstrip("?")
        inputs.append(bare)
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
                yield name, header, value.format(name), doc.format(_returns(name))
    for name, takes in _LIST["named"].items():
        if name in _BY_HAND:
            _BY_HAND[name].__doc__ = _BY_HAND[name].__doc__ or f"Returns {_returns(name)}"
        elif "..." not in takes:
            yield (name, *_named(name, takes), f"Returns {_returns(name)}")


_BY_HAND = {name: one for name, one in vars(_functions).items()
            if name[0] != "_" and getattr(one, "__module__", "") == _functions.__name__}
_HEADERS: Dict[str, str] = {}  # of the functions that are made
for _name, _header, _value, _doc in list(_made()):
    exec(f"def {_name}{_header}:\n    return {_value}")
    _HEADERS[_name], globals()[_name].__doc__ = _header, _doc
for _name, _named_so in {"var": "variance", "std": "standard_deviation", "cumsum": "cumulative_sum"}.items():
    _HEADERS[_name], globals()[_name] = _HEADERS[_named_so], globals()[_named_so]
__all__ = sorted([*_BY_HAND, *_HEADERS])
