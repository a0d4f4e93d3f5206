"""Runs that the sample programs trained. HEED_PROGRAMS: the folder of the programs."""

import io
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import pickle
import unittest

import numpy as np

import heed
from heed import _library
from support import PROGRAMS, Case, in_threads


@unittest.skipUnless((PROGRAMS / "classify").exists(), "needs the program classify: set HEED_PROGRAMS")
class Runs(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = os.path.join(cls.folder.name, "run")
        command = [PROGRAMS / "classify", "train", "--out", cls.path, "--steps", "5", "--threads", "1"]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        cls.run_ = heed.Run.open(cls.path, device="cpu")

    @classmethod
    def tearDownClass(cls):
        del cls.run_
        cls.folder.cleanup()

    def test_predict(self):
        texts = ["a fine film", "", "the train leaves at nine"]
        answers = self.run_.predict(texts, errors="return")
        self.assertEqual(len(answers), 3)
        self.assertEqual((answers[1].text, answers[1].error), ("", "the text is blank"))
        self.assertAlmostEqual(sum(one.probability for one in answers[0].alternatives), 1, places=5)
        self.assertEqual(answers[0].text, answers[0].alternatives[0].text)
        command = [PROGRAMS / "classify", "predict", "--run", self.path, "--threads", "1"]
        lines = subprocess.run(command, input="\n".join(texts) + "\n", check=True, capture_output=True, text=True).stdout
        self.assertEqual([str(one) for one in answers], lines.split("\n")[:3])

    def test_texts_without_answers(self):
        """Each way of asking raises, with the text's number, and says why where that is asked for."""
        run = heed.Run.open(self.path, device="cpu", settings=["data.long_texts=error"])
        texts = ["a fine film"] * 1025 + ["x " * 1000]
        self.refuses((heed.Error, r"lines\[1025\] cannot be answered: .*data.max_tokens", lambda: run.predict(texts)),
                     (heed.SettingsError, "return", lambda: run.predict(texts, errors="ignore")),
                     (heed.SettingsError, "return", lambda: run.serve(errors="ignore")))
        answers = run.predict(texts[-2:], errors="return")
        self.assertEqual([answers[0]], run.predict(texts[:1]))
        self.assertEqual(answers[1].text, "")
        self.assertIn("data.max_tokens", answers[1].error)

    def test_blank_texts_have_no_answer(self):
        with self.run_.serve() as queue, self.run_.serve(errors="return") as returning:
            for text in ("", " \n\t"):
                self.refuses((heed.Error, r"lines\[1\] cannot be answered: the text is blank", lambda: self.run_.predict(["a", text])),
                             (heed.Error, "the text is blank", lambda: queue.answer(text)))
                self.assertEqual(returning.answer(text).error, "the text is blank")
        with tempfile.NamedTemporaryFile(suffix=".html") as file:
            self.refuses((heed.Error, "the text is blank", lambda: self.run_.capture([""], file.name, overwrite=True)))

    def test_forms_of_texts(self):
        """One conversion serves all functions that take texts."""
        texts = ["a fine film", "dull and endless"]
        expected = self.run_.predict(texts)
        columns = [tuple(texts), np.array(texts), np.array(texts)[:, None], (one for one in texts), dict.fromkeys(texts).keys()]
        try:
            import pandas as pd
            columns += [pd.Series(texts, index=[7, 3]), pd.DataFrame({"funny": texts}), pd.Series(texts, dtype="category")]
            self.refuses((TypeError, r"texts is a table of the columns \['a', 'b'\]; .*give one column",
                          lambda: self.run_.predict(pd.DataFrame({"a": texts, "b": texts}))))
        except ImportError:
            pass
        for given in columns:
            self.assertEqual(self.run_.predict(given), expected)
        model, queue = self.run_.model, self.run_.serve()
        for words, given in ((r"texts is one text", "a"), (r"texts is a dictionary of \['funny'\]", {"funny": texts}),
                             (r"texts\[1\] is None; expected a text", ["a", None]), (r"texts\[0\] is b'a'", [b"a"]),
                             (r"texts\[1\] is 3", ["a", 3]), (r"texts has the shape \(2, 2\)", np.array([texts, texts])),
                             (r"texts is 3; expected a list", 3), (r"texts has the shape \(\)", np.array("a"))):
            self.refuses(*((TypeError, words, call) for call in (lambda: self.run_.predict(given), lambda: model(given),
                                                                 lambda: self.run_.capture(given, "/nowhere/x"))))
        self.refuses((TypeError, r"targets\[0\] is None", lambda: model(texts, targets=[None, "a"])),
                     (ValueError, r"texts\[0\] is not Unicode", lambda: self.run_.predict(["\ud800"])),
                     *((TypeError, "text is .*; expected a text", lambda one=one: queue.answer(one)) for one in (None, 3, texts, b"a")),
                     (TypeError, "text is None; expected a text", lambda: next(self.run_.stream(None))),
                     (TypeError, "prompt is 3; expected a text", lambda: self.run_.generate(3)))
        queue.close()

    def test_a_fork_has_its_own_threads(self):
        """A queue, a run and a tensor of the parent work in a child, whose end does not hang."""
        text = "a fine film"
        expected = self.run_.predict([text])[0].text
        with self.run_.serve() as queue, self.run_.serve() as unused:
            busy, ends = threading.Event(), threading.Event()

            def ask():
                while not ends.is_set():
                    self.run_.predict([text] * 20)
                    queue.answer(text)
                    busy.set()

            askers = [threading.Thread(target=ask) for _ in range(2)]
            for one in askers:
                one.start()
            busy.wait(60)
            try:
                for _ in range(8):
                    child = os.fork()
                    if child == 0:
                        signal.alarm(60)  # instead of waiting forever
                        right = self.run_.predict([text])[0].text == queue.answer(text).text == expected
                        queue.close(), unused.close(), self.run_.measure()
                        with self.run_.serve(workers=2) as own:
                            right = right and own.answer(text).text == expected
                        _library._end()
                        os._exit(0 if right else 1)
                    self.assertEqual(os.waitpid(child, 0)[1], 0)
            finally:
                ends.set()
                for one in askers:
                    one.join()
            self.assertEqual(queue.answer(text).text, expected)

    def test_many_threads_ask(self):
        texts = [f"a {'fine' if i % 3 else 'dull'} film {i}" for i in range(8)]
        alone = [self.run_.predict([text])[0] for text in texts]
        found = {}
        with self.run_.serve(max_batch=4, workers=2) as queue:
            def ask(i):
                found[i] = self.run_.predict([texts[i]])[0], queue.answer(texts[i])

            in_threads(8, ask)
        for i, one in enumerate(alone):
            self.assertEqual(found[i][0], one)
            self.assertEqual(found[i][1].text, one.text)
            self.assertAlmostEqual(found[i][1].probability, one.probability, places=5)
        self.refuses((heed.BadArgument, "the queue is closed", lambda: queue.answer("one")),
                     (heed.SettingsError, "max_batch", lambda: self.run_.serve(max_batch=0)))

    def test_what_it_is(self):
        self.assertEqual(self.run_.task, "classify")
        self.assertEqual(self.run_.settings["training"]["steps"], 5)
        names = self.run_.model.parameters()
        self.assertTrue(any(name.startswith("encoder.") for name in names), sorted(names))
        measured = self.run_.measure()
        self.assertGreater(measured["accuracy"], 0)

    def test_capture(self):
        path = os.path.join(self.folder.name, "maps.html")
        answers = self.run_.capture(["a fine film"], path)
        self.assertEqual(answers, self.run_.predict(["a fine film"]))
        self.assertGreater(os.path.getsize(path), 1000)
        with self.assertRaisesRegex(heed.Error, "exists"):
            self.run_.capture(["a fine film"], path)
        self.run_.capture(["a fine film"], path, overwrite=True)
        with self.assertRaisesRegex(heed.Error, "there is no folder"):
            self.run_.capture(["a fine film"], pathlib.Path(path).parent / "missing" / "answers")

    def test_pages_of_a_notebook(self):
        report = self.run_.report()
        self.assertIn("</html>", report.text)
        self.assertIn("accuracy", report.text)
        self.assertIn('srcdoc="&lt;!DOCTYPE', self.run_._repr_html_())
        self.assertIn("encoder layer 0", self.run_.maps(["a fine film"]).text)
        path = os.path.join(self.folder.name, "both.html")
        heed.report([self.path, self.path]).save(path)
        self.assertGreater(os.path.getsize(path), 1000)
        self.assertIn("Page", repr(report))
        with self.assertRaisesRegex(heed.Error, "no run"):
            heed.report("/nowhere")

    def test_a_line_of_progress(self):
        out = io.StringIO()
        line = heed.ProgressLine(out)
        with open(os.path.join(self.path, "metrics.jsonl")) as records:
            for record in records:
                line(json.loads(record))
        line({"message": "a remark"})
        self.assertRegex(out.getvalue(), r"\rstep 5 of 5  loss [\d.]+  \d+ texts/s  0 s left")
        self.assertRegex(out.getvalue(), r"\rstep 5 of 5  accuracy [\d.]+.*\n\ra remark\n$")

    def test_a_signal_ends_a_call(self):
        """Ctrl-C in the middle of a call: the call ends, the exception is Python's, and the run can be used again."""
        before = self.run_.predict(["a fine film"])
        handler = self.raise_on_interrupt()
        lines = heed.run._lines(["[ MAX 2 [ MIN 9 4 ] 7 ]"] * 200_000)
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        finished = False
        with self.assertRaises(KeyboardInterrupt):
            with heed.run.lib.interruptible():
                heed.run.lib.result_json("heed_run_predict", self.run_, lines, len(lines), None)
                finished = True
        timer.join()
        self.assertFalse(finished)
        self.assertIs(signal.getsignal(signal.SIGINT), handler)
        self.assertEqual(self.run_.predict(["a fine film"]), before)

    def test_a_signal_with_a_handler_of_ones_own(self):
        seen = []
        handler = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
        try:
            timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            while not seen:
                self.run_.predict(["a fine film"] * 50)
            timer.join()
        finally:
            signal.signal(signal.SIGINT, handler)
        self.assertEqual(seen, [signal.SIGINT])

    def test_training_goes_on(self):
        model = heed.Run.open(self.path, device="cpu").model  # outlives the run
        w = next(iter(model.parameters().values()))
        before = w.numpy(copy=True)
        heed.square(w).sum().backward()
        heed.Optimizer("sgd", model).step(0.1)
        np.testing.assert_allclose(w.numpy(), 0.8 * before, rtol=1e-5, atol=1e-7)

    def test_pickling_keeps_files_and_options(self):
        run = heed.Run.open(self.path, weights="initial", settings={"prediction.batch_size": 3})
        again = pickle.loads(pickle.dumps(run))
        self.assertEqual(again.settings, run.settings)
        np.testing.assert_array_equal(again.predict(["good"])[0].probability, run.predict(["good"])[0].probability)

    def test_what_is_refused(self):
        self.refuses(
            (heed.Error, "no run", lambda: heed.Run.open("/nowhere")),
            (heed.SettingsError, "best", lambda: heed.Run.open(self.path, weights="newest")),
            (heed.SettingsError, "model.width", lambda: heed.Run.open(self.path, settings=["model.width=8"])),
            (TypeError, "list of texts", lambda: self.run_.predict("one text")),
            (ValueError, "NUL", lambda: self.run_.predict(["a\0b"])),
            (heed.SettingsError, "part", lambda: self.run_.measure("rest")),
        )


if __name__ == "__main__":
    unittest.main()
