"""examples/python, eight programs, and the Python of README.md and bindings/python/README.md."""

import contextlib
import importlib.util
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import heed

PROGRAMS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"
PRINTS = {  # by program: what it needs, and what it prints
    "classify_lists": ("", r"accuracy on held-out texts: 1\.00\ngood .*\nbad .*\n\['bad', 'good'\] \(2, 2\)"),
    "classify_frame": ("pandas", r"review +stars +predicted\n( *\d+ .*\n){3}"),
    "grid_search": ("sklearn", r"\{'classifier__attention': '\w+'\} [01]\.\d+\n\['good'\]"),
    "own_attention": ("", r"\(2, 10, 64\)\n(good|bad)"),
    "training_loop": ("", r"step 60, loss 0\.\d+\naccuracy (1\.00|0\.9\d)"),
    "load_and_predict": ("", r"<heed.Run of classify.*\n\['good' 'bad' 'bad'\]\n(.|\n)*1\.0"),
    "generate_text": ("", r"(- .+\n){3} ?\S.*"),
    "fine_tune": ("", r"\['yes' 'no'\]"),
}


@unittest.skipUnless(PROGRAMS.exists(), "needs the sources")
class Examples(unittest.TestCase):
    def test_the_programs(self):
        self.assertEqual(set(PRINTS), {one.stem for one in PROGRAMS.glob("*.py")})
        path = str(pathlib.Path(heed.__file__).parents[1])
        for name, (needs, prints) in PRINTS.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                if needs and not importlib.util.find_spec(needs):
                    self.skipTest(f"needs {needs}")
                for _ in range(2 if name == "load_and_predict" else 1):  # it opens what it trained before
                    found = subprocess.run([sys.executable, "-B", str(PROGRAMS / f"{name}.py")], cwd=folder,
                                           env=dict(os.environ, PYTHONPATH=path), capture_output=True, text=True)
                    self.assertEqual((found.returncode, found.stderr), (0, ""))
                    self.assertRegex(found.stdout, prints)
                lines = (PROGRAMS / f"{name}.py").read_text(encoding="utf-8").splitlines()
                self.assertLess(len([line for line in lines if line.strip()]), 45)

    def test_the_snippets_of_the_readmes(self):
        root = PROGRAMS.parents[1]
        for page in [root / "README.md", root / "bindings" / "python" / "README.md"]:
            blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M)
            self.assertEqual(len(blocks), 1, page)
            with self.subTest(page), contextlib.redirect_stdout(io.StringIO()) as said:
                exec(compile(blocks[0], str(page), "exec"), {})
                self.assertIn("good", said.getvalue())


if __name__ == "__main__":
    unittest.main()
