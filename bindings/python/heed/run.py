"""Runs: what the sample programs trained."""

from __future__ import annotations

import ctypes
import operator
import os
import queue
import tempfile
import threading
import warnings
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from . import _library as lib
from ._library import Path
from .layers import Context, Module, _Handle
from .notebook import Page, report
from .tensor import Tensor

_AT_ONCE = 1024  # lines of one call, as in the sample programs


@dataclass(frozen=True)
class Alternative:
    text: str
    probability: float
    score: Optional[float] = None


@dataclass(frozen=True)
class Prediction:
    """The answer to one line: a label, a translation, a continuation.

    `error` says why there is none; without ``errors="return"`` that is an exception.
    """

    text: str = ""
    probability: float = 0.0
    alternatives: List[Alternative] = field(default_factory=list)
    error: str = ""
    vector: Optional[List[float]] = None  # of an answer that is one: its numbers

    def __str__(self) -> str:
        return self.text


def _prediction(answer: Dict[str, Any]) -> Prediction:
    if "error" in answer:
        return Prediction(error=answer["error"])
    others = [Alternative(**one) for one in answer["alternatives"]]
    return Prediction(answer["text"], answer["probability"], others, vector=answer.get("vector"))


class Predictions(List[Prediction]):
    """A Prediction for each text, in their order; and all of them as arrays."""

    def __init__(self, answers: List[Prediction], classes: List[str]) -> None:
        super().__init__(answers)
        self.classes = classes  #: the columns of `probabilities`

    @property
    def labels(self) -> np.ndarray:
        """The answers as texts [n]; "" where there is none."""
        return np.array([one.text for one in self], dtype=str)

    @property
    def probability(self) -> np.ndarray:
        """Of each answer [n]."""
        return np.array([one.probability for one in self], dtype=np.float64)

    @property
    def probabilities(self) -> np.ndarray:
        """Of each class [n, classes]; NaN where a text has no answer. Of tasks that tell classes apart."""
        if not self.classes:
            raise lib.Error("this task tells no classes apart: see `probability`, and the `alternatives` of an answer")
        place = {name: column for column, name in enumerate(self.classes)}
        found = np.full((len(self), len(self.classes)), np.nan)
        for row, one in enumerate(self):
            for other in one.alternatives:
                found[row, place[other.text]] = other.probability
        return found

    @property
    def vectors(self) -> np.ndarray:
        """float32 [n, width]; NaN where a text has no answer. Of tasks whose answer is a vector."""
        width = max((len(one.vector) for one in self if one.vector), default=0)
        if not width and len(self):
            raise lib.Error("the answers of this task are not vectors")
        nothing = [np.nan] * width
        return np.array([one.vector or nothing for one in self], dtype=np.float32).reshape(len(self), width)


# --- examples: columns of texts


def is_path(value: Any) -> bool:
    """A file, not a column."""
    return isinstance(value, (str, os.PathLike))


def _element(value: Any, column: Dict[str, Any], where: str) -> str:
    """One text; of a label or an id also a whole number or a truth value."""
    if isinstance(value, str):
        return value
    if column["is_name"]:
        if isinstance(value, (bool, np.bool_)):
            return "true" if value else "false"
        try:
            return str(operator.index(value))
        except TypeError:
            pass
        raise TypeError(f"{where} is {value!r}; expected a text or a whole number")
    raise TypeError(f"{where} is {value!r}; expected a text")


def _cell(value: Any, column: Dict[str, Any], where: str) -> bytes:
    separator = column["separator"]
    if separator and not isinstance(value, str) and hasattr(value, "__iter__"):
        elements = [_element(one, column, where) for one in value]
        for one in elements:
            if separator.strip() in one if separator.strip() else separator in one:
                raise ValueError(f"{where} has the element {one!r}, in which {separator!r} must not stand")
        text = separator.join(elements)
    else:
        text = _element(value, column, where)
    try:
        return lib.encoded(text)
    except UnicodeEncodeError as error:
        raise ValueError(f"{where} is not Unicode text: {error.reason}") from None
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _column(values: Any, column: Dict[str, Any], where: str) -> List[bytes]:
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{where} is one text; expected a list of texts")
    if not hasattr(values, "__iter__"):
        raise TypeError(f"{where} is a {type(values).__name__}; expected a list of texts")
    if getattr(values, "ndim", 1) != 1:
        raise TypeError(f"{where} has the shape {tuple(values.shape)}; expected one dimension")
    values = values.tolist() if hasattr(values, "tolist") else values
    return [_cell(value, column, f"{where}[{row}]") for row, value in enumerate(values)]


