"""Modules, contexts, attention layers, optimizers, and saving them."""

from __future__ import annotations

import copy
import ctypes
import math
import os
import tempfile
import threading
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, TypeVar, Union

import numpy as np

from . import _library as lib
from ._library import Path
from .tensor import _NAMES, DTYPES, Array, Like, Parameter, Tensor, _handed_over, _t, _together


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
    """The state of one forward pass: training or inference, dropout masks, auxiliary losses.

    Pass it to layers, or enter it: inside ``with heed.Context(seed=1, step=step):`` all layers use it by default.
    Without a context, layers run inference. Dropout masks depend on (seed, step) and on the order of the layers.
    """

    _free_name = "heed_context_free"
    _entered = threading.local()  # `stack`: those that this thread has entered

    def __init__(self, training: bool = True, seed: int = 0, step: int = 0) -> None:
        super().__init__(lib.result("heed_context_create", int(training), seed, step))

    @classmethod
    def _lent(cls, handle: Optional[int]) -> "Context":
        """Wraps a context that the library owns."""
        made = cls.__new__(cls)
        made._handle, made._free = handle, lambda handle: None
        return made

    @classmethod
    def current(cls) -> Optional["Context"]:
        """Returns the context that this thread entered last, or None."""
        stack = getattr(cls._entered, "stack", [])
        return stack[-1] if stack else None

    def __enter__(self) -> "Context":
        self._entered.__dict__.setdefault("stack", []).append(self)
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.stack.pop()

    @property
    def auxiliary_loss(self) -> Optional[Tensor]:
        """The weighted sum of losses that layers added, such as ClusterFormer's clustering loss, or None."""
        handle = lib.result("heed_context_auxiliary_loss", self)
        return None if handle is None else Tensor._of(handle)

    def add_loss(self, name: str, value: Tensor, weight: float = 1.0) -> None:
        """Adds ``weight`` times a scalar to the auxiliary loss."""
        lib.call("heed_context_add_loss", self, lib.encoded(name), lib.number_of(weight, "weight"), value)

    def dropout(self, x: Like, p: float) -> Tensor:
        """Applies dropout with probability p, using the next random numbers of the pass; returns x in inference."""
        return Tensor._result("heed_context_dropout", self, _t(x), p)


