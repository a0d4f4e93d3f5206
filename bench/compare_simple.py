#!/usr/bin/env python3
"""Classifier and matcher without a setting, beside simple rivals, on the same texts of each set.

    python3 bench/compare_simple.py ../shared/data
    python3 bench/compare_simple.py ../shared/data --only mr rte --seeds 1 -- --threads 1

DATA is a folder with the sets of SETS below, as they are distributed. Every program reads the same
JSON lines. Prints a Markdown table of the accuracy on the test. Needs scikit-learn.

    heed      classify or match with its defaults: mean and standard error of the seeds; it holds
              out the texts that it validates on from the training texts
    words     TF-IDF of words and pairs of words with logistic regression, on all training texts
              (C = 10, of pairs 1)
    chars     the same of 2 to 4 characters in a row within words
    union     words and 2 to 5 characters at once, with logarithms of their counts (C = 5)
    overlap   pairs: logistic regression on seven counts of the words that both texts have; words
              and chars have these, too, and the texts u and v as [u; v; |u - v|; u * v]
    error     the standard error of an accuracy on so many test texts
    ahead     heed's mean less the best rival
    seconds, MB   processor seconds and peak memory of heed (training and test, mean of the seeds) /
                  of the best rival, one process each
"""

import collections
import csv
import io
import json
import math
import pathlib
import random
import re
import statistics
import sys
import tempfile

import peers


# --- sets: rows of a label and one or two texts


def text_of(path, encoding="utf-8-sig"):
    return path.read_bytes().decode(encoding, "replace")


def lines_of(path, **encoding):
    return [line.rstrip("\r") for line in text_of(path, **encoding).split("\n") if line.strip()]


def labelled_lines(path):
    return [line.partition(" ")[::2] for line in lines_of(path, encoding="cp1252")]


def file_for_each_class(path):
    return [(file.suffix, line) for file in sorted(path.glob("*.???"))
            for line in lines_of(file, encoding="cp1252")]


def folder_for_each_class(path):
    return [(file.parent.name, text_of(file)) for file in sorted(path.glob("*/*"))]


def columns_of(rows, columns):
    """The columns by name where the first row has names, otherwise by number."""
    header = next(rows) if isinstance(columns[0], str) else []
    at = [header.index(column) if header else column for column in columns]
    return [tuple(row[place] for place in at) for row in rows]


def tsv(path, *columns):
    return columns_of((line.split("\t") for line in lines_of(path)), columns)


def quoted(path, *columns):
    text = text_of(path)
    delimiter = "\t" if "\t" in text[:50] else ","
    return columns_of(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), columns)


def ag_news(path):
    """Training texts with classes 0 to 3; test texts in two columns, with classes 1 to 4."""
    if "train" in path.name:
        return quoted(path, 1, 0)
    rows = quoted(path, 0, 1, 2)
    return [(str(int(label) - 1), f"{title} {text}") for label, title, text in rows]


# Reader, training and test file (none: a tenth of the texts), and the columns of label and texts.
SETS = {
    "subj": (labelled_lines, "subj.all", None), "mpqa": (labelled_lines, "mpqa.all", None),
    "mr": (file_for_each_class, "", None), "cr": (labelled_lines, "custrev.all", None),
    "ag_news": (ag_news, "train_sample5000.csv", "test.csv"),
    "20news_bydate": (folder_for_each_class, "20news-bydate-train", "20news-bydate-test"),
    "imdb": (folder_for_each_class, "aclImdb/train", "aclImdb/test"),
    "atis": (labelled_lines, "train.txt", "test.txt"),
    "astd": (tsv, "train.tsv", "test.tsv", 1, 0),
    "hotel_zh": (quoted, "train.csv", "test.csv", "label", "review"),
    "rucola": (quoted, "train.csv", "dev.csv", "acceptable", "sentence"),
    "mahasent": (quoted, "train.csv", "test.csv", "label", "tweet"),
    "hatebr": (quoted, "train.csv", "test.csv", "label_final", "comentario"),
    "snli": (tsv, "dev.txt", "test.txt", 2, 0, 1),
    "scitail": (tsv, "dev.txt", "test.txt", 2, 0, 1),
    "mrpc": (tsv, "msr_paraphrase_train.txt", "msr_paraphrase_test.txt", "Quality", "#1 String",
             "#2 String"),
    "quora": (tsv, "dev.tsv", "test.tsv", 0, 1, 2),
    "rte": (tsv, "train.tsv", "dev.tsv", "label", "sentence1", "sentence2"),
    "kornli": (tsv, "dev.tsv", "test.tsv", "gold_label", "sentence1", "sentence2"),
    "farstail": (quoted, "train.csv", "test.csv", "label", "premise", "hypothesis"),
}


def split_of(rows):
    """Nine tenths and a tenth, the same for everyone."""
    rows = list(rows)
    random.Random(1).shuffle(rows)
    count = round(len(rows) * 0.1)
    return rows[count:], rows[:count]


def parts_of(folder, read, train, test, *columns):
    train = read(folder / train, *columns)
    train, tested = (train, read(folder / test, *columns)) if test else split_of(train)
    classes = {row[0] for row in train}  # five texts of atis have a class of their own
    return train, [row for row in tested if row[0] in classes]


