"""All functions of tensors, under a familiar name."""

from ..ops import *  # noqa: F401, F403
from ..ops import __all__ as __all__
