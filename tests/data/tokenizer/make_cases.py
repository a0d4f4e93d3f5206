"""Makes the files of this folder with Hugging Face tokenizers (0.23.3 was used): tokenizers trained on text.txt, and
cases.json with the ids and the decoded text that they give for the lines of probes.json. The tests read the result;
nothing runs this script by itself."""

import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
PROBES = [
    "", " ", "  ", "a", "The ship sails at dawn.", "  two spaces, then three   and a tab\tat last \t ", "it's we'll THEY'RE I'm d'accord 'tis 's",
    "Die Möwe fliegt über das große Schiff, 1234 Meter weit; №5 kostet 3,50 €!", "x\u00a0y\u2003z\u3000w \u0085 \u200b\u1680",
    "日本語のテキスト and ελληνικά και русский", "😀👩‍👩‍👧 🇩🇪", "e\u0301 é ﬁne ① ² Ⅷ İstanbul ΟΔΟΣ ẞ", "<s>Hello</s>", "<pad><pad> <unk>x<s", "Hello world HelloWorld Hello",
    "take the <mask> out <mask><mask>", "left <right>   gap", "new  wave new wave newwave", "\x00\x01\x7f\x1c end", "'", "1'2''3's", "\t\n \n", "Ωé ＡＢＣ１２３",
    "আমি বাংলায় গান গাই। ", "तुम्ही कुठे जात आहात?", "می‌خواهم کتاب‌ها كِتَابٌ", "กินข้าว\u200bที่บ้าน", "\u1112\u1161\u11ab\u1100\u116e\u11a8",
    "\u0301a \u0301b\t\u0301 1\ufe0f\u20e3 x\u00ady\u200e !\u0301z ❤\ufe0f\u200d🔥ok it's\u0301",
]
# The words of GPT-2 with the marks that belong to them, which is what heed learns.
WHOLE_WORDS = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}(?:[\p{L}\p{M}]|(?!\u200B)\p{Cf})*| ?\p{N}(?:[\p{N}\p{M}]|(?!\u200B)\p{Cf})*"
               r"| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")



def tokenizer(add_prefix_space=False, use_regex=True, **model):
    result = Tokenizer(models.BPE(**model))
    result.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)
    result.decoder = decoders.ByteLevel()
    return result


def whole_words(add_prefix_space=False):
    result = tokenizer()
    spaces = [pre_tokenizers.Metaspace(replacement=" ", prepend_scheme="always", split=False)] if add_prefix_space else []
    words = pre_tokenizers.Split(Regex(WHOLE_WORDS), "isolated")
    result.pre_tokenizer = pre_tokenizers.Sequence(spaces + [words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return result


def train(result, lines, vocabulary, special=SPECIAL, whole_alphabet=True):
    alphabet = pre_tokenizers.ByteLevel.alphabet() if whole_alphabet else []
    result.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=vocabulary, min_frequency=2, special_tokens=special, initial_alphabet=alphabet, show_progress=False))
    return result


def main():
    lines = (HERE / "text.txt").read_text(encoding="utf-8").splitlines()
    made = {
        "plain": train(tokenizer(), lines, 420),
        "prefix_space": train(tokenizer(add_prefix_space=True), lines, 320),
        "whole_lines": train(tokenizer(use_regex=False), lines, 340),
    }
    lowered = tokenizer()
    lowered.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    made["lower_case"] = train(lowered, lines, 320)
    for name, one in list(made.items()):
        if name != "whole_lines":
            part = whole_words(add_prefix_space=name == "prefix_space")
            part.normalizer = one.normalizer
            made["whole_" + name] = train(part, lines + (HERE / "marks.txt").read_text(encoding="utf-8").splitlines(), 420)
    composed = tokenizer()
    composed.normalizer = normalizers.NFC()
    composed.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    made["composed"] = train(composed, lines, 300)
    few_bytes = train(tokenizer(unk_token="<unk>", fuse_unk=True), lines, 200, ["<unk>", "<s>"], whole_alphabet=False)
    few_bytes.add_tokens([AddedToken("Hello", single_word=True), AddedToken("new  wave")])
    few_bytes.add_special_tokens([AddedToken("<mask>", lstrip=True), AddedToken("<right>", rstrip=True)])
    made["few_bytes"] = few_bytes
    words = Tokenizer(models.WordLevel(unk_token="<unk>"))
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.train_from_iterator(lines, trainers.WordLevelTrainer(vocab_size=60, min_frequency=2, special_tokens=SPECIAL, show_progress=False))
    made["words"] = words
    pieces = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=12))
    pieces.normalizer = normalizers.BertNormalizer()
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pieces.decoder = decoders.WordPiece()
    pieces.train_from_iterator(lines, trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    made["word_piece"] = pieces
    unigram = Tokenizer(models.Unigram())
    unigram.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip(left=False)])
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.decoder = decoders.Metaspace()
    unigram.train_from_iterator(lines, trainers.UnigramTrainer(vocab_size=200, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False))
    made["unigram"] = unigram
    # Another program's file: bytes for what is unknown, and a prefix at the start of the text alone.
    file = json.loads(unigram.to_str())
    file["model"]["byte_fallback"] = True
    file["model"]["vocab"] += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
    file["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": "``"}, "content": '"'}, {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]}
    file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "Punctuation", "behavior": "Isolated"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}]}
    file["decoder"] = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    made["unigram_bytes"] = Tokenizer.from_str(json.dumps(file))
    made["dropped_bytes"] = train(tokenizer(ignore_merges=True), lines, 160, ["<s>"], whole_alphabet=False)

    cases = []
    for name, one in made.items():
        one.save(str(HERE / f"{name}.json"), pretty=False)
        for text in PROBES:
            ids = one.encode(text, add_special_tokens=False).ids
            cases.append({"file": f"{name}.json", "text": text, "ids": ids, "decoded": one.decode(ids), "with_special": one.decode(ids, skip_special_tokens=False)})
    with open(HERE / "cases.json", "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(case, ensure_ascii=True) for case in cases) + "\n]\n")


main()
