"""scikit-learn: a pipeline, and a search over attention mechanisms by cross-validation."""

from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from heed.sklearn import Classifier

texts = ["A FINE film", "Warm and FUNNY", "dull and Endless", "a WASTE of time"] * 12
labels = ["good", "good", "bad", "bad"] * 12


def lower(texts: list[str]) -> list[str]:
    return [text.lower() for text in texts]


model = make_pipeline(FunctionTransformer(lower), Classifier(steps=30, random_state=1))
search = GridSearchCV(model, {"classifier__attention": ["dot_product", "fastformer"]}, cv=2).fit(texts, labels)
print(search.best_params_, round(search.best_score_, 2))
print(search.predict(["funny and warm"]))
