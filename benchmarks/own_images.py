"""FewShotClassifier on 200 real tasks, beside scikit-learn on the same features.

    python -m benchmarks.own_images            # needs the data sets cifar-fs and omniglot, and handful[images]

writes results/own-images.json, .md and .png. A task has 5 to 20 classes with 1 to 10 images each, classes and numbers
drawn at random; queries are as many for each class. Embeddings are cached, so a second run takes a few minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression, RidgeClassifier, RidgeClassifierCV
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestCentroid
from tqdm import tqdm

from benchmarks.own_images_report import FALSE_REJECTION, OURS, plot, report, summary
from handful import FewShotClassifier, data
from handful._io import data_root, write_atomically
from handful.classifier.embedder import Embedder, named_embedder
from handful.classifier.features import embed
from handful.classifier.heads import ridge_map
from handful.classifier.inputs import Labels, Matrix, pictures
from handful.data.table import ClassDataset

IMAGES_A_CLASS = 60
FEWEST_CLASSES = 20
QUERIES = {"cifar-fs": 50, "omniglot": 10}
Features = list[Matrix]
"""For each class, the features (n, e) of its images."""


@dataclass(frozen=True)
class Task:
    """Labelled examples, labelled queries, and queries of classes that are not among them."""

    examples: Matrix
    labels: Labels
    queries: Matrix
    truth: Labels
    strangers: Matrix
    shots: tuple[int, ...]


def peers() -> dict[str, Callable[[], Any]]:
    """What is compared, each made afresh for a task; the first is ours as it comes."""
    return {
        OURS: FewShotClassifier,
        "FewShotClassifier(balance=False)": lambda: FewShotClassifier(balance=False),
        "FewShotClassifier(learner='softmax')": lambda: FewShotClassifier(learner="softmax"),
        "FewShotClassifier(learner='prototypes')": lambda: FewShotClassifier(learner="prototypes"),
        "RidgeClassifier": RidgeClassifier,
        "RidgeClassifier, balanced": lambda: RidgeClassifier(class_weight="balanced"),
        "RidgeClassifierCV, balanced": lambda: RidgeClassifierCV(np.logspace(-3, 2, 11), class_weight="balanced"),
        "LogisticRegression": lambda: LogisticRegression(max_iter=1000),
        "LogisticRegression, balanced": lambda: LogisticRegression(max_iter=1000, class_weight="balanced"),
        "LogisticRegression(C=100), balanced": lambda: LogisticRegression(
            C=100, max_iter=1000, class_weight="balanced"
        ),
        "NearestCentroid": NearestCentroid,
    }


def features_of(dataset: ClassDataset, embedder: Embedder, cache: Path) -> Features:
    """Features of some images of each class, evenly spread, by way of the same cache as the classifier's."""
    features = []
    for start, count in zip(dataset.starts.tolist(), dataset.counts.tolist(), strict=True):
        rows = start + torch.linspace(0, count - 1, min(count, IMAGES_A_CLASS)).round().long()
        images = dataset.gather(rows).permute(0, 2, 3, 1).numpy()
        features.append(embed(pictures(list(images.squeeze(-1) if images.shape[-1] == 1 else images)), embedder, cache))
    return [each.features for each in features]


def tasks(families: list[Features], count: int, query: int, seed: int) -> Iterator[Task]:
    """Random tasks, the classes of each from one family (an alphabet, say), strangers included."""
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        features = families[int(rng.integers(len(families)))]
        way = int(rng.integers(5, min(20, len(features)) + 1))
        order = rng.permutation(len(features))
        shots = tuple(int(shot) for shot in rng.integers(1, 11, way))
        picked = [features[c][rng.permutation(len(features[c]))] for c in order[:way]]
        strangers = [features[c][rng.permutation(len(features[c]))[:query]] for c in order[way : 2 * way]]
        yield Task(
            np.concatenate([images[:shot] for images, shot in zip(picked, shots, strict=True)]),
            np.arange(way).repeat(shots),
            np.concatenate([images[shot : shot + query] for images, shot in zip(picked, shots, strict=True)]),
            np.arange(way).repeat(query),
            np.concatenate(strangers) if strangers else np.zeros((0, features[0].shape[1])),
            shots,
        )


def families_of(dataset: ClassDataset, features: Features, fewest: int = FEWEST_CLASSES) -> list[Features]:
    """Classes by family, without turned characters, and without families that have too few."""
    groups = dataset.groups or ("",) * len(features)
    turned = re.compile(r"/rot(090|180|270)$")
    upright = [i for i, name in enumerate(dataset.classes) if not turned.search(name)]
    families = [[features[i] for i in upright if groups[i] == group] for group in dict.fromkeys(groups)]
    return [family for family in families if len(family) >= fewest]


def expected_calibration_error(probabilities: Matrix, labels: Labels, bins: int = 15) -> float:
    """The mean gap between confidence and accuracy over bins of confidence (Guo et al. 2017, eq. 3)."""
    confidence, right = probabilities.max(-1), probabilities.argmax(-1) == labels
    bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = np.bincount(bin_of, weights=confidence - right, minlength=bins)
    return float(np.abs(gaps).sum()) / len(labels)


