"""examples/embed/text_classifier.py: what a notebook's user writes, in under twenty lines."""

import os
import pathlib
import subprocess
import sys
import unittest

import heed

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "embed" / "text_classifier.py"


@unittest.skipUnless(EXAMPLE.exists(), "needs the sources")
class Examples(unittest.TestCase):
    def test_it_learns(self):
        path = str(pathlib.Path(heed.__file__).parents[1])
        found = subprocess.run([sys.executable, "-B", str(EXAMPLE)], env=dict(os.environ, PYTHONPATH=path),
                               capture_output=True, text=True)
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertRegex(found.stdout, r"fastformer: .*\n(pipeline: |heed.sklearn needs scikit-learn)")

    def test_it_is_short(self):
        lines = EXAMPLE.read_text(encoding="utf-8").splitlines()[1:]  # without its docstring
        self.assertLess(len([line for line in lines if line.strip()]), 20)


if __name__ == "__main__":
    unittest.main()
