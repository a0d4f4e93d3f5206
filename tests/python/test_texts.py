"""Texts of published models and of trained runs."""

import pathlib

import heed
from support import CODES, SMALL, WORDS, Folder
from test_published import write_llama

BEGIN = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
         "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}}


class Texts(Folder):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.folder)

    def published(self, **changes):
        self.weights = write_llama(self.folder, post_processor=BEGIN, **changes)
        return heed.from_pretrained(self.folder)

    def trained(self, task, *columns, **settings):
        return heed.train(task, *columns, settings={**SMALL, **settings}, out=self.folder / task)

    def test_options(self):
        run = self.published(eos_token_id=None)
        options = dict(max_new_tokens=6, do_sample=False, stop=" cat", repetition_penalty=1.1, min_p=0.1, top_k=5, top_p=0.9, seed=3)
        for one in (options, dict(max_tokens=5, temperature=0.9, seed=2), dict(add_special_tokens=False, temperature=0, max_tokens=4)):
            self.assertEqual("".join(run.stream("the", **one)), run.generate("the", **one)[0].text)
        self.assertEqual(run.generate("<s> the", temperature=0)[0].text, run.generate("the", temperature=0)[0].text)
        beams = self.trained("translate", WORDS, CODES)
        self.assertEqual("".join(beams.stream("one two", max_tokens=2)), beams.generate("one two", max_tokens=2)[0].text)
        self.refuses(
            (TypeError, "no option 'max_token' .*max_tokens", lambda: run.generate("the", max_token=3)),
            (TypeError, "no option 'beams'", lambda: list(run.stream("the", beams=3))),
            (heed.Error, "samples is 2", lambda: list(run.stream("the", num_return_sequences=2))),
            (heed.SettingsError, "top_p", lambda: list(run.stream("the", top_p=2))),
            (TypeError, "max_new_tokens are the same", lambda: run.generate("the", max_tokens=2, max_new_tokens=2)),
            (heed.Error, "marks are for language models", lambda: beams.generate("one", add_special_tokens=False)))
