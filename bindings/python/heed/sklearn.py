"""Estimators for scikit-learn: Classifier and Regressor learn from texts, Embedder makes vectors of them.

>>> from heed.sklearn import Classifier
>>> cross_val_score(Classifier("fastformer", steps=300), texts, labels)
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
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
from .run import Predictions, Run, texts_in
from .train import train


def _share_processor() -> None:
    """In a joblib worker, uses only the worker's share of the processor's threads."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if multiprocessing.current_process().name.startswith("Loky") and threads.isdigit() and int(threads) > 0:
        lib.call("heed_set_cpu_threads", int(threads))


class _OfTexts(BaseEstimator):
    """Base class of estimators whose X is a list of texts."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = True
        tags.input_tags.string = True
        return tags

    def _more_tags(self) -> Dict[str, Any]:  # before scikit-learn 1.6
        return {"X_types": ["string"], "requires_y": hasattr(self, "_task")}

    def _answers(self, X: Any) -> Predictions:
        """Returns predictions. Raises NotFittedError before fit, and ValueError for a text that cannot be answered,
        unless it is blank.
        """
        check_is_fitted(self, "run_")
        _share_processor()
        texts = _texts(X)
        answers = self.run_.predict(texts, errors="return")
        for row, answer in enumerate(answers):
            if answer.error and texts[row].strip(" \t\r\n\v\f"):
                raise ValueError(f"X[{row}]: {answer.error}")
        return answers


class _Estimator(_OfTexts):
    """Base class of Classifier and Regressor: trains a run that predicts one thing per text."""

    _task = ""

    def __init__(
        self, attention: Optional[str] = None, *, steps: Optional[int] = None, epochs: Optional[int] = None,
        learning_rate: Optional[float] = None, random_state: Any = None,
        validation_fraction: Optional[float] = None, early_stopping: bool = False, n_iter_no_change: int = 5,
        verbose: Union[bool, int] = 0, settings: Optional[Mapping[str, Any]] = None,
        on_progress: Optional[Callable[[Dict[str, Any]], Any]] = None, out: Optional[str] = None,
    ) -> None:
        self._keep(locals())

    def _keep(self, parameters: Mapping[str, Any]) -> None:
        self.__dict__.update({name: value for name, value in parameters.items() if name != "self"})

    def _train(self, X: Any, labels: list, sample_weight: Any, more: Mapping[str, Any]) -> Run:
        """Trains with the settings of the parameters and ``more``."""
        columns = [_texts(X), labels]
        if sample_weight is not None:
            columns.append(_weights(sample_weight, columns[0]))
        _share_processor()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            return train(
                self._task, *columns, attention=self.attention, settings={**self._settings(), **more}, out=self.out,
                on_progress=self.on_progress or (ProgressLine() if self.verbose else None),
            )

    def _settings(self) -> Dict[str, Any]:
        """Returns the settings for the parameters that all estimators share."""
        fraction = self.validation_fraction
        if fraction is None:
            fraction = 0.1 if self.early_stopping else 0.0
        if self.early_stopping and not fraction:
            raise ValueError("early_stopping needs texts to measure on: set validation_fraction, such as 0.1")
        seed = self.random_state
        if seed is not None and not isinstance(seed, (int, np.integer)):
            seed = check_random_state(seed).randint(2**31 - 1)
        given = {"training.steps": self.steps, "training.epochs": self.epochs, "seed": seed, "data.valid_fraction": float(fraction),
                 "training.schedule.learning_rate": self.learning_rate}
        if self.early_stopping:
            given["training.patience"] = self.n_iter_no_change  # with it go twenty evaluations
        given.update(self.settings or {})
        return {name: value for name, value in given.items() if value is not None}

    def __getstate__(self) -> Dict[str, Any]:
        """Pickle itself takes neither lambdas nor a stream."""
        return dict(super().__getstate__(), on_progress=cloudpickle.dumps(self.on_progress))

    def __setstate__(self, state: Dict[str, Any]) -> None:
        super().__setstate__(dict(state, on_progress=pickle.loads(state["on_progress"])))


class Classifier(ClassifierMixin, _Estimator):
    """Classifies texts with a run of the task ``classify``; also predicts several labels per text.

    - ``attention``: the encoder's mechanism (``heed.attentions()``). ``steps``, ``epochs``: the length of training.
    - ``learning_rate``: the peak of the schedule. Batches have ``settings={"training.batch_tokens": 2048}``, not a number of texts.
    - ``random_state``: an integer seed, or a RandomState that draws one. None is a fixed seed, so repeated fits are
      equal.
    - ``class_weight``: "balanced" gives all classes equal weight; a dict gives the weight of each class.
    - ``validation_fraction``: the fraction of texts held out to choose the best weights. With 0, training uses all
      texts and keeps the last weights (or their average, with training.ema_decay). None means 0.1 with
      ``early_stopping``, otherwise 0.
    - ``early_stopping``: stop after ``n_iter_no_change`` evaluations without improvement; there are 20 in ``steps``.
    - ``settings``: any other settings (``heed.settings("classify")``); they take precedence.
    - ``on_progress``: as in ``heed.train``. Without it, ``verbose`` shows a progress line.
    - ``out``: the folder of the run, which must be new for each fit.

    A fitted estimator has ``classes_`` and ``run_``, the trained run. Pickling it includes the run's files and
    ``on_progress``, even a lambda.
    """

    _task = "classify"

    def __init__(
        self, attention: Optional[str] = None, *, steps: Optional[int] = None, epochs: Optional[int] = None,
        learning_rate: Optional[float] = None, random_state: Any = None,
        class_weight: Union[None, str, Mapping[Any, float]] = None,
        validation_fraction: Optional[float] = None, early_stopping: bool = False, n_iter_no_change: int = 5,
        verbose: Union[bool, int] = 0, settings: Optional[Mapping[str, Any]] = None,
        on_progress: Optional[Callable[[Dict[str, Any]], Any]] = None, out: Optional[str] = None,
    ) -> None:
        self._keep(locals())

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "Classifier":
        """Trains on texts and a class for each, or an indicator matrix of labels (``MultiLabelBinarizer``).

        ``sample_weight`` is a nonnegative weight for each text.
        """
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
        labels = [np.flatnonzero(row) for row in sets]
        run = self._train(X, labels, sample_weight, {"data.label_separator": "|"})
        self.classes_, self.run_, self._has_sets = np.arange(sets.shape[1]), run, True
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Returns the likeliest class of each text or, with several labels, an indicator matrix [n, labels]."""
        check_is_fitted(self, "run_")
        if self._has_sets:
            return (self.predict_proba(X) >= 0.5).astype(int)
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Returns the probability of each class [n, classes], in the order of ``classes_``.

        A blank text gets equal probabilities. With several labels per text, probabilities are independent, and those
        of a blank text are 0.
        """
        answers = self._answers(X)
        order = [answers.classes.index(name) for name in _names(self.classes_)]
        found = answers.probabilities[:, order]
        found[np.isnan(found).any(axis=1)] = 0 if self._has_sets else 1 / len(self.classes_)
        return found


class Regressor(RegressorMixin, _Estimator):
    """Predicts a number for each text with a run of the task ``rate``.

    >>> Regressor(steps=500).fit(reviews, stars).predict(["would come again"])

    Parameters are those of Classifier without ``class_weight``; for settings, see ``heed.settings("rate")``. A
    fitted estimator has ``run_`` and ``mean_``, the mean of the training numbers.
    """

    _task = "rate"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "Regressor":
        """Trains on texts and a number for each; ``sample_weight`` is a nonnegative weight for each text."""
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
        """Returns a number for each text, float64 [n]; ``mean_`` for a blank text."""
        numbers = self._answers(X).numbers
        return np.where(np.isnan(numbers), self.mean_, numbers)


class Embedder(TransformerMixin, _OfTexts):
    """Transforms texts to vectors with a trained run of the task ``embed_text``.

    >>> make_pipeline(Embedder("runs/embed"), LogisticRegression()).fit(texts, labels)

    ``run``: the run's folder, or a file of ``Run.save()``. Pickling a fitted Embedder includes the run's files.
    """

    def __init__(self, run: Optional[Path] = None) -> None:
        self.run = run

    def fit(self, X: Any, y: Any = None) -> "Embedder":
        """Opens the run; learns nothing. Raises heed.Error if there is no run, and ValueError for another task."""
        if self.run is None:
            raise ValueError("Embedder needs run: the folder of a run of embed_text")
        opened = Run.open(self.run)
        if opened.task != "embed_text":
            raise ValueError(f"Embedder needs a run of embed_text, and this is one of {opened.task}")
        self.run_ = opened
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Returns a vector for each text, float32 [n, width]; zeros for a blank text."""
        answers = self._answers(X)
        count = len(answers)
        if not any(answer.vector for answer in answers):  # an answer that has the width
            answers.extend(self.run_.predict(["a"]))
        return np.nan_to_num(answers.vectors[:count])


