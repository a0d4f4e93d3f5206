"""Modules, the context of a forward pass, attention layers, optimizers, and files of all these."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, Union

import numpy as np

from . import _library as lib
from ._library import Path
from .tensor import Array, Like, Parameter, Tensor, _maybe, _t


class _Handle:
    """Owns an object of the library."""

    _free_name = ""
    _handle: Optional[int] = None

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._free = lib.freeing(self._free_name)

    @property
    def _as_parameter_(self) -> Optional[int]:  # what ctypes passes
        return self._handle

    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} cannot be pickled or copied: save() its parameters")

    def __del__(self) -> None:
        if self._handle is not None:
            self._free(self._handle)
            self._handle = None


class Context(_Handle):
    """A forward pass, shared by all its layers. Numbers their dropout by (seed, step).

    Give it to layers, or enter it: inside ``with heed.Context(seed=1, step=step):`` it is the context of all layers
    that are not given one. Without any, layers are in inference.
    """

    _free_name = "heed_context_free"
    _entered = threading.local()  # `stack`: those that this thread has entered

    def __init__(self, training: bool = True, seed: int = 0, step: int = 0) -> None:
        super().__init__(lib.result("heed_context_create", int(training), seed, step))

    @classmethod
    def _lent(cls, handle: Optional[int]) -> "Context":
        """A pass of the library, which frees it."""
        made = cls.__new__(cls)
        made._handle, made._free = handle, lambda handle: None
        return made

    @classmethod
    def current(cls) -> Optional["Context"]:
        """The context that this thread has entered last."""
        stack = getattr(cls._entered, "stack", [])
        return stack[-1] if stack else None

    def __enter__(self) -> "Context":
        self._entered.__dict__.setdefault("stack", []).append(self)
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.stack.pop()

    @property
    def auxiliary_loss(self) -> Optional[Tensor]:
        """The weighted sum of the losses that layers add, such as ClusterFormer's clustering loss."""
        handle = lib.result("heed_context_auxiliary_loss", self)
        return None if handle is None else Tensor._of(handle)

    def add_loss(self, name: str, value: Tensor, weight: float = 1.0) -> None:
        """Adds `weight` times a number to the auxiliary loss."""
        lib.call("heed_context_add_loss", self, lib.encoded(name), weight, value)

    def dropout(self, x: Like, p: float) -> Tensor:
        """Drops elements with probability p, by the next random numbers of the pass; x itself in inference."""
        return Tensor._result("heed_context_dropout", self, _t(x), p)