class Table:
    """Examples as the library takes them."""

    def __init__(self, task: str, part: str, columns: List[Dict[str, Any]], given: Sequence[Any]) -> None:
        names = [one["name"] for one in columns]
        if len(given) > len(columns) or len(given) < sum(not one["optional"] for one in columns):
            raise TypeError(f"{task} takes {', '.join(names)} as the columns of {part!r}, and {len(given)} are given")
        cells = [_column(values, column, column["name"]) for values, column in zip(given, columns)]
        for name, one in zip(names, cells):
            if len(one) != len(cells[0]):
                raise ValueError(f"{len(cells[0])} of {names[0]}, but {len(one)} of {name} in {part!r}")
        flat = [cell for column in cells for cell in column]
        self._kept = (ctypes.c_char_p * len(flat))(*flat)
        self.struct = lib.ExamplesStruct(part.encode(), len(cells), len(cells[0]),
                                         ctypes.cast(self._kept, ctypes.POINTER(ctypes.c_char_p)))


def table_of(task: Dict[str, Any], part: str, value: Any) -> Table:
    """Columns, or a mapping of their names, as a table of the task."""
    tables = {one["name"]: one["columns"] for one in task["examples"]}
    if not tables:
        raise TypeError(f"{task['name']} takes files, not examples in memory")
    if part not in ("train", "valid", "test") and part not in tables:
        raise TypeError(f"{task['name']} has no {part!r}")
    columns = tables.get(part, tables[""])
    names = [one["name"] for one in columns]
    if hasattr(value, "keys"):
        given = list(value.keys())
        unknown = [name for name in given if name not in names]
        missing = [one["name"] for one in columns if not one["optional"] and one["name"] not in given]
        if unknown or missing:
            raise TypeError(f"{task['name']} takes the columns {', '.join(names)}, and {part!r} has {given}")
        ordered: Tuple[Any, ...] = tuple(value[name] for name in names if name in given)
        if names[: len(ordered)] != [name for name in names if name in given]:
            raise TypeError(f"{part!r} has {given}: columns may be left out at the end of {', '.join(names)} alone")
        return Table(task["name"], part, columns, ordered)
    single = len(columns) == 1 and not isinstance(value, tuple)
    return Table(task["name"], part, columns, [value] if single else list(value))


class Model(Module):
    """The model of a run: its parameters, and its outputs for texts."""

    def __init__(self, run: "Run") -> None:
        super().__init__(lib.result("heed_run_model", run))
        self._run = run

    def __call__(
        self, texts: Sequence[str], context: Optional[Context] = None, *, targets: Optional[Sequence[str]] = None
    ) -> Tensor:
        """What it computes for texts, as predict() takes them, before any choice or normalisation.

        Logits [n, classes], vectors [n, width], of a language model logits [n, tokens, vocabulary]. Of tasks that
        write a text for a text, with ``targets``, a text for each: the log-probability of each target [n]. Its
        parameters get gradients from the result. ``context``: that of a training pass; None: inference.
        """
        lines = _lines(texts)
        if targets is not None:
            wanted = _lines(targets)
            if len(wanted) != len(lines):
                raise ValueError(f"{len(lines)} texts, but {len(wanted)} targets")
            return Tensor._result("heed_run_log_probabilities", self._run, lines, wanted, len(lines), context)
        return Tensor._result("heed_run_outputs", self._run, lines, len(lines), context)


def _lines(texts: Sequence[str]) -> Any:
    if isinstance(texts, str):
        raise TypeError("give a list of texts, not one text")
    return lib.texts_of(texts)