class Module(_Handle):
    """Base class of models, with named parameters.

    >>> class Net(heed.nn.Module):
    ...     def __init__(self):
    ...         self.hidden, self.out = heed.nn.Linear(2, 16), heed.nn.Linear(16, 1)
    ...     def forward(self, x):
    ...         return self.out(heed.tanh(self.hidden(x)))

    Attributes that are parameters or modules, or lists or dicts of them, belong to the module under their names.
    """

    _free_name = "heed_module_free"
    forward: Callable[..., Tensor]

    def __init__(self, handle: Optional[int] = None) -> None:
        if handle is not None:
            super().__init__(handle)

    def __call__(self, *inputs: Any, **options: Any) -> Tensor:
        """Calls forward()."""
        return self.forward(*inputs, **options)

    def _entries(self, name: str = "") -> Iterator[Tuple[str, Union[Parameter, "Module"]]]:
        """Yields parameters and library modules by dotted name."""
        if self._handle is not None:
            yield name, self
        yield from _entries_of(vars(self), name)

    def parameters(self) -> Dict[str, Tensor]:
        """Returns the parameters by dotted name; shared ones appear once."""
        found: Dict[str, Tensor] = {}
        seen = set()
        for name, part in self._entries():
            if id(part) not in seen:
                found.update(part._own_parameters(name) if isinstance(part, Module) else {name: part})
            seen.add(id(part))
        return found

    def named_parameters(self) -> Iterator[Tuple[str, Tensor]]:
        """Yields the names and parameters of parameters()."""
        return iter(self.parameters().items())

    def __deepcopy__(self: AnyModule, memo: Dict[int, Any]) -> AnyModule:
        """Copies a module with its parameters, which get no gradients; shared ones stay shared."""
        if self._handle is not None:
            raise TypeError(f"a {type(self).__name__} of the library cannot be copied: make another one, and load() what this one saves")
        memo[id(self)] = made = type(self).__new__(type(self))
        vars(made).update(copy.deepcopy(vars(self), memo))
        return made

    def _own_parameters(self, prefix: str) -> Dict[str, Tensor]:
        """Returns the parameters of a library module."""
        found: Dict[str, Tensor] = {}
        for index in range(lib.result("heed_module_parameter_count", self, kind=ctypes.c_size_t)):
            name, handle = ctypes.c_char_p(), ctypes.c_void_p()
            lib.call("heed_module_parameter", self, index, ctypes.byref(name), ctypes.byref(handle))
            found[_joined(prefix, (name.value or b"").decode())] = Parameter._of(handle.value)
        return found

    def state_dict(self) -> Dict[str, Array]:
        """Returns copies of the parameters as arrays by dotted name; f16 and bf16 become float32."""
        return {name: parameter.numpy(copy=True) for name, parameter in self.parameters().items()}

    def load_state_dict(self, values: Mapping[str, Like]) -> None:
        """Sets the parameters to the values that state_dict() returned.

        Raises KeyError for missing or unknown names and ValueError for a wrong shape, and then changes nothing.
        """
        own = self.parameters()
        missing, unknown = [name for name in own if name not in values], [name for name in values if name not in own]
        if missing or unknown:
            raise KeyError(f"load_state_dict: missing {missing}, unknown {unknown}")
        arrays = {name: np.asarray(values[name]) for name in own}
        for name, parameter in own.items():
            if arrays[name].shape != parameter.shape:
                raise ValueError(f"load_state_dict: {name!r} has the shape {arrays[name].shape}, and the parameter {parameter.shape}")
            if arrays[name].dtype.kind not in "biuf":
                raise TypeError(f"load_state_dict: {name!r} is of {arrays[name].dtype}; expected numbers")
        for name, parameter in own.items():
            parameter.assign(arrays[name])

    def __repr__(self) -> str:
        """Lists the parts with the shapes of their parameters."""
        lines = []
        for name, part in vars(self).items():
            for key, member in _parts_of(part, "" if name == "_parts" else name):
                said = f"{list(member.shape)}" if isinstance(member, Parameter) else repr(member).replace("\n", "\n  ")
                lines.append(f"  {key}: {said}")
        if self._handle is not None:
            lines += [f"  {key}: {list(member.shape)}" for key, member in self._own_parameters("").items()]
        return f"{type(self).__name__}(" + "".join("\n" + line for line in lines) + ("\n)" if lines else ")")

    def to(self: AnyModule, where: str) -> AnyModule:
        """Moves the parameters in place to a device ("cpu", "vulkan", "vulkan:1", "auto") or dtype ("f32", "f64");
        returns self.

        Existing optimizers follow to a device with their moments. After a change of dtype, create optimizers that
        keep moments anew. Gradients are cleared; tensors that are not parameters stay. Raises heed.Error for f64 on
        a GPU, an unavailable device, and the model of a run. For f16 and bf16, use heed.Autocast.
        """
        parts = _objects(self)
        name, is_dtype = lib.encoded(where, "where"), where in DTYPES
        lib.call("heed_move", lib.handles_of(parts), len(parts), None if is_dtype else name, name if is_dtype else None)
        return self

    def save(self, path: Path, optimizer: Optional["Optimizer"] = None) -> None:
        """Writes a safetensors file, completely or not at all, optionally with the state of an optimizer."""
        save(path, {"": self} if optimizer is None else {"": self, "optimizer": optimizer})

    def load(self, path: Path, optimizer: Optional["Optimizer"] = None) -> None:
        """Reads a file of save(). Changes nothing unless all names, shapes and dtypes match."""
        load(path, {"": self} if optimizer is None else {"": self, "optimizer": optimizer})


AnyModule = TypeVar("AnyModule", bound=Module)


def _joined(*names: str) -> str:
    return ".".join(name for name in names if name)


