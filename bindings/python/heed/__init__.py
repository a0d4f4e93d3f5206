"""heed: tensors, gradients, attention layers of a dozen papers, and trained runs.

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
from .layers import Attention, Context, Module, Optimizer, attention, attentions
from .ops import (
    GradcheckResult,
    abs,
    arange,
    clamp,
    concat,
    cos,
    cross_entropy,
    dot_product_attention,
    dropout,
    elu,
    embedding,
    erf,
    exp,
    full,
    gelu,
    gelu_tanh,
    gradcheck,
    layer_norm,
    leaky_relu,
    linear,
    log,
    log_softmax,
    log_sum_exp,
    matmul,
    maximum,
    minimum,
    neg,
    no_grad,
    normal,
    ones,
    parameter,
    reciprocal,
    relu,
    rsqrt,
    sigmoid,
    silu,
    sin,
    softmax,
    softplus,
    sqrt,
    square,
    stack,
    tanh,
    uniform,
    where,
    zeros,
)
from .run import Alternative, Prediction, Run
from .tensor import Tensor, from_dlpack, from_numpy

__version__ = _lib.heed_version().decode()


def set_threads(count: int) -> None:
    """Sets the number of CPU threads; results never depend on it."""
    _call("heed_set_cpu_threads", count)
