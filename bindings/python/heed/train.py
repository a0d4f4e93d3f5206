"""Training of tasks: heed.train("classify", texts, labels) returns a run."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from . import _library as lib
from ._library import Path
from .notebook import Page
from .run import Run, Table, column_names, is_path, table_of

Record = Dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """A setting of a task: dotted name, type, default, help, range and choices."""

    name: str
    kind: str
    default: Any
    help: str
    low: Optional[float] = None
    high: Optional[float] = None
    choices: Optional[List[str]] = None

    @property
    def allowed(self) -> str:
        """The allowed values as text: "0 to 1", "post or pre", or the type."""
        if self.choices:
            return " or ".join(repr(choice) if not choice else choice for choice in self.choices)
        return self.kind if self.low is None else f"{self.low:g} to {self.high:g}"


class Settings(Mapping[str, Setting]):
    """The settings of a task by name; prints as a table."""

    def __init__(self, task: str, all_of_them: List[Setting]) -> None:
        self.task = task
        self._all = {setting.name: setting for setting in all_of_them}

    def __getitem__(self, name: str) -> Setting:
        """Returns the setting with a dotted name. Raises KeyError if the task has no such setting."""
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def _rows(self) -> List[Tuple[str, str, str, str]]:
        return [(setting.name, json.dumps(setting.default), setting.allowed, setting.help) for setting in self.values()]

    def __repr__(self) -> str:
        rows = [("setting", "default", "allowed"), *[row[:3] for row in self._rows()]]
        widths = [min(40, max(len(row[c]) for row in rows)) for c in range(3)]
        texts = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in rows]
        helps = ["help", *[setting.help for setting in self.values()]]
        return "\n".join(f"{text}  {help}" for text, help in zip(texts, helps))

    def _repr_html_(self) -> str:
        from html import escape

        rows = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in self._rows())
        head = "<tr><th>setting</th><th>default</th><th>allowed</th><th>help</th></tr>"
        return f"<table>{head}{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def tasks() -> Dict[str, Dict[str, Any]]:
    """Returns all tasks by name: what each learns, and the columns that train() takes."""
    return {task["name"]: task for task in lib.listing("tasks")}


def settings(task: str, *, own_data: bool = True) -> Settings:
    """Returns the settings of a task, with defaults, ranges or choices, and help.

    ``own_data``: True for the defaults with your own data, False for those with generated data.
    """
    found = lib.result_json("heed_task_settings", lib.encoded(task, "task"), int(own_data))
    return Settings(task, [Setting(**setting) for setting in found])


def train(
    task: str, *examples: Any, valid: Any = None, test: Any = None, attention: Optional[str] = None,
    decoder_attention: Optional[str] = None, cross_attention: Optional[str] = None,
    preset: Optional[str] = None, steps: Optional[int] = None, epochs: Optional[int] = None,
    seed: Optional[int] = None, device: Optional[str] = None, learning_rate: Optional[float] = None,
    batch_tokens: Optional[int] = None, precision: Optional[str] = None,
    settings: Optional[Mapping[str, Any]] = None, config: Optional[Path] = None, missing: str = "error",
    out: Optional[Path] = None, resume: bool = False, verify: bool = True,
    on_progress: Optional[Callable[[Record], Any]] = None, **tables: Any,
) -> Run:
    """Trains a task and returns the run with its best weights.

    >>> run = heed.train("classify", texts, labels, attention="fastformer", out="runs/mine")
    >>> run.predict(["what is this about?"]).labels

    - ``examples``: the task's columns (``heed.tasks()``), each a list or an array; or a DataFrame or dict of
      columns; or the path of a file. Without any, the task trains on generated data.
    - ``valid``, ``test``: examples (several columns as a tuple), a file, or the fraction of the examples to hold
      out.
    - ``attention``: the mechanism (``heed.attentions()``) of the encoder and, where possible, of the decoder;
      ``decoder_attention`` and ``cross_attention`` override it. ``preset``: the name of a predefined model.
    - ``steps``, ``epochs``, ``seed``, ``device``, ``learning_rate``, ``batch_tokens``, ``precision`` ("f32", "high",
      "medium", "bf16", "f16"): common settings.
    - ``settings``: any settings, dotted or nested, such as ``{"model.width": 64}``. They override the file
      ``config``.
    - ``missing``: with "error", None and NaN raise an error that names the row. With "drop", those rows are skipped;
      in files, rows without a text or label.
    - ``out``: the folder of the run. By default, a temporary folder that lives as long as the run.
    - ``resume``: continue from the last checkpoint in ``out``, with bit-identical results.
    - ``verify``: False accepts files that were changed since the run was made.
    - ``on_progress``: a function that gets each log record as a dict, and remarks as ``{"message": ...}``. If it
      raises, or on Ctrl-C, training ends after the step with a checkpoint; ``heed.resume(out)`` continues.
    - ``tables``: other tables of the task, such as ``news=``, or column names of a DataFrame:
      ``heed.train("classify", reviews, text="review", label="stars")``.

    Raises heed.SettingsError for invalid settings, and TypeError, ValueError or heed.Error for invalid examples.
    """
    given, parts = _given(
        task, examples, valid, test, tables, settings, config, missing, on_progress, attention=attention,
        resume=resume, verify=verify, decoder_attention=decoder_attention, cross_attention=cross_attention,
        preset=preset,
        **{"training.steps": steps, "training.epochs": epochs, "seed": seed, "device": device,
           "training.schedule.learning_rate": learning_rate, "training.batch_tokens": batch_tokens,
           "precision": precision},
    )
    if out is None and resume:
        raise ValueError("resume needs out, the folder of the run")
    return _train(task, given, parts, out, on_progress)


def cross_validate(
    task: str, *examples: Any, folds: int = 5, valid: Any = None, attention: Optional[str] = None,
    preset: Optional[str] = None, steps: Optional[int] = None, seed: Optional[int] = None,
    device: Optional[str] = None, settings: Optional[Mapping[str, Any]] = None, config: Optional[Path] = None,
    missing: str = "error", out: Optional[Path] = None, resume: bool = False, verify: bool = True,
    on_progress: Optional[Callable[[Record], Any]] = None, **columns: str,
) -> Dict[str, Any]:
    """Trains a task ``folds`` times, each time testing on another part of the examples.

    >>> heed.cross_validate("classify", texts, labels, folds=5)["accuracy"]

    Returns the mean of each metric, ``deviation`` with their standard deviations, and ``folds`` with the metrics of
    each fold. Other arguments are those of train(). ``out`` keeps the runs in fold-1, fold-2, ...; ``resume`` trains
    only the missing ones. The task must have the setting ``data.folds``.
    """
    given, parts = _given(
        task, examples, valid, None, columns, settings, config, missing, on_progress, attention=attention,
        preset=preset, resume=resume, verify=verify,
        **{"training.steps": steps, "seed": seed, "device": device},
    )
    given["data.folds"] = folds
    with tempfile.TemporaryDirectory(prefix="heed-folds-") as temporary:
        folder = os.path.join(temporary, "folds") if out is None else lib.path_of(out, "out")
        return _called(lib.result_json, "heed_cross_validate", task, given, parts, folder, on_progress)  # type: ignore[no-any-return]


class Comparison:
    """The results of heed.compare(); prints as a table."""

    def __init__(self, found: Dict[str, Any], folder: str) -> None:
        self.folder = folder  #: The folder of the runs.
        #: "choice", its "values", "metrics", their "part", "validation" (the metrics there), "difference", costs.
        self.rows: List[Dict[str, Any]] = found["rows"]
        self._found = found

    @property
    def markdown(self) -> str:
        """The table in Markdown."""
        return str(self._found["markdown"])

    def run(self, choice: Optional[str] = None, seed: Optional[int] = None) -> Run:
        """Opens a run; by default the best choice and its best seed, by the first metric on the validation part.

        Without a validation part it chooses by the test part, and warns. Raises KeyError if there is no such run.
        """
        found = [run for run in self._found["runs"] if choice in (None, run["choice"]) and seed in (None, run["seed"])]
        if not found:
            raise KeyError(f"there is no run of {choice!r}" + ("" if seed is None else f" with the seed {seed}"))
        row = next(row for row in self.rows if row["choice"] == found[0]["choice"])
        if len(found) > 1 and row.get("part") == "test" and "validation" not in row:
            warnings.warn("without a validation part, this run was chosen by the test part: expect less on new data",
                          stacklevel=2)
        return Run.open(found[0]["folder"])

    def _repr_html_(self) -> str:
        with open(os.path.join(self.folder, "report.html"), encoding="utf-8") as file:
            return Page(file.read())._repr_html_()

    def __repr__(self) -> str:
        return str(self._found["text"])


def compare(
    task: str, *examples: Any, out: Path, attention: Any = None, grid: Optional[Mapping[str, Any]] = None,
    seeds: Iterable[int] = (1,), random: Optional[int] = None, halving: bool = False, valid: Any = None,
    test: Any = None, preset: Optional[str] = None, steps: Optional[int] = None, device: Optional[str] = None,
    settings: Optional[Mapping[str, Any]] = None, config: Optional[Path] = None, missing: str = "error",
    on_progress: Optional[Callable[[Record], Any]] = None, **tables: Any,
) -> Comparison:
    """Trains a task with every combination of attention, ``grid`` values and seeds, and compares the results.

    >>> heed.compare("classify", texts, labels, attention=["dot_product", "fastformer"], seeds=[1, 2, 3],
    ...              out="runs/which")
    >>> heed.compare("classify", texts, labels, random=20, halving=True, out="runs/search",
    ...              grid={"training.schedule.learning_rate": (5e-4, 1e-2), "model.width": [32, 64, 128]})

    - ``attention``: a mechanism or a list of them.
    - ``grid``: for each setting a list of values, or a pair of numbers: a range that ``random`` draws from.
    - ``random``: the number of combinations to draw, instead of trying all.
    - ``halving``: short trainings, measured on the validation part, select the third that trains longer, until three
      train fully.
    - ``out``: the folder of the runs. A repeated call keeps finished runs.

    Other arguments are those of train(). Metrics are measured on the test part if there is one; the first is measured on
    the validation part too, by which one chooses (Comparison.run).
    """
    given, parts = _given(
        task, examples, valid, test, tables, settings, config, missing, on_progress, preset=preset,
        **{"training.steps": steps, "device": device},
    )
    names = attention is not None and not isinstance(attention, str)
    given.update(attention=_listed(attention, "attention") if names else attention, seeds=_listed(seeds, "seeds"), halving=halving,
                 random=random, grid={name: _varied(values, name) for name, values in (grid or {}).items()})
    folder = lib.path_of(out, "out")
    found = _called(lib.result_json, "heed_compare_trainings", task, given, parts, folder, on_progress)
    return Comparison(found, folder)


def _varied(values: Any, name: str) -> Any:
    """The values of a setting that varies, as the library takes them."""
    if isinstance(values, tuple) and len(values) == 2:
        return {"low": values[0], "high": values[1]}
    return _listed(values, f"grid[{name!r}]")


def _listed(values: Any, what: str) -> List[Any]:
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise TypeError(f"{what} is {lib.shown(values)}; expected a list")
    return list(values)


def _given(
    task: str, examples: Tuple[Any, ...], valid: Any, test: Any, tables: Mapping[str, Any],
    settings: Optional[Mapping[str, Any]], config: Optional[Path], missing: str,
    on_progress: Optional[Callable[[Record], Any]], **others: Any,
) -> Tuple[Dict[str, Any], List["Table"]]:
    """The settings that training is given, and its tables."""
    if settings is not None and not isinstance(settings, Mapping):
        raise TypeError(f"settings is {lib.shown(settings)}; expected a dictionary")
    given = dict(settings or {})
    for name, value in others.items():
        if value is not None and name in given:
            raise TypeError(f"{name!r} is given twice: in settings, and as a keyword")
    kinds = tasks()
    if task not in kinds:
        lib.result_text("heed_task_settings", lib.encoded(task, "task"), 1)  # its error names the nearest
    kind = kinds[task]
    tables = dict(tables)
    names_of = column_names(kind, tables)
    learned: Any = None if not examples else examples[0] if len(examples) == 1 else examples
    parts = []
    for part, value in [("train", learned), ("valid", valid), ("test", test), *tables.items()]:
        setting = "data.file" if part == "train" else f"data.{part}"
        if value is None:
            continue
        if is_path(value):
            if names_of:
                raise TypeError(f"{', '.join(names_of)} name columns of a DataFrame or a dictionary, and {part!r} is a"
                                " file: settings, such as \"data.label_column\", name its columns")
            given[setting] = lib.path_of(value, part)
            if missing == "drop":
                given["data.missing"] = missing  # the library says so where the task has no such setting
        elif part in ("valid", "test") and isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
            given[f"{setting}_fraction"] = float(value)
        else:
            parts.append(table_of(kind, part, value, names_of, missing))
            if parts[-1].has_lists and task == "classify":
                given.setdefault("data.label_separator", "|")
            if part == "train" and task in ("classify", "match"):
                given.setdefault("data.label_type", parts[-1].label_type)
            if parts[-1].dropped and on_progress:
                on_progress({"message": f"{parts[-1].dropped} rows of {part!r} that lack a value were left out"})
    given.update({name: value for name, value in others.items() if value is not None})
    given["config"] = None if config is None else lib.path_of(config, "config")
    return given, parts


def resume(
    folder: Path, *, settings: Optional[Mapping[str, Any]] = None, verify: bool = True,
    on_progress: Optional[Callable[[Record], Any]] = None,
) -> Run:
    """Continues a run from its last checkpoint, with bit-identical results.

    ``settings``: changes to settings that may change, such as ``{"training.steps": 2000}``.
    """
    return _train(None, dict(settings or {}, resume=True, verify=verify), [], folder, on_progress)


_until_the_end: List[Any] = []


def _train(
    task: Optional[str], given: Dict[str, Any], parts: List["Table"], out: Any,
    on_progress: Optional[Callable[[Record], Any]],
) -> Run:
    temporary = lib.temporary_folder() if out is None else None
    folder = os.path.join(temporary.name, "run") if temporary else lib.path_of(out, "out")
    try:
        handle = _called(lib.result, "heed_train", task, given, parts, folder, on_progress)
    except BaseException:
        if lib.ending():
            _until_the_end.append(temporary)  # the program removes it, not a thread that may not get to its end
        elif temporary and os.path.exists(os.path.join(folder, "config.json")):
            temporary._finalizer.detach()  # type: ignore[attr-defined]
            warnings.warn(f"the run stays in {folder}; heed.resume() goes on with it", stacklevel=3)
        raise
    run = Run(handle)
    run.folder = folder
    run._temporary = temporary
    return run


def _called(
    call: Callable[..., Any], function: str, task: Optional[str], given: Dict[str, Any], parts: List["Table"],
    folder: str, on_progress: Optional[Callable[[Record], Any]],
) -> Any:
    """What a function of the library that trains gives; an exception of ``on_progress`` is raised again."""
    progress = lib.TYPES["heed_progress"]()
    if on_progress:
        told = on_progress
        progress = lib.callback("heed_progress", lambda _context, record: told(json.loads(record)))
    structs = (lib.TYPES["heed_examples"] * len(parts))(*[part.struct for part in parts])
    name = None if task is None else lib.encoded(task, "task")
    with lib.interruptible():
        return call(function, name, lib.settings_json(given), structs, len(parts), lib.encoded(folder), progress, None)
