"""Runs the tests of the package from the tree; 77, for "skipped", where NumPy is missing."""

import os
import pathlib
import sys
import unittest

here = pathlib.Path(__file__).parent
sys.path.insert(0, os.environ.get("HEED_PACKAGE", str(here.parent)))  # another folder: what a wheel holds
try:
    import numpy  # noqa: F401
except ImportError:
    print(f"skipped: {sys.executable} has no numpy")
    sys.exit(77)
result = unittest.TextTestRunner(stream=sys.stdout).run(unittest.defaultTestLoader.discover(str(here)))
for test, reason in result.skipped:
    print(f"skipped: {test}: {reason}")
sys.exit(0 if result.wasSuccessful() and result.testsRun else 1)
