"""Tokenizers, hidden states, options of generated texts and chat templates, of published models and of trained runs."""

import importlib.util
import json
import pathlib
import unittest

import heed
import numpy as np
from support import CODES, LABELS, SMALL, TEXTS, WORDS, Folder
from test_published import WORDS as VOCABULARY, write_llama

TEMPLATE = """{{ bos_token }}{% for message in messages %}
    {% if message.role not in ['user', 'assistant'] %}{{ raise_exception('no role ' + message.role) }}{% endif %}
the {{ message['content'] }} {{ eos_token }}
{% endfor %}{% if add_generation_prompt %}see{% endif %}"""
HAS_JINJA = importlib.util.find_spec("jinja2") is not None
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

    def test_published_tokenizer(self):
        tokenizer = self.published().tokenizer
        self.assertEqual(len(tokenizer), len(VOCABULARY))
        self.assertEqual(tokenizer.special_tokens, {"<s>": 0, "</s>": 1, "<unk>": 2})
        self.assertEqual((tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id, tokenizer.pad_token_id), (0, 1, 2, None))
        self.assertEqual(tokenizer.encode("the cats"), [0, 3, 5])
        self.assertEqual(tokenizer.encode("<s> the cats </s>"), [0, 3, 5, 1])  # no second begin mark
        self.assertEqual(tokenizer.encode(["the", "a tree"], add_special_tokens=False), [[3], [8, 9]])
        self.assertEqual((tokenizer.count("the cats"), tokenizer.count(np.array(["a", "a tree"]))), (3, [2, 3]))
        self.assertEqual(tokenizer.decode([0, 3, 5]), "<s> the cats")
        self.assertEqual(tokenizer.decode(np.array([[0, 3], [4, 1]]), skip_special_tokens=True), ["the", "cat"])
        self.assertEqual((tokenizer.decode([]), tokenizer.decode(3), tokenizer.encode([])), ("", "the", []))
        self.assertEqual(tokenizer.tokenize("the dog"), ["the", "<unk>"])
        self.assertEqual(tokenizer.offsets("the  dog\tcats a dog"), [(0, 0), (0, 3), (5, 8), (9, 13), (14, 15), (16, 19)])
        self.assertIn("10 tokens", repr(tokenizer))
        if importlib.util.find_spec("transformers"):
            theirs = importlib.import_module("transformers").PreTrainedTokenizerFast(tokenizer_file=str(self.folder / "tokenizer.json"))
            for text in ("the  cats see", "dog a dog dog", "a </s> tree", " "):
                found = theirs(text, return_offsets_mapping=True)
                self.assertEqual((tokenizer.encode(text), tokenizer.offsets(text)), (found["input_ids"], found["offset_mapping"]))
        self.refuses(
            (heed.BadArgument, r"ids\[1\] is 10; .* 0 to 9", lambda: tokenizer.decode([3, 10])),
            (heed.BadArgument, "is -1", lambda: tokenizer.decode([-1])),
            (TypeError, "expected integers", lambda: tokenizer.decode("the")),
            (TypeError, "float", lambda: tokenizer.decode([1.5])),
            (TypeError, "expected a list of texts", lambda: tokenizer.encode(3)),
            (TypeError, r"texts\[0\] is 3; expected a text", lambda: tokenizer.encode([3])),
            (TypeError, "expected a text", lambda: tokenizer.offsets(["the"])))

    def test_tokenizers_of_tasks(self):
        run = self.trained("classify", TEXTS, LABELS, **{"tokenizer.kind": "bpe"})
        tokenizer, text = run.tokenizer, "a good film ½ 日本"
        ids = tokenizer.encode(text)
        self.assertEqual(ids[-1], tokenizer.eos_token_id)
        self.assertEqual(tokenizer.decode(ids, skip_special_tokens=True).strip(), text)
        places = tokenizer.offsets(text)
        self.assertEqual((len(places), places[-1]), (len(ids), (0, 0)))
        self.assertEqual({place for place in places if text[slice(*place)].strip() and place[0] > 6}, {(7, 11), (12, 13), (14, 15), (15, 16)})
        run = self.trained("translate", WORDS, CODES, **{"tokenizer.separate": True, "tokenizer.kind": "words", "model.tie_embeddings": "decoder"})
        self.assertEqual(run.tokenizer.encode("one two")[-1], run.tokenizer.eos_token_id)
        self.assertEqual(run.target_tokenizer.decode(run.target_tokenizer.encode("a b", add_special_tokens=False)), "a b")
        self.assertNotEqual(run.tokenizer.tokenize("one"), run.target_tokenizer.tokenize("one"))
        pairs = self.trained("match", WORDS, CODES, ["0", "1"] * 12)
        self.assertEqual(pairs.tokenizer.encode("one two\ta b").count(pairs.tokenizer.eos_token_id), 2)
        self.refuses((heed.Error, "does not read texts one by one", lambda: pairs.hidden("one\ttwo")))

    def test_hidden(self):
        run = self.published()
        one, two = run.hidden(["the cats see", "a"])
        self.assertEqual((one.shape, two.shape, one.dtype), ((4, 8), (2, 8), np.dtype("f4")))
        np.testing.assert_allclose(run.hidden("the cats see"), one, atol=1e-4)
        logits = run.model(["the cats see"]).numpy()[0]
        np.testing.assert_allclose(one @ self.weights["lm_head.weight"].T, logits, atol=1e-4)
        self.assertEqual(run.hidden([]), [])
        self.assertEqual(self.trained("translate", WORDS, CODES).hidden("one two").shape[1], 16)

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

    @unittest.skipUnless(HAS_JINJA, "needs jinja2")
    def test_chat(self):
        config = self.folder / "tokenizer_config.json"
        config.write_text(json.dumps(dict(chat_template=TEMPLATE, bos_token="<s>", eos_token={"content": "</s>"})))
        run, messages = self.published(), [{"role": "user", "content": "cat"}]
        prompt = run.chat_prompt(messages)
        self.assertEqual(prompt, "<s>the cat </s>\nsee")
        self.assertEqual(run.chat_prompt(messages, add_generation_prompt=False), "<s>the cat </s>\n")
        self.assertEqual(run.tokenizer.encode(prompt), [0, 3, 4, 1, 6])
        self.assertEqual(run.chat(messages, max_tokens=3, temperature=0), run.generate(prompt, max_tokens=3, temperature=0)[0].text)
        without = run.chat(messages, chat_template="the", max_tokens=3, temperature=0)
        self.assertEqual(without, run.generate("the", max_tokens=3, temperature=0, add_special_tokens=False)[0].text)
        (self.folder / "chat_template.jinja").write_text("{{ messages | tojson }}{{ tools }}")
        self.assertEqual(run.chat_prompt(messages, tools=3), '[{"role": "user", "content": "cat"}]3')
        self.refuses(
            (heed.Error, "refused the messages: no role tool", lambda: run.chat_prompt([{"role": "tool"}], chat_template=TEMPLATE)),
            (heed.Error, "refused the messages", lambda: run.chat_prompt(messages, chat_template="{% for %}")),
            (TypeError, "expected a list", lambda: run.chat_prompt("hello")),
            (TypeError, "no option .beams", lambda: run.chat(messages, beams=2)))

        (self.folder / "chat_template.jinja").unlink()
        config.unlink()
        self.refuses((heed.Error, "has no chat template", lambda: run.chat(messages)))
