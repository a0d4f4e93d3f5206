"""Published models, opened where they lie: a small one of Llama's layout, written by hand."""

import json
import pathlib
import shutil
import tempfile
import warnings

import heed
import numpy as np
from support import Case, draw

WORDS = ["<s>", "</s>", "<unk>", "the", "cat", "cats", "see", "sees", "a", "tree"]
WIDTH, HIDDEN, LAYERS = 8, 12, 2


def write_llama(folder, words=WORDS, head=4, layers=LAYERS, post_processor=None, **changes):
    """Two heads that share one of keys and values."""
    config = {"model_type": "llama", "hidden_size": WIDTH, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": HIDDEN,
              "num_hidden_layers": layers, "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "rope_theta": 500.0, "vocab_size": len(words), "head_dim": head,
              "eos_token_id": 1, "bos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(config | changes))
    tokenizer = {"version": "1.0", "pre_tokenizer": {"type": "Whitespace"}, "post_processor": post_processor,
                 "added_tokens": [dict(dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False), id=i, content=words[i], special=True)
                                  for i in range(3)],
                 "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(words)}, "unk_token": "<unk>"}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    shapes = {"model.embed_tokens.weight": (len(words), WIDTH), "lm_head.weight": (len(words), WIDTH), "model.norm.weight": (WIDTH,)}
    for i in range(layers):
        of_layer = {"input_layernorm": (WIDTH,), "post_attention_layernorm": (WIDTH,), "self_attn.q_proj": (2 * head, WIDTH),
                    "self_attn.k_proj": (head, WIDTH), "self_attn.v_proj": (head, WIDTH), "self_attn.o_proj": (WIDTH, 2 * head),
                    "mlp.gate_proj": (HIDDEN, WIDTH), "mlp.up_proj": (HIDDEN, WIDTH), "mlp.down_proj": (WIDTH, HIDDEN)}
        shapes.update({f"model.layers.{i}.{name}.weight": shape for name, shape in of_layer.items()})
    weights = {name: draw(*shape) for name, shape in shapes.items()}
    heed.save(folder / "model.safetensors", {name: heed.parameter(value) for name, value in weights.items()})
    return weights


def normed(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight


def turned(x):
    """Rotary positions of heads [n, heads, 4] at positions 0 ... n - 1."""
    half = x.shape[-1] // 2
    angles = np.arange(len(x))[:, None] * 500.0 ** (-np.arange(half) / half)
    cosine, sine = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], -1)


def logits_of(w, ids):
    """Llama's equations in NumPy, in double precision."""
    x = w["model.embed_tokens.weight"][ids].astype(np.float64)
    future = np.triu(np.full((len(ids), len(ids)), -np.inf), 1)
    for i in range(LAYERS):
        at = lambda name: w[f"model.layers.{i}.{name}.weight"].astype(np.float64)
        y = normed(x, at("input_layernorm"))
        query, key = (turned((y @ at(f"self_attn.{one}_proj").T).reshape(len(ids), -1, 4)) for one in "qk")
        value = y @ at("self_attn.v_proj").T
        scores = np.einsum("ihd,jd->hij", query, key[:, 0]) / 2 + future
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        seen = np.einsum("hij,jd->ihd", shares / shares.sum(-1, keepdims=True), value).reshape(len(ids), -1)
        x = x + seen @ at("self_attn.o_proj").T
        y = normed(x, at("post_attention_layernorm"))
        gate = y @ at("mlp.gate_proj").T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ at("mlp.up_proj").T)) @ at("mlp.down_proj").T
    return normed(x, w["model.norm.weight"]) @ w["lm_head.weight"].T


