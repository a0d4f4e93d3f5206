"""What the tests of the Python package share."""

import gc
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings

import numpy as np

from heed import _library

ROOT = pathlib.Path(__file__).resolve().parents[2]  # of the sources
PROGRAMS = pathlib.Path(os.environ.get("HEED_PROGRAMS", "build/bin"))
SMALL = {
    "device": "cpu", "model.width": 16, "model.heads": 2, "model.feed_forward": 32, "tokenizer.vocabulary": 300,
    "training.steps": 6, "training.evaluate_every": 3, "training.save_every": 2, "training.log_every": 1,
    "training.batch_tokens": 256,
}
TEXTS = [f"{'good' if i % 2 else 'bad'} film number {i} with a \"quote\", a tab\tand a line\nbreak" for i in range(40)]
LABELS = ["pos" if i % 2 else "neg" for i in range(40)]
WORDS = ["one two", "two three", "three four", "four five", "five six", "six seven", "seven one", "eight nine"] * 3
CODES = ["a b", "b c", "c d", "d e", "e f", "f g", "g a", "h i"] * 3
rng = np.random.default_rng(1)


def heeds_attentions():
    """heed.attentions() without those that tests have registered in this process."""
    package = str(pathlib.Path(_library.__file__).parents[1])
    found = subprocess.run([sys.executable, "-B", "-c", "import heed, json; print(json.dumps(heed.attentions()))"],
                           env=dict(os.environ, PYTHONPATH=package), check=True, capture_output=True, text=True)
    return json.loads(found.stdout)


def draw(*shape, dtype=np.float32):
    return rng.normal(size=shape).astype(dtype)


def draw64(*shape):
    return rng.normal(size=shape)


def in_threads(count, work):
    """work(i) for each number, each in a thread of its own, all at once."""
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Case(unittest.TestCase):
    def same(self, found, expected, tolerance=1e-6):
        expected = np.asarray(expected)
        self.assertEqual(found.shape, expected.shape)
        np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance)

    def refuses(self, *rows):
        """Each call raises its error, with words that match."""
        for error, words, call in rows:
            with self.subTest(words):
                self.assertRaisesRegex(error, words, call)

    def leaves_nothing(self, work):
        """Whether the library holds as many objects behind work() as before."""
        gc.collect()
        before = _library.library.heed_live_handles()
        work()
        gc.collect()
        self.assertEqual(_library.library.heed_live_handles(), before)

    def raise_on_interrupt(self):
        """Ctrl-C raises KeyboardInterrupt until the test ends: what starts the tests in the background may have it ignored."""
        handler = signal.default_int_handler
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, handler))
        return handler

    def new_folder(self):
        """A folder that goes with the test."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name


class Folder(Case):
    def setUp(self):
        self.folder = self.new_folder()
        warnings.simplefilter("ignore", ResourceWarning)

    def path(self, name):
        return os.path.join(self.folder, name)
