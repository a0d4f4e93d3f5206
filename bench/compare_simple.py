#!/usr/bin/env python3
"""The classifier and the matcher beside simple rivals, on the same training and test texts of each set.

    python3 bench/compare_simple.py classify ../shared/data --seeds 3
    python3 bench/compare_simple.py classify --set questions=train.txt,test.txt --encoding latin-1
    python3 bench/compare_simple.py match ../shared/data --only rte --defaults -- --threads 1

Prints a Markdown table of the accuracy on the test, for wikiqa the mean average precision over the questions that have a
right answer; with mean and standard deviation where a seed matters. Needs scikit-learn.

classify: DATA is a folder with subj, mpqa, mr and cr as they are distributed; --set names other sets: files of lines (a
label, a space and a text), the test in a file of its own or a tenth of the texts.
    heed      build/bin/classify train with its defaults, which holds out its validation texts from the training texts
    TF-IDF    words and pairs of words with logistic regression (C = 10), on all training texts
    chars     the same of 2 to 5 characters in a row within words
match: DATA is a folder with the sets of examples/configs.
    heed      build/bin/match train with examples/configs/NAME.json; with --defaults only with what that says of the data
    overlap   logistic regression (C = 1) on seven counts of the words that both texts have
    TF-IDF    the same on these counts and on words and pairs of words of both texts, u and v, as [u; v; |u - v|; u * v]
    chars     the same of 2 to 5 characters in a row within words
"""
import argparse
import json
import math
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile

TEXTS = {"subj": ["subj/subj.all"], "mpqa": ["mpqa/mpqa.all"], "cr": ["cr/custrev.all"],
         "mr": ["mr/rt-polarity.neg", "mr/rt-polarity.pos"]}
# Training, validation (none: held out of the training pairs) and test files, and what is measured.
PAIRS = {"snli": ("dev.txt", None, "test.txt", "accuracy"), "scitail": ("dev.txt", None, "test.txt", "accuracy"),
         "mrpc": ("msr_paraphrase_train.txt", None, "msr_paraphrase_test.txt", "accuracy"),
         "quora": ("dev.tsv", None, "test.tsv", "accuracy"), "rte": ("train.tsv", None, "dev.tsv", "accuracy"),
         "wikiqa": ("WikiQA-train.txt", "WikiQA-dev.txt", "WikiQA-test.txt", "map")}
CHARACTERS = {"ngram_range": (2, 5), "analyzer": "char_wb"}
CONFIGS = pathlib.Path(__file__).resolve().parent.parent / "examples/configs"


def shown(values):
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):5.1f} ± {deviation:.1f}"


def heed_figures(options, metric, train, test):
    """The metric of a run for each seed; `train` and `test` are flags."""
    figures = []
    for seed in range(1, options.seeds + 1):
        with tempfile.TemporaryDirectory() as folder:
            program, run = pathlib.Path(options.bin) / options.task, f"{folder}/run"
            subprocess.run([program, "train", *train, "--seed", str(seed), "--out", run, *options.flags], check=True,
                           stderr=subprocess.PIPE)
            answer = subprocess.run([program, "evaluate", "--run", run, *test], check=True, capture_output=True, text=True)
            figures.append(100 * json.loads(answer.stdout.splitlines()[-1])[metric])
    return shown(figures)


# --- texts


def lines_of(path):
    return [line.rstrip(b"\r") for line in pathlib.Path(path).read_bytes().split(b"\n") if line.strip()]


def split_of(lines, fraction=0.1):
    """Training and test lines: shuffled, the same for everyone."""
    lines = list(lines)
    random.Random(1).shuffle(lines)
    count = round(len(lines) * fraction)
    return lines[count:], lines[:count]


def text_sets(options):
    for name, files in TEXTS.items() if options.data else ():
        if len(files) == 1:
            lines = lines_of(options.data / files[0])
        else:  # a file for each class
            lines = [b"%d %s" % (label, line) for label, file in enumerate(files) for line in lines_of(options.data / file)]
        yield name, *split_of(lines)
    for text in options.set:
        name, _, files = text.partition("=")
        train, _, test = files.partition(",")
        yield (name, lines_of(train), lines_of(test)) if test else (name, *split_of(lines_of(train)))


def compare_texts(options):
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    print("| set | train | test | heed | TF-IDF | chars |\n|---|---|---|---|---|---|", flush=True)
    for name, *parts in text_sets(options):
        if options.only and name not in options.only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            files = [pathlib.Path(folder) / part for part in ("train", "test")]
            for file, lines in zip(files, parts):
                file.write_bytes(b"\n".join(lines) + b"\n")
            heed = heed_figures(options, "accuracy", ["--data", files[0], "--test", files[1], "--format", "lines",
                                                      "--encoding", options.encoding], ["--part", "test"])
        (train_labels, train), (test_labels, test) = (
            zip(*(line.decode(options.encoding, "replace").partition(" ")[::2] for line in lines)) for lines in parts)
        figures = []
        for features in ({"ngram_range": (1, 2), "token_pattern": r"\S+"}, CHARACTERS):
            vectors = TfidfVectorizer(**features)
            model = LogisticRegression(C=10, max_iter=1000).fit(vectors.fit_transform(train), train_labels)
            figures.append(f"{100 * model.score(vectors.transform(test), test_labels):.1f}")
        print(f"| {name} | {len(train)} | {len(test)} | {heed} | {' | '.join(figures)} |", flush=True)