class Run(_Handle):
    """A trained run of any task: Run.open(folder).predict(texts)."""

    _free_name = "heed_run_free"

    def __init__(self, handle: int) -> None:
        super().__init__(handle)
        self.folder = ""  #: where the run is kept
        self._temporary: Any = None

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        device: Optional[str] = None,
        weights: Optional[str] = None,
        config: Optional[str] = None,
        settings: Optional[Sequence[str]] = None,
        verify: bool = True,
    ) -> "Run":
        """``weights``: "best", "last" or "initial"; ``settings``: ["decoding.beam=1", ...] override the run's."""
        given = dict(device=device, weights=weights, config=config, verify=verify)
        given["settings"] = list(settings) if settings else None
        run = cls(lib.result("heed_run_open", lib.encoded(os.fspath(folder)), lib.settings_json(given)))
        run.folder = os.fspath(folder)
        return run

    def _describe(self) -> Dict[str, Any]:
        """Remarks of the run become warnings."""
        found = lib.result_json("heed_run_describe", self)
        for remark in found["remarks"]:
            warnings.warn(remark, stacklevel=3)
        return found

    @property
    def task(self) -> str:
        return self._describe()["task"]

    @property
    def settings(self) -> Dict[str, Any]:
        return self._describe()["settings"]

    @property
    def classes(self) -> List[str]:
        """The classes that the task tells apart, in the order of the model's outputs; [] if it does not."""
        return self._describe()["classes"]

    @property
    def model(self) -> Model:
        """The model, whose parameters can be read and trained; called with texts it gives their logits."""
        return Model(self)

    def predict(self, texts: Sequence[str], *, errors: str = "raise") -> Predictions:
        """One answer for each text: a list, with the arrays ``labels``, ``probabilities`` and ``vectors``.

        A text that cannot be answered raises heed.Error with its number; ``errors="return"``: its Prediction says
        why in ``error``, and has no text.
        """
        texts = texts.tolist() if hasattr(texts, "tolist") else texts
        _lines(texts)  # fails before the first call
        answers: List[Prediction] = []
        with lib.interruptible():
            for begin in range(0, len(texts), _AT_ONCE):
                lines = _lines(texts[begin : begin + _AT_ONCE])
                given = lib.settings_json(dict(errors=errors, first_line=begin))
                answers += map(_prediction, lib.result_json("heed_run_predict", self, lines, len(lines), given))
        return Predictions(answers, self._describe()["classes"])

    def stream(self, text: str) -> Iterator[str]:
        """The answer to one text in pieces, as it is written: ``for piece in run.stream(text)``.

        Of tasks that write texts. Greedy search and sampling give it token by token, beam search
        (settings=["decoding.beam=1"] is greedy) as soon as all hypotheses agree; together it is the text of predict().
        Leaving the loop ends the writing.
        """
        line = lib.encoded(text)
        found: "queue.SimpleQueue[Any]" = queue.SimpleQueue()  # pieces, then None or an exception
        left = threading.Event()

        def take(_context: Any, piece: int, size: int) -> int:
            found.put(ctypes.string_at(piece, size).decode("utf-8"))
            return int(left.is_set())

        def write() -> None:
            try:
                with lib.interruptible():
                    lib.result_json("heed_run_stream_bytes", self, line, lib.ON_BYTES(take), None)
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

    def serve(self, max_batch: int = 32, workers: int = 1, *, errors: str = "raise") -> "AnswerQueue":
        """For servers: a queue that many threads ask, and that answers what waits together.

        ``errors``: as of predict().
        """
        given = lib.settings_json(dict(max_batch=max_batch, workers=workers, errors=errors))
        made = AnswerQueue(lib.result("heed_queue_create", self, given))
        lib.closed_at_end.add(made)
        return made

    def capture(self, texts: Sequence[str], path: Path, overwrite: bool = False) -> List[Prediction]:
        """What predict() answers, and writes what the model attends to: maps if the name ends in .html, else safetensors."""
        lines, file = _lines(texts), lib.encoded(os.fspath(path))
        with lib.interruptible():
            found = lib.result_json("heed_run_capture", self, lines, len(lines), file, int(overwrite))
        return [_prediction(one) for one in found]

    def report(self) -> Page:
        """Its report: curves, settings, mistakes, attention maps."""
        return report(self.folder)

    def maps(self, texts: Sequence[str]) -> Page:
        """What the model attends to in these texts, a map for each head."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "maps.html")
            self.capture(texts, path)
            with open(path, encoding="utf-8") as file:
                return Page(file.read())

    def _repr_html_(self) -> Optional[str]:
        return self.report()._repr_html_() if self.folder else None

    def measure(self, part: str = "valid") -> Dict[str, Any]:
        """The task's metrics on "valid", "test" or "train" of the run's own data."""
        with lib.interruptible():
            return lib.result_json("heed_run_measure", self, lib.encoded(part))

    def evaluate(self, *examples: Any, part: str = "valid") -> Dict[str, Any]:
        """The task's metrics on examples or files, as train() takes them; without any on ``part`` of the run's data."""
        if not examples:
            return self.measure(part)
        with lib.interruptible():
            if all(is_path(one) for one in examples):
                files = _lines([os.fspath(one) for one in examples])
                return lib.result_json("heed_run_measure_files", self, files, len(files))
            kind = next(one for one in lib.listing("tasks") if one["name"] == self.task)
            table = table_of(kind, "train", examples[0] if len(examples) == 1 else examples)
            return lib.result_json("heed_run_measure_examples", self, ctypes.byref(table.struct))


class AnswerQueue(_Handle):
    """Answers the texts of many threads with one run: ``with run.serve() as queue``, and queue.answer(text)."""

    _free_name = "heed_queue_free"

    def answer(self, text: str) -> Prediction:
        """Waits for the answer, which is that of predict([text]), but for the last digits of probabilities."""
        line = lib.encoded(text)
        with lib.interruptible():
            return _prediction(lib.result_json("heed_queue_answer", self, line))

    def close(self) -> None:
        """Waits until what was asked is answered."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            self._free(handle)

    def __enter__(self) -> "AnswerQueue":
        return self

    def __exit__(self, *_error: Any) -> None:
        self.close()
