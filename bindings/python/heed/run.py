"""Runs: what the sample programs trained."""

from __future__ import annotations

import ctypes
import os
import warnings
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence, Union

from . import _library as lib
from .layers import Module, _Handle
from .notebook import Shown

_AT_ONCE = 1024  # lines of one call, as in the sample programs


@dataclass(frozen=True)
class Alternative:
    text: str
    probability: float
    score: Optional[float] = None


@dataclass(frozen=True)
class Prediction:
    """The answer to one line: a label, a translation, a continuation. `error` says why there is none."""

    text: str = ""
    probability: float = 0.0
    alternatives: List[Alternative] = field(default_factory=list)
    error: str = ""

    def __str__(self) -> str:
        return self.text


def _prediction(answer: Dict[str, Any]) -> Prediction:
    if "error" in answer:
        return Prediction(error=answer["error"])
    others = [Alternative(**one) for one in answer["alternatives"]]
    return Prediction(answer["text"], answer["probability"], others)


def _lines(texts: Sequence[str]) -> Any:
    if isinstance(texts, str):
        raise TypeError("give a list of texts, not one text")
    return (ctypes.c_char_p * len(texts))(*[lib.encoded(text) for text in texts])


class Run(Shown, _Handle):
    """A trained run of any task: Run.open(folder).predict(texts)."""

    _free_name = "heed_run_free"

    def __init__(self, handle: int) -> None:
        super().__init__(handle)
        self.folder = ""  #: where the run is kept

    @classmethod
    def open(
        cls,
        folder: Union[str, "os.PathLike[str]"],
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
    def model(self) -> Module:
        """The model, whose parameters can be read and trained."""
        return Module(lib.result("heed_run_model", self))

    def predict(self, texts: Sequence[str]) -> List[Prediction]:
        """One answer for each text."""
        _lines(texts)  # fails before the first call
        answers: List[Prediction] = []
        with lib.interruptible():
            for begin in range(0, len(texts), _AT_ONCE):
                lines = _lines(texts[begin : begin + _AT_ONCE])
                answers += map(_prediction, lib.result_json("heed_run_predict", self, lines, len(lines)))
        self._describe()
        return answers

    def capture(
        self, texts: Sequence[str], path: Union[str, "os.PathLike[str]"], overwrite: bool = False
    ) -> List[Prediction]:
        """The same, and writes what the model attends to: maps if the name ends in .html, else safetensors."""
        lines, file = _lines(texts), lib.encoded(os.fspath(path))
        with lib.interruptible():
            found = lib.result_json("heed_run_capture", self, lines, len(lines), file, int(overwrite))
        return [_prediction(one) for one in found]

    def measure(self, part: str = "valid") -> Dict[str, Any]:
        """The task's metrics on "valid", "test" or "train" of the run's own data."""
        with lib.interruptible():
            return lib.result_json("heed_run_measure", self, lib.encoded(part))