def _parts_of(part: Any, name: str) -> Iterator[Tuple[str, Union[Parameter, Module]]]:
    """Yields the parameters and modules in an attribute, by dotted name."""
    if isinstance(part, (Parameter, Module)):
        yield name, part
    elif isinstance(part, (dict, list, tuple)):
        for key, member in part.items() if isinstance(part, dict) else enumerate(part):
            yield from _parts_of(member, _joined(name, str(key)))


def _entries_of(part: Any, name: str) -> Iterator[Tuple[str, Union[Parameter, Module]]]:
    for key, member in _parts_of(part, name):
        yield from member._entries(key) if isinstance(member, Module) else [(key, member)]


Saved = Mapping[str, Union[Tensor, Module, "Optimizer"]]


def _in_file(objects: Saved) -> Any:
    """Returns the names and handles of the library objects to save, each once."""
    entries: Dict[int, Tuple[str, Any]] = {}
    for prefix, saved in objects.items():
        for name, part in saved._entries(prefix) if isinstance(saved, Module) else [(prefix, saved)]:
            entries.setdefault(id(part), (name, part))
    parts = [part for _, part in entries.values()]
    return lib.texts_of([lib.encoded(name) for name, _ in entries.values()]), lib.handles_of(parts), len(parts)


def save(path: Path, objects: Saved) -> None:
    """Writes tensors, modules and optimizers to one safetensors file, completely or not at all.

    >>> heed.save("checkpoint.safetensors", {"model": net, "optimizer": adam})

    An optimizer's learning rate is not saved.
    """
    lib.call("heed_save", lib.encoded(lib.path_of(path)), *_in_file(objects))


def load(path: Path, objects: Saved) -> None:
    """Reads a file of save() into the same objects. Training continues with bit-identical results.

    Raises heed.Error, and changes nothing, unless all names, shapes and dtypes match.
    """
    lib.call("heed_load", lib.encoded(lib.path_of(path)), *_in_file(objects))


class Attention(Module):
    """An attention layer, created by attention()."""

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        super().__init__(lib.result("heed_attention_create", lib.encoded(name, "name"), lib.settings_json(settings)))
        self.name, self._settings = name, settings

    def __deepcopy__(self, memo: Any) -> "Attention":
        """Returns a layer with the same settings, parameters and buffers."""
        now = [dict(device=own.device, dtype=own.dtype) for own in self.parameters().values()][:1] or [{}]
        made = Attention(self.name, {**self._settings, **now[0]})
        with tempfile.TemporaryDirectory() as folder:
            self.save(os.path.join(folder, "layer"))
            made.load(os.path.join(folder, "layer"))
        return made

    def forward(
        self, x: Like, mask: Optional[Like] = None, memory: Optional[Like] = None,
        memory_mask: Optional[Like] = None, context: Optional[Context] = None,
    ) -> Tensor:
        """Maps x [batch, length, width] to the same shape.

        Masks (i32 or bool [batch, length]) are 1 for real tokens. ``context`` defaults to the entered one, or
        inference.
        """
        given = [x, mask, memory, memory_mask]
        own = [] if isinstance(x, Tensor) else list(self._own_parameters("").values())[:1]  # which has the dtype
        tensors = _together(*given, *own)[: len(given)]
        return Tensor._result("heed_attention_forward", self, *tensors, context or Context.current())

    def __repr__(self) -> str:
        return f"heed.attention({self.name!r}, ...)"


