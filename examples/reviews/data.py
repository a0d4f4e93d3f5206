"""data.py CSV: writes 3,000 reviews of kitchen things with their sentiment, made by rule."""
import csv
import random
import sys

draw = random.Random(1)
PARTS = "handle lid motor cable display timer blade base filter switch cord spout seal tray button".split()
WORDS = {"good": "solid quiet quick tidy handy sturdy smooth sharp lovely reliable clever light".split(),
         "bad": "flimsy loud slow messy clumsy weak sticky blunt shabby poor fiddly heavy".split()}
OTHER = {"good": "bad", "bad": "good"}
OPENINGS = ["", "", "Bought it in March.", "This was a present from my sister.", "We use it every morning.",
            "It came two days late.", "The box was dented.", "My neighbour has the same one."]
OPINIONS = ["The {part} is {degree} {word}.", "The {part} is {degree} {word} and the {second} is {degree} {more}.",
            "What a {word} {part}!", "The {part} is not {degree} {other}.",
            "Nobody could call the {part} {degree} {other}.",
            "I expected a {degree} {other} {part}, but it is {degree} {word}.",
            "The {part} of my old one was {degree} {other}, this one is {degree} {word}."]
DEGREES = ["", "", "very", "really", "rather", "pretty", "remarkably"]
VERDICTS = {"good": ["I would buy it again.", "It stays in my kitchen.", "No reason to send it back.",
                     "I do not regret it.", "My old one can go."],
            "bad": ["I would not buy it again.", "It goes back tomorrow.", "No reason to keep it.",
                    "I do regret it.", "My old one can stay."]}


def opinion(sentiment):
    good, other = WORDS[sentiment], WORDS[OTHER[sentiment]]
    part, second = draw.sample(PARTS, 2)
    said = draw.choice(OPINIONS).format(part=part, second=second, word=draw.choice(good), more=draw.choice(good),
                                        other=draw.choice(other), degree=draw.choice(DEGREES))
    return " ".join(said.split())  # where there is no degree


def review(sentiment):
    """Opinions that agree, or a mixture whose verdict counts."""
    if draw.random() < 0.5:
        said = [opinion(sentiment) for _ in range(draw.randint(1, 2))]
    else:
        said = [opinion(draw.choice(["good", "bad"])) for _ in range(2)] + [draw.choice(VERDICTS[sentiment])]
    return " ".join([draw.choice(OPENINGS), *said]).strip()


with open(sys.argv[1], "w", newline="", encoding="utf-8") as file:
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["id", "sentiment", "review"])
    for number in range(1, 3001):
        sentiment = draw.choice(["good", "bad"])
        table.writerow([number, sentiment, review(sentiment)])