class Published(Case):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)

    def tearDown(self):
        self.temporary.cleanup()

    def test_from_pretrained(self):
        weights = write_llama(self.folder)
        before = sorted(one.name for one in self.folder.iterdir())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run = heed.from_pretrained(self.folder, device="cpu")
        self.assertEqual(run.task, "language_model")
        ids = [WORDS.index(word) for word in "the cats see a tree".split()]
        self.same(run.model(["the cats see a tree"])[0], logits_of(weights, ids), 1e-4)
        written = list(ids)
        while len(written) < len(ids) + 6:
            written.append(int(logits_of(weights, written)[-1].argmax()))
            if written[-1] == 1:
                break
        expected = [WORDS[i] for i in written[len(ids):] if i > 2]
        text = run.generate("the cats see a tree", max_tokens=6, temperature=0)[0].text
        self.assertEqual(text.split(), expected)
        self.assertEqual(sorted(one.name for one in self.folder.iterdir()), before)

    def test_published_sizes(self):
        """Positions, vocabulary and width of heads as they are published, with one narrow layer: opened, used, and trained from."""
        llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                  "original_max_position_embeddings": 8192}
        many = WORDS + [f"w{i}" for i in range(151_936 - len(WORDS))]
        text = self.folder / "text.txt"
        text.write_text("the cat sees a tree the cats see the cat " * 800)
        for one in ({"max_position_embeddings": 8192}, {"max_position_embeddings": 131_072, "rope_scaling": llama3},
                    {"max_position_embeddings": 32_768, "head": 128, "words": many}):
            write_llama(self.folder, layers=1, **one)
            with self.subTest(one["max_position_embeddings"]), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run = heed.from_pretrained(self.folder, device="cpu", settings={"training.batch_tokens": 100})
                self.assertEqual(run.settings["model"]["max_length"], 4096)
                self.assertTrue(np.isfinite(run.model(["the cat sees a tree " * 10]).numpy()).all())
                self.assertEqual(run.generate("the cat", max_tokens=3, temperature=0)[0].text,
                                 heed.Run.open(self.folder).generate("the cat", max_tokens=3, temperature=0)[0].text)
                if "words" in one:  # whose training would take long
                    continue
                tuned = heed.train("language_model", str(text), steps=1, out=self.folder / "run", settings={
                    "training.from": str(self.folder), "device": "cpu", "evaluation.characters": 1000})
                self.assertEqual((tuned.settings["training"]["batch_tokens"], tuned.settings["model"]["max_length"]), (4096, 4096))
                shutil.rmtree(self.folder / "run")

    def test_ends_and_begin(self):
        """All tokens of generation_config.json end a text, in stream() and samples, too, and where the run is opened again."""
        special = {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}
        post = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}], "special_tokens": special}
        weights = write_llama(self.folder, post_processor=post, eos_token_id=None)
        ids = [0, 3, 5]
        self.same(heed.from_pretrained(self.folder).model(["the cats"])[0], logits_of(weights, ids), 1e-4)
        for _ in range(6):
            ids.append(int(logits_of(weights, ids)[-1].argmax()))
        end = next(i for i in ids[3:] if i > 2)
        (self.folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, end]}))
        expected = " ".join(WORDS[i] for i in ids[3:ids.index(end, 3)] if i > 2)
        run = heed.from_pretrained(self.folder)
        self.assertEqual(run.generate("the cats", max_tokens=6, temperature=0)[0].text.strip(), expected)
        greedy = heed.from_pretrained(self.folder, settings={"generation.temperature": 0, "generation.tokens": 6})
        self.assertEqual("".join(greedy.stream("the cats")).strip(), expected)
        self.assertEqual(greedy.predict(["the cats"])[0].text.strip(), expected)
        for sample in run.generate("the cats", max_tokens=20, samples=20):
            self.assertNotIn(WORDS[end], sample.text.split())
        past = heed.from_pretrained(self.folder, settings={"generation.past_end": True})
        self.assertEqual(past.generate("the cats", max_tokens=6, temperature=0)[0].text.split(), [WORDS[i] for i in ids[3:] if i > 2])

    def test_members_of_config(self):
        """What changes the answers and heed does not have is refused by name."""
        for change in ({"is_causal": False}, {"layer_types": ["full_attention", "sliding_attention"]}, {"use_sliding_window": True},
                       {"partial_rotary_factor": 0.5}, {"quantization_config": {"bits": 4}}, {"pruned_heads": {"0": [1]}},
                       {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}):
            write_llama(self.folder, **change)
            name = next(iter(next(iter(change.values())))) if "rope_parameters" in change else next(iter(change))
            self.refuses((heed.Error, name, lambda: heed.from_pretrained(self.folder)))
        write_llama(self.folder, layer_types=["full_attention"] * 2, is_causal=True)
        heed.from_pretrained(self.folder)

    def test_a_folder_that_changes_is_read_anew(self):
        write_llama(self.folder)
        one = heed.from_pretrained(self.folder).model(["the cat"]).numpy()
        weights = write_llama(self.folder)
        two = heed.from_pretrained(self.folder).model(["the cat"])
        self.same(two[0], logits_of(weights, [3, 4]), 1e-4)
        self.assertFalse(np.allclose(one, two.numpy()))

    def test_what_is_refused(self):
        write_llama(self.folder, hidden_act="relu")
        run_of_it = lambda: heed.from_pretrained(self.folder)
        self.refuses(
            (heed.Error, "downloads nothing", lambda: heed.from_pretrained("meta-llama/Llama-3.2-1B")),
            (heed.Error, 'hidden_act.*"relu"', run_of_it),
            (heed.Error, "no best weights", lambda: (write_llama(self.folder), heed.Run.open(self.folder, weights="best"))),
            (heed.Error, "published model", lambda: heed.from_pretrained(self.folder).save(self.folder / "saved")),
            (heed.Error, "cannot resume.*published model", lambda: heed.resume(self.folder)),
            (heed.Error, "there is no run", lambda: heed.from_pretrained(self.folder.parent)))
        (self.folder / "model.safetensors").unlink()
        self.refuses((heed.Error, "there is no model in", run_of_it))


if __name__ == "__main__":
    import unittest

    unittest.main()