def attention(
    name: str, width: int, heads: int = 1, *, positions: Optional[str] = None,
    dropout: Optional[float] = None, bias: Optional[bool] = None, causal: Optional[bool] = None,
    cross: Optional[bool] = None, max_length: Optional[int] = None, seed: Optional[int] = None,
    dtype: Optional[str] = None, device: Optional[str] = None, **options: Any,
) -> Attention:
    """Creates an attention layer of any mechanism; it maps [batch, length, width] to the same shape.

    >>> heed.attention("clusterformer", 64, heads=4, clusters=8)
    >>> heed.attention("dot_product", 64, heads=4, positions="rotary", causal=True)

    - ``options``: settings of the mechanism, which attentions() lists.
    - ``positions``: "rotary" (arXiv 2104.09864), "alibi" (2108.12409) or "relative" (T5, 1910.10683), if supported.
      The default "none" uses positions only if x contains them.
    - ``cross``: keys and values come from a memory.
    - ``max_length``: required if "any_length" is False in attentions().
    - ``dtype``: "f32" or "f64".

    Raises heed.SettingsError for unknown names and settings, values out of range, and unsupported uses.
    """
    settings = dict(options, width=width, heads=heads, positions=positions, dropout=dropout, bias=bias, causal=causal,
                    cross=cross, max_length=max_length, seed=seed, dtype=dtype, device=device)
    return Attention(name, settings)


def attentions() -> Dict[str, Dict[str, Any]]:
    """Returns all mechanisms by name, with capabilities and settings.

    >>> for setting in heed.attentions()["longformer"]["settings"]:
    ...     print(setting["name"], setting["default"], setting["range"], setting["help"])

    "causal", "cross", "any_length", "as_heads", "padding", "strictly_causal", "cross_by_step" and "deterministic" are bools.
    "positions" lists the values of attention(positions=...). Settings have "name", "type", "default", "range",
    "help" and, if they depend on another setting, "beside", such as {"form": "local"}. Defaults that depend on the
    layer are those for 4 heads of width 16 and 256 positions.
    """
    return {mechanism["name"]: mechanism for mechanism in lib.listing("attention")}


Parameters = Union[Tensor, Module, Dict[str, Tensor]]


def _each_part(parameters: Union[Parameters, Iterable[Parameters]]) -> Iterator[Union[Tensor, Module]]:
    """Yields the tensors and modules in parameters."""
    if isinstance(parameters, (Tensor, Module)):
        yield parameters
    elif isinstance(parameters, (str, np.ndarray)) or not isinstance(parameters, Iterable):
        given = "a string" if isinstance(parameters, str) else lib.shown(parameters)
        raise TypeError(f"an optimizer takes tensors, modules, dictionaries of them or a list of these, not {given}")
    else:
        for part in parameters.values() if isinstance(parameters, dict) else parameters:
            yield from _each_part(part)


def _tensors(parameters: Union[Parameters, Iterable[Parameters]]) -> List[Tensor]:
    return [tensor for part in _each_part(parameters)
            for tensor in (part.parameters().values() if isinstance(part, Module) else [part])]


def _objects(parameters: Union[Parameters, Iterable[Parameters]]) -> List[Union[Tensor, Module]]:
    """Returns the leaves and library modules in these parameters, each once."""
    found = {id(entry): entry for part in _each_part(parameters)
             for entry in ([own for _, own in part._entries()] if isinstance(part, Module) else [part])}
    return list(found.values())


Group = Mapping[str, Any]
_OF_A_GROUP = ("params", "learning_rate", "weight_decay")


def _group(given: Group, learning_rate: float) -> Tuple[List[Tensor], float, float]:
    """Returns the parameters, learning rate factor and weight decay of a group."""
    unknown = [name for name in given if name not in _OF_A_GROUP]
    if unknown:
        raise TypeError(f"a parameter group has no {unknown[0]!r}; it has {', '.join(_OF_A_GROUP)}")
    rate = lib.number_of(given.get("learning_rate", learning_rate), "learning_rate")
    decay = lib.number_of(given["weight_decay"], "weight_decay") if "weight_decay" in given else math.nan
    if learning_rate == 0 and rate != 0:
        raise ValueError("the learning rates of groups are multiples of the optimizer's, which is 0: give learning_rate")
    return _tensors(given["params"]), rate / learning_rate if rate else 0.0, decay


