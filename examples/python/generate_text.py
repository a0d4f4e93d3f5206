"""A language model on a few sentences: several continuations of a beginning, and a text while it is written."""

import heed

documents = ["once upon a time there was a small house by the sea", "once upon a time there was a king"] * 40

settings = {"tokenizer.kind": "words", "model.width": 64, "model.heads": 4, "model.decoder_layers": 2}
run = heed.train("language_model", documents, steps=40, seed=1, settings=settings)
for text in run.generate("once upon", max_tokens=12, temperature=0.7, top_p=0.9, samples=3, seed=1):
    print("-", text)
for piece in run.stream("once upon a"):
    print(piece, end="", flush=True)
print()
