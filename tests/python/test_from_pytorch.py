"""docs/guides/from_pytorch.md: its Python runs, block after block, and PyTorch's beside it where that is installed.
And that of docs/guides/bindings.md."""

import pathlib
import re
import tempfile
import unittest

import numpy as np

import heed

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "guides" / "from_pytorch.md"


def blocks(title):
    """The code under each "title:"."""
    return re.findall(rf"^{title}[^\n]*:\n\n```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.S | re.M)


def names_after(title):
    """What the blocks leave behind, all in one module."""
    with tempfile.TemporaryDirectory() as folder:
        names = {"folder": folder}
        for number, block in enumerate(blocks(title)):
            exec(compile(block, f"{GUIDE.name}, {title}, block {number + 1}", "exec"), names)
    return names


@unittest.skipUnless(GUIDE.exists(), "needs the sources")
class FromPyTorch(unittest.TestCase):
    def test_every_block_is_of_one_kind(self):
        python = GUIDE.read_text(encoding="utf-8").count("```python")
        self.assertEqual(len(blocks("PyTorch")) + len(blocks("heed, Python")), python)
        self.assertGreater(python, 7)

    def test_heed(self):
        self.holds("heed, Python")

    def holds(self, title):
        names = names_after(title)
        self.assertEqual(names["slope"], [[3.0, 12.0], [27.0, 48.0]])
        self.assertEqual(names["total"], 10)
        self.assertLess(names["last"], 0.3)
        self.assertEqual(len(names["predicted"]), 96)

    def test_the_page_on_python(self):
        page = (GUIDE.parent / "bindings.md").read_text(encoding="utf-8")
        found = re.findall(r"^```python\n(.*?)^```", page, re.S | re.M)
        self.assertGreater(len(found), 2)
        with tempfile.TemporaryDirectory() as folder:
            ids = np.arange(24).reshape(4, 6)
            names = {"heed": heed, "np": np, "ids": ids, "labels": ids[:, 0] % 2, "x": ids * 0.13}
            for number, block in enumerate(found):
                if "sklearn" in block or "run." in block or "heed.compare" in block:
                    continue  # test_train.py does the same (where scikit-learn is installed), test_runs.py with a run
                block = block.replace('"net.safetensors"', repr(f"{folder}/net.safetensors"))
                exec(compile(block, f"bindings.md, block {number + 1}", "exec"), names)

    def test_pytorch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no PyTorch here")
        torch.set_num_threads(1)
        self.holds("PyTorch")


if __name__ == "__main__":
    unittest.main()