def _names(classes: np.ndarray) -> list:
    """Returns the classes as the run learns them: numbers, bools or text; their indices if the text cannot be a name."""
    if classes.dtype.kind in "iubf":
        return classes.tolist()
    names = [str(label) for label in classes]
    usable = len(set(names)) == len(names) and all(name and not set(name) & set("\n\r\t\0") for name in names)
    return names if usable else list(range(len(names)))


def _texts(X: Any) -> list:
    """Converts texts to a list; an array or DataFrame may hold them in its only column."""
    try:
        texts = [text.decode() for text in texts_in(X, "X")]
    except TypeError as error:
        raise ValueError(str(error)) from None
    if not texts:
        raise ValueError("expected texts, but found 0 sample(s)")
    return texts


def _weights(sample_weight: Any, texts: list) -> np.ndarray:
    """Checks and converts the weights of texts."""
    weights = column_or_1d(sample_weight).astype(np.float64)
    check_consistent_length(texts, weights)
    usable = np.isfinite(weights) & (weights >= 0)
    if not usable.all():
        row = int(np.argmin(usable))
        raise ValueError(f"sample_weight[{row}] is {weights[row]}; expected a nonnegative finite number")
    if not weights.any():
        raise ValueError("sample_weight is 0 for all texts, so that there is nothing to learn from")
    return weights
