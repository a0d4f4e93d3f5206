#!/usr/bin/env python3
"""Noncausal cross-attention for bench/arena.py: do two questions ask the same, where the words of one look at those of the other?

    PYTHONPATH=bindings/python HEED_LIBRARY=build/lib/libheed.so \\
        python3 bench/arena_questions.py --data ../shared/data/quora/dev.tsv --attention abc --steps 200

The words of either question, with learned positions, attend to those of the other; what they find and what they are goes
through a layer, its mean decides. No attention of any other kind, so that the mechanism has to compare. Prints a line of
JSON: the accuracy on a fifth of the pairs, in percent, and the most that tensors held, in bytes.
"""

import argparse
import collections
import json
import resource

import heed
import numpy as np
from heed import nn

WORDS, WIDTH, HEADS, LENGTH, BATCH = 4000, 64, 4, 32, 64


def read_pairs(file):
    """labels [n], ids [n, 2, LENGTH] (-1 = padding): the commonest words have numbers of their own, all others 0."""
    rows = [line.rstrip("\n").split("\t") for line in open(file, encoding="utf-8", errors="replace")]
    texts = [[text.lower().replace("?", " ?").split()[:LENGTH] for text in row[1:3]] for row in rows]
    counts = collections.Counter(word for pair in texts[: len(texts) * 4 // 5] for text in pair for word in text)
    number = {word: n + 1 for n, (word, _) in enumerate(counts.most_common(WORDS - 1))}
    ids = np.full((len(rows), 2, LENGTH), -1, np.int32)
    for i, pair in enumerate(texts):
        for side, text in enumerate(pair):
            ids[i, side, : len(text)] = [number.get(word, 0) for word in text]
    return np.array([row[0] == "1" for row in rows], np.int32), ids


class Compare(nn.Module):
    def __init__(self, mechanism, seed):
        self.words = nn.Embedding(WORDS, WIDTH, 0.3)
        self.places = nn.Embedding(LENGTH, WIDTH, 0.3)
        self.norm = nn.LayerNorm(WIDTH)
        self.cross = heed.attention(mechanism, WIDTH, heads=HEADS, cross=True, bias=True, max_length=LENGTH, seed=seed)
        self.hidden = nn.Linear(2 * WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, 2)

    def forward(self, ids):
        """ids [n, 2, LENGTH] -> logits [n, 2]."""
        masks = [np.ascontiguousarray(ids[:, side] >= 0).astype(np.int32) for side in (0, 1)]
        texts = [self.norm(self.words(np.ascontiguousarray(ids[:, side])) + self.places(np.arange(LENGTH, dtype=np.int32)))
                 for side in (0, 1)]
        pooled = None
        for side in (0, 1):
            x, mask = texts[side], masks[side]
            found = self.cross(x, mask, memory=texts[1 - side], memory_mask=masks[1 - side])
            each = heed.gelu(self.hidden(heed.concat([x - found, x * found], -1)))
            share = (mask / np.maximum(mask.sum(1, keepdims=True), 1)).astype(np.float32)
            mean = (each * share[:, :, None]).sum(1)
            pooled = mean if pooled is None else pooled + mean
        return self.output(pooled)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="quora/dev.tsv")
    parser.add_argument("--attention", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    heed.set_threads(1)
    nn.set_seed(options.seed)
    labels, ids = read_pairs(options.data)
    held_out = len(labels) * 4 // 5
    net = Compare(options.attention, options.seed)
    optimizer = heed.Optimizer("adam", net)
    draw = np.random.default_rng(options.seed)
    for step in range(options.steps):
        rows = draw.choice(held_out, BATCH, replace=False)
        with heed.Context(seed=options.seed, step=step):
            heed.cross_entropy(net(ids[rows]), labels[rows]).mean().backward()
        warm, left = (step + 1) / 30, 0.5 + 0.5 * np.cos(np.pi * step / options.steps)
        optimizer.step(0.003 * min(warm, left))
        optimizer.zero_grad()
    right = 0
    with heed.no_grad():
        for begin in range(held_out, len(labels), 256):
            found = net(ids[begin : begin + 256]).numpy().argmax(1)
            right += int((found == labels[begin : begin + 256]).sum())
    print(json.dumps({"accuracy": 100 * right / (len(labels) - held_out),
                      "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


if __name__ == "__main__":
    main()
