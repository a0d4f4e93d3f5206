#!/usr/bin/env python3
"""The classifier with its defaults beside two simple rivals, on the same training and test texts of each set.

    python3 bench/compare_simple.py ../shared/data --seeds 3
    python3 bench/compare_simple.py --set questions=train.txt,test.txt --encoding latin-1

DATA is a folder with subj, mpqa, mr and cr as they are distributed; --set names other sets: files of lines (a label, a
space and a text), the test in a file of its own or a tenth of the texts. Prints the accuracy on the test, of what
depends on a seed the mean and the standard deviation:

    heed      build/bin/classify train with defaults alone, which holds out its validation texts from the training texts
    TF-IDF    words and pairs of words with logistic regression (scikit-learn; C = 10), on all training texts
    CNN       Kim 2014 (arXiv 1408.5882), random embeddings of 300, 100 filters each of widths 3, 4 and 5, the best epoch
              on the same share of the training texts; needs PyTorch, and is left out where there is none
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

SETS = {"subj": ["subj/subj.all"], "mpqa": ["mpqa/mpqa.all"], "cr": ["cr/custrev.all"],
        "mr": ["mr/rt-polarity.neg", "mr/rt-polarity.pos"]}


def lines_of(path):
    return [line.rstrip(b"\r") for line in pathlib.Path(path).read_bytes().split(b"\n") if line.strip()]


def split_of(lines, fraction=0.1):
    """Training and test lines: shuffled, the same for everyone."""
    lines = list(lines)
    random.Random(1).shuffle(lines)
    count = round(len(lines) * fraction)
    return lines[count:], lines[:count]


def read_sets(arguments):
    for name, files in SETS.items() if arguments.data else ():
        if len(files) == 1:
            lines = lines_of(arguments.data / files[0])
        else:  # a file for each class
            lines = [b"%d %s" % (label, line) for label, file in enumerate(files)
                     for line in lines_of(arguments.data / file)]
        yield name, *split_of(lines)
    for text in arguments.set:
        name, _, files = text.partition("=")
        train, _, test = files.partition(",")
        yield (name, lines_of(train), lines_of(test)) if test else (name, *split_of(lines_of(train)))


def labels_and_texts(lines, encoding):
    pairs = [line.decode(encoding, "replace").partition(" ") for line in lines]
    return [label for label, _, _ in pairs], [text for _, _, text in pairs]


def heed_accuracy(train, test, seed, arguments):
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder) / name for name in ("train", "test")]
        for file, lines in zip(files, (train, test)):
            file.write_bytes(b"\n".join(lines) + b"\n")
        run = f"{folder}/run"
        command = [arguments.classify, "train", "--data", files[0], "--test", files[1], "--format", "lines",
                   "--encoding", arguments.encoding, "--seed", str(seed), "--out", run, *arguments.classify_flags]
        subprocess.run(command, check=True, stderr=subprocess.PIPE)
        answer = subprocess.run([arguments.classify, "evaluate", "--run", run, "--part", "test"], check=True,
                                capture_output=True, text=True)
    return 100 * json.loads(answer.stdout.splitlines()[-1])["accuracy"]


def tf_idf_accuracy(train, test, encoding):
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    labels, texts = labels_and_texts(train, encoding)
    test_labels, test_texts = labels_and_texts(test, encoding)
    vectors = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\S+")
    model = LogisticRegression(C=10, max_iter=1000).fit(vectors.fit_transform(texts), labels)
    return 100 * model.score(vectors.transform(test_texts), test_labels)


def cnn_accuracy(train, test, seed, encoding):
    import torch
    from torch import nn

    torch.manual_seed(seed)
    labels, texts = labels_and_texts(train, encoding)
    test_labels, test_texts = labels_and_texts(test, encoding)
    classes = {label: i for i, label in enumerate(sorted(set(labels)))}
    words = {word: i + 2 for i, word in enumerate(sorted({word for text in texts for word in text.lower().split()}))}

    def encoded(texts, labels):
        ids = [[words.get(word, 1) for word in text.lower().split()] for text in texts]
        longest = max(5, max(map(len, ids)))
        rows = torch.tensor([[0] * 4 + row + [0] * (longest + 4 - len(row)) for row in ids])
        return rows, torch.tensor([classes.get(label, -1) for label in labels])

    def as_wide_as_needed(rows):  # the maximum over positions does not change: four paddings on each side stay
        used = rows.any(0).nonzero()
        return rows[:, : max(9, int(used.max()) + 5 if len(used) else 0)]

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(len(words) + 2, 300, padding_idx=0)
            nn.init.uniform_(self.embedding.weight, -0.25, 0.25)
            self.filters = nn.ModuleList(nn.Conv1d(300, 100, width) for width in (3, 4, 5))
            self.output = nn.Linear(300, len(classes))

        def forward(self, rows):
            x = self.embedding(as_wide_as_needed(rows)).transpose(1, 2)
            x = torch.cat([torch.relu(filters(x)).amax(2) for filters in self.filters], 1)
            return self.output(nn.functional.dropout(x, 0.5, self.training))

    def accuracy(rows, labels):
        network.eval()
        with torch.no_grad():
            right = sum((network(part).argmax(1) == wanted).sum().item()
                        for part, wanted in zip(rows.split(256), labels.split(256)))
        return 100 * right / len(labels)

    rows, wanted = encoded(texts, labels)
    order = torch.randperm(len(rows))
    held_out = order[: len(rows) // 20]
    learned = order[len(rows) // 20:]
    test_rows, test_wanted = encoded(test_texts, test_labels)
    network = Network()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    best = (-1.0, 0.0)
    for _ in range(10):
        for batch in learned[torch.randperm(len(learned))].split(50):
            network.train()
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(rows[batch]), wanted[batch]).backward()
            optimizer.step()
        best = max(best, (accuracy(rows[held_out], wanted[held_out]), accuracy(test_rows, test_wanted)))
    return best[1]


def shown(values):
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):5.1f} ± {deviation:.1f}"


def have(module):
    try:
        __import__(module)
    except ImportError:
        return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=pathlib.Path)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=TRAIN[,TEST]")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--encoding", default="cp1252")
    parser.add_argument("--classify", default="build/bin/classify")
    parser.epilog = "Behind -- stand more flags of classify train, such as --attention NAME."
    own = sys.argv[1:]
    cut = own.index("--") if "--" in own else len(own)
    arguments = parser.parse_args(own[:cut])
    arguments.classify_flags = own[cut + 1:]
    if not arguments.data and not arguments.set:
        parser.error("name the folder of the data, or sets by --set")
    seeds = range(1, arguments.seeds + 1)
    rivals = {"TF-IDF": have("sklearn"), "CNN": have("torch")}
    for name, there in rivals.items():
        if not there:
            print(f"{name}: left out, its Python package is not installed", flush=True)
    print("| set | train | test | heed | TF-IDF | CNN |\n|---|---|---|---|---|---|", flush=True)
    for name, train, test in read_sets(arguments):
        if arguments.only and name not in arguments.only:
            continue
        row = [shown([heed_accuracy(train, test, seed, arguments) for seed in seeds])]
        row.append(f"{tf_idf_accuracy(train, test, arguments.encoding):.1f}" if rivals["TF-IDF"] else "")
        row.append(shown([cnn_accuracy(train, test, seed, arguments.encoding) for seed in seeds])
                   if rivals["CNN"] else "")
        print(f"| {name} | {len(train)} | {len(test)} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