def matched_accuracy(task: Task, right: NDArray[np.bool_]) -> tuple[float, int]:
    """What leave-one-out estimates: the accuracy in the examples' own mix of classes, without those that stand alone.

    Queries are as many for each class, so classes are weighted; with it comes the number of images that would tell
    the accuracy as precisely without weights.
    """
    mix = np.where(np.array(task.shots) > 1, task.shots, 0)
    if not mix.any():
        return math.nan, 1
    shares = mix / mix.sum()
    by_class = np.array([right[task.truth == c].mean() for c in range(len(shares))])
    # rounded, so that an accuracy of 1 is not beyond an interval that ends there
    return round(float(shares @ by_class), 9), round(len(right) / len(shares) / float(shares @ shares))


def measure(task: Task) -> dict[str, Any]:
    """Everything about one task."""
    accuracies = {name: _accuracy(make(), task) for name, make in peers().items()}
    clf = FewShotClassifier().fit(task.examples, task.labels)
    probabilities, state = clf.predict_proba(task.queries), clf._state
    right = probabilities.argmax(1) == task.truth
    matched, images = matched_accuracy(task, right)
    estimate = clf.score_estimate_
    shown = estimate.interval(images)
    uncalibrated = softmax(ridge_map(state.factor, state.targets)(task.queries - state.origin), axis=-1)
    return {
        "way": len(task.shots),
        "examples": sum(task.shots),
        "accuracy": accuracies,
        "estimate": estimate.accuracy,
        "low": estimate.low,
        "high": estimate.high,
        "shown_low": shown[0],
        "shown_high": shown[1],
        "matched_accuracy": matched,
        "matched_images": images,
        "lam": clf.lam_,
        "scale": clf.scale_,
        "confidences": probabilities.max(1).round(4).tolist(),
        "right": right.astype(int).tolist(),
        "ece": expected_calibration_error(probabilities, task.truth),
        "confidences_before": uncalibrated.max(1).round(4).tolist(),
        "right_before": (uncalibrated.argmax(1) == task.truth).astype(int).tolist(),
        "ece_before": expected_calibration_error(uncalibrated, task.truth),
        **_unknown(clf, task),
    }


def over_tasks(
    function: Callable[[Task], Any], drawn: Iterator[Task], count: int, workers: int, name: str
) -> list[Any]:
    """The function's value for each task, in order, from so many processes; the values do not depend on the number."""
    if workers == 1:
        return [function(task) for task in tqdm(drawn, total=count, desc=name)]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return list(tqdm(pool.map(function, drawn), total=count, desc=name))


def _accuracy(model: Any, task: Task) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NearestCentroid warns of classes with one example
        return float((model.fit(task.examples, task.labels).predict(task.queries) == task.truth).mean())


def _unknown(clf: FewShotClassifier, task: Task) -> dict[str, float]:
    if not len(task.strangers):
        return {"auroc": math.nan, "false_rejection": math.nan, "detection": math.nan}
    known, strange = clf.unknown_score(task.queries), clf.unknown_score(task.strangers)
    threshold = clf.unknown_threshold(FALSE_REJECTION)
    truth = np.repeat([0, 1], [len(known), len(strange)])
    return {
        "auroc": float(roc_auc_score(truth, np.concatenate([known, strange]))),
        "false_rejection": float((known > threshold).mean()),
        "detection": float((strange > threshold).mean()),
    }


def _without_queries(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not isinstance(value, list)}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description="FewShotClassifier on real tasks, beside scikit-learn")
    parser.add_argument("--tasks", type=int, default=100, help="tasks of each of the two data sets")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    options = parser.parse_args()
    characters = named_embedder("characters")
    trained_on = characters.trained.recipe.data if characters.trained is not None else ""
    # where the characters' weights have seen Omniglot, only the classes that they have not seen count
    sources = {
        "cifar-fs": (data.load("cifar-fs").test, named_embedder("photographs")),
        "omniglot": (data.load("omniglot", split=None if trained_on == "omniglot" else "lake").test, characters),
    }
    about = {
        "cifar-fs": "test classes, EfficientNet-Lite0 from handful[images]",
        "omniglot": "test characters, each task from one alphabet, the weights that come with handful",
    }
    results = {}
    for number, (name, (dataset, embedder)) in enumerate(sources.items()):
        features = features_of(dataset, embedder, data_root())
        families = families_of(dataset, features)
        drawn = tasks(families, options.tasks, QUERIES[name], options.seed + number)
        results[name] = over_tasks(measure, drawn, options.tasks, options.workers, name)
    summaries = {name: summary(rows) for name, rows in results.items()}
    slim = {name: [_without_queries(row) for row in rows] for name, rows in results.items()}
    command = f"python -m benchmarks.own_images --tasks {options.tasks} --seed {options.seed}"
    facts = {"about": about, "command": command, "seed": options.seed, "summary": summaries, "tasks": slim}
    write_atomically(options.out / "own-images.json", json.dumps(facts, indent=1).encode())
    write_atomically(options.out / "own-images.md", report(summaries, about, command).encode())
    plot(results, options.out / "own-images.png")
    print(report(summaries, about, command))


if __name__ == "__main__":
    main()
