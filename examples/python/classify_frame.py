"""A classifier from a DataFrame with other columns and missing values."""

import pandas as pd

import heed

reviews = pd.DataFrame({
    "id": range(120),
    "review": ["a fine film", "dull and endless", "warm and funny", None] * 30,
    "stars": [5, 1, 4, 3] * 30,
})

run = heed.train("classify", reviews, text="review", label="stars", missing="drop", valid=0.2, steps=60, seed=1)
reviews = reviews.dropna()
reviews["predicted"] = run.predict(reviews["review"].tolist()).labels.astype(int)
print(reviews.tail(3).to_string(index=False))
