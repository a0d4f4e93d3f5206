"""A folder of examples/ with a script run.sh works and is described: it trains for a few steps on the data it makes,
and its page has the command, a small picture, and a row in examples/README.md.

    examples_test.py EXAMPLE      such as reviews; $HEED_PROGRAMS names the folder of the programs
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"


class Example(unittest.TestCase):
    folder: pathlib.Path

    def run_script(self, *arguments):
        return subprocess.run([self.folder / "run.sh", *arguments], env={**os.environ, "OUT": f"{self.place.name}/run"},
                              capture_output=True, text=True)

    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)

    def test_it_runs(self):
        ran = self.run_script("--steps", "3")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertTrue(pathlib.Path(self.place.name, "run", "report.html").exists())
        self.assertRegex(ran.stdout, r'^\{"part":"(test|valid)",')  # what evaluate prints, before the answers
        data = pathlib.Path(self.place.name, "data")
        first = {file: file.read_bytes() for file in data.rglob("*") if file.is_file()}
        self.assertTrue(first)
        again = self.run_script("--steps", "3")  # makes the same data, and keeps the run
        self.assertIn("already holds a run", again.stderr)
        self.assertEqual(first, {file: file.read_bytes() for file in first})

    def test_it_refuses_a_file_that_is_not_there(self):
        ran = self.run_script("no such file")
        self.assertNotEqual(ran.returncode, 0)
        self.assertIn("no such file", ran.stderr)

    def test_its_page(self):
        page = (self.folder / "README.md").read_text(encoding="utf-8")
        self.assertIn(f"examples/{self.folder.name}/run.sh", page)
        self.assertLess(len(page.splitlines()), 80, "longer than a page")
        pictures = re.findall(r"!\[.+?\]\((\w+\.png)\)", page)
        self.assertTrue(pictures)
        for picture in pictures:
            self.assertLess((self.folder / picture).stat().st_size, 80_000, picture)
        self.assertIn(f"]({self.folder.name}/README.md)", (EXAMPLES / "README.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    Example.folder = EXAMPLES / sys.argv.pop(1)
    unittest.main()
