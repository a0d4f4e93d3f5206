"""data.py FOLDER: writes news.tsv and behaviors.tsv as MIND has them, made by rule: 600 news, and 3,000 times that one
of 100 readers saw six of them and clicked on some. Each reader likes two of twelve topics, which only titles tell."""
import os
import random
import sys

draw = random.Random(1)
TOPICS = {
    "football": "sports: goalkeeper striker penalty league coach",
    "tennis": "sports: racket serve umpire final tiebreak",
    "cycling": "sports: stage sprint peloton saddle mountain", "sailing": "sports: harbour mast regatta skipper storm",
    "markets": "money: share bond dividend broker rally", "housing": "money: lease mortgage landlord flat tenant",
    "jobs": "money: wage strike pension salary promotion", "baking": "life: oven loaf crust recipe cake",
    "gardens": "life: tomato hedge spade tulip rake", "travel": "life: suitcase hostel ferry passport island",
    "space": "science: rocket orbit comet telescope crew", "health": "science: vaccine clinic virus surgeon allergy"}
TITLES = ["Why the {a} is back", "What {an_a} and {an_b} have in common", "The {a} that nobody expected",
          "Ten questions about the {a}", "Between {an_b}, {an_a} and a long night", "How one {a} changed everything",
          "No {a} without {an_b}, experts say", "They asked for {an_a} and got {an_b}"]



def title(a, b):
    an_a, an_b = (("an " if word[0] in "aeiou" else "a ") + word for word in (a, b))
    return draw.choice(TITLES).format(a=a, b=b, an_a=an_a, an_b=an_b)


news = []  # id, topic
readers = [draw.sample(list(TOPICS), 2) for _ in range(100)]
os.makedirs(sys.argv[1], exist_ok=True)
with open(os.path.join(sys.argv[1], "news.tsv"), "w", encoding="utf-8") as file:
    for number in range(600):
        topic = draw.choice(list(TOPICS))
        category, _, words = TOPICS[topic].partition(": ")
        a, b = draw.sample(words.split(), 2)
        news.append((f"N{number}", topic))
        print(f"N{number}", category, category, title(a, b), "", "", "[]", "[]", sep="\t", file=file)
with open(os.path.join(sys.argv[1], "behaviors.tsv"), "w", encoding="utf-8") as file:
    history = [[] for _ in readers]
    for number in range(1, 3001):
        reader = draw.randrange(len(readers))
        shown = draw.sample(news, 6)
        clicks = [draw.random() < (0.9 if topic in readers[reader] else 0.05) for _, topic in shown]
        time = f"11/{11 + number // 300}/2019 {1 + number % 300 // 30}:{10 + number % 30}:00 AM"
        print(number, f"U{reader}", time, " ".join(history[reader]),
              " ".join(f"{name}-{int(click)}" for (name, _), click in zip(shown, clicks)), sep="\t", file=file)
        history[reader] += [name for (name, _), click in zip(shown, clicks) if click]
