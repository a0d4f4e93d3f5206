"""A classifier from two lists: train, measure on texts held out, answer, keep."""

import heed

texts = ["a fine film", "warm and funny", "dull and endless", "a waste of time"] * 50
labels = ["good", "good", "bad", "bad"] * 50

run = heed.train("classify", texts, labels, valid=0.2, attention="fastformer", steps=60, seed=1)
print(f"accuracy on held-out texts: {run.measure('valid')['accuracy']:.2f}")
answers = run.predict(["fine and warm", "endless"])
for answer in answers:
    print(answer.text, round(answer.probability, 2))
print(answers.classes, answers.probabilities.shape)
run.save("film.heed", overwrite=True)  # one file: heed.Run.open("film.heed")
