"""data.py CSV: writes 5,000 pairs of questions, half of which ask the same, made by rule.

Pairs that differ share most of their words, too: another place, another wish, or the same places the other way round.
"""
import csv
import random
import sys

draw = random.Random(1)
PLACES = "London Paris Rome Madrid Vienna Oslo Dublin Prague Lisbon Athens Geneva Hamburg".split()
SKILLS = "chess Spanish cooking Python swimming French drawing piano algebra German sailing guitar".split()
WAYS = {  # how each wish is said
    "price": ["How much is the train from {a} to {b}?", "What does a ticket from {a} to {b} cost?",
              "Coming from {a}, how expensive is the journey to {b}?", "What do I pay to get to {b} from {a}?"],
    "time": ["How long is the train from {a} to {b}?", "How many hours is it from {a} to {b}?",
             "Coming from {a}, how soon am I in {b}?", "When do I get to {b} if I start in {a}?"],
    "money": ["How do I send money from {a} to {b}?", "Can my bank in {a} pay somebody in {b}?",
              "How does a friend in {b} get my money from {a}?"],
    "learn": ["How do I learn {c} in {n} months?", "Can I be good at {c} after {n} months?",
              "Are {n} months enough for {c}?", "Which book teaches me {c} within {n} months?"],
    "teach": ["How do I become a teacher of {c}?", "Who pays for lessons in {c}?", "Can I give lessons in {c}?"]}
TRAVEL = ["price", "time", "money"]


def things():
    a, b = draw.sample(PLACES, 2)
    return {"a": a, "b": b, "c": draw.choice(SKILLS), "n": draw.choice(["two", "three", "six", "nine"])}


def pair(same):
    wish, of = draw.choice(list(WAYS)), things()
    first, second = draw.sample(WAYS[wish], 2)
    other = of
    if not same:
        kind = draw.randrange(3)
        if kind == 0:  # another wish
            others = [w for w in WAYS if w != wish and (w in TRAVEL) == (wish in TRAVEL)]
            second = draw.choice(WAYS[draw.choice(others)])
        elif kind == 1 or wish not in TRAVEL:
            other = {**of, "b": draw.choice([p for p in PLACES if p not in (of["a"], of["b"])]),
                     "c": draw.choice([c for c in SKILLS if c != of["c"]])}
        else:
            other = {**of, "a": of["b"], "b": of["a"]}
    return first.format(**of), second.format(**other)


with open(sys.argv[1], "w", newline="", encoding="utf-8") as file:
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["id", "question1", "question2", "is_duplicate"])
    for number in range(1, 5001):
        same = draw.random() < 0.5
        table.writerow([number, *pair(same), int(same)])
