"""Made the files of this folder with the handful that wrote format 1; kept so that later versions can be tested.

`python -m tests.classifier.formats.make write FOLDER` writes them to a folder; the tests compare what today's code
makes of the same examples, and of the files, with what is recorded here. After a deliberate change of numbers,
`python -m tests.classifier.formats.make record tests/classifier/formats` records them again; the files stay.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from handful import FewShotClassifier, ImageEmbedding
from handful.meta.checkpoint import write_checkpoint

FOLDER = Path(__file__).parent
LEARNERS = ("ridge", "logistic", "softmax", "prototypes")
SHAPES = {"wide": ([3, 4, 2], 30), "tall": ([6, 9, 5], 4)}
"""Examples per class, and features: one shape for each form of the ridge regression."""
NAMES = np.array(["auk", "bee", "cat"])
IMAGE_SIZE = 24


def examples(shape: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Features, labels and seven queries of a shape: from integers, so that they are the same everywhere."""
    counts, e = SHAPES[shape]
    rng = np.random.RandomState(3)  # its numbers never change
    means = rng.randint(-3, 4, size=(len(counts), e)) / 2
    rows = np.concatenate([mean + rng.randint(-9, 10, size=(n, e)) / 8 for mean, n in zip(means, counts, strict=True)])
    return rows, NAMES.repeat(counts), np.concatenate([means, rng.randint(-9, 10, size=(4, e)) / 4])


def images(count: int, first: int = 0) -> np.ndarray[Any, Any]:
    """Small grey images in three kinds: horizontal, vertical and diagonal stripes, shifted and with noise."""
    y, x = np.mgrid[:IMAGE_SIZE, :IMAGE_SIZE]
    rng = np.random.RandomState(first)
    kinds = (y, x, x + y)
    made = [((kinds[i % 3] + i) % 6 < 3) * 200 + rng.randint(0, 50, size=x.shape) for i in range(count)]
    return np.stack(made).astype(np.uint8)[..., None]


def own_network() -> ImageEmbedding:
    """A network of the user's, with weights that are the same everywhere."""
    convolution = nn.Conv2d(1, 5, 5)
    with torch.no_grad():
        convolution.weight.copy_((torch.arange(125) * 7 % 11 - 5).reshape(5, 1, 5, 5) / 16)
        convolution.bias.copy_(torch.arange(5) / 8)
    return ImageEmbedding(convolution, size=IMAGE_SIZE, channels=1)


def classifiers() -> Iterator[tuple[str, FewShotClassifier, Any]]:
    """Names, fitted classifiers and queries for them."""
    for shape in SHAPES:
        X, y, queries = examples(shape)
        for learner in LEARNERS:
            yield f"{shape}-{learner}", FewShotClassifier(learner=learner).fit(X, y), queries
        yield f"{shape}-observed", FewShotClassifier(lam=0.5, balance=False).fit(X, y), queries
        kept = np.arange(len(X)) % 4 != 1
        updated = FewShotClassifier(lam=0.7, tune_limit=0).fit(X[kept], y[kept])
        yield f"{shape}-updated", updated.partial_fit(X[~kept], y[~kept]).forget(index=[0, 5]), queries
    labels = np.arange(9) % 3
    yield "own", FewShotClassifier(own_network(), cache=False).fit(images(9), labels), images(4, 9)


def results(clf: FewShotClassifier, queries: Any) -> dict[str, Any]:
    """All numbers that a classifier gives."""
    estimate = clf.score_estimate_
    explained = clf.explain(queries, k=3)
    return {
        "labels": clf.labels_.tolist(),
        "predictions": clf.predict(queries).tolist(),
        "rejections": clf.predict(queries, unknown="reject").tolist(),
        "scores": clf.decision_function(queries).tolist(),
        "probabilities": clf.predict_proba(queries).tolist(),
        "unknown_scores": clf.unknown_score(queries).tolist(),
        "unknown_threshold": clf.unknown_threshold(),
        "lam": clf.lam_,
        "scale": clf.scale_,
        "estimate": [estimate.accuracy, estimate.low, estimate.high, estimate.examples, estimate.exact],
        "leave_one_out": clf._state.held_out_scores.tolist(),
        "leave_one_out_unknown_scores": clf._state.held_out_unknown_scores.tolist(),
        "suspects": [[each.index, each.looks_like, each.probability] for each in explained.suspects],
        "neighbours": [[[each.index, each.similarity] for each in row] for row in explained.neighbours],
        "suggested": clf.suggest(queries, 3),
    }


def record(folder: Path) -> None:
    """Record the numbers again, of fresh fits and of the old files as they are, after a deliberate change of them."""
    fresh = {name: results(clf, queries) for name, clf, queries in classifiers()}
    loaded = {name: results(load(folder, name), queries) for name, queries in stored()}
    (folder / "results.json").write_text(json.dumps({"fresh": fresh, "loaded": loaded}))


def stored() -> Iterator[tuple[str, Any]]:
    """The names of the files of format 1, and queries for each."""
    for name, _, queries in classifiers():
        yield name, queries
    yield "own-no-thumbnails", images(4, 9)
    yield "run", images(4, 9)


def load(folder: Path, name: str) -> FewShotClassifier:
    """The classifier of a file of format 1."""
    if name.startswith("own"):
        return FewShotClassifier.load(folder / f"{name}.handful", embedding=own_network(), cache=False)
    if name != "run":
        return FewShotClassifier.load(folder / f"{name}.handful")
    with TemporaryDirectory() as place:
        path = Path(place) / "run.handful"
        path.write_bytes(gzip.decompress((folder / "run.handful.gz").read_bytes()))
        return FewShotClassifier.load(path, cache=False)


def write(folder: Path) -> None:
    """Write one file per kind of classifier, and one around an embedding that handful trained."""
    for name, clf, _ in classifiers():
        clf.save(folder / f"{name}.handful", thumbnails=True)
        if name == "own":
            clf.save(folder / "own-no-thumbnails.handful", thumbnails=False)
    _of_a_run(folder).save(folder / "run.handful", thumbnails=False)
    (folder / "run.handful.gz").write_bytes(gzip.compress((folder / "run.handful").read_bytes(), mtime=0))
    (folder / "run.handful").unlink()


def _of_a_run(folder: Path) -> FewShotClassifier:
    from handful.meta.config import Recipe
    from handful.meta.run import build

    recipe = Recipe(width="32C")
    model = build(recipe, (1, IMAGE_SIZE, IMAGE_SIZE))
    # a few digits only, so that the file compresses well
    tensors = {f"model.{name}": (value * 64).round() / 64 for name, value in model.state_dict().items()}
    facts = {"training": {"episode": 0}, "recipe": recipe.as_json(), "image_shape": [1, IMAGE_SIZE, IMAGE_SIZE]}
    run = folder / "run.safetensors"
    write_checkpoint(run, tensors, facts)
    clf = FewShotClassifier(run, cache=False).fit(images(9), np.arange(9) % 3)
    run.unlink()
    return clf


if __name__ == "__main__":
    {"write": write, "record": record}[sys.argv[1]](Path(sys.argv[2]))