class Module(_Handle):
    """Named parameters: a layer, the model of a run, or a class of your own.

    >>> class Net(heed.nn.Module):
    ...     def __init__(self):
    ...         self.hidden, self.out = heed.nn.Linear(2, 16), heed.nn.Linear(16, 1)
    ...     def forward(self, x):
    ...         return self.out(heed.tanh(self.hidden(x)))

    Attributes that are parameters or modules, or lists or dictionaries of them, belong to it under their names.
    """

    _free_name = "heed_module_free"
    forward: Callable[..., Tensor]

    def __init__(self, handle: Optional[int] = None) -> None:
        if handle is not None:
            super().__init__(handle)

    def __call__(self, *inputs: Any, **options: Any) -> Tensor:
        """forward() of the same arguments."""
        return self.forward(*inputs, **options)

    def _entries(self, name: str = "") -> Iterator[Tuple[str, Union[Parameter, "Module"]]]:
        """What it consists of, by dotted name: parameters, and modules of the library."""
        if self._handle is not None:
            yield name, self
        yield from _entries_of(vars(self), name)

    def parameters(self) -> Dict[str, Tensor]:
        """The leaves themselves by dotted name, shared ones once: an optimizer of them trains this module."""
        found: Dict[str, Tensor] = {}
        seen = set()
        for name, one in self._entries():
            if id(one) not in seen:
                found.update(one._own_parameters(name) if isinstance(one, Module) else {name: one})
            seen.add(id(one))
        return found

    def _own_parameters(self, prefix: str) -> Dict[str, Tensor]:
        """Those of the library's module."""
        found: Dict[str, Tensor] = {}
        for index in range(lib.result("heed_module_parameter_count", self, kind=ctypes.c_size_t)):
            name, handle = ctypes.c_char_p(), ctypes.c_void_p()
            lib.call("heed_module_parameter", self, index, ctypes.byref(name), ctypes.byref(handle))
            found[_joined(prefix, (name.value or b"").decode())] = Parameter._of(handle.value)
        return found

    def state_dict(self) -> Dict[str, Array]:
        """The values of its parameters by dotted name, copied: f32 and f64 as they are, others as float32."""
        return {name: one.numpy(copy=True) for name, one in self.parameters().items()}

    def load_state_dict(self, values: Mapping[str, Like]) -> None:
        """Sets the parameters to what state_dict() gave, of this module or one like it.

        Names and shapes must all match; otherwise nothing changes: KeyError names what is missing or unknown, and
        ValueError the first shape that differs.
        """
        own = self.parameters()
        missing, unknown = [name for name in own if name not in values], [name for name in values if name not in own]
        if missing or unknown:
            raise KeyError(f"load_state_dict: missing {missing}, unknown {unknown}")
        arrays = {name: np.asarray(values[name]) for name in own}
        for name, one in own.items():
            if arrays[name].shape != one.shape:
                raise ValueError(f"load_state_dict: {name!r} has the shape {arrays[name].shape}, and the parameter {one.shape}")
            if arrays[name].dtype.kind not in "biuf":
                raise TypeError(f"load_state_dict: {name!r} is of {arrays[name].dtype}; expected numbers")
        for name, one in own.items():
            one.assign(arrays[name])

    def __repr__(self) -> str:
        """Its parts, an indented line for each, with the shapes of their parameters."""
        lines = []
        for name, part in vars(self).items():
            for key, one in _parts_of(part, "" if name == "_parts" else name):
                said = f"{list(one.shape)}" if isinstance(one, Parameter) else repr(one).replace("\n", "\n  ")
                lines.append(f"  {key}: {said}")
        if self._handle is not None:
            lines += [f"  {key}: {list(one.shape)}" for key, one in self._own_parameters("").items()]
        return f"{type(self).__name__}(" + "".join("\n" + line for line in lines) + ("\n)" if lines else ")")

    def save(self, path: Path, optimizer: Optional["Optimizer"] = None) -> None:
        """Writes safetensors, completely or not at all, with the state of an optimizer if one is given."""
        save(path, {"": self} if optimizer is None else {"": self, "optimizer": optimizer})

    def load(self, path: Path, optimizer: Optional["Optimizer"] = None) -> None:
        """Reads what save() wrote. Names, shapes and types must all match; otherwise nothing changes."""
        load(path, {"": self} if optimizer is None else {"": self, "optimizer": optimizer})


def _joined(*names: str) -> str:
    return ".".join(name for name in names if name)


def _parts_of(part: Any, name: str) -> Iterator[Tuple[str, Union[Parameter, Module]]]:
    """The parameters and modules that an attribute is or holds, by dotted name."""
    if isinstance(part, (Parameter, Module)):
        yield name, part
    elif isinstance(part, (dict, list, tuple)):
        for key, one in part.items() if isinstance(part, dict) else enumerate(part):
            yield from _parts_of(one, _joined(name, str(key)))


def _entries_of(part: Any, name: str) -> Iterator[Tuple[str, Union[Parameter, Module]]]:
    for key, one in _parts_of(part, name):
        yield from one._entries(key) if isinstance(one, Module) else [(key, one)]


Saved = Mapping[str, Union[Tensor, Module, "Optimizer"]]


def _in_file(objects: Saved) -> Any:
    """The objects of the library that these consist of, each once, and their names."""
    entries: Dict[int, Tuple[str, Any]] = {}
    for prefix, one in objects.items():
        for name, part in one._entries(prefix) if isinstance(one, Module) else [(prefix, one)]:
            entries.setdefault(id(part), (name, part))
    parts = [part for _, part in entries.values()]
    return lib.texts_of([name for name, _ in entries.values()]), lib.handles_of(parts), len(parts)


def save(path: Path, objects: Saved) -> None:
    """Writes tensors, modules and optimizers as one safetensors file, completely or not at all.

    >>> heed.save("checkpoint.safetensors", {"model": net, "optimizer": adam})

    The learning rate of an optimizer is not in it.
    """
    lib.call("heed_save", lib.encoded(os.fspath(path)), *_in_file(objects))


def load(path: Path, objects: Saved) -> None:
    """Reads such a file into the same objects: training goes on to the same bits as if it had never stopped.

    Names, shapes and types must all match; otherwise nothing changes, and heed.Error says what does not fit.
    """
    lib.call("heed_load", lib.encoded(os.fspath(path)), *_in_file(objects))


