"""Makes cases.json with sacreBLEU (2.6.0 was used). The tests read the result; nothing runs this script by itself."""

import json
import pathlib
import random

from sacrebleu.metrics import BLEU

HERE = pathlib.Path(__file__).parent
SENTENCES = [
    "The old harbour lies between two hills, and the wind comes from the west.",
    "In the morning the fishermen mend their nets; in the evening they count the fish.",
    "Der alte Hafen liegt zwischen zwei Hügeln, und der Wind kommt aus dem Westen.",
    "\"Where are you going?\" asked the captain.",
    "Bread costs 3.50 a loaf, rolls 0.80; in 1999-2001 it was 1,000.5 lire.",
    "„Zum Markt“, antwortete der Junge – und ging.",
    "It's a well-known fact: 5-6 ships sail at 10-",
    "古い港は二つの丘の間にあります。",
]
SCRIPTS = SENTENCES + [
    "古老的港口位于两座山之间，“风”从西边来……2024年3.5万人 — well-known 5-6。",
    "Кошка спала в саду; «да», — сказал капитан… 3,5 % за 10 № 5.",
    "القطة تنام في الحديقة، أليس كذلك؟ ٣٫٥ كيلو.",
    "बिल्ली बगीचे में सो रही थी।",
    "고양이가 정원에서 잠을 잤다. (3.5%)",
    "แมวนอนในสวน 10 ตัว",
    "🄰𠀀⺀㍿ｘ！＄1₂½+−±~^.",
]
ODD = ["&quot;", "&amp;lt;", "&lt;b&gt;", "<skipped>", "...", "U.S.A.", ".5", "5.", "--", "\u00a0", "\u2003x", "\x1c", "ΟΔΟΣ", "İ", "#$%(a)*+[b]{c}~`^_|\\", "don't", "😀", "ẞ", "", "ΑΣ.Β"]


def perturbed(text, rng):
    words = text.split(" ")
    for _ in range(rng.randint(0, 4)):
        i = rng.randrange(len(words))
        action = rng.randrange(4)
        if action == 0 and len(words) > 1:
            del words[i]
        elif action == 1:
            words[i] = words[i].upper()
        elif action == 2:
            words.insert(i, rng.choice(ODD))
        else:
            words[i] += rng.choice(ODD)
    return " ".join(words)


def main():
    rng = random.Random(20)
    corpora = [
        (SENTENCES, SENTENCES),
        ([""], ["a b c d"]),
        (["a b c d"], [""]),
        ([""], [""]),
        (["", "the cat sat on the mat"], ["a dog", "the cat sat on a mat"]),
        (["a"], ["a"]),
        (["a b c"], ["a b c"]),
        (["a b", "c d"], ["a b", "c d"]),
        (["x y z w v"], ["a b c d e"]),
        (["a a a a a a a"], ["a b a"]),
        (["the the the the the the the"], ["the cat is on the mat"]),
        (["a b x d e"], ["a b c d e"]),
        (["one two three four five six"], ["one two three four five six seven eight nine ten"]),
        (["trailing space . ", "tab\tinside , here"], ["trailing space.", "tab inside, here"]),
    ]
    for _ in range(40):
        references = [perturbed(rng.choice(SENTENCES), rng) for _ in range(rng.randint(1, 6))]
        corpora.append(([perturbed(line, rng) for line in references], references))
    first_scripts = len(corpora)
    for _ in range(45):
        references = [perturbed(rng.choice(SCRIPTS), rng) for _ in range(rng.randint(1, 4))]
        corpora.append(([perturbed(line, rng) for line in references], references))
    cases = []
    for number, (hypotheses, references) in enumerate(corpora):
        lower = number % 3 == 1
        tokens = "none" if number % 5 == 4 else "13a"
        if number >= first_scripts:
            tokens = ["zh", "char", "intl"][number % 3]
            lower = number % 2 == 1
        smooth = "none" if number % 7 == 6 else "exp"
        metric = BLEU(lowercase=lower, tokenize=tokens, smooth_method=smooth, force=True)
        result = metric.corpus_score(hypotheses, [references])
        cases.append({
            "hypotheses": hypotheses, "references": references, "lower_case": lower, "tokens": tokens, "smoothing": smooth,
            "score": result.score, "matches": result.counts, "totals": result.totals,
            "lengths": [result.sys_len, result.ref_len], "penalty": result.bp, "signature": str(metric.get_signature()).rsplit("|", 1)[0],
        })
    with open(HERE / "cases.json", "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(case, ensure_ascii=True) for case in cases) + "\n]\n")


main()
