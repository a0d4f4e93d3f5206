"""Estimators for scikit-learn: Classifier and Regressor learn from texts, Embedder makes vectors of them.

>>> from heed.sklearn import Classifier
>>> cross_val_score(Classifier("fastformer", steps=300), texts, labels)
"""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import pickle
import tempfile
import warnings
from typing import Any, Callable, Dict, Mapping, Optional, Union

import numpy as np

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.class_weight import compute_sample_weight
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d
except ImportError as error:
    raise ImportError("heed.sklearn needs scikit-learn: pip install scikit-learn") from error

try:
    import cloudpickle  # comes with joblib, without which there is no scikit-learn
except ImportError:
    from joblib.externals import cloudpickle  # before its version 1.6

from . import _library as lib
from ._library import Path
from .notebook import ProgressLine
from .run import Predictions, Run
from .train import train


def _share_processor() -> None:
    """In a worker of joblib: the threads that it leaves to each, so that n_jobs of them do not crowd the processor."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if multiprocessing.current_process().name.startswith("Loky") and threads.isdigit() and int(threads) > 0:
        lib.call("heed_set_cpu_threads", int(threads))


class _Estimator(BaseEstimator):
    """What Classifier and Regressor have in common: a run of a task that learns one thing of each text."""

    _task = ""

    def __init__(
        self,
        attention: Optional[str] = None,
        *,
        steps: Optional[int] = None,
        random_state: Any = None,
        validation_fraction: Optional[float] = None,
        early_stopping: bool = False,
        n_iter_no_change: int = 5,
        verbose: Union[bool, int] = 0,
        settings: Optional[Mapping[str, Any]] = None,
        on_progress: Optional[Callable[[Dict[str, Any]], Any]] = None,
        out: Optional[str] = None,
    ) -> None:
        self.attention = attention
        self.steps = steps
        self.random_state = random_state
        self.validation_fraction = validation_fraction
        self.early_stopping = early_stopping
        self.n_iter_no_change = n_iter_no_change
        self.verbose = verbose
        self.settings = settings
        self.on_progress = on_progress
        self.out = out

    def _train(self, X: Any, labels: list, sample_weight: Any, more: Mapping[str, Any]) -> Run:
        """Trains with the settings that the parameters name, and ``more``."""
        columns = [_texts(X), labels]
        if sample_weight is not None:
            weights = column_or_1d(sample_weight)
            check_consistent_length(columns[0], weights)
            columns.append(weights)
        _share_processor()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            return train(
                self._task, *columns, attention=self.attention, settings={**self._settings(), **more}, out=self.out,
                on_progress=self.on_progress or (ProgressLine() if self.verbose else None),
            )

    def _settings(self) -> Dict[str, Any]:
        """Those of the task, as the parameters that all have in common say."""
        fraction = self.validation_fraction
        if fraction is None:
            fraction = 0.1 if self.early_stopping else 0.0
        if self.early_stopping and not fraction:
            raise ValueError("early_stopping needs texts to measure on: set validation_fraction, such as 0.1")
        seed = self.random_state
        if seed is not None and not isinstance(seed, (int, np.integer)):
            seed = check_random_state(seed).randint(2**31 - 1)
        given = {"training.steps": self.steps, "seed": seed, "data.valid_fraction": float(fraction)}
        if self.early_stopping:
            given["training.patience"] = self.n_iter_no_change  # with it go twenty evaluations
        given.update(self.settings or {})
        return {name: value for name, value in given.items() if value is not None}

    def _answers(self, X: Any) -> Predictions:
        """Raises NotFittedError before fit, and ValueError for a text that cannot be answered."""
        check_is_fitted(self, "run_")
        _share_processor()
        answers = self.run_.predict(_texts(X), errors="return")
        for row, answer in enumerate(answers):
            if answer.error:
                raise ValueError(f"X[{row}]: {answer.error}")
        return answers

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
            state["_files"] = dict(run._files())
        if state.get("on_progress") is not None:  # pickle itself takes neither lambdas nor a stream
            state["_on_progress"] = cloudpickle.dumps(state.pop("on_progress"))
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        state = dict(state)
        files, told = state.pop("_files", None), state.pop("_on_progress", None)
        if told is not None:
            state["on_progress"] = pickle.loads(told)
        super().__setstate__(state)
        if files is None:
            return
        temporary = tempfile.TemporaryDirectory(prefix="heed-run-")
        for name, content in files.items():
            pathlib.Path(temporary.name, os.path.basename(name)).write_bytes(content)
        self.run_ = Run.open(temporary.name)
        self.run_._temporary = temporary


class Classifier(ClassifierMixin, _Estimator):
    """Tells classes of texts apart, by a run of the task ``classify``; or finds any number of labels for each.

    ``attention``: the encoder's mechanism (``heed.attentions()``). ``steps``: of the training.
    ``random_state``: an integer is its seed, a RandomState draws one, and None is the task's default, so that two
    fits are alike. ``class_weight``: "balanced" has rare classes count more, so that all weigh the same; a
    dictionary has the weight of each class.

    ``validation_fraction``: of the texts, held out to choose the best weights; 0 trains on all and keeps the
    last (or, with training.ema_decay, their average); None: a tenth for ``early_stopping``, else 0.
    ``early_stopping``: ends after ``n_iter_no_change`` evaluations without a better one, of twenty in ``steps``.

    ``settings``: any others (``heed.settings("classify")``), laid over these. ``on_progress``: as in
    ``heed.train``; ``verbose`` without it shows a line of progress. ``out``: the folder of the run, new for each fit.

    ``fit`` takes a class for each text, or an indicator matrix of labels (``MultiLabelBinarizer``). It sets
    ``classes_`` and ``run_``, the trained run. A fitted estimator can be pickled: it carries the
    files of its run, and ``on_progress``, a lambda too.
    """

    _task = "classify"

    def __init__(
        self,
        attention: Optional[str] = None,
        *,
        steps: Optional[int] = None,
        random_state: Any = None,
        class_weight: Union[None, str, Mapping[Any, float]] = None,
        validation_fraction: Optional[float] = None,
        early_stopping: bool = False,
        n_iter_no_change: int = 5,
        verbose: Union[bool, int] = 0,
        settings: Optional[Mapping[str, Any]] = None,
        on_progress: Optional[Callable[[Dict[str, Any]], Any]] = None,
        out: Optional[str] = None,
    ) -> None:
        super().__init__(
            attention, steps=steps, random_state=random_state, validation_fraction=validation_fraction,
            early_stopping=early_stopping, n_iter_no_change=n_iter_no_change, verbose=verbose, settings=settings,
            on_progress=on_progress, out=out,
        )
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "Classifier":
        """Trains on texts and the class of each; ``sample_weight``: how much each counts, a number from 0."""
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None: a class for each text")
        check_consistent_length(X, y)
        if type_of_target(y) == "multilabel-indicator":
            return self._fit_sets(X, np.asarray(y.todense() if hasattr(y, "todense") else y), sample_weight)
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        if type_of_target(labels) not in ("binary", "multiclass"):
            raise ValueError(f"y must have one class for each text, not {type_of_target(labels)}")
        classes, rows = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"Classifier needs texts of at least two classes; the number of classes is {len(classes)}")
        more = {}
        if isinstance(self.class_weight, Mapping):
            of_class = compute_sample_weight(dict(self.class_weight), labels)
            sample_weight = of_class if sample_weight is None else of_class * column_or_1d(sample_weight)
        elif self.class_weight == "balanced":
            more["training.class_weights"] = "balanced"
        elif self.class_weight is not None:
            raise ValueError(f"class_weight is {self.class_weight!r}; expected None, 'balanced' or a dictionary")
        names = _names(classes)
        run = self._train(X, [names[row] for row in rows], sample_weight, more)
        self.classes_, self.run_, self._has_sets = classes, run, False  # together: a fit that fails changes nothing
        return self

    def _fit_sets(self, X: Any, sets: np.ndarray, sample_weight: Any) -> "Classifier":
        """Trains on texts with any number of labels each, the columns of an indicator matrix."""
        if self.class_weight is not None:
            raise ValueError("class_weight is for one class a text; with several, sample_weight weights texts")
        if not sets.any(axis=0).all():
            raise ValueError(f"no text has the label {int(np.argmin(sets.any(axis=0)))}: leave out its column")
        labels = [[str(column) for column in np.flatnonzero(row)] for row in sets]
        run = self._train(X, labels, sample_weight, {"data.label_separator": "|"})
        self.classes_, self.run_, self._has_sets = np.arange(sets.shape[1]), run, True
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each text; of several labels a text an indicator matrix [n, labels]."""
        check_is_fitted(self, "run_")
        if self._has_sets:
            return (self.predict_proba(X) >= 0.5).astype(int)
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class [n, classes], in the order of ``classes_``.

        A blank text, of which the model reads nothing, gets each class alike. Where a text may have several labels
        each probability stands by itself, and a blank text has none.
        """
        answers = self._answers(X)
        order = [answers.classes.index(name) for name in _names(self.classes_)]
        found = answers.probabilities[:, order]
        found[np.isnan(found).any(axis=1)] = 0 if self._has_sets else 1 / len(self.classes_)
        return found


class Regressor(RegressorMixin, _Estimator):
    """Learns a number for a text, by a run of the task ``rate``.

    >>> Regressor(steps=500).fit(reviews, stars).predict(["would come again"])

    Parameters are those of Classifier, without ``class_weight``; ``settings``: ``heed.settings("rate")``. ``fit``
    sets ``mean_``, the mean of the numbers, and ``run_``, the trained run.
    """

    _task = "rate"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "Regressor":
        """Trains on texts and the number of each; ``sample_weight``: how much each counts, a number from 0."""
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None: a number for each text")
        check_consistent_length(X, y)
        numbers = column_or_1d(y, warn=True).astype(np.float64)
        if not np.isfinite(numbers).all():
            row = int(np.argmin(np.isfinite(numbers)))
            raise ValueError(f"y[{row}] is {numbers[row]}: input contains NaN or infinity")
        run = self._train(X, numbers.tolist(), sample_weight, {})
        self.mean_, self.run_ = float(numbers.mean()), run
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The number of each text, float64 [n]; of a blank text, of which the model reads nothing, ``mean_``."""
        numbers = self._answers(X).numbers
        return np.where(np.isnan(numbers), self.mean_, numbers)


