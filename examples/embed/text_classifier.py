"""Three attention mechanisms on a list of texts, what the last attends to, and a pipeline of scikit-learn."""
import heed

good, bad = ["fine", "moving", "funny", "clever"], ["dull", "flat", "tedious", "noisy"]
texts = [f"A {word} {what} with {much} music" for word in good + bad
         for what in ["film", "play", "show", "tale", "series"] for much in ["much", "little", "loud", "old", "no"]]
labels = ["good" if text.split()[1] in good else "bad" for text in texts]

for attention in ["dot_product", "linformer", "fastformer"]:
    run = heed.train("classify", texts, labels, valid=0.2, attention=attention, settings={"training.steps": 60})
    accuracy = run.measure("valid")["accuracy"]
    print(f"{attention}: {accuracy:.1%} of those held out")
    assert accuracy > 0.9
run.maps(["A moving play with no music"])  # as the last line of a cell it shows the weights of every head

try:
    from heed.sklearn import Classifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer
    pipeline = make_pipeline(FunctionTransformer(lambda lines: [line.lower() for line in lines]), Classifier(steps=60))
    print(f"pipeline: {pipeline.fit(texts[::2], labels[::2]).score(texts[1::2], labels[1::2]):.1%} of the other half")
except ImportError as missing:
    print(missing)