def write_parts(folder, parts, names):
    """The files of training and test, as JSON lines."""
    files = [f"{folder}/{part}.jsonl" for part in ("train", "test")]
    for file, rows in zip(files, parts):
        lines = [json.dumps(dict(zip(names, row)), ensure_ascii=False) + "\n" for row in rows]
        pathlib.Path(file).write_text("".join(lines), encoding="utf-8")
    return files


# --- rivals


def words_of(text):
    return set(re.findall(r"\w+", text.lower()))


def overlap_features(rows, idf):
    features = []
    for first, second in ((words_of(one), words_of(other)) for _, one, other in rows):
        common = first & second
        shared, *weights = (sum(idf.get(word, idf[""]) for word in words)
                            for words in (common, first, second))
        counts = [len(common), *(len(common) / max(1, len(words)) for words in (first, second))]
        counts += [shared, *(shared / max(1, weight) for weight in weights)]
        features.append([*counts, abs(len(first) - len(second))])
    return features


def inverse_frequencies(texts):
    counts = collections.Counter(word for text in texts for word in words_of(text))
    weights = {word: math.log(len(texts) / count) for word, count in counts.items()}
    return {"": math.log(len(texts))} | weights


def rival(kind, *files):
    """Prints the accuracy as evaluate does."""
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_union
    from sklearn.preprocessing import StandardScaler

    train, test = ([tuple(json.loads(line).values()) for line in open(file, encoding="utf-8")]
                   for file in files)
    pairs = len(train[0]) == 3
    texts = [text for column in list(zip(*train))[1:] for text in column]
    features = [None, None]
    if pairs:
        idf = inverse_frequencies(texts)
        features = [overlap_features(part, idf) for part in (train, test)]
        scaler = StandardScaler().fit(features[0])
        features = [scaler.transform(part) for part in features]
    if kind != "overlap":
        sublinear = kind == "union"
        words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\w+" if pairs else r"\S+",
                                sublinear_tf=sublinear)
        chars = TfidfVectorizer(ngram_range=(2, 5 if sublinear else 4), analyzer="char_wb",
                                sublinear_tf=sublinear)
        kinds = {"words": [words], "chars": [chars], "union": [words, chars]}[kind]
        vectors = make_union(*kinds).fit(texts)
        for place, part in enumerate((train, test)):
            u, *v = (vectors.transform(column) for column in list(zip(*part))[1:])
            if pairs:
                columns = [u, *v, abs(u - v[0]), u.multiply(v[0]), features[place]]
                features[place] = hstack(columns).tocsr()
            else:
                features[place] = u
    model = LogisticRegression(C=1 if pairs else 5 if kind == "union" else 10, max_iter=1000)
    model.fit(features[0], [row[0] for row in train])
    print(json.dumps({"accuracy": model.score(features[1], [row[0] for row in test])}))


# --- the table


def measured(*commands):
    """The accuracy in per cent that the last command prints, processor seconds and peak memory in MB."""
    seconds = peak = 0
    for command in commands:
        answer, usage = peers.finished(command)
        seconds += usage.ru_utime + usage.ru_stime
        peak = max(peak, usage.ru_maxrss / 1024)
    return 100 * json.loads(answer.splitlines()[-1])["accuracy"], seconds, peak


def compare(name, parts, options):
    pairs = len(parts[0][0]) == 3
    names = ("label", "first", "second") if pairs else ("label", "text")
    layout = [f"--set=data.{part}_column={part}" for part in names if part != "text"]
    layout.append("--format=jsonl")
    with tempfile.TemporaryDirectory() as folder:
        files = write_parts(folder, parts, names)
        rivals = [measured([sys.executable, __file__, "--rival", kind, *files])
                  for kind in ["words", "chars", "union"] + ["overlap"] * pairs]
        program = pathlib.Path(options.bin) / ("match" if pairs else "classify")
        runs = []
        for seed in range(1, options.seeds + 1):
            run = f"{folder}/run{seed}"
            runs.append(measured(
                [program, "train", "--data", files[0], *layout, "--seed", seed, "--out", run,
                 *options.flags],
                [program, "evaluate", "--run", run, "--data", files[1], *layout]))
    values = [run[0] for run in runs]
    best, heed = max(rivals), statistics.mean(values)
    spread = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0
    error = 100 * math.sqrt(heed / 100 * (1 - heed / 100) / len(parts[1]))
    others = [f"{other[0]:.1f}" for other in rivals] + [""] * (4 - len(rivals))
    costs = [f"{statistics.mean(run[at] for run in runs):.0f} / {best[at]:.0f}" for at in (1, 2)]
    row = [name, *(str(len(part)) for part in parts), f"{heed:.1f} ± {spread:.1f}", *others,
           f"{error:.1f}", f"{heed - best[0]:+.1f}", *costs]
    print("|", " | ".join(row), "|", flush=True)


def main():
    parser = peers.plain_parser(
        __doc__, epilog="Flags after -- go to `train`, such as --attention NAME.")
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=SETS, default=SETS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--bin", default="build/bin", help="folder of the programs")
    own = sys.argv[1:]
    cut = own.index("--") if "--" in own else len(own)
    options = parser.parse_args(own[:cut])
    options.flags = own[cut + 1 :]
    columns = ["set", "train", "test", "heed", "words", "chars", "union", "overlap", "error", "ahead",
               "seconds", "MB"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
    for name in options.only:
        compare(name, parts_of(options.data / name, *SETS[name]), options)


if __name__ == "__main__":
    rival(*sys.argv[2:]) if sys.argv[1:2] == ["--rival"] else main()
