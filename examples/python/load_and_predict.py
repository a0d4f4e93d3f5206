"""A run that was trained before: opened, asked in bulk, by several threads at once, and measured on other data."""

import os
import threading

import heed

if not os.path.exists("runs/film"):
    texts, labels = ["a fine film", "dull and endless"] * 50, ["good", "bad"] * 50
    heed.train("classify", texts, labels, steps=40, seed=1, out="runs/film")

run = heed.Run.open("runs/film", device="cpu")
print(run)
print(run.predict(["fine", "dull", "dull and long"]).labels)

with run.serve(max_batch=32) as queue:  # what waits is answered in one pass
    def ask(text: str) -> None:
        print(f"{text}: {queue.answer(text)}")

    threads = [threading.Thread(target=ask, args=(text,)) for text in ("a fine end", "a dull end")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

print(run.evaluate(["fine", "dull"], ["good", "bad"])["accuracy"])
