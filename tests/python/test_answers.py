"""docs/guides/answers.md, docs/guides/recipes.md and docs/reference/cheat_sheet.md: their Python runs, and heed says what the
answers say that it says."""

import os
import pathlib
import re
import subprocess
import sys
import unittest
import warnings

import numpy as np

import heed
from support import Folder

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
TEXTS, LABELS = ["a fine film", "dull and endless"] * 20, ["good", "bad"] * 20


def train(*examples, **settings):
    return heed.train("classify", *(examples or (TEXTS, LABELS)), **{"steps": 3, **settings})


def walked_twice():
    w = heed.parameter([1.0, 2.0])
    loss = (w * w).sum()
    loss.backward()
    loss.backward()


def changed():
    with open("runs/mine/config.json", "a") as file:
        file.write(" ")
    heed.Run.open("runs/mine")


CAUSES = {  # the first words of a message, and what leads to it; in this order
    "device": lambda: train(device="cuda"),
    "precision": lambda: train(precision="f16"),
    "text[3]": lambda: train(TEXTS[:3] + [None] + TEXTS[:4], LABELS[:8]),
    "classify": lambda: train({"id": [1, 2], "review": TEXTS[:2], "stars": [1, 2]}),
    "label[0]": lambda: train(TEXTS, [0.5, 1.5] * 20),
    "row": lambda: train(TEXTS, LABELS, valid=(["a"], ["new"])),
    "latin.csv:2:": lambda: train("latin.csv"),
    "the folder": lambda: train(out="runs/mine"),
    "settings:": lambda: train(settings={"training.step": 3}),
    "the gradient": lambda: train(learning_rate=1e30, steps=10),
    "attention 'linformer' has": lambda: heed.attention("linformer", 64),
    "attention 'linformer' cannot": lambda: heed.attention("linformer", 64, causal=True, max_length=9),
    "optimizer:": lambda: heed.Optimizer("adam", heed.parameter([1.0])).step(),
    "the graph": walked_twice,
    "linear:": lambda: heed.nn.Linear(2, 3)(heed.Tensor(np.ones((4, 2)))),
    "1 of 2 texts": lambda: heed.Run.open("runs/mine").predict(["fine", "x " * 100000]),
    "\"runs/mine/config.json\"": changed,
}


@unittest.skipUnless(DOCS.exists(), "needs the sources")
class Pages(Folder):
    def setUp(self):
        super().setUp()
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        pathlib.Path("latin.csv").write_bytes("text,label\nein grüßchen,a\nb c,b\n".encode("latin-1") * 1)
        warnings.simplefilter("ignore")
        train(out="runs/mine")

    def runs(self, page):
        found = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M)
        names = {"heed": heed, "np": np, "texts": TEXTS, "labels": LABELS}
        for number, block in enumerate(found):
            exec(compile(block, f"{page.name}, block {number + 1}", "exec"), names)
        return len(found)

    def test_answers_run(self):
        self.assertGreater(self.runs(DOCS / "guides/answers.md"), 5)

    def test_the_cheat_sheet_runs(self):
        self.assertGreater(self.runs(DOCS / "reference/cheat_sheet.md"), 4)

    def test_recipes_run(self):
        pathlib.Path("mails").mkdir()
        for number, text in enumerate(TEXTS[:6]):
            pathlib.Path("mails", f"{number + 1}.txt").write_text(text)
        pathlib.Path("poems.txt").write_text("the sea , the sea\nthe open sea\n" * 50)
        like_bert = {"model.norm": "post", "model.positions": "learned", "model.embedding_norm": True, "model.scale_embeddings": False}
        heed.train("embed_text", TEXTS, TEXTS, steps=3, settings=like_bert).export("all-MiniLM-L6-v2")
        self.assertGreater(self.runs(DOCS / "guides/recipes.md"), 7)

    def test_heed_says_so(self):
        page = (DOCS / "guides/answers.md").read_text(encoding="utf-8")
        self.assertEqual(len(re.findall(r"^### ", page, re.M)), 20)
        said = re.findall(r"^```text\n(.*?)\n```", page, re.S | re.M)
        told = [one for one in said if not one.startswith("heed's shared library")]
        self.assertEqual({next((words for words in CAUSES if one.startswith(words)), one) for one in told}, set(CAUSES))
        for words, call in CAUSES.items():
            with self.subTest(words), warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)
                warnings.filterwarnings("ignore", "the run stays")
                with self.assertRaises(Exception) as found:
                    call()
                self.assertIn(next(one for one in told if one.startswith(words)), str(found.exception))

    def test_errors_speak_python(self):
        """None names a flag of the programs."""
        another = lambda **settings: train(TEXTS, ["yes", "no"] * 20, settings={"training.from": "runs/mine", **settings})
        for words, call in {
            r"^training.from runs/mine.*give training.ignore=output$": another,
            r"no part \"end\" to start afresh \(training.ignore\)": lambda: another(**{"training.ignore": "end"}),
            r"unknown attention.*\"linformr\"; did you mean 'linformer'": lambda: train(attention="linformr"),
            r"\(verify=false ": changed,
        }.items():
            with self.subTest(words), self.assertRaisesRegex(heed.Error, words) as found:
                call()
            self.assertNotIn("--", str(found.exception))

    def test_without_the_library(self):
        path = str(pathlib.Path(heed.__file__).parents[1])
        env = dict(os.environ, PYTHONPATH=path, HEED_LIBRARY="/nowhere/libheed.so")
        found = subprocess.run([sys.executable, "-B", "-c", "import heed"], env=env, capture_output=True, text=True)
        self.assertIn("heed's shared library was not found", found.stderr)


if __name__ == "__main__":
    unittest.main()