class Optimizer(_Handle):
    """An optimizer: "sgd", "adam", "adamw" or "muon".

    >>> heed.Optimizer("adamw", net, 1e-3, weight_decay=0.01, clip_norm=1.0)
    >>> heed.Optimizer("adamw", [{"params": net.body, "learning_rate": 1e-4}, {"params": net.head}], 1e-3)

    - ``parameters``: tensors, modules, dicts, a list of these, or a list of groups. A group has "params" and
      optionally "learning_rate" (0 freezes it) and "weight_decay", which then includes vectors.
    - ``settings``: beta1 (momentum for sgd), beta2, epsilon, weight_decay, decay_vectors (by default, adamw and muon
      do not decay parameters of rank 0 or 1, such as biases), clip_norm (maximum global norm of the gradients).

    "muon" orthogonalizes the updates of matrices, except nn.Embedding and the library's embeddings and output maps,
    and uses adamw for all other parameters. ``adamw`` names further matrices to exclude, such as your output map.
    More settings are momentum (0.95), nesterov (True), iterations (5), matrix_rate (1, a factor on the learning rate
    of matrices) and adjust_rate: "match_rms_adamw" multiplies updates by 0.2 sqrt(max(rows, columns)), "original" by
    sqrt(max(1, rows / columns)).

    Raises heed.SettingsError for unknown names and settings, and heed.Error for non-parameters and duplicates.
    """

    _free_name = "heed_optimizer_free"

    def __init__(
        self, name: str, parameters: Union[Parameters, Iterable[object]], learning_rate: float = 1e-3, *,
        adamw: Union[None, Parameters, Iterable[Parameters]] = None, **settings: Union[float, str],
    ) -> None:
        self.learning_rate = learning_rate = lib.number_of(learning_rate, "learning_rate")
        given: Any = parameters
        if isinstance(given, Iterable) and not isinstance(given, (Tensor, Module, dict, str, np.ndarray)):
            given = list(given)  # it is read twice
        is_group = [isinstance(group, Mapping) and "params" in group for group in given] if isinstance(given, list) else []
        if any(is_group) and not all(is_group):
            raise TypeError("an optimizer takes groups, all of them with \"params\", or parameters, not both in one list")
        if name != "muon" and adamw is not None:
            raise TypeError(f"adamw= is for the optimizer 'muon', not {name!r}")
        groups = given if any(is_group) else [{"params": given}]
        found = [_group(group, learning_rate) for group in groups]
        for tensor in [] if adamw is None else _tensors(adamw):
            Parameter.exclude_from_muon(tensor)  # type: ignore[arg-type]
        group = lib.TYPES["heed_parameter_group"]
        structs = (group * len(found))(
            *[group(lib.handles_of(tensors), len(tensors), rate, decay) for tensors, rate, decay in found])
        made = lib.encoded(name, "name"), lib.settings_json(settings), structs, len(found)
        super().__init__(lib.result("heed_optimizer_create_groups", *made))

    def step(self, learning_rate: Optional[float] = None) -> None:
        """Updates the parameters in place from their gradients.

        ``learning_rate`` replaces the optimizer's; groups keep their ratio to it. Parameters without a gradient
        stay; if none has one, raises heed.Error.
        """
        lib.call("heed_optimizer_step", self, self.learning_rate if learning_rate is None else learning_rate)

    def zero_grad(self) -> None:
        """Clears the gradients of all its parameters."""
        lib.call("heed_optimizer_zero_gradients", self)

    def save(self, path: Path) -> None:
        """Writes the moments and step count; heed.save() combines them with a model."""
        save(path, {"": self})

    def load(self, path: Path) -> None:
        """Reads a file of save(), for the same parameters in the same order."""
        load(path, {"": self})


