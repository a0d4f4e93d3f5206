"""Trained runs: opening, predicting, measuring, serving."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import json
import operator
import os
import queue
import shutil
import tempfile
import threading
import warnings
import zipfile
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, TypedDict, Union

import numpy as np

from . import _library as lib
from ._functions import no_grad
from ._library import Path
from .layers import Context, Module, _Handle
from .notebook import Page, report
from .tensor import Array, Tensor
from .tokenizer import Tokenizer, chat_text

if TYPE_CHECKING:
    from typing_extensions import Unpack

_AT_ONCE = 1024  # lines of one call, as in the sample programs


@dataclass(frozen=True)
class Alternative:
    """Another answer, with its probability and, for generated text, its search score."""

    text: str
    probability: float
    score: Optional[float] = None


@dataclass(frozen=True)
class Span:
    """A word, or neighbouring words, with a label, such as a name: characters ``start`` to ``end`` of the text."""

    text: str
    label: str
    start: int
    end: int
    probability: float


@dataclass(frozen=True)
class Prediction:
    """The answer to one text, such as a label or a translation.

    ``error`` is empty or, with ``errors="return"``, the reason why there is no answer. ``vector`` is set if the
    answer is a vector. A task that labels words sets ``spans`` and, with the label of each word, ``words``.
    """

    text: str = ""
    probability: float = 0.0
    alternatives: List[Alternative] = field(default_factory=list)
    error: str = ""
    vector: Optional[List[float]] = None
    spans: List[Span] = field(default_factory=list)
    words: List[Span] = field(default_factory=list)

    def __str__(self) -> str:
        return self.text


def _prediction(answer: Dict[str, Any]) -> Prediction:
    if "error" in answer:
        return Prediction(error=answer["error"])
    others = [Alternative(**other) for other in answer["alternatives"]]
    spans, words = ([Span(**one) for one in answer.get(name, [])] for name in ("spans", "words"))
    return Prediction(answer["text"], answer["probability"], others, "", answer.get("vector"), spans, words)


# The values of labels from their text, by the setting data.label_type; others are text.
_LABELS: Dict[str, Callable[[str], Any]] = {"integer": int, "number": float, "boolean": "true".__eq__}


class Predictions(List[Prediction]):
    """A list with a Prediction for each text; also provides all answers as arrays."""

    def __init__(self, answers: List[Prediction], classes: List[str], data: Mapping[str, Any] = {}) -> None:
        super().__init__(answers)
        self._names = classes
        convert = _LABELS.get(data.get("label_type", ""), str)
        self.classes: List[Any] = [convert(name) for name in classes]  #: The columns of `probabilities`.
        self._convert = str if data.get("label_separator") else convert

    @property
    def labels(self) -> np.ndarray:
        """The answers [n]: integers, floats or bools if the run learned such labels, otherwise strings. Where there is no
        answer, None or an empty string.
        """
        if self._convert is str:
            return np.array([answer.text for answer in self], dtype=str)
        found = [self._convert(answer.text) if answer.text else None for answer in self]
        return np.array(found, dtype=object if None in found else np.array(self.classes).dtype)

    @property
    def label_lists(self) -> List[List[Any]]:
        """The labels of each text with a probability of at least 0.5, for runs with several labels per text."""
        likely = ({a.text for a in answer.alternatives if a.probability >= 0.5} for answer in self)
        return [[value for name, value in zip(self._names, self.classes) if name in names] for names in likely]

    @property
    def probability(self) -> np.ndarray:
        """The probability of each answer, float64 [n]."""
        return np.array([answer.probability for answer in self], dtype=np.float64)

    @property
    def probabilities(self) -> np.ndarray:
        """The class probabilities, float64 [n, classes]; NaN where there is no answer. Raises heed.Error without
        classes.
        """
        if not self.classes:
            raise lib.Error("this task tells no classes apart: see `probability`, and the `alternatives` of an answer")
        place = {name: column for column, name in enumerate(self._names)}
        found = np.full((len(self), len(self.classes)), np.nan)
        for row, answer in enumerate(self):
            for other in answer.alternatives:
                found[row, place[other.text]] = other.probability
        return found

    @property
    def numbers(self) -> np.ndarray:
        """The answers as numbers, float64 [n]; NaN where there is none. Raises heed.Error if they are not numbers."""
        try:
            return np.array([float(answer.text) if answer.text else np.nan for answer in self], dtype=np.float64)
        except ValueError:
            raise lib.Error("the answers of this task are not numbers: see `labels`") from None

    @property
    def vectors(self) -> np.ndarray:
        """The answers as vectors, float32 [n, width]; NaN where there is none. Raises heed.Error if they are not
        vectors.
        """
        width = max((len(answer.vector) for answer in self if answer.vector), default=0)
        if not width and len(self):
            raise lib.Error("the answers of this task are not vectors")
        nothing = [np.nan] * width
        return np.array([answer.vector or nothing for answer in self], dtype=np.float32).reshape(len(self), width)


# --- examples: columns of texts


def is_path(value: Any) -> bool:
    """Returns whether a value names a file rather than being a column."""
    return isinstance(value, (str, os.PathLike))


def _element(value: Any, column: Dict[str, Any], where: str) -> str:
    """Converts one cell to text; labels and ids may also be integers or bools."""
    if column["is_number"]:
        return _number(value, where)
    if isinstance(value, str):
        return value
    if column["is_name"]:
        if isinstance(value, (bool, np.bool_)):
            return "true" if value else "false"
        if isinstance(value, (float, np.floating)) and float(value).is_integer():
            value = int(value)  # a column of numbers in which some are missing
        with contextlib.suppress(TypeError):
            return str(operator.index(value))
    raise TypeError(f"{where} is {value!r}; expected a text{' or a whole number' * column['is_name']}")


def _label_type(values: List[Any], where: str) -> str:
    """Returns the data.label_type of labels, or of lists of them: the kind that numpy.unique() gives."""
    kinds = {"text" if isinstance(label, str) else "boolean" if isinstance(label, (bool, np.bool_))
             else "number" if isinstance(label, (float, np.floating)) else "integer"
             for value in values for label in (value if _is_list(value) else [value])}
    if "boolean" in kinds and len(kinds) > 1:
        raise TypeError(f"{where} mixes True and False with other labels")
    return "text" if "text" in kinds else "number" if "number" in kinds else kinds.pop() if kinds else ""


def _number(value: Any, where: str) -> str:
    """Converts a number, or a text that contains one, to text."""
    if not isinstance(value, (bool, np.bool_)):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return repr(float(value))
    raise TypeError(f"{where} is {value!r}; expected a number")


def _is_list(value: Any) -> bool:
    return not isinstance(value, str) and hasattr(value, "__iter__")


def _cell(value: Any, column: Dict[str, Any], where: str) -> bytes:
    separator = column["separator"]
    if separator and _is_list(value):
        elements = [_element(element, column, where) for element in value]
        for element in elements:
            if separator.strip() in element if separator.strip() else separator in element:
                raise ValueError(f"{where} has the element {element!r}, in which {separator!r} must not stand")
        text = separator.join(elements)
    else:
        text = _element(value, column, where)
    return lib.encoded(text, where)


def is_missing(value: Any) -> bool:
    """Returns whether a value is None, NaN or the pandas equivalent."""
    if isinstance(value, (float, np.floating)):
        return value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _values(values: Any, where: str) -> List[Any]:
    """Converts a column to a list: an array, a Series, any iterable, or a table of one column."""
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{where} is one text; expected a list of texts")
    if isinstance(values, Mapping):
        keys = list(values)
        raise TypeError(f"{where} is a dictionary of {keys}; expected a list of texts: give one of its values")
    shape = tuple(getattr(values, "shape", (1,)))
    if len(shape) == 2 and shape[1] == 1:
        values = np.asarray(values)[:, 0]
    elif len(shape) != 1:
        columns = list(getattr(values, "columns", ()))
        given = f"is a table of the columns {columns}" if columns else f"has the shape {shape}"
        raise TypeError(f"{where} {given}; expected one dimension: give one column of it")
    if not hasattr(values, "__iter__"):
        raise TypeError(f"{where} is {lib.shown(values)}; expected a list of texts")
    return values.tolist() if hasattr(values, "tolist") else list(values)


def texts_in(texts: Any, where: str = "texts") -> List[bytes]:
    """Converts texts, given as any column may be, for the library."""
    return [lib.encoded(text, f"{where}[{row}]") for row, text in enumerate(_values(texts, where))]


def _lines(texts: Any, where: str = "texts") -> Any:
    return lib.texts_of(texts_in(texts, where))


def _checked_missing(names: List[str], found: List[List[Any]], part: str, missing: str) -> Tuple[List[List[Any]], int]:
    """Returns the columns without incomplete rows, and the number of these rows; or raises."""
    lacking = {row: name for name, values in zip(names, found) for row, value in enumerate(values) if is_missing(value)}
    if not lacking:
        return found, 0
    if missing != "drop":
        row = min(lacking)
        values = found[names.index(lacking[row])]
        raise ValueError(f"{lacking[row]}[{row}] is {values[row]!r}: {len(lacking)} of {len(values)} rows of {part!r} lack"
                         " a value; give one, or leave these rows out by missing=\"drop\"")
    return [[value for row, value in enumerate(values) if row not in lacking] for values in found], len(lacking)


class Table:
    """Examples in the form that the library takes. ``dropped`` counts the incomplete rows."""

    def __init__(
        self, task: str, part: str, columns: List[Dict[str, Any]], given: Sequence[Any],
        missing: str = "error",
    ) -> None:
        names = [column["name"] for column in columns]
        lacks = [column["name"] for column in columns[len(given):] if not column["optional"]]
        if lacks or len(given) > len(columns):
            said = "".join(f" and no {name}" for name in lacks)
            raise TypeError(f"{task} takes {', '.join(names)} as the columns of {part!r}, but got {len(given)}{said}")
        found = [_values(values, name) for values, name in zip(given, names)]
        for name, values in zip(names, found):
            if len(values) != len(found[0]):
                raise ValueError(f"{len(found[0])} of {names[0]}, but {len(values)} of {name} in {part!r}")
        found, self.dropped = _checked_missing(names, found, part, missing)
        cells = [[_cell(value, column, f"{column['name']}[{row}]") for row, value in enumerate(values)]
                 for values, column in zip(found, columns)]
        flat = [cell for column in cells for cell in column]
        labels = next((values for values, name in zip(found, names) if name == "label"), [])
        self.has_lists = any(_is_list(value) for value in labels)
        self.label_type = _label_type(labels, "label")
        self._kept = (ctypes.c_char_p * len(flat))(*flat)
        self.struct = lib.TYPES["heed_examples"](part.encode(), len(cells), len(cells[0]),
                                         ctypes.cast(self._kept, ctypes.POINTER(ctypes.c_char_p)))


def table_of(
    task: Dict[str, Any], part: str, value: Any, names_of: Optional[Dict[str, str]] = None,
    missing: str = "error",
) -> Table:
    """Converts columns, or a mapping of column names to columns, to a table of the task.

    ``names_of`` maps the task's column names to those of the mapping, which may then have other columns too.
    """
    if missing not in ("error", "drop"):
        raise ValueError(f"missing is {missing!r}; expected \"error\" or \"drop\"")
    tables = {table["name"]: table["columns"] for table in task["examples"]}
    if not tables:
        raise TypeError(f"{task['name']} takes files, not examples in memory")
    if part not in ("train", "valid", "test") and part not in tables:
        raise TypeError(f"{task['name']} has no {part!r}")
    columns = tables.get(part, tables[""])
    names = [column["name"] for column in columns]
    has_columns = hasattr(value, "keys") and getattr(value, "ndim", 2) == 2  # a Series has keys, too
    if names_of and columns is tables[""]:
        if not has_columns:
            raise TypeError(f"{', '.join(names_of)} name columns of a DataFrame or a dictionary, and {part!r} is neither")
        absent = [name for name in names_of.values() if name not in value.keys()]
        if absent:
            raise KeyError(f"{part!r} has no column {absent[0]!r} among {list(value.keys())}")
        value = {name: value[names_of.get(name, name)] for name in names if names_of.get(name, name) in value.keys()}
    if has_columns:
        given = list(value.keys())
        unknown = [name for name in given if name not in names]
        absent = [column["name"] for column in columns if not column["optional"] and column["name"] not in given]
        if unknown or absent:
            said = ", ".join(f'{name}="..."' for name in names)
            raise TypeError(f"{task['name']} takes the columns {', '.join(names)}, and {part!r} has {given}; say which"
                            f" of them to read by {said}")
        ordered: Tuple[Any, ...] = tuple(value[name] for name in names if name in given)
        if names[: len(ordered)] != [name for name in names if name in given]:
            raise TypeError(f"{part!r} has {given}: columns may be left out at the end of {', '.join(names)} alone")
        return Table(task["name"], part, columns, ordered, missing)
    if not hasattr(value, "__iter__"):
        raise TypeError(f"{part!r} is {lib.shown(value)}; expected {', '.join(names)} as columns, or a file")
    single = len(columns) == 1 and not isinstance(value, tuple)
    if getattr(value, "ndim", 0) == 1 or isinstance(value, list) and value and isinstance(value[0], str):
        single = True  # one column, where the task takes several
    return Table(task["name"], part, columns, [value] if single else list(value), missing)


def column_names(task: Dict[str, Any], named: Dict[str, Any]) -> Dict[str, str]:
    """Removes and returns the keywords that name columns of the task."""
    columns = [column["name"] for table in task["examples"] if not table["name"] for column in table["columns"]]
    return {name: named.pop(name) for name in columns if name in named}


class GenerationOptions(TypedDict, total=False):
    """Keywords of Run.generate(), Run.stream() and Run.chat(). Omitted ones are taken from the run."""

    max_tokens: Optional[int]  #: The most new tokens; also `max_new_tokens`.
    temperature: Optional[float]  #: Divides the logits; 0, or `do_sample=False`, always picks the likeliest token.
    top_k: Optional[int]  #: Keeps this many of the likeliest tokens.
    top_p: Optional[float]  #: Keeps the likeliest tokens with this sum of probabilities.
    min_p: Optional[float]  #: Keeps tokens with this share of the largest probability.
    repetition_penalty: Optional[float]  #: Above 1, avoids tokens that the text already has.
    stop: Union[None, str, Sequence[str]]  #: A language model ends before the first of these texts.
    samples: Optional[int]  #: The number of texts; also `num_return_sequences`.
    seed: Optional[int]  #: Equal seeds give equal texts.
    add_special_tokens: Optional[bool]  #: False: no begin mark before the prompt.
    max_new_tokens: Optional[int]
    do_sample: Optional[bool]
    num_return_sequences: Optional[int]


_OTHER_NAMES = {"max_new_tokens": "max_tokens", "num_return_sequences": "samples", "add_special_tokens": "marks"}


def _generation_settings(options: Mapping[str, Any]) -> Optional[bytes]:
    """Returns options as settings of the library."""
    unknown = [name for name in options if name not in GenerationOptions.__annotations__]
    if unknown:
        raise TypeError(f"there is no option {unknown[0]!r} of generation; there are {', '.join(GenerationOptions.__annotations__)}")
    given = {name: value for name, value in options.items() if value is not None}
    if given.pop("do_sample", True) is False:
        given["temperature"] = lib.one_of("temperature", given.get("temperature"), "do_sample=False", 0)
    for other, name in _OTHER_NAMES.items():
        if other in given:
            given[name] = lib.one_of(name, given.get(name), other, given.pop(other))
    if isinstance(given.get("stop"), str):
        given["stop"] = [given["stop"]]
    return lib.settings_json(given)


class Model(Module):
    """The model of a run: its parameters, and its outputs for texts."""

    def __init__(self, run: "Run") -> None:
        super().__init__(lib.result("heed_run_model", run))
        self._run = run

    def __call__(
        self, texts: Sequence[str], context: Optional[Context] = None, *,
        targets: Optional[Sequence[str]] = None,
    ) -> Tensor:
        """Returns the model's outputs for texts, before normalisation, with gradients.

        The outputs are logits [n, classes], vectors [n, width] or, for a language model, logits [n, tokens,
        vocabulary]. With ``targets``, a text for each, it returns the log-probability of each target [n]; this works
        for translate, summarize and converse. ``context`` is that of a training pass; None runs inference.
        """
        lines = _lines(texts)
        if targets is not None:
            wanted = _lines(targets, "targets")
            if len(wanted) != len(lines):
                raise ValueError(f"{len(lines)} texts, but {len(wanted)} targets")
            return Tensor._result("heed_run_log_probabilities", self._run, lines, wanted, len(lines), context)
        return Tensor._result("heed_run_outputs", self._run, lines, len(lines), context)


class Run(_Handle):
    """A trained run of any task: ``Run.open(folder).predict(texts)``."""

    _free_name = "heed_run_free"

    def __init__(self, handle: int) -> None:
        super().__init__(handle)
        self.folder = ""  #: The folder of the run.
        self._temporary: Any = None
        self._given: Dict[str, Any] = {}  # the options of open()

    @classmethod
    def open(
        cls, folder: Path, *, device: Optional[str] = None, weights: Optional[str] = None,
        config: Optional[str] = None, settings: Union[None, Mapping[str, Any], Sequence[str]] = None,
        verify: bool = True,
    ) -> "Run":
        """Opens a run from its folder, from a file of save(), or from a published model (see from_pretrained()).

        ``device``: "cpu", "vulkan", "vulkan:1" or "auto"; by default the device it was trained on. ``weights``:
        "best", "last" or "initial". ``settings`` override the run's, for example ``{"decoding.beam": 1}``; dotted,
        nested, or a list of "decoding.beam=1". ``verify=False`` opens a run whose files were changed. Raises
        heed.Error if there is no run, or if a file is missing or was changed.
        """
        named = lib.path_of(folder, "folder")
        if os.path.isfile(named):
            try:
                with zipfile.ZipFile(named) as packed:
                    files = ((name, packed.open(name)) for name in packed.namelist())
                    return cls._of_files(files, device=device, weights=weights, config=config, settings=settings, verify=verify)
            except zipfile.BadZipFile as error:
                raise lib.Error(f"{named} is neither the folder of a run nor a file that Run.save() wrote: {error}") from None
        path = None if config is None else lib.path_of(config, "config")
        given: Dict[str, Any] = dict(device=device, weights=weights, config=path, verify=verify)
        if isinstance(settings, str):
            raise TypeError(f"settings is {settings!r}; expected a dictionary, or a list such as [{settings!r}]")
        given["settings"] = list(_assignments(settings)) if isinstance(settings, Mapping) else list(settings or ()) or None
        run = cls(lib.result("heed_run_open", lib.encoded(named, "folder"), lib.settings_json(given)))
        run.folder = named
        run._given = dict(device=device, weights=weights, config=config, settings=settings, verify=verify)
        return run

    @classmethod
    def _of_files(cls, files: Iterable[Tuple[str, IO[bytes]]], **given: Any) -> "Run":
        """Opens a run in a temporary folder, into which it copies these files."""
        temporary = lib.temporary_folder()
        for name, content in files:
            if name != os.path.basename(name) or name in ("", ".", ".."):
                raise lib.Error(f"{name!r} is no file of a run")
            with content, open(os.path.join(temporary.name, name), "wb") as file:
                shutil.copyfileobj(content, file)
        run = cls.open(temporary.name, **given)
        run._temporary = temporary
        return run

    def __reduce__(self) -> Any:
        files = [(name, io.BytesIO(content)) for name, content in self._files()]
        return functools.partial(Run._of_files, **self._given), (files,)

    def save(self, path: Path, *, overwrite: bool = False) -> None:
        """Writes the run to one zip file, completely or not at all. Run.open() reads it on any machine.

        It contains the files in the run's folder except the optimizer state, so the copy cannot be resumed, and no
        subfolders.
        """
        if self.folder and not os.path.exists(os.path.join(self.folder, "run.json")):
            raise lib.Error(f"{self.folder} is a published model, which stays as it is; heed import makes a run of it")
        target = lib.path_of(path)
        if os.path.exists(target) and not overwrite:
            raise lib.Error(f"{target} exists; overwrite=True replaces it")
        temporary = os.path.join(os.path.dirname(target), f".heed-{os.getpid()}-{threading.get_ident()}")
        try:
            with zipfile.ZipFile(temporary, "x", zipfile.ZIP_STORED) as packed:
                for name, content in self._files():
                    packed.writestr(zipfile.ZipInfo(name), content)
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise

    def export(self, folder: Path, *, dtype: str = "f32") -> None:
        """Writes the model to a new folder in Hugging Face's layout, for `transformers` and the tools that read it.

        >>> run = heed.train("classify", texts, labels, settings={"training.exportable": True}, steps=20)
        >>> run.export("reviews-bert", dtype="bf16")

        ``dtype``: that of the stored weights, "f32", "f16" or "bf16". Raises heed.Error for a model that no layout can
        hold, with the settings that stand in the way; see docs/guides/published.md.
        """
        if not self.folder:
            raise lib.Error("the run has no folder that could be exported")
        target = lib.encoded(lib.path_of(folder, "folder"), "folder")
        with lib.interruptible():
            lib.result_json("heed_run_export", lib.encoded(self.folder, "folder"), target, lib.settings_json({"dtype": dtype}))

    def _files(self) -> Iterator[Tuple[str, bytes]]:
        """Yields the files of the folder except the optimizer state."""
        if not self.folder:
            raise lib.Error("the run has no folder whose files could be saved")
        for entry in sorted(os.scandir(self.folder), key=lambda entry: entry.name):
            if entry.is_file() and entry.name != "optimizer.safetensors":
                with open(entry.path, "rb") as file:
                    yield entry.name, file.read()

    def __repr__(self) -> str:
        if self._handle is None:
            return "<heed.Run, closed>"
        found = self._describe()
        model = found["settings"].get("model", {})
        mechanisms = [model.get(name) for name in ("encoder_attention", "decoder_attention")]
        mechanism = next((f" with {name}" for name in mechanisms if isinstance(name, str)), "")
        count = sum(parameter.size for parameter in self.model.parameters().values())
        classes = f", {len(found['classes'])} classes" if found["classes"] else ""
        return f"<heed.Run of {found['task']}{mechanism}, {count:,} parameters{classes}, in {self.folder!r}>"

    def _called(self, function: str, *arguments: Any) -> Any:
        """Calls a long function of the library, and returns the JSON that it gives."""
        with lib.interruptible():
            return lib.result_json(f"heed_run_{function}", self, *arguments)

    def _describe(self) -> Dict[str, Any]:
        """Returns the run's description; issues its remarks as warnings."""
        found = lib.result_json("heed_run_describe", self)
        for remark in found["remarks"]:
            warnings.warn(remark, stacklevel=3)
        return found

    @property
    def task(self) -> str:
        """The task: "classify", "translate", ..."""
        return self._describe()["task"]

    @property
    def settings(self) -> Dict[str, Any]:
        """All settings, nested: ``settings["training"]["steps"]``."""
        return self._describe()["settings"]

    @property
    def classes(self) -> List[Any]:
        """The classes in the order of the outputs, of the type of the labels that were learned; an empty list for tasks
        without classes.
        """
        described = self._describe()
        return Predictions([], described["classes"], described["settings"].get("data", {})).classes

    @property
    def model(self) -> Model:
        """The model: its parameters can be read and trained, and calling it returns outputs."""
        return Model(self)

    def predict(self, texts: Sequence[str], *, errors: str = "raise") -> Predictions:
        """Returns an answer for each text: a list with the arrays ``labels``, ``probabilities`` and ``vectors``.

        ``texts`` is a list, an array, a Series or a table of one column. A text that cannot be answered, such as a
        blank one, raises heed.Error with its index. With ``errors="return"``, its Prediction has an ``error`` instead.
        """
        encoded = texts_in(texts)
        answers: List[Prediction] = []
        with lib.interruptible():
            for begin in range(0, len(encoded), _AT_ONCE):
                lines = lib.texts_of(encoded[begin : begin + _AT_ONCE])
                given = lib.settings_json(dict(errors=errors, first_line=begin))
                answers += map(_prediction, lib.result_json("heed_run_predict", self, lines, len(lines), given))
        described = self._describe()
        return Predictions(answers, described["classes"], described["settings"].get("data", {}))

    def stream(self, text: str, **options: Unpack[GenerationOptions]) -> Iterator[str]:
        """Yields a generated text in pieces: ``for piece in run.stream(prompt, temperature=0.8)``.

        Greedy search and sampling yield each token; beam search yields text once all hypotheses agree on it. The
        pieces add up to the answer of predict() or, with GenerationOptions, of generate(). Leaving the loop stops generation.
        """
        given = _generation_settings(options)
        line = lib.encoded(text, "text")
        found: "queue.SimpleQueue[Any]" = queue.SimpleQueue()  # pieces, then None or an exception
        left = threading.Event()

        def take(_context: Any, piece: int, size: int) -> int:
            found.put(ctypes.string_at(piece, size).decode("utf-8"))
            return int(left.is_set())

        def write() -> None:
            try:
                with lib.interruptible():
                    lib.result_json("heed_run_generate_stream", self, line, given, lib.TYPES["heed_on_bytes"](take), None)
                found.put(None)
            except BaseException as error:  # noqa: B902 - raised again below
                found.put(error)

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        try:
            piece = found.get()
            while isinstance(piece, str):
                yield piece
                piece = found.get()
            if piece is not None:
                raise piece
        finally:
            left.set()
            writer.join()

    def generate(self, prompt: Union[str, Sequence[str]], **options: Unpack[GenerationOptions]) -> Predictions:
        """Returns ``samples`` texts that continue a prompt or, for tasks such as translate, answer it; of a list of
        prompts those of the first, then those of the next.

        >>> print(run.generate("Once upon", max_tokens=50, temperature=0.8, stop=["\\n\\n"])[0])

        ``options`` are those of GenerationOptions.
        """
        given = _generation_settings(options)
        prompts = texts_in(prompt, "prompt") if _is_list(prompt) else [lib.encoded(prompt, "prompt")]
        return Predictions([_prediction(answer) for line in prompts for answer in self._called("generate", line, given)], [])

    def chat(
        self, messages: Sequence[Mapping[str, Any]], *, chat_template: Optional[str] = None,
        **options: Unpack[GenerationOptions],
    ) -> str:
        """Returns the reply of a published chat model to messages, without special tokens.

        >>> run.chat([{"role": "user", "content": "Who are you?"}], max_tokens=50, temperature=0)

        The model reads chat_prompt(messages); the tokens that generation_config.json names end the reply. ``options``:
        GenerationOptions.
        """
        options.setdefault("add_special_tokens", False)
        return self.generate(self.chat_prompt(messages, chat_template=chat_template), **options)[0].text

    def chat_prompt(
        self, messages: Sequence[Mapping[str, Any]], *, chat_template: Optional[str] = None, **values: Any,
    ) -> str:
        """Renders ``chat_template``, by default that of the published folder, in tokenizer_config.json or
        chat_template.jinja. ``values`` are for the template: ``tools``, ``add_generation_prompt=False``. Raises heed.Error
        without a template or the package jinja2, and for messages that the template refuses.
        """
        return chat_text(self.folder, messages, chat_template, values)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the texts that the run reads. Raises heed.Error for a run that reads none."""
        return Tokenizer(self, False)

    @property
    def target_tokenizer(self) -> Tokenizer:
        """The tokenizer of the texts that the run writes; the same one without tokenizer.separate."""
        return Tokenizer(self, True)

    def _encoded(self, texts: Any, *how: int) -> List[Dict[str, Any]]:
        lines = _lines([texts] if isinstance(texts, str) else texts)
        return list(self._called("encode", lines, len(lines), *how))

    def hidden(self, texts: Any) -> Any:
        """Returns the hidden states of a text, float32 [tokens, width], or of each text: the outputs of the encoder or
        language model for the tokens of ``tokenizer.encode()``. Raises heed.Error for pairs and runs that read no texts.
        """
        if isinstance(texts, str):
            return self.hidden([texts])[0]
        lines, counts, states = texts_in(texts), self.tokenizer.count(texts), []
        with lib.interruptible(), no_grad():
            for begin in range(0, len(lines), 32):
                part = lib.texts_of(lines[begin:begin + 32])
                padded = Tensor._result("heed_run_hidden", self, part, len(part), None).numpy()
                states += [rows[:count].copy() for rows, count in zip(padded, counts[begin:])]
        return states

    def attention(self, text: str) -> "AttentionWeights":
        """Returns the attention weights of each layer for a text, with the tokens.

        >>> weights = run.attention("an uneven but touching film .")
        >>> weights["encoder.layers.0.attention.weights"].shape, weights.tokens      # [heads, queries, keys]

        Mechanisms without such weights return what they have: clusters, buckets, orders.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "shown.safetensors")
            answer = self.capture([text], path)[0]
            if answer.error:
                raise lib.Error(f"attention: {answer.error}")
            return AttentionWeights._read(path)

    def serve(self, max_batch: int = 32, workers: int = 1, *, errors: str = "raise") -> "AnswerQueue":
        """Returns a queue for servers: it answers requests from several threads in batches.

        ``errors`` is that of predict(). The queue also works in processes that are forked later.
        """
        given = lib.settings_json(dict(max_batch=max_batch, workers=workers, errors=errors))
        made = AnswerQueue(lib.result("heed_queue_create", self, given))
        lib.closed_at_end.add(made)
        return made

    def capture(self, texts: Sequence[str], path: Path, overwrite: bool = False) -> List[Prediction]:
        """Returns predict() of the texts and writes attention data to a file: maps for .html, otherwise safetensors."""
        lines, file = _lines(texts), lib.encoded(lib.path_of(path))
        return [_prediction(answer) for answer in self._called("capture", lines, len(lines), file, int(overwrite))]

    @property
    def history(self) -> Dict[str, np.ndarray]:
        """The course of training: an array, float64 [n], for each figure, such as "step", "loss" and "learning_rate", and for
        each metric on the validation part, such as "valid_accuracy". NaN: not measured at this step. Empty without a record.

        >>> pandas.DataFrame(run.history).plot("step", "loss")
        """
        rows: Dict[float, Dict[str, float]] = {}
        with contextlib.suppress(FileNotFoundError), open(os.path.join(self.folder, "metrics.jsonl"), encoding="utf-8") as file:
            for line in map(json.loads, file):
                measured = {f"valid_{name}": value for name, value in line.get("evaluation", {}).items()}
                figures = {name: value for name, value in {**line, **measured}.items() if isinstance(value, (int, float))}
                rows.setdefault(line["step"], {}).update(figures)
        names = list(dict.fromkeys(name for row in rows.values() for name in row if name not in ("best", "steps")))
        return {name: np.array([row.get(name, np.nan) for row in rows.values()], np.float64) for name in names}

    def report(self) -> Page:
        """Returns the report of the run: curves, settings, mistakes, attention maps."""
        return report(self.folder)

    def maps(self, texts: Sequence[str]) -> Page:
        """Returns attention maps of these texts, one for each head."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "maps.html")
            self.capture(texts, path)
            with open(path, encoding="utf-8") as file:
                return Page(file.read())

    def _repr_html_(self) -> Optional[str]:
        return self.report()._repr_html_() if self.folder else None

    def measure(self, part: str = "valid") -> Dict[str, Any]:
        """Returns the task's metrics on the "valid", "test" or "train" part of the run's data."""
        return self._called("measure", lib.encoded(part, "part"))

    def evaluate(
        self, *examples: Any, part: str = "valid", missing: str = "error", **columns: str,
    ) -> Dict[str, Any]:
        """Returns the task's metrics on examples or files, given as in train(); by default on ``part`` of the run's
        data.
        """
        if (columns or missing != "error") and all(is_path(file) for file in examples):
            raise TypeError("missing and names of columns are of examples in memory: a file is read as the run's settings say")
        if not examples:
            return self.measure(part)
        if all(is_path(file) for file in examples):
            files = lib.texts_of([lib.encoded(lib.path_of(file)) for file in examples])
            return self._called("measure_files", files, len(files))
        kind = next(task for task in lib.listing("tasks") if task["name"] == self.task)
        names_of = column_names(kind, columns)
        if columns:
            raise TypeError(f"{self.task} has no column {next(iter(columns))!r}")
        table = table_of(kind, "train", examples[0] if len(examples) == 1 else examples, names_of, missing)
        return self._called("measure_examples", ctypes.byref(table.struct))


def from_pretrained(
    folder: Path, *, device: Optional[str] = None,
    settings: Union[None, Mapping[str, Any], Sequence[str]] = None,
) -> Run:
    """Opens a published model in Hugging Face layout as a run.

    >>> heed.from_pretrained("SmolLM2-135M").generate("Once upon a time", max_tokens=20)
    >>> heed.train("classify", texts, labels, settings={"training.from": "all-MiniLM-L6-v2", "training.ignore": "output"})

    The folder contains ``config.json``, safetensors weights and ``tokenizer.json``. docs/guides/published.md lists
    the architectures and the task of each. Nothing is downloaded or written. To fine-tune, train with the setting
    ``training.from``. Ignored parts cause a warning; unsupported features raise heed.Error. ``device`` and
    ``settings`` are those of Run.open().
    """
    named = lib.path_of(folder, "folder")
    if not os.path.isdir(named):
        raise lib.Error(f"{named!r} is no folder. heed downloads nothing: 'hf download {named} --local-dir FOLDER' "
                        "of the package huggingface_hub does, and from_pretrained(FOLDER) opens it")
    run = Run.open(named, device=device, settings=settings)
    run._describe()  # which warns of what was left out
    return run


class AttentionWeights(Dict[str, Array]):
    """A dict from layer names to attention weights [heads, queries, keys] and other arrays."""

    tokens: List[str]  #: The tokens that the model read; with two inputs, those of the first.
    targets: List[str]  #: The tokens of its output or second input; empty with one text.

    @classmethod
    def _read(cls, path: str) -> "AttentionWeights":
        """Reads a safetensors file that capture() wrote for one text."""
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header, content = json.loads(file.read(size)), file.read()
        made = cls()
        lists = [json.loads(text) for name, text in header.pop("__metadata__", {}).items() if name in header]
        texts = [name for name in header if header[name]["dtype"] == "I32" and len(header[name]["shape"]) < 3]
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            array = np.frombuffer(content[begin:end], _SAFETENSORS[entry["dtype"]]).reshape(entry["shape"])
            if not (name in texts and name.count(".") == 2):
                made[name.split(".", 2)[2]] = array[0] if array.ndim == 4 and len(array) == 1 else array
        made.tokens, made.targets = (lists + [[], []])[:2]
        return made


_SAFETENSORS = {"F32": np.float32, "F64": np.float64, "I32": np.int32, "F16": np.float16}


def _assignments(settings: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yields "name=value" for each setting of a dotted or nested mapping."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _assignments(value, f"{prefix}{name}.")
        else:
            plain = lib.setting_of(value, f"{prefix}{name}")
            yield f"{prefix}{name}={plain if isinstance(plain, str) else json.dumps(plain)}"


class AnswerQueue(_Handle):
    """A queue that answers texts from several threads with one run: ``with run.serve() as queue``."""

    _free_name = "heed_queue_free"

    def answer(self, text: str) -> Prediction:
        """Waits for and returns the answer; it equals predict([text]) except for the last digits of probabilities.

        Runs with the attentions reformer and routing_transformer are an exception: there, texts that are answered
        together affect each other.
        """
        line = lib.encoded(text, "text")
        if self._handle is None:
            raise lib.BadArgument("the queue is closed; run.serve() makes another")
        with lib.interruptible():
            return _prediction(lib.result_json("heed_queue_answer", self, line))

    def close(self) -> None:
        """Waits until all requests are answered, and closes the queue. Further ones raise heed.BadArgument."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            self._free(handle)

    def __enter__(self) -> "AnswerQueue":
        return self

    def __exit__(self, *_error: Any) -> None:
        self.close()
