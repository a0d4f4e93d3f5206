"""heed's functions of tensors under the name where users of other libraries look for them."""

from ..ops import *  # noqa: F401, F403
from ..ops import __all__ as __all__