class Schedule:
    """A learning rate schedule: a warm-up from 0, then a named curve.

    >>> schedule = heed.Schedule("cosine", 1e-3, steps=1000, warmup_steps=100)
    >>> adam.step(schedule(step))  # step 1, 2, ...

    "constant" stays at `learning_rate`, the peak. "linear" falls to `final_rate` at step `steps`. "cosine" falls
    along half a cosine (arXiv 1608.03983). "inverse_sqrt" is peak sqrt(warmup_steps / step) (arXiv 1706.03762,
    section 5.3). Raises heed.SettingsError for an unknown name or a value out of range, and ValueError if linear or
    cosine lacks `steps`.
    """

    def __init__(
        self, name: str = "constant", learning_rate: float = 1e-3, *, steps: Optional[int] = None,
        warmup_steps: int = 0, final_rate: float = 0.0,
    ) -> None:
        if steps is None and name in ("linear", "cosine"):
            raise ValueError(f"a {name} schedule needs steps, the number of steps of the training")
        self.steps = steps
        settings = dict(name=name, learning_rate=learning_rate, warmup_steps=warmup_steps, final_rate=final_rate)
        self._settings, self._json = settings, lib.settings_json(settings)
        self(1)  # raises what is wrong with them

    def __call__(self, step: int) -> float:
        """Returns the rate of a step, counted from 1. Raises heed.SettingsError for smaller steps."""
        given = self._json, step, self.steps or 0
        return float(lib.result("heed_learning_rate", *given, kind=ctypes.c_double))

    def __repr__(self) -> str:
        return f"heed.Schedule({', '.join(f'{name}={value!r}' for name, value in dict(self._settings, steps=self.steps).items())})"


class Autocast(_Handle):
    """Mixed precision for a training loop: weights stay f32, the model computes in "bf16" or "f16" (arXiv 1710.03740).

    >>> autocast = heed.Autocast(net, "bf16")
    >>> loss = autocast.backward(lambda: heed.cross_entropy(net(x.to(autocast.dtype)), labels).to("f32").sum())
    >>> autocast.step(adam)

    On a GPU, the parameters of `model` (a module, tensors, or a list) and everything computed from them have the
    lower precision inside backward(); compute losses in f32. On the CPU, tensors stay f32 and only products
    change: "high" is three in bf16 for one in f32, "medium" and "bf16" are one; "f16" raises heed.Error. "f32" does nothing. ``loss_scale`` is the initial scale for f16: the default,
    16, suits sums over tokens; try 1024 for means.
    """

    _free_name = "heed_autocast_free"

    def __init__(
        self, model: Union[Parameters, Iterable[Parameters]], precision: str = "bf16",
        loss_scale: Optional[float] = None,
    ) -> None:
        parts = _objects(model)
        given = lib.handles_of(parts), len(parts), lib.encoded(precision, "precision"), lib.number_of(loss_scale or 0.0, "loss_scale")
        super().__init__(lib.result("heed_autocast_create", *given))

    @property
    def dtype(self) -> str:
        """The dtype to cast inputs to: "f32" on the CPU, otherwise the lower precision."""
        return _NAMES[lib.result("heed_autocast_dtype", self, kind=ctypes.c_int32)]

    def backward(self, loss: Callable[[], Tensor]) -> Tensor:
        """Calls a function that returns a scalar loss, and adds its gradients to those of the weights.

        Returns the loss in f32, untracked. Calls accumulate until step(). Exceptions of the function are raised
        here.
        """

        def bridge(_context: Any, _inputs: Any, _count: int, out: Any) -> None:
            out[0] = _handed_over(loss())

        return Tensor._result("heed_autocast_backward", self, lib.callback("heed_function", bridge), None)

    def step(self, optimizer: Optimizer, learning_rate: Optional[float] = None) -> None:
        """Updates the parameters and clears the gradients.

        If a gradient overflowed in f16, the weights stay and the loss scale is halved.
        """
        rate = optimizer.learning_rate if learning_rate is None else learning_rate
        lib.call("heed_autocast_step", self, optimizer, rate)

    @property
    def loss_scale(self) -> float:
        """The scale of the loss in f16. Raises heed.Error in other precisions."""
        return self._state()[0]

    @property
    def skipped_steps(self) -> int:
        """The number of steps skipped because a gradient overflowed in f16. Raises heed.Error otherwise."""
        return self._state()[1]

    def _state(self) -> Tuple[float, int]:
        scale, skipped = ctypes.c_double(), ctypes.c_int64()
        lib.call("heed_autocast_loss_scale", self, ctypes.byref(scale), ctypes.byref(skipped))
        return scale.value, skipped.value
