"""heed: tensors, gradients, 50 attention mechanisms, and trained runs.

>>> import heed, numpy as np
>>> w = heed.parameter(np.zeros((3, 1), np.float32))
>>> loss = heed.square(x @ w - y).mean()
>>> loss.backward()
>>> w.grad.numpy()
"""

from ._library import (
    BadArgument,
    CallbackFailed,
    DeviceLost,
    Error,
    Interrupted,
    OutOfMemory,
    SettingsError,
    call as _call,
    library as _lib,
    listing,
)
from . import nn, ops
from .layers import Attention, Autocast, Context, Module, Optimizer, Schedule, attention, attentions, load, save
from .notebook import Page, ProgressLine, report
from .ops import *  # noqa: F401, F403
from .own import AttentionCall, Function, check_attention, register_attention
from .run import Alternative, AnswerQueue, AttentionWeights, GenerationOptions, Model, Prediction, Predictions, Run, Span, from_pretrained
from .tensor import Parameter, Tensor, from_dlpack, from_numpy
from .tokenizer import Tokenizer
from .train import Comparison, Setting, Settings, compare, cross_validate, resume, settings, tasks, train

__all__ = [
    "Alternative", "AnswerQueue", "Attention", "AttentionCall", "AttentionWeights", "Autocast", "BadArgument", "CallbackFailed", "Comparison", "Context", "DeviceLost", "Error",
    "Function", "GenerationOptions", "Interrupted", "Model", "Module", "Optimizer", "OutOfMemory", "Page", "Parameter", "Prediction", "Predictions", "ProgressLine",
    "Run", "Schedule", "Setting", "Settings", "SettingsError", "Span", "Tensor", "Tokenizer", "attention", "attentions", "check_attention", "compare", "cross_validate",
    "from_dlpack", "from_numpy", "from_pretrained", "listing", "load", "nn",
    "register_attention", "report", "resume", "save", "set_threads", "settings",
    "tasks", "train",
]
__all__ += ops.__all__

__version__ = _lib.heed_version().decode()


def set_threads(count: int) -> None:
    """Sets the number of CPU threads, 1 to 1000. Results never depend on it."""
    _call("heed_set_cpu_threads", count)
