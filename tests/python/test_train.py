"""Training from Python: every task from memory, to the same bits as from files; bad input; stops; scikit-learn."""

import contextlib
import io
import json
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest
import warnings

import numpy as np

import heed
from support import CODES, LABELS, PROGRAMS, SMALL, TEXTS, WORDS, Folder, in_threads


def jsonl(path, **columns):
    names = list(columns)
    with open(path, "w", encoding="utf-8") as file:
        for row in zip(*columns.values()):
            file.write(json.dumps(dict(zip(names, row)), ensure_ascii=False) + "\n")
    return path


def weights(folder):
    return pathlib.Path(folder, "model.safetensors").read_bytes()


class Training(Folder):
    # what each task learns from in memory: columns, those held out, other tables, its file, and further settings
    tasks = {
        "classify": ((TEXTS, LABELS), (TEXTS[:8], LABELS[:8]), {}, "text label", {}),
        "rate": ((TEXTS, [i / 7 for i in range(40)]), (TEXTS[:8], list(range(8))), {}, "text label", {}),
        "tag": (([one.split() for one in WORDS], [["O", "B-X"]] * 24), ([["one", "two"]] * 3, [["O", "B-X"]] * 3), {},
                "words labels", {}),
        "match": ((WORDS, CODES, [str(i % 2) for i in range(24)]), (WORDS[:6], CODES[:6], list("010101")), {},
                  "first second label", {}),
        "translate": ((WORDS, CODES), (WORDS[:4], CODES[:4]), {}, "source target", {}),
        "summarize": ((WORDS, CODES), (WORDS[:4], CODES[:4]), {}, "source target", {}),
        "embed_text": ((WORDS, CODES), (WORDS[:4], CODES[:4]), {}, "source target", {}),
        "language_model": ((TEXTS,), TEXTS[:5], {}, "text", {"model.max_length": 32, "data.format": "jsonl"}),
        "masked": ((TEXTS,), TEXTS[:5], {}, "text",
                   {"objective": "masked", "model.max_length": 32, "data.format": "jsonl"}),
    }

    def train(self, name, *examples, **given):
        settings = dict(SMALL, **given.pop("settings", {}))
        return heed.train(name, *examples, settings=settings, **given)

    def test_the_same_bits_as_from_files(self):
        of_their_own = {"converse", "recommend"}  # below: dialogues and impressions
        self.assertEqual(set(self.tasks) - {"masked"} | of_their_own, set(heed.tasks()))
        for name, (columns, held_out, tables, names, more) in self.tasks.items():
            with self.subTest(name):
                task = "language_model" if name == "masked" else name
                own = {key: value for key, value in more.items() if key != "data.format"}
                memory, files = self.path(name), self.path(name + "_files")
                run = self.train(task, *columns, valid=held_out, out=memory, settings=own, **tables)
                rows = held_out if isinstance(held_out, tuple) else (held_out,)
                train = jsonl(self.path(name + ".jsonl"), **dict(zip(names.split(), columns)))
                valid = jsonl(self.path(name + "_valid.jsonl"), **dict(zip(names.split(), rows)))
                self.train(task, train, valid=valid, out=files, settings=more)
                self.assertEqual(weights(memory), weights(files))
                measured = run.measure("valid")
                self.assertEqual(measured, run.evaluate(*rows))
                self.assertEqual(measured, heed.Run.open(files, device="cpu").measure("valid"))
                if name == "classify" and (PROGRAMS / task).exists():
                    by_program = self.path(name + "_program")
                    command = [PROGRAMS / task, "train", "--data", train, "--valid", valid, "--out", by_program]
                    for key, value in dict(SMALL, **more).items():
                        command += ["--set", f"{key}={value}"]
                    subprocess.run(command, check=True, capture_output=True)
                    self.assertEqual(weights(memory), weights(by_program))

    def test_dialogues(self):
        turns = [["hello there", "hi , who are you ?", "i am ann"], ["good morning", "good evening\nto you"]] * 6
        run = self.train("converse", turns, valid=turns[:2], out=self.path("run"), settings={"data.overlap": "keep"})
        lines = [" __eou__ ".join(one).replace("\n", " ") + " __eou__\n" for one in turns]
        pathlib.Path(self.path("dialogues.txt")).write_text("".join(lines))
        pathlib.Path(self.path("valid.txt")).write_text("".join(lines[:2]))
        self.train("converse", self.path("dialogues.txt"), valid=self.path("valid.txt"), out=self.path("files"),
                   settings={"data.overlap": "keep"})
        self.assertEqual(weights(run.folder), weights(self.path("files")))
        self.assertEqual(run.evaluate(turns), run.evaluate(self.path("dialogues.txt")))
        with self.assertRaisesRegex(ValueError, "__eou__"):
            self.train("converse", [["a __eou__ b", "c"]])

    def test_impressions(self):
        ids = [f"N{i}" for i in range(9)]
        history = [[ids[i % 9], ids[(i + 1) % 9]] for i in range(20)]
        clicked, passed = [[ids[(i + 2) % 9]] for i in range(20)], [[ids[(i + 3) % 9], ids[(i + 4) % 9]] for i in range(20)]
        news = (ids, [f"title {i}" for i in range(9)], ["sport", "world", "sport"] * 3)
        run = self.train("recommend", history, clicked, passed, news=news, out=self.path("run"))
        with open(self.path("behaviors.tsv"), "w") as file:
            for i in range(20):
                shown = " ".join([one + "-1" for one in clicked[i]] + [one + "-0" for one in passed[i]])
                file.write(f"{i + 1}\t\t1/1/2000 12:00:00 AM\t{' '.join(history[i])}\t{shown}\n")
        with open(self.path("news.tsv"), "w") as file:
            for one, title, category in zip(*news):
                file.write(f"{one}\t{category}\t\t{title}\t\t\t\t\n")
        self.train("recommend", self.path("behaviors.tsv"), news=self.path("news.tsv"), out=self.path("files"))
        self.assertEqual(weights(run.folder), weights(self.path("files")))
        self.assertEqual(run.evaluate(history, clicked, passed), run.evaluate(self.path("behaviors.tsv")))

    def test_every_task_says_what_it_takes(self):
        tasks = heed.tasks()
        for name in tasks:
            self.assertTrue(tasks[name]["examples"], name)
            found = heed.settings(name)
            self.assertIn("training.steps", found)
            self.assertIn("training.steps", repr(found))
            self.assertIn("<td>training.steps</td>", found._repr_html_())
        steps = heed.settings("classify")["training.steps"]
        self.assertEqual((steps.kind, steps.default), ("integer", 1000))
        self.assertIn("post", heed.settings("classify")["model.norm"].choices)
        self.refuses((heed.Error, "classify", lambda: heed.settings("clasify")),
                     (heed.Error, "classify", lambda: heed.train("clasify", TEXTS, LABELS)))

    def test_answers_are_arrays(self):
        run = self.train("classify", np.array(TEXTS), np.array(LABELS), valid=0.2, attention="fastformer")
        self.assertEqual(run.settings["model"]["encoder_attention"], "fastformer")
        self.assertEqual(run.settings["data"]["valid_fraction"], 0.2)
        answers = run.predict(["good film", "", "bad film"], errors="return")
        self.assertEqual(answers.classes, ["neg", "pos"])
        self.assertEqual(answers.labels.tolist(), [one.text for one in answers])
        self.assertEqual(answers.probabilities.shape, (3, 2))
        self.assertTrue(np.isnan(answers.probabilities[1]).all())
        np.testing.assert_allclose(answers.probabilities[0].sum(), 1, atol=1e-6)
        self.assertEqual(answers[0].probability, answers.probability[0])
        with self.assertRaisesRegex(heed.Error, "not vectors"):
            answers.vectors
        logits = run.model(["good film", "bad film"])
        self.assertEqual(logits.shape, (2, 2))
        np.testing.assert_allclose(heed.softmax(logits, -1).numpy(), answers.probabilities[[0, 2]], atol=1e-6)
        loss = heed.cross_entropy(run.model(TEXTS[:4], heed.Context(seed=1)), np.array([0, 1, 0, 1], np.int32)).mean()
        loss.backward()
        self.assertTrue(any(one.grad is not None for one in run.model.parameters().values()))

        run = self.train("embed_text", WORDS, CODES)
        answers = run.predict(["one two", " ", "two three"], errors="return")
        self.assertEqual(answers.vectors.shape, (3, 16))
        self.assertEqual(answers.vectors.dtype, np.float32)
        np.testing.assert_array_equal(answers.vectors[0], np.array(answers[0].text.split(), np.float32))
        self.assertTrue(np.isnan(answers.vectors[1]).all())
        np.testing.assert_allclose(run.model(["one two", "two three"]).numpy(), answers.vectors[[0, 2]], atol=1e-6)
        with self.assertRaisesRegex(heed.Error, "no classes"):
            answers.probabilities

        run = self.train("language_model", TEXTS, settings={"model.max_length": 32})
        self.assertEqual(run.model(["good"]).shape[:2], (1, 4))
        run = self.train("translate", WORDS, CODES)
        with self.assertRaisesRegex(heed.Error, "no outputs for lines"):
            run.model(["one"])
        scores = run.model(WORDS[:3], targets=CODES[:3]).numpy()  # log-probabilities
        for i in range(3):
            np.testing.assert_allclose(run.model(WORDS[i : i + 1], targets=CODES[i : i + 1]).numpy(), scores[i : i + 1], rtol=1e-5)
        self.assertTrue((scores < 0).all() and len(set(scores)) == 3)
        run.model(WORDS, heed.Context(seed=1), targets=CODES).sum().backward()
        self.assertTrue(all(one.grad is not None for one in run.model.parameters().values()))
        with self.assertRaisesRegex(ValueError, "2 texts, but 1 targets"):
            run.model(["a", "b"], targets=["a"])

    def test_pieces_of_a_text(self):
        for task, columns, settings in [("translate", (WORDS, CODES), ["decoding.beam=1"]),
                                        ("language_model", (TEXTS,), ["generation.tokens=20"])]:
            with self.subTest(task):
                more = {"model.max_length": 32} if task == "language_model" else {}
                self.train(task, *columns, settings=more, out=self.path(task))
                run = heed.Run.open(self.path(task), settings=settings)
                answer = run.predict(["one two"])[0]
                self.assertEqual("".join(run.stream("one two")), answer.text)
                pieces = run.stream("one two")
                first = next(pieces)
                self.assertTrue(answer.text.startswith(first))
                pieces.close()
                self.assertEqual(run.predict(["one two"])[0], answer)
        with self.assertRaisesRegex(heed.Error, "generates no text"):
            list(self.train("classify", TEXTS, LABELS).stream("good"))

    def test_folds(self):
        settings = dict(SMALL, **{"data.split_seed": 3})
        found = heed.cross_validate("classify", TEXTS, LABELS, folds=3, settings=settings, out=self.path("folds"))
        self.assertEqual(len(found["folds"]), 3)
        self.assertAlmostEqual(found["accuracy"], np.mean([one["accuracy"] for one in found["folds"]]), places=3)
        self.assertIn("accuracy", found["deviation"])
        third = heed.Run.open(self.path("folds/fold-3"))
        self.assertAlmostEqual(third.measure("test")["accuracy"], found["folds"][2]["accuracy"], 4)
        # one that went missing is trained again, to the same bits
        before = weights(third.folder)
        shutil.rmtree(third.folder)
        again = heed.cross_validate("classify", TEXTS, LABELS, folds=3, settings=settings, out=self.path("folds"), resume=True)
        self.assertEqual(again, found)
        self.assertEqual(weights(self.path("folds/fold-3")), before)
        self.refuses((heed.SettingsError, "data.folds", lambda: heed.cross_validate("translate", WORDS, CODES)),
                     (heed.SettingsError, "data.folds", lambda: heed.cross_validate("classify", TEXTS, LABELS, folds=0)))

    def test_compare(self):
        settings = {name: value for name, value in SMALL.items() if name != "training.steps"}
        out, said = self.path("which"), []
        call = dict(attention=["dot_product", "fastformer"], seeds=[1, 2], valid=0.2, steps=2, settings=settings, out=out)
        found = heed.compare("classify", TEXTS, LABELS, on_progress=said.append, **call)
        self.assertEqual([row["choice"] for row in found.rows], ["dot_product", "fastformer"])
        self.assertEqual(found.rows[1]["seeds"], 2)
        self.assertIn("accuracy", repr(found))
        self.assertIn("| fastformer |", found.markdown)
        self.assertIn("<", found._repr_html_())
        self.assertEqual(found.run("fastformer", 2).settings["seed"], 2)
        self.assertIn("best by accuracy on the valid part", repr(found))
        self.assertEqual(sum("message" in one and "seed 2" in one["message"] for one in said), 2)
        said.clear()
        again = heed.compare("classify", TEXTS, LABELS, on_progress=said.append, **call)
        self.assertEqual((again.rows, said), (found.rows, []))
        search = heed.compare("classify", TEXTS, LABELS, valid=0.2, steps=6, settings=settings, random=4, halving=True,
                              grid={"training.schedule.learning_rate": (1e-4, 1e-2)}, out=self.path("search"))
        self.assertEqual({row["steps"] for row in search.rows}, {6})
        self.refuses(
            (heed.SettingsError, "random.*is 0", lambda: heed.compare(
                "classify", TEXTS, LABELS, random=0, grid={"model.dropout": [0.0, 0.5]}, out=self.path("none"))))

    def test_compare_chooses_by_the_validation_part(self):
        rates = {"training.schedule.learning_rate": [1e-6, 3e-2]}
        call = dict(test=0.2, steps=20, grid=rates, settings={**SMALL, "training.steps": 20, "model.sparse_features": 0})
        del call["settings"]["training.steps"]
        found = heed.compare("classify", TEXTS, LABELS, valid=0.2, out=self.path("both"), **call)
        self.assertEqual(found.run().settings["training"]["schedule"]["learning_rate"], 3e-2)
        self.assertEqual(found.run(found.rows[0]["choice"]).settings["training"]["schedule"]["learning_rate"], 1e-6)
        found = heed.compare("classify", TEXTS, LABELS, valid=0.0, out=self.path("test"), random=10**8, **call)
        with self.assertWarnsRegex(UserWarning, "chosen by the test part"):
            found.run()

    def test_labels(self):
        """Answers have the type of the labels, and classes the order of numpy.unique(), also of a run opened later."""
        of_two = lambda *two: [two[i % 2] for i in range(40)]
        for labels, classes, kind in (([(9, 10, -1)[i % 3] for i in range(40)], [-1, 9, 10], "i"),
                                      (np.array(of_two(10, 9), np.uint8), [9, 10], "i"),
                                      (of_two(np.int64(10), np.int64(9)), [9, 10], "i"),
                                      (of_two(2**70, 3), [3, 2**70], "O"),
                                      (np.array(of_two(2.0, 10.0)), [2.0, 10.0], "f"),
                                      (np.array(of_two(True, False)), [False, True], "b"),
                                      (np.array(LABELS, dtype=object), ["neg", "pos"], "U"),
                                      (np.array(of_two("10", "9")), ["10", "9"], "U")):
            shutil.rmtree(self.path("labels"), ignore_errors=True)
            self.train("classify", TEXTS, labels, out=self.path("labels"))
            run = heed.Run.open(self.path("labels"))
            found = run.predict(TEXTS)
            self.assertEqual((run.classes, found.classes), (classes, classes))
            self.assertEqual([type(one) for one in run.classes], [type(one) for one in classes])
            self.assertEqual(found.labels.dtype.kind, kind)
            np.testing.assert_array_equal(found.labels, np.array(classes)[found.probabilities.argmax(axis=1)])
        run = self.train("classify", {"label": LABELS, "text": TEXTS})
        self.assertEqual(run.classes, ["neg", "pos"])
        pairs = self.train("match", WORDS, CODES, [(9, 10)[i % 2] for i in range(24)])
        self.assertEqual(pairs.classes, [9, 10])
        self.assertEqual(pairs.predict(["one\t1"]).labels.dtype.kind, "i")
        numbers = self.train("classify", TEXTS, [(9, 10)[i % 2] for i in range(40)])
        self.assertEqual(numbers.predict([TEXTS[0], " "], errors="return").labels.tolist()[1], None)
        sets = self.train("classify", TEXTS, [[9, 10][: i % 3] for i in range(40)])
        self.assertEqual(sets.classes, [9, 10])
        self.assertTrue(all(set(one) <= {9, 10} for one in sets.predict(TEXTS).label_lists))
        self.assertEqual(sets.predict(TEXTS).labels.dtype.kind, "U")
        file = jsonl(self.path("numbers.jsonl"), text=TEXTS, label=[(9, 10)[i % 2] for i in range(40)])
        self.assertEqual(self.train("classify", str(file)).classes, ["9", "10"])

    def test_bad_input(self):
        cases = [
            ((TEXTS, LABELS[:-1]), ValueError, "40 of text, but 39 of label"),
            (([], []), heed.Error, "empty"),
            ((TEXTS,), TypeError, "text, label"),
            ((TEXTS, LABELS, LABELS), TypeError, r"weight\[0\] is '\w+'; expected a number"),
            ((TEXTS, LABELS, [1] * 40, LABELS), TypeError, "text, label, weight"),
            ((LABELS, [1.5] * 40), TypeError, r"label\[0\] is 1.5"),
            ((TEXTS, [True, 2] * 20), TypeError, "label mixes True and False with other labels"),
            (([3] * 40, LABELS), TypeError, r"text\[0\] is 3"),
            ((np.zeros((40, 2)), LABELS), TypeError, "one dimension"),
            ((TEXTS[:-1] + [None], LABELS), ValueError, r"text\[39\] is None: 1 of 40 rows of 'train'"),
            ((TEXTS, LABELS[:-1] + [float("nan")]), ValueError, r"label\[39\] is nan"),
            ((TEXTS[:-1] + [b"bytes"], LABELS), TypeError, "expected a text"),
            ((TEXTS[:-1] + ["a\0b"], LABELS), ValueError, r"text\[39\].*NUL"),
            ((TEXTS[:-1] + ["\ud800"], LABELS), ValueError, r"text\[39\] is not Unicode"),
            ((TEXTS, ["a\nb"] * 40), heed.Error, "row 0 .* label"),
            ((TEXTS, [""] * 40), heed.Error, "label"),
            ((TEXTS, ["same"] * 40), heed.Error, "two classes"),
            (("no_such_file.csv",), heed.Error, "no_such_file.csv"),
            (({"text": TEXTS},), TypeError, "text, label"),
            (({"text": TEXTS, "label": LABELS, "more": LABELS},), TypeError, "more"),
        ]
        for examples, error, message in cases:
            with self.subTest(message), self.assertRaisesRegex(error, message):
                self.train("classify", *examples, out=self.path("bad"))
            self.assertFalse(os.path.exists(self.path("bad")), message)
        for settings, message in [({"training.stepz": 3}, "training.steps"), ({"training": {"steps": -1}}, "training.steps"),
                                  ({"data.format": "csv"}, "in memory"), ({"threads": 2}, "whole process"),
                                  ({"data.file": "x.csv"}, "give one"), ({"data.folds": 3}, "cross-validation")]:
            with self.assertRaisesRegex(heed.SettingsError, message):
                self.train("classify", TEXTS, LABELS, settings=settings)
        train = lambda **given: self.train("classify", TEXTS, LABELS, **given)
        self.refuses((TypeError, "no 'news'", lambda: train(news=(TEXTS,))),
                     (heed.Error, "fastformer", lambda: train(attention="fastforma")),
                     (TypeError, "object", lambda: train(settings={"training.steps": object()})),
                     *((heed.SettingsError, f"{name}.* is nan; expected a finite number", call) for name, call in (
                         ("training.schedule.learning_rate", lambda: train(learning_rate=np.nan)),
                         ("model.dropout", lambda: train(settings={"model": {"dropout": np.float32(np.nan)}})),
                         ("grid.model.dropout[[]1[]]", lambda: heed.compare("classify", TEXTS, LABELS, grid={"model.dropout": [0, np.nan]},
                                                                         out=self.path("bad"))))),
                     (TypeError, r"text is a dictionary of \['a'\]", lambda: self.train("classify", {"a": TEXTS}, LABELS)),
                     (TypeError, "text, label, weight .*'train', but got 1", lambda: self.train("classify", TEXTS)),
                     (heed.SettingsError, "valid_fraction.* 20", lambda: train(valid=20)),
                     (TypeError, "'valid' is True; expected text, label", lambda: train(valid=True)))
        self.assertEqual(train(valid=0, settings={"training.steps": 1}).settings["data"]["valid_fraction"], 0)
        self.assertNotIn("threads", heed.settings("classify"))

    def test_the_home_folder(self):
        """~ in a path is the home folder, and the library refuses to make a folder of that name."""
        from unittest import mock

        with mock.patch.dict(os.environ, HOME=self.folder):
            run = self.train("classify", TEXTS, LABELS, out="~/run")
            self.assertEqual(run.folder, self.path("run"))
            run.save("~/run.zip")
            run.capture(["a good film"], pathlib.Path("~/maps.html"))
            run.report().save("~/page.html")
            heed.report("~/run")
            heed.save("~/w.safetensors", {"w": heed.parameter([1.0])})
            for path in ("~/run", pathlib.Path("~/run.zip")):
                self.assertEqual(heed.Run.open(path).predict(["a good film"]), run.predict(["a good film"]))
            self.assertEqual(sorted(os.listdir(self.folder)), ["maps.html", "page.html", "run", "run.zip", "w.safetensors"])
            self.refuses((TypeError, "out is 3; expected a path", lambda: self.train("classify", TEXTS, LABELS, out=3)),
                         (heed.Error, "whole path", lambda: self.train("classify", TEXTS, LABELS, settings={"data.valid": "~/valid.csv"})))

    def test_keywords_are_settings(self):
        settings = {name: value for name, value in SMALL.items() if name not in ("training.steps", "training.batch_tokens", "device")}
        named = heed.train("classify", TEXTS, LABELS, settings=settings, out=self.path("named"), steps=4, seed=7, device="cpu",
                           learning_rate=0.004, batch_tokens=128, precision="f32")
        by_settings = dict(settings, **{"training.steps": 4, "seed": 7, "device": "cpu", "training.batch_tokens": 128,
                                        "training.schedule.learning_rate": 0.004, "precision": "f32"})
        heed.train("classify", TEXTS, LABELS, settings=by_settings, out=self.path("settings"))
        self.assertEqual(weights(self.path("named")), weights(self.path("settings")))
        self.assertEqual(named.settings["training"]["steps"], 4)
        self.assertEqual(self.train("classify", TEXTS, LABELS, epochs=1).settings["training"]["epochs"], 1)
        self.refuses((TypeError, "'training.steps' is given twice", lambda: self.train("classify", TEXTS, LABELS, steps=3)))

    def test_columns_by_name(self):
        frame = {"id": range(40), "review": TEXTS, "stars": LABELS}  # a DataFrame looks so
        run = self.train("classify", frame, text="review", label="stars", out=self.path("frame"))
        self.train("classify", TEXTS, LABELS, out=self.path("lists"))
        self.assertEqual(weights(self.path("frame")), weights(self.path("lists")))
        self.assertEqual(run.evaluate(frame, text="review", label="stars"), run.evaluate(TEXTS, LABELS))
        self.refuses((KeyError, "no column 'revue'", lambda: self.train("classify", frame, text="revue", label="stars")),
                     (TypeError, 'say which.*text="..."', lambda: self.train("classify", frame)),
                     (TypeError, "neither", lambda: self.train("classify", TEXTS, LABELS, text="review")),
                     (TypeError, "is a file", lambda: self.train("classify", "a.csv", text="review")),
                     (TypeError, "in memory", lambda: run.evaluate("a.csv", text="review")),
                     (TypeError, "no column 'news'", lambda: run.evaluate(frame, news="x")))

    def test_rows_that_lack_a_value(self):
        texts, labels = list(TEXTS), [float(i % 2) for i in range(40)]
        texts[3], labels[5] = None, float("nan")
        said = []
        run = self.train("classify", texts, labels, missing="drop", out=self.path("drop"), on_progress=said.append)
        kept = [i for i in range(40) if i not in (3, 5)]
        self.train("classify", [TEXTS[i] for i in kept], [i % 2 for i in kept], out=self.path("kept"))
        self.assertEqual(weights(self.path("drop")), weights(self.path("kept")))
        self.assertEqual(run.classes, [0.0, 1.0])
        self.assertIn({"message": "2 rows of 'train' that lack a value were left out"}, said)
        self.assertEqual(run.evaluate(texts, labels, missing="drop")["texts"], 38)
        self.refuses((ValueError, r"text\[3\] is None: 2 of 40", lambda: self.train("classify", texts, labels)),
                     (ValueError, "'dorp'", lambda: self.train("classify", TEXTS, LABELS, missing="dorp")))
        file = jsonl(self.path("lacks.jsonl"), text=texts, label=[None if i == 5 else str(i % 2) for i in range(40)])
        said.clear()
        self.train("classify", file, missing="drop", out=self.path("file"), on_progress=said.append)
        self.assertTrue(any("2 rows without a label or a text" in one.get("message", "") for one in said))
        self.assertEqual(heed.Run.open(self.path("file")).settings["data"]["missing"], "drop")

    def test_errors_speak_python(self):
        run = self.train("classify", TEXTS, LABELS, out=self.path("run"))
        self.refuses((heed.Error, "continue it with resume=true", lambda: self.train("classify", TEXTS, LABELS, out=self.path("run"))),
                     (heed.SettingsError, 'model.width=8: "model.width" belongs',
                      lambda: heed.Run.open(self.path("run"), settings={"model": {"width": 8}})),
                     (heed.Error, "^row 1 of 'train': the label", lambda: run.evaluate(["a", "b"], ["neg", ""])),
                     (heed.Error, "cast", lambda: heed.exp(heed.Tensor([1, 2]))))

    def test_generate(self):
        run = self.train("language_model", TEXTS, settings={"model.max_length": 32})
        found = run.generate("good", max_tokens=5, temperature=0.9, top_k=20, top_p=0.95, samples=3, seed=4)
        self.assertEqual(len(found), 3)
        self.assertEqual(found, run.generate("good", max_tokens=5, temperature=0.9, top_k=20, top_p=0.95, samples=3, seed=4))
        self.assertNotEqual(found, run.generate("good", max_tokens=5, temperature=0.9, top_k=20, top_p=0.95, samples=3, seed=5))
        greedy = run.generate("good", max_tokens=5, temperature=0)
        self.assertEqual(greedy, run.generate("good", max_tokens=5, temperature=0, seed=9))
        self.assertTrue(0 < len(greedy[0].text) <= 40)
        whole = run.generate("good", max_tokens=9, temperature=0)[0].text
        self.assertEqual(run.generate("good", max_tokens=9, temperature=0, stop=whole[3:5])[0].text, whole[: whole.find(whole[3:5])])
        self.assertEqual(run.generate("good", max_new_tokens=9, do_sample=False, stop=["\x07"])[0].text, whole)
        stopped = heed.Run.open(run.folder, settings={"generation": {"stop": [whole[3:5]], "temperature": 0, "tokens": 9}})
        self.assertEqual("".join(stopped.stream("good")), whole[: whole.find(whole[3:5])])
        both = run.generate(["good", "bad"], num_return_sequences=2, seed=4, repetition_penalty=1.2, min_p=0.05)
        self.assertEqual(both[2:], run.generate("bad", samples=2, seed=4, repetition_penalty=1.2, min_p=0.05))
        drawn = self.train("translate", WORDS, CODES).generate("one two", max_tokens=3, samples=2, seed=1)
        self.assertEqual(len(drawn), 2)
        self.assertGreaterEqual(drawn[0].probability, drawn[1].probability)
        self.refuses((TypeError, "same option", lambda: run.generate("good", max_tokens=1, max_new_tokens=1)),
                     (heed.Error, "an empty text ends nothing", lambda: run.generate("good", stop="")),
                     (heed.SettingsError, "min_p", lambda: run.generate("good", min_p=2)),
                     (heed.SettingsError, "top_p", lambda: run.generate("good", top_p=1.5)),
                     (heed.SettingsError, "samples", lambda: run.generate("good", samples=0)),
                     (heed.Error, "generates no text", lambda: self.train("classify", TEXTS, LABELS).generate("good")))

    def test_history(self):
        run = self.train("classify", TEXTS, LABELS, settings={"training.steps": 20,
            "training.log_every": 5, "training.evaluate_every": 10, "data.valid_fraction": 0.2})
        found = run.history
        self.assertEqual(found["step"].tolist(), [5, 10, 15, 20])
        self.assertEqual(np.isfinite(found["loss"]).tolist(), [True] * 4)
        self.assertEqual(np.isfinite(found["valid_accuracy"]).tolist(), [False, True, False, True])
        self.assertNotIn("unit", found)

    def test_one_file_and_back(self):
        run = self.train("classify", TEXTS, LABELS)
        run.save(self.path("run.heed"))
        again = heed.Run.open(self.path("run.heed"), settings={"prediction": {"batch_size": 3}})
        self.assertEqual(heed.Run.open(self.path("run.heed")).predict(TEXTS), run.predict(TEXTS))
        self.assertEqual(again.settings["prediction"]["batch_size"], 3)
        again.save(self.path("again.heed"))
        self.assertEqual(pathlib.Path(self.path("again.heed")).read_bytes(), pathlib.Path(self.path("run.heed")).read_bytes())
        pathlib.Path(self.path("text")).write_text("no run")
        self.refuses((heed.Error, "overwrite=True", lambda: run.save(self.path("run.heed"))),
                     (heed.Error, "neither", lambda: heed.Run.open(self.path("text"))))

    def test_attention_weights_are_arrays(self):
        weights_of = self.train("classify", TEXTS, LABELS).attention("good film")
        found = weights_of["encoder.layers.0.attention.weights"]
        self.assertEqual((found.shape, weights_of.tokens, weights_of.targets), ((2, 3, 3), ["good", "film", "</s>"], []))
        np.testing.assert_allclose(found.sum(axis=2), 1, atol=1e-5)
        both = self.train("translate", WORDS, CODES).attention("one two")
        self.assertEqual(both["decoder.layers.0.cross_attention.weights"].shape[1:], (len(both.targets), len(both.tokens)))

    def test_what_is_shown(self):
        run = self.train("classify", TEXTS, LABELS, attention="fastformer", out=self.path("run"))
        self.assertRegex(repr(run), r"^<heed.Run of classify with fastformer, [\d,]+ parameters, 2 classes, in '.*run'>$")
        self.assertIn("output.weight: [2, 16]", repr(run.model))
        net = heed.nn.Sequential(heed.nn.Linear(2, 3), heed.gelu, heed.nn.ModuleList([heed.nn.LayerNorm(3)]))
        self.assertIn("  0: Linear(\n    weight: [3, 2]\n    bias: [3]\n  )", repr(net))
        self.assertIn("    0: LayerNorm(", repr(net))

    def test_by_rule_and_from_a_config(self):
        with open(self.path("config.json"), "w") as file:
            json.dump({"training": {"steps": 4}, "data": {"listops": {"count": 200}}}, file)
        run = heed.train("classify", config=self.path("config.json"), settings={"model": {"width": 16}}, out=self.path("run"))
        self.assertEqual(run.settings["training"]["steps"], 4)
        self.assertEqual(run.settings["model"]["width"], 16)

    def test_progress_is_the_log(self):
        records = []
        run = self.train("classify", TEXTS, LABELS, valid=0.2, out=self.path("run"), on_progress=records.append)
        messages = [one for one in records if "message" in one]
        self.assertTrue(any("parameters" in one["message"] for one in messages))
        with open(self.path("run/metrics.jsonl")) as file:
            log = [json.loads(line) for line in file]
        self.assertEqual([one for one in records if "message" not in one], log)
        self.assertEqual([one["step"] for one in log if "loss" in one], [1, 2, 3, 4, 5, 6])
        self.assertTrue(os.path.getsize(self.path("run/report.html")) > 1000)
        self.assertEqual(run.folder, self.path("run"))

    def test_a_stopped_run_goes_on(self):
        whole = self.train("classify", TEXTS, LABELS, valid=0.2, out=self.path("whole"))

        def stop(record):
            if record.get("step") == 3:
                raise KeyError("enough")

        with self.assertRaisesRegex(KeyError, "enough"):
            self.train("classify", TEXTS, LABELS, valid=0.2, out=self.path("run"), on_progress=stop)
        os.rename(self.path("run"), self.path("moved"))  # a run takes its examples along
        run = heed.resume(self.path("moved"))
        self.assertEqual(weights(run.folder), weights(whole.folder))
        self.assertEqual(run.measure(), whole.measure())
        with self.assertRaisesRegex(heed.Error, "already holds a run"):
            self.train("classify", TEXTS, LABELS, out=self.path("moved"))
        settings = dict(SMALL, **{"training.steps": 8})
        with self.assertRaisesRegex(heed.Error, "examples are not those"):
            heed.train("classify", TEXTS[1:], LABELS[1:], out=self.path("moved"), resume=True)
        more = heed.train("classify", TEXTS, LABELS, out=self.path("moved"), resume=True, settings={"training.steps": 8})
        self.assertEqual(more.settings["training"]["steps"], 8)
        self.train("classify", TEXTS, LABELS, valid=0.2, out=self.path("eight"), settings=settings)
        self.assertEqual(weights(more.folder), weights(self.path("eight")))

    def test_interrupt(self):
        whole = self.train("classify", TEXTS, LABELS, out=self.path("whole"), settings={"training.steps": 30})

        def interrupt(record):
            if record.get("step") == 5:
                os.kill(os.getpid(), signal.SIGINT)

        handler = self.raise_on_interrupt()
        with self.assertRaises(KeyboardInterrupt):
            self.train("classify", TEXTS, LABELS, out=self.path("run"), settings={"training.steps": 30}, on_progress=interrupt)
        self.assertIs(signal.getsignal(signal.SIGINT), handler)
        self.assertEqual(weights(heed.resume(self.path("run")).folder), weights(whole.folder))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with self.assertRaises(KeyboardInterrupt):
                self.train("classify", TEXTS, LABELS, on_progress=interrupt)
        folder = next(str(one.message) for one in caught if "the run stays in" in str(one.message)).split()[4].rstrip(";")
        self.assertEqual(heed.resume(folder).task, "classify")

    def test_interrupt_of_a_queue(self):
        """Ctrl-C ends answer() and close(), though the worker would need 20 s for the text."""
        is_slow = threading.Event()

        def values(call):
            for _ in range(400 if is_slow.is_set() else 0):
                time.sleep(0.05)
                call.value + 1
            return call.value

        heed.register_attention("slow_values", values)
        run = self.train("classify", TEXTS, LABELS, attention="slow_values")
        self.raise_on_interrupt()
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt), run.serve() as queue:
            is_slow.set()
            timer.start()
            queue.answer("good film")
        self.assertLess(time.monotonic() - begin, 10)
        is_slow.clear()
        self.assertTrue(run.predict(["good film"])[0].text)

    def test_two_trainings_at_once(self):
        runs = {}

        def work(seed):
            runs[seed] = self.train("classify", TEXTS, LABELS, out=self.path(f"run{seed}"), settings={"seed": seed})

        in_threads(2, work)
        for seed, run in runs.items():
            alone = self.train("classify", TEXTS, LABELS, out=self.path(f"alone{seed}"), settings={"seed": seed})
            self.assertEqual(weights(run.folder), weights(alone.folder))
        errors = []

        def meanwhile(record):
            if record.get("step") == 2:
                with self.assertRaises(heed.Error) as caught:
                    heed.resume(self.path("other"), settings={"training.steps": 9})
                errors.append(str(caught.exception))

        self.train("classify", TEXTS, LABELS, out=self.path("other"), on_progress=meanwhile)
        self.assertIn("is training in", errors[0])

    def test_a_temporary_run_lives_as_long_as_its_object(self):
        run = self.train("classify", TEXTS, LABELS)
        folder = run.folder
        self.assertTrue(os.path.exists(folder))
        child = os.fork()
        if child == 0:
            del run  # as the end of the child does
            os._exit(0 if os.path.exists(folder) else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        del run
        self.assertFalse(os.path.exists(folder))


try:
    import sklearn
    from sklearn.base import clone
    from sklearn.model_selection import GridSearchCV, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    from sklearn.linear_model import LogisticRegression

    from heed.sklearn import Classifier, Embedder, Regressor
except ImportError:
    sklearn = None

QUICK = {name: value for name, value in SMALL.items() if name not in ("training.steps", "training.evaluate_every")}


if sklearn:
    class Fitted(Embedder):
        """Counts calls of its own fit, which needs texts."""

        calls = 0

        def fit(self, X, y=None):
            Fitted.calls += len(X)
            return super().fit(X)


@unittest.skipUnless(sklearn, "needs scikit-learn: pip install scikit-learn")
class ScikitLearn(Folder):
    def test_fit_and_predict(self):
        texts = [f"{'good' if i % 2 else 'bad'} film" for i in range(60)]
        labels = np.array([7 if i % 2 else 3 for i in range(60)])
        model = Classifier("dot_product", steps=40, settings=QUICK)
        self.assertIs(model.fit(texts, labels), model)
        np.testing.assert_array_equal(model.classes_, [3, 7])
        self.assertGreater(model.score(texts, labels), 0.9)
        self.assertEqual(model.predict(["good film"]).tolist(), [7])
        self.assertEqual(model.run_.classes, [3, 7])
        proba = model.predict_proba(np.array(["good film", " "]))
        self.assertEqual(proba.shape, (2, 2))
        np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-6)
        np.testing.assert_array_equal(proba[1], [0.5, 0.5])
        same = clone(model)
        self.assertEqual(same.get_params()["steps"], 40)
        self.assertFalse(hasattr(same, "run_"))
        np.testing.assert_array_equal(same.fit(texts, labels).predict_proba(texts), model.predict_proba(texts))
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.predict_proba(texts), model.predict_proba(texts))

    def test_model_selection(self):
        texts, labels = TEXTS, np.array(LABELS)
        scores = cross_val_score(Classifier(steps=5, settings=QUICK), texts, labels, cv=2)
        self.assertEqual(scores.shape, (2,))
        self.assertTrue(np.isfinite(scores).all())
        search = GridSearchCV(Classifier(steps=4, settings=QUICK), {"attention": ["dot_product", "fastformer"]}, cv=2)
        search.fit(texts, labels)
        self.assertIn(search.best_params_["attention"], ("dot_product", "fastformer"))
        self.assertEqual(len(search.predict(texts)), len(texts))
        pipeline = make_pipeline(FunctionTransformer(lambda texts: [one.lower() for one in texts]),
                                 Classifier(steps=4, settings=QUICK))
        self.assertEqual(pipeline.fit(texts, labels).predict_proba(texts).shape, (40, 2))

    def test_check_estimator(self):
        from sklearn.utils.estimator_checks import check_estimator

        check_estimator(Classifier(steps=2, settings=QUICK))

    def test_bad_input(self):
        model = Classifier(steps=2, settings=QUICK)
        for X, y, message in [(TEXTS, LABELS[1:], "inconsistent"), (TEXTS, ["a"] * 40, "two classes"), ([], [], ""),
                              ([1, 2], ["a", "b"], "expected a text"), ("text", ["a"], ""), (TEXTS, None, "y"),
                              (np.zeros((40, 3)), LABELS, "shape"), (TEXTS, np.linspace(0, 1, 40), "")]:
            with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                model.fit(X, y)
        for method in (model.predict, model.predict_proba):
            with self.assertRaises(sklearn.exceptions.NotFittedError):
                method(["a"])

    def test_parameters_as_in_scikit_learn(self):
        said = []
        first = Classifier(steps=3, random_state=5, settings=QUICK).fit(TEXTS, LABELS)
        self.assertEqual(first.run_.settings["seed"], 5)
        drawn = Classifier(steps=3, random_state=np.random.RandomState(1), settings=QUICK).fit(TEXTS, LABELS)
        self.assertNotIn(drawn.run_.settings["seed"], (1, 5))
        balanced = Classifier(steps=3, class_weight="balanced", settings=QUICK).fit(TEXTS[:30], LABELS[:30])
        self.assertEqual(balanced.run_.settings["training"]["class_weights"], "balanced")
        settings = dict(QUICK, **{"training.schedule.learning_rate": 1e-9})
        model = Classifier(steps=200, early_stopping=True, n_iter_no_change=2, settings=settings, on_progress=said.append)
        model.fit(TEXTS, LABELS)
        self.assertEqual(model.run_.settings["data"]["valid_fraction"], 0.1)
        self.assertLess(max(one["step"] for one in said if "step" in one), 200)
        trained = clone(Classifier().set_params(epochs=2, learning_rate=0.01, settings=QUICK)).fit(TEXTS, LABELS).run_.settings["training"]
        self.assertEqual((trained["epochs"], trained["schedule"]["learning_rate"]), (2, 0.01))
        self.assertEqual(Regressor(learning_rate=0.5).get_params()["learning_rate"], 0.5)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            Classifier(steps=3, verbose=1, settings=QUICK).fit(TEXTS, LABELS)
        self.assertIn("step 3 of 3", out.getvalue())
        self.refuses((ValueError, "class_weight", lambda: Classifier(class_weight="even").fit(TEXTS, LABELS)),
                     (ValueError, "validation_fraction", lambda: Classifier(early_stopping=True, validation_fraction=0.0).fit(TEXTS, LABELS)))

    def test_weights(self):
        encoder = {**QUICK, "model.sparse_features": 0}  # the linear part chooses another penalty
        plain = Classifier(steps=3, settings=encoder).fit(TEXTS, LABELS).predict_proba(TEXTS)
        given = Classifier(steps=3, settings=encoder).fit(TEXTS, LABELS, [9 if one == LABELS[0] else 1 for one in LABELS])
        first = list(given.classes_).index(LABELS[0])
        self.assertTrue((given.predict_proba(TEXTS)[:, first] > plain[:, first]).all())
        plain = Classifier(steps=3, settings=QUICK).fit(TEXTS, LABELS).predict_proba(TEXTS)
        alike = Classifier(steps=3, settings=QUICK).fit(TEXTS, LABELS, sample_weight=np.full(40, 7)).predict_proba(TEXTS)
        np.testing.assert_array_equal(alike, plain)
        of_class = Classifier(steps=3, class_weight={LABELS[0]: 9, LABELS[1]: 1}, settings=QUICK).fit(TEXTS, LABELS)
        weights = [9 if one == LABELS[0] else 1 for one in LABELS]
        given = Classifier(steps=3, settings=QUICK).fit(TEXTS, LABELS, weights)
        np.testing.assert_array_equal(of_class.predict_proba(TEXTS), given.predict_proba(TEXTS))
        self.refuses((ValueError, "inconsistent", lambda: Classifier(settings=QUICK).fit(TEXTS, LABELS, [1, 2])),
                     *((ValueError, words, lambda given=given: Classifier(settings=QUICK).fit(TEXTS, LABELS, given)) for words, given in (
                         (r"sample_weight\[1\] is -1.0", [1, -1] * 20), (r"sample_weight\[0\] is nan", [np.nan] * 40),
                         ("sample_weight is 0 for all", np.zeros(40)))),
                     (ValueError, "sample_weight is 0", lambda: Regressor(settings=QUICK).fit(TEXTS, range(40), [0] * 40)),
                     (ValueError, "sample_weight.* is -1", lambda: Classifier(class_weight={LABELS[0]: -1}, settings=QUICK).fit(TEXTS, LABELS)))

    def test_several_labels(self):
        texts = [" ".join(word for word, has in (("good", i % 2), ("long", i % 3), ("film", 1)) if has) for i in range(60)]
        sets = np.array([[i % 2, int(i % 3 > 0)] for i in range(60)])
        model = Classifier(steps=120, settings=QUICK).fit(texts, sets)
        self.assertGreater(model.score(texts, sets), 0.9)
        self.assertEqual(model.predict(["good film", "film", " "]).tolist(), [[1, 0], [0, 0], [0, 0]])
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.predict_proba(texts), model.predict_proba(texts))
        lists = [[name for name, has in zip(("fine", "lengthy"), row) if has] for row in sets]
        run = heed.train("classify", texts, lists, settings=dict(QUICK, **{"training.steps": 120}))
        self.assertEqual(run.classes, ["fine", "lengthy"])
        answers = run.predict(["good long film", "film"])
        self.assertEqual(answers.label_lists, [["fine", "lengthy"], []])
        self.assertEqual(answers.labels.tolist(), ["fine|lengthy", ""])
        self.assertGreater(run.evaluate(texts, lists)["micro_f1"], 0.9)
        self.refuses((ValueError, "no text has the label 1", lambda: Classifier().fit(texts, sets * [1, 0])),
                     (ValueError, "class_weight", lambda: Classifier(class_weight="balanced").fit(texts, sets)),
                     (ValueError, "must not stand", lambda: heed.train("classify", texts, [["a|b"]] * 60)))

    def test_regressor(self):
        from sklearn.utils.estimator_checks import check_estimator

        texts = [f"{'good' if i % 2 else 'bad'} film" for i in range(60)]
        stars = np.array([4.5 if i % 2 else 1.25 for i in range(60)])
        model = Regressor(steps=80, settings=QUICK).fit(texts, stars)
        self.assertGreater(model.score(texts, stars), 0.9)
        answers = model.predict(np.array(["good film", " "]))
        self.assertEqual(answers.dtype, np.float64)
        self.assertAlmostEqual(answers[1], stars.mean())
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.predict(texts), model.predict(texts))
        self.assertEqual(cross_val_score(Regressor(steps=3, settings=QUICK), texts, stars, cv=2).shape, (2,))
        heavy = Regressor(steps=80, settings=QUICK).fit(["film"] * 60, stars, sample_weight=(stars > 3) + 1e-9)
        self.assertGreater(heavy.predict(["film"])[0], 3.5)
        check_estimator(Regressor(steps=2, settings=QUICK))
        with self.assertRaises(sklearn.exceptions.NotFittedError):
            Regressor().predict(["a"])
        self.refuses((ValueError, "NaN", lambda: Regressor().fit(texts, [np.nan] * 60)),
                     (heed.Error, "not numbers", lambda: heed.train("classify", TEXTS, LABELS, settings=SMALL).predict(["a"]).numbers))

    def test_progress_survives_pickling(self):
        for told in (lambda record: None, heed.ProgressLine(), [].append):
            model = Classifier(steps=2, settings=QUICK, on_progress=told).fit(TEXTS, LABELS)
            again = pickle.loads(pickle.dumps(model))
            self.assertTrue(callable(again.on_progress))
            again.fit(TEXTS, LABELS)
            np.testing.assert_array_equal(again.predict_proba(TEXTS), model.predict_proba(TEXTS))

    def test_workers_share_the_processor(self):
        program = (
            "import sys; sys.path[:0] = %r\n"
            "from joblib import Parallel, delayed\n"
            "from support import *\n"
            "from heed.sklearn import Classifier\n"
            "def busy(model):\n"
            "    before = len(os.listdir('/proc/self/task'))\n"
            "    model.fit(TEXTS, LABELS)\n"
            "    return len(os.listdir('/proc/self/task')) - before, int(os.environ['OMP_NUM_THREADS'])\n"
            "model = Classifier(steps=2, settings={'model.width': 16, 'model.heads': 2, 'device': 'cpu'})\n"
            "for made, given in Parallel(n_jobs=2)(delayed(busy)(model) for _ in range(2)): print(made, given)\n"
        ) % ([str(pathlib.Path(heed.__file__).parent.parent), str(pathlib.Path(__file__).parent)],)
        env = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
        lines = subprocess.run([sys.executable, "-c", program], env=env, check=True, capture_output=True, text=True).stdout
        rows = [[int(one) for one in line.split()] for line in lines.splitlines()]
        self.assertEqual(len(rows), 2)
        for made, given in rows:
            self.assertLess(made, given, "threads beside the first")

    def test_embedder(self):
        self.assertRaises(sklearn.exceptions.NotFittedError, Embedder("nowhere").transform, WORDS)
        heed.train("embed_text", WORDS, CODES, settings=SMALL, out=self.path("embed"))
        run = Embedder(self.path("embed")).fit(WORDS)
        vectors = run.transform(["one two", " "])
        self.assertEqual((vectors.shape, vectors.dtype), ((2, 16), np.float32))
        self.assertFalse(vectors[1].any())
        pipeline = make_pipeline(Embedder(self.path("embed")), LogisticRegression()).fit(WORDS, CODES)
        self.assertGreater(pipeline.score(WORDS, CODES), 0.5)
        again = pickle.loads(pickle.dumps(pipeline))
        np.testing.assert_array_equal(again.predict_proba(WORDS), pipeline.predict_proba(WORDS))
        self.assertEqual(run.transform([""]).tolist(), [[0] * 16])
        if hasattr(run, "__sklearn_tags__"):
            tags = run.__sklearn_tags__().input_tags
            self.assertEqual((tags.string, tags.one_d_array, tags.two_d_array), (True, True, False))

        kept = pickle.dumps(Fitted(self.path("embed")).fit(WORDS))
        np.testing.assert_array_equal(pickle.loads(kept).transform(WORDS), run.transform(WORDS))
        self.assertEqual(Fitted.calls, len(WORDS))
        heed.train("classify", TEXTS, LABELS, settings=SMALL, out=self.path("classify"))
        self.refuses((ValueError, "one of classify", lambda: Embedder(self.path("classify")).fit(WORDS)),
                     (ValueError, "needs run", lambda: Embedder().fit(WORDS)))

    def test_a_failed_fit_keeps_the_first_state(self):
        model = Classifier(steps=2, settings=QUICK).fit(TEXTS, LABELS)
        before, run = model.predict_proba(TEXTS), model.run_
        for X, y in [(TEXTS, ["a"] * 40), (TEXTS, list(range(39)) + [None]), ([*TEXTS[:-1], 1], ["c", "d"] * 20)]:
            with self.assertRaises((ValueError, TypeError)):
                model.fit(X, y)
            self.assertIs(model.run_, run)
            self.assertEqual(list(model.classes_), sorted(set(LABELS)))
            np.testing.assert_array_equal(model.predict_proba(TEXTS), before)


if __name__ == "__main__":
    unittest.main()
