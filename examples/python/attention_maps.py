"""What a classifier looks at: weights as arrays, and a page of maps."""

import numpy as np

import heed

texts = ["a fine film from the north", "a dull film from the south"] * 50
labels = ["good", "bad"] * 50
run = heed.train("classify", texts, labels, steps=40, seed=1)

maps = run.attention("a fine film")
print(maps.tokens)
for layer, weights in maps.items():  # [heads, queries, keys]
    print(layer, weights.shape, "most seen:", maps.tokens[int(np.argmax(weights.mean((0, 1))))])
run.maps(["a fine film", "a dull film"]).save("maps.html")