class Embedder(TransformerMixin, BaseEstimator):
    """Texts as vectors, by a trained run of the task ``embed_text``.

    >>> make_pipeline(Embedder("runs/embed"), LogisticRegression()).fit(texts, labels)

    ``run``: its folder, or a file of ``Run.save()``. ``fit`` opens it and learns nothing.
    """

    def __init__(self, run: Optional[Path] = None) -> None:
        self.run = run

    def fit(self, X: Any, y: Any = None) -> "Embedder":
        """Opens the run. Raises heed.Error where there is none, and ValueError for one without vectors."""
        if self.run is None:
            raise ValueError("Embedder needs run: the folder of a run of embed_text")
        opened = Run.open(self.run)
        if opened.task != "embed_text":
            raise ValueError(f"Embedder needs a run of embed_text, and this is one of {opened.task}")
        self.run_ = opened
        return self

    def transform(self, X: Any) -> np.ndarray:
        """float32 [n, width]; zeros for a blank text, of which the model reads nothing."""
        check_is_fitted(self, "run_")
        _share_processor()
        return np.nan_to_num(self.run_.predict(_texts(X)).vectors)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "run_")

    def __getstate__(self) -> Dict[str, Any]:
        state = dict(super().__getstate__())
        state["_is_open"] = state.pop("run_", None) is not None
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        state = dict(state)
        is_open = state.pop("_is_open")
        super().__setstate__(state)
        if is_open:
            self.fit(None)


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
