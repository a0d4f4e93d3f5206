"""Runs the tests of the Python package in bindings/python, or of some files of them; 77, for "skipped", without NumPy."""

import os
import pathlib
import sys
import unittest

here = pathlib.Path(__file__).resolve().parent
source = here.parents[1] / "bindings/python"
sys.path.insert(0, os.environ.get("HEED_PACKAGE", str(source)))  # another folder: what a wheel holds
try:
    import numpy  # noqa: F401
except ImportError:
    print(f"skipped: {sys.executable} has no numpy")
    sys.exit(77)
tests = unittest.TestSuite(unittest.defaultTestLoader.discover(str(here), files) for files in sys.argv[1:] or ["test*.py"])
result = unittest.TextTestRunner(stream=sys.stdout).run(tests)
for test, reason in result.skipped:
    print(f"skipped: {test}: {reason}")
sys.exit(0 if result.wasSuccessful() and result.testsRun else 1)
