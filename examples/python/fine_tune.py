"""Fine-tuning: a classifier begins with the weights of another run, and its encoder learns more slowly."""

import heed

texts = ["a fine film", "warm and funny", "dull and endless", "a waste of time"] * 40
films = heed.train("classify", texts, ["good", "good", "bad", "bad"] * 40, steps=60, seed=1)

books = ["a fine book", "an endless book", "warm and well written", "a waste of paper"] * 5
run = heed.train(
    "classify", books, ["yes", "no", "yes", "no"] * 5, steps=30, seed=1,
    settings={
        "training.from": films.folder,
        "training.ignore": "output",  # what belongs to the classes of the films
        "training.part_rates": "encoder=0.1",
    },
)
print(run.predict(["a warm book", "dull and endless"]).labels)
