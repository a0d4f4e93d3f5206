"""A scikit-learn estimator: heed.sklearn.Classifier() has fit, predict, predict_proba and score.

>>> from heed.sklearn import Classifier
>>> cross_val_score(Classifier("fastformer", steps=300), texts, labels)
"""

from __future__ import annotations

import os
import pathlib
import tempfile
import warnings
from typing import Any, Callable, Dict, Mapping, Optional

import numpy as np

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d
except ImportError as error:
    raise ImportError("heed.sklearn needs scikit-learn: pip install scikit-learn") from error

from .run import Run
from .train import train


class Classifier(ClassifierMixin, BaseEstimator):
    """Tells classes of texts apart, by a run of the task ``classify``.

    ``attention``: the encoder's mechanism (``heed.attentions()``). ``steps``, ``seed``: of the training.
    ``validation_fraction``: of the texts, held out to choose the best weights; 0 trains on all and keeps the
    last (or, with training.ema_decay, their average). ``settings``: any others (``heed.settings("classify")``),
    laid over these. ``on_progress``: as in ``heed.train``. ``out``: the folder of the run, new for each fit.

    ``fit`` sets ``classes_`` and ``run_``, the trained run. A fitted estimator can be pickled: it carries the
    files of its run.
    """

    def __init__(
        self,
        attention: Optional[str] = None,
        *,
        steps: Optional[int] = None,
        seed: Optional[int] = None,
        validation_fraction: float = 0.0,
        settings: Optional[Mapping[str, Any]] = None,
        on_progress: Optional[Callable[[Dict[str, Any]], Any]] = None,
        out: Optional[str] = None,
    ) -> None:
        self.attention = attention
        self.steps = steps
        self.seed = seed
        self.validation_fraction = validation_fraction
        self.settings = settings
        self.on_progress = on_progress
        self.out = out

    def fit(self, X: Any, y: Any) -> "Classifier":
        """Trains on texts and the class of each."""
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None: a class for each text")
        check_consistent_length(X, y)
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        if type_of_target(labels) not in ("binary", "multiclass"):
            raise ValueError(f"y must have one class for each text, not {type_of_target(labels)}")
        classes, rows = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"Classifier needs texts of at least two classes; the number of classes is {len(classes)}")
        names = _names(classes)
        given = {"training.steps": self.steps, "seed": self.seed, "data.valid_fraction": float(self.validation_fraction)}
        given.update(self.settings or {})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            run = train(
                "classify", _texts(X), [names[row] for row in rows], attention=self.attention,
                settings={name: value for name, value in given.items() if value is not None},
                out=self.out, on_progress=self.on_progress,
            )
        self.classes_, self.run_ = classes, run  # together: a fit that fails changes nothing
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each text."""
        check_is_fitted(self, "run_")
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class [n, classes], in the order of ``classes_``.

        A blank text, of which the model reads nothing, gets each class alike.
        """
        check_is_fitted(self, "run_")
        answers = self.run_.predict(_texts(X), errors="return")
        for row, answer in enumerate(answers):
            if answer.error:
                raise ValueError(f"X[{row}]: {answer.error}")
        order = [answers.classes.index(name) for name in _names(self.classes_)]
        found = answers.probabilities[:, order]
        found[np.isnan(found).any(axis=1)] = 1 / len(self.classes_)
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = True
        tags.input_tags.string = True
        return tags

    def _more_tags(self) -> Dict[str, Any]:  # before scikit-learn 1.6
        return {"X_types": ["string"], "requires_y": True}

    def __getstate__(self) -> Dict[str, Any]:
        state = dict(super().__getstate__())
        run = state.pop("run_", None)
        if run is not None:
            folder = pathlib.Path(run.folder)
            state["_files"] = {one.name: one.read_bytes() for one in folder.iterdir()
                               if one.is_file() and one.name != "optimizer.safetensors"}
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        files = state.pop("_files", None)
        super().__setstate__(state)
        if files is None:
            return
        temporary = tempfile.TemporaryDirectory(prefix="heed-run-")
        for name, content in files.items():
            pathlib.Path(temporary.name, os.path.basename(name)).write_bytes(content)
        self.run_ = Run.open(temporary.name)
        self.run_._temporary = temporary


def _names(classes: np.ndarray) -> list:
    """The classes as names in the run: as they are printed, or where these are no names by their numbers."""
    names = [str(one) for one in classes]
    usable = len(set(names)) == len(names) and all(name and not set(name) & set("\n\r\t\0") for name in names)
    return names if usable else [str(number) for number in range(len(names))]


def _texts(X: Any) -> list:
    """Texts as a list; an array or a frame may have them as its only column."""
    if isinstance(X, str):
        raise ValueError("expected a list of texts, not one text")
    shape = getattr(X, "shape", None)
    if shape is not None and len(shape) == 2 and shape[1] == 1:
        X = np.asarray(X)[:, 0]
    elif shape is not None and len(shape) != 1:
        raise ValueError(f"expected a list of texts, not an array of the shape {tuple(shape)}")
    texts = X.tolist() if hasattr(X, "tolist") else list(X)
    if not texts:
        raise ValueError("expected texts, but found 0 sample(s)")
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"X[{row}] is {text!r}; expected a text")
    return texts