class Attention(Module):
    """An attention layer, made by attention()."""

    def __init__(self, name: str, handle: int) -> None:
        super().__init__(handle)
        self.name = name

    def forward(
        self, x: Like, mask: Optional[Like] = None, memory: Optional[Like] = None, memory_mask: Optional[Like] = None,
        context: Optional[Context] = None,
    ) -> Tensor:
        """x [batch, length, width] -> the same shape.

        Masks (i32 or bools [batch, length]): 1 = real token. No context: the one that was entered, else inference.
        """
        tensors = [_t(x), _maybe(mask), _maybe(memory), _maybe(memory_mask)]
        return Tensor._result("heed_attention_forward", self, *tensors, context or Context.current())

    def __repr__(self) -> str:
        return f"heed.attention({self.name!r}, ...)"


def attention(
    name: str, width: int, heads: int = 1, *, dropout: Optional[float] = None, bias: Optional[bool] = None,
    causal: Optional[bool] = None, cross: Optional[bool] = None, max_length: Optional[int] = None,
    seed: Optional[int] = None, dtype: Optional[str] = None, device: Optional[str] = None, **options: Any,
) -> Attention:
    """A layer of any mechanism: attention("clusterformer", 64, heads=4, clusters=8).

    ``options`` are the mechanism's own settings: attentions() lists them with defaults and ranges.
    """
    settings = dict(options, width=width, heads=heads, dropout=dropout, bias=bias, causal=causal, cross=cross,
                    max_length=max_length, seed=seed, dtype=dtype, device=device)
    return Attention(name, lib.result("heed_attention_create", lib.encoded(name), lib.settings_json(settings)))


def attentions() -> Dict[str, Dict[str, Any]]:
    """Every mechanism by name, with its capabilities and settings."""
    return {one["name"]: one for one in lib.listing("attention")}


Parameters = Union[Tensor, Module, Dict[str, Tensor]]


def _tensors(parameters: Union[Parameters, Iterable[Parameters]]) -> List[Tensor]:
    if isinstance(parameters, Tensor):
        return [parameters]
    if isinstance(parameters, Module):
        return list(parameters.parameters().values())
    if isinstance(parameters, dict):
        return [tensor for part in parameters.values() for tensor in _tensors(part)]
    if isinstance(parameters, str):
        raise TypeError("an optimizer takes tensors, modules, dictionaries of them or a list of these, not a string")
    return [tensor for part in parameters for tensor in _tensors(part)]


class Optimizer(_Handle):
    """ "sgd", "adam", "adamw" or "muon" over parameters: tensors, modules, dictionaries, or a list of these.

    ``settings``: beta1 (for sgd the momentum), beta2, epsilon, weight_decay, decay_vectors
    (False: adamw and muon do not decay parameters of rank 0 or 1, such as biases), clip_norm.

    "muon" orthogonalises the steps of matrices, but for nn.Embedding and for the embeddings and last maps of the
    library's models, and takes adamw's for all else. ``adamw``: what else muon should not orthogonalise, now or
    later, such as the last map of a model of your own. More settings: momentum (0.95), nesterov (True), iterations (5), matrix_rate (1) times
    the learning rate for matrices, adjust_rate ("match_rms_adamw": times 0.2 sqrt(max(rows, columns)); "original":
    times sqrt(max(1, rows / columns))).
    """

    _free_name = "heed_optimizer_free"

    def __init__(
        self, name: str, parameters: Union[Parameters, Iterable[Parameters]], learning_rate: float = 1e-3, *,
        adamw: Union[None, Parameters, Iterable[Parameters]] = None, **settings: Union[float, str],
    ) -> None:
        self.learning_rate = learning_rate
        tensors = _tensors(parameters)
        if name != "muon" and adamw is not None:
            raise TypeError(f"adamw= is for the optimizer 'muon', not {name!r}")
        for tensor in [] if adamw is None else _tensors(adamw):
            lib.call("heed_tensor_set_hidden_map", tensor, 0)
        given = lib.encoded(name), lib.settings_json(settings), lib.handles_of(tensors), len(tensors)
        super().__init__(lib.result("heed_optimizer_create", *given))

    def step(self, learning_rate: Optional[float] = None) -> None:
        """One update in place, from the gradients."""
        lib.call("heed_optimizer_step", self, self.learning_rate if learning_rate is None else learning_rate)

    def zero_grad(self) -> None:
        """Drops the gradients of all its parameters."""
        lib.call("heed_optimizer_zero_gradients", self)

    def save(self, path: Path) -> None:
        """Writes its moments and number of steps; heed.save() writes them beside those of a model."""
        save(path, {"": self})

    def load(self, path: Path) -> None:
        """Reads what save() wrote, for the same parameters in the same order."""
        load(path, {"": self})