# --- pairs of texts


def read_pairs(path, data):
    """First texts, second texts and labels, as the configuration's "data" names the columns."""
    rows = [line.rstrip("\r").split("\t")
            for line in path.read_bytes().decode("utf-8-sig", "replace").split("\n") if line.strip()]
    header = rows.pop(0) if data.get("header") else []
    columns = [data.get(name + "_column", place) for place, name in enumerate(("first", "second", "label"), 1)]
    at = [header.index(column) if column in header else int(column) - 1 for column in columns]
    return [[row[place] for row in rows] for place in at]


def words_of(text):
    return set(re.findall(r"\w+", text.lower()))


def overlap_features(firsts, seconds, idf):
    rows = []
    for first, second in zip(map(words_of, firsts), map(words_of, seconds)):
        common = first & second
        weight = [sum(idf.get(word, idf[""]) for word in words) for words in (common, first, second)]
        rows.append([len(common), len(common) / max(1, len(first)), len(common) / max(1, len(second)), weight[0],
                     weight[0] / max(1, weight[1]), weight[0] / max(1, weight[2]), abs(len(first) - len(second))])
    return rows


def inverse_frequencies(texts):
    counts = {}
    for words in map(words_of, texts):
        for word in words:
            counts[word] = counts.get(word, 0) + 1
    return {"": math.log(len(texts))} | {word: math.log(len(texts) / count) for word, count in counts.items()}


def mean_average_precision(firsts, labels, scores):
    groups = []
    for place, first in enumerate(firsts):
        if place == 0 or first != firsts[place - 1]:
            groups.append([])
        groups[-1].append((scores[place], labels[place] != "1"))  # of equal scores the wrong answer stands first
    precisions = []
    for group in groups:
        ordered = sorted(group, key=lambda one: (-one[0], not one[1]))
        ranks = [rank for rank, (_, wrong) in enumerate(ordered, 1) if not wrong]
        if ranks:
            precisions.append(sum(right / rank for right, rank in enumerate(ranks, 1)) / len(ranks))
    return sum(precisions) / len(precisions)


def rival_figures(train, test, metric):
    """Of the counts, of TF-IDF, and of TF-IDF of characters."""
    import numpy
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    def figure(learned, measured):
        model = LogisticRegression(max_iter=1000).fit(learned, train[2])
        if metric == "map":
            return 100 * mean_average_precision(test[0], test[2], model.predict_proba(measured)[:, 1])
        return 100 * numpy.mean(model.predict(measured) == numpy.array(test[2]))

    idf = inverse_frequencies(train[0] + train[1])
    counts = [overlap_features(part[0], part[1], idf) for part in (train, test)]
    scaler = StandardScaler().fit(counts[0])
    counts = [scaler.transform(part) for part in counts]

    def features(vectors, part, counts):
        u, v = vectors.transform(part[0]), vectors.transform(part[1])
        return hstack([u, v, abs(u - v), u.multiply(v), counts]).tocsr()

    yield figure(*counts)
    for kind in ({"ngram_range": (1, 2), "token_pattern": r"\w+"}, CHARACTERS):
        vectors = TfidfVectorizer(**kind).fit(train[0] + train[1])
        yield figure(*(features(vectors, *part) for part in zip((train, test), counts)))


def compare_pairs(options):
    print("| set | train | test | heed | overlap | TF-IDF | chars |\n|---|---|---|---|---|---|---|", flush=True)
    for name, (*files, metric) in PAIRS.items():
        if options.only and name not in options.only:
            continue
        train_file, valid_file, test_file = (options.data / name / file if file else None for file in files)
        config = json.loads((CONFIGS / f"{name}.json").read_text())
        data = config["data"]
        train, test = read_pairs(train_file, data), read_pairs(test_file, data)
        with tempfile.TemporaryDirectory() as folder:
            settings = pathlib.Path(folder) / "config.json"
            settings.write_text(json.dumps({"data": data} if options.defaults else config))
            flags = ["--data", train_file, "--config", settings, *(["--valid", valid_file] if valid_file else [])]
            row = [heed_figures(options, metric, flags, ["--data", test_file])]
        row += [f"{figure:.1f}" for figure in rival_figures(train, test, metric)]
        print(f"| {name} | {len(train[0])} | {len(test[0])} | {' | '.join(row)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="Flags after -- go to `train`, such as --attention NAME.")
    parser.add_argument("task", choices=("classify", "match"))
    parser.add_argument("data", nargs="?", type=pathlib.Path)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=TRAIN[,TEST]", help="classify: another set")
    parser.add_argument("--encoding", default="cp1252", help="classify: of the texts (default cp1252)")
    parser.add_argument("--defaults", action="store_true", help="match: the model and training of heed's defaults")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these sets only")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--bin", default="build/bin", help="folder of the programs")
    own = sys.argv[1:]
    cut = own.index("--") if "--" in own else len(own)
    options = parser.parse_args(own[:cut])
    options.flags = own[cut + 1:]
    if not options.data and not (options.task == "classify" and options.set):
        parser.error("name the folder of the data, or a set with --set")
    compare_texts(options) if options.task == "classify" else compare_pairs(options)


if __name__ == "__main__":
    main()
