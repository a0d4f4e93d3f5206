"""Five-fold cross-validation, for two mechanisms: mean and deviation of the accuracy."""

import heed

texts = ["a fine film", "warm and funny", "dull and endless", "a waste of time"] * 25
labels = ["good", "good", "bad", "bad"] * 25

for name in ("dot_product", "fastformer"):
    found = heed.cross_validate("classify", texts, labels, folds=5, attention=name, steps=30, seed=1)
    print(f"{name}: {found['accuracy']:.3f} +- {found['deviation']['accuracy']:.3f}")
