#!/usr/bin/env python3
"""The matcher with its configurations beside two simple rivals, on the training and test pairs that each set comes with.

    python3 bench/compare_pairs.py ../shared/data --seeds 3
    python3 bench/compare_pairs.py ../shared/data --only rte --defaults -- --threads 1

Prints the accuracy on the test, of wikiqa the mean average precision over the questions that have a right answer; of
what depends on a seed the mean and the standard deviation:

    match      build/bin/match train with examples/configs/NAME.json, or with --defaults with what that says of the data
    overlap    logistic regression on seven counts of the words that both texts have (scikit-learn; C = 1)
    TF-IDF     the same on these counts and on words and pairs of words of both texts, u and v, as [u; v; |u - v|; u * v]
"""
import argparse
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

from compare_simple import shown

# Training, validation (none: held out of the training pairs) and test files, and what is measured.
SETS = {"snli": ("dev.txt", None, "test.txt", "accuracy"), "scitail": ("dev.txt", None, "test.txt", "accuracy"),
        "mrpc": ("msr_paraphrase_train.txt", None, "msr_paraphrase_test.txt", "accuracy"),
        "quora": ("dev.tsv", None, "test.tsv", "accuracy"), "rte": ("train.tsv", None, "dev.tsv", "accuracy"),
        "wikiqa": ("WikiQA-train.txt", "WikiQA-dev.txt", "WikiQA-test.txt", "map")}


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
    """Of the counts and of TF-IDF."""
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
    vectors = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\w+").fit(train[0] + train[1])

    def features(part, counts):
        u, v = vectors.transform(part[0]), vectors.transform(part[1])
        return hstack([u, v, abs(u - v), u.multiply(v), counts]).tocsr()

    yield figure(*counts)
    yield figure(*map(features, (train, test), counts))


def match_figure(name, files, metric, seed, arguments):
    config = json.loads((arguments.configs / f"{name}.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        run, settings = f"{folder}/run", pathlib.Path(folder) / "config.json"
        settings.write_text(json.dumps({"data": config["data"]} if arguments.defaults else config))
        train, valid, test = files
        command = [arguments.match, "train", "--data", train, "--config", settings, "--seed", str(seed), "--out", run]
        command += ["--valid", valid] if valid else []
        subprocess.run(command + arguments.match_flags, check=True, stderr=subprocess.PIPE)
        answer = subprocess.run([arguments.match, "evaluate", "--run", run, "--data", test], check=True,
                                capture_output=True, text=True)
    return 100 * json.loads(answer.stdout.splitlines()[-1])[metric]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--defaults", action="store_true")
    parser.add_argument("--match", default="build/bin/match")
    parser.add_argument("--configs", type=pathlib.Path, default=pathlib.Path("examples/configs"))
    parser.epilog = "Behind -- stand more flags of match train, such as --attention NAME."
    own = sys.argv[1:]
    cut = own.index("--") if "--" in own else len(own)
    arguments = parser.parse_args(own[:cut])
    arguments.match_flags = own[cut + 1:]
    print("| set | train | test | match | overlap | TF-IDF |\n|---|---|---|---|---|---|", flush=True)
    for name in arguments.only:
        *files, metric = SETS[name]
        files = [arguments.data / name / file if file else None for file in files]
        data = json.loads((arguments.configs / f"{name}.json").read_text())["data"]
        train, test = read_pairs(files[0], data), read_pairs(files[2], data)
        row = [shown([match_figure(name, files, metric, seed, arguments) for seed in range(1, arguments.seeds + 1)])]
        row += [f"{figure:.1f}" for figure in rival_figures(train, test, metric)]
        print(f"| {name} | {len(train[0])} | {len(test[0])} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
