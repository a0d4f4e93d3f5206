"""The end of a program while daemon threads are in calls of the library."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import heed

BEGINNING = """
import sys, threading, time
sys.path[:0] = {paths!r}
import heed
from support import SMALL, TEXTS, LABELS, WORDS, CODES

heed.set_threads(1)
begun = threading.Event()
FOREVER = dict(SMALL, **{{"training.steps": 1000000, "training.evaluate_every": 1000000}})

def in_background(work):
    threading.Thread(target=work, daemon=True).start()
    assert begun.wait(60)

"""

PROGRAMS = {
    "training": """
def work():
    heed.train("classify", TEXTS, LABELS, settings=FOREVER, on_progress=lambda record: "step" in record and begun.set())
in_background(work)
""",
    "training again and again": """
def work():
    while True:
        try:
            heed.train("classify", TEXTS, LABELS, settings=SMALL, on_progress=lambda record: begun.set())
        except Exception as error:
            print(error, file=sys.stderr)
in_background(work)
""",
    "cross-validation": """
def work():
    heed.cross_validate("classify", TEXTS, LABELS, settings=FOREVER, on_progress=lambda record: begun.set())
in_background(work)
""",
    "a function that takes its time": """
def work():
    def on_progress(record):
        begun.set()
        time.sleep(0.2)
    heed.train("classify", TEXTS, LABELS, settings=FOREVER, on_progress=on_progress)
in_background(work)
""",
    "streams": """
run = heed.train("translate", WORDS, CODES, settings=dict(SMALL, **{"decoding.beam": 1}))
def work():
    while True:
        for piece in run.stream("one two three four"):
            begun.set()
        begun.set()
in_background(work)
left = run.stream("one two three four")
next(left, None)
""",
    "answers of a queue": """
def own(call):
    return heed.masked_softmax(call.query @ call.key.transpose(), call.allowed) @ call.value
heed.register_attention("own", own)
run = heed.train("classify", TEXTS, LABELS, attention="own", settings=SMALL)
queue = run.serve(workers=2)
def work():
    while True:
        queue.answer("good film")
        begun.set()
for _ in range(3):
    in_background(work)
""",
    "a function with a gradient of one's own": """
class Same(heed.Function):
    forward = staticmethod(lambda kept, x: x * 1.0)
    backward = staticmethod(lambda kept, gradient: gradient)
def work():
    w = heed.Parameter([1.0, 2.0])
    while True:
        Same.apply(w).sum().backward()
        begun.set()
in_background(work)
""",
    "a gradient check": """
def work():
    while True:
        heed.gradcheck(lambda x: (x * x).sum(), [[1.0, 2.0]])
        begun.set()
in_background(work)
""",
}


class End(unittest.TestCase):
    def ended(self, program):
        paths = [str(pathlib.Path(heed.__file__).parent.parent), str(pathlib.Path(__file__).parent)]
        with tempfile.TemporaryDirectory() as folder:
            return subprocess.run(
                [sys.executable, "-W", "ignore", "-c", BEGINNING.format(paths=paths) + program], capture_output=True,
                text=True, timeout=120, env=dict(os.environ, TMPDIR=folder),
            )

    def test_daemon_threads(self):
        for what, program in PROGRAMS.items():
            with self.subTest(what):
                for _ in range(2):
                    result = self.ended(program)
                    self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_other_threads_finish(self):
        result = self.ended("""
def work():
    run = heed.train("classify", TEXTS, LABELS, settings=SMALL)
    print(run.predict(["good film"])[0].error)
threading.Thread(target=work).start()
""")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "\n", ""))

    def test_a_function_that_never_returns(self):
        """It is left where it is."""
        result = self.ended("""
def work():
    def on_progress(record):
        begun.set()
        threading.Event().wait()
    heed.train("classify", TEXTS, LABELS, settings=SMALL, on_progress=on_progress)
in_background(work)
""")
        self.assertEqual((result.returncode, result.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
