"""FewShotClassifier on real tasks, compared with scikit-learn on the same features.

    python -m benchmarks.own_images PHOTOGRAPHS     # needs handful[images] and a folder of folders SET/CLASS/image.jpg

writes results/own-images.json and .md. Sets whose name begins with "omniglot" are drawings, with classes called
ALPHABET~CHARACTER; all others are photographs. Features are kept in PHOTOGRAPHS/SET.EMBEDDING.npz, so a second run is
quick. The constants of the classifier were chosen on sets whose name ends with "-dev", and with another seed.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestCentroid
from tqdm import tqdm

from benchmarks.own_images_report import FALSE_REJECTION, OURS, report
from handful import FewShotClassifier
from handful._io import write_atomically
from handful.classifier.estimate import label_doubts
from handful.classifier.inputs import Labels, Matrix

SHOTS = (1, 3, 5, 10)
QUERIES = 12
BINS = 15
WRONG = 0.05
"""Share of labels that are made wrong."""
LABELS_ADDED = 20
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
    """What is compared, made for each task; the first is ours as it comes."""
    return {
        OURS: FewShotClassifier,
        "FewShotClassifier(learner='softmax')": lambda: FewShotClassifier(learner="softmax"),
        "FewShotClassifier(learner='prototypes')": lambda: FewShotClassifier(learner="prototypes"),
        "RidgeClassifier, balanced": lambda: RidgeClassifier(class_weight="balanced"),
        "LogisticRegression, balanced": lambda: LogisticRegression(max_iter=300, class_weight="balanced"),
        "LogisticRegression(C=10), balanced": lambda: LogisticRegression(C=10, max_iter=300, class_weight="balanced"),
        "NearestCentroid": NearestCentroid,
    }


def families_of(folder: Path, name: str, embedding: str) -> list[Features]:
    """Features of a set by class, in families whose classes may meet in a task."""
    embedding = "characters" if name.startswith("omniglot") else embedding
    kept = folder / f"{name}.{embedding}.npz"
    if not kept.is_file():
        clf = FewShotClassifier(embedding).fit(folder / name)
        features = clf._state.features + clf._state.origin
        np.savez(kept, features=features.astype(np.float32), labels=clf._state.codes, classes=clf.classes_)
    stored = np.load(kept)
    features, labels = stored["features"].astype(np.float64), stored["labels"]
    families: dict[str, Features] = {}
    for number, label in enumerate(stored["classes"]):
        family = str(label).split("~")[0] if name.startswith("omniglot") else ""
        families.setdefault(family, []).append(features[labels == number])
    return [family for family in families.values() if len(family) >= 10]


def draw(families: list[Features], shot: int, seed: list[int]) -> Task:
    """A random task of 5 to 20 classes with `shot` images each, or with 1 to 10 if that is 0."""
    rng = np.random.default_rng(seed)
    features = families[int(rng.integers(len(families)))]
    way = int(rng.integers(5, min(20, max(5, len(features) // 2)) + 1))
    order = rng.permutation(len(features))
    shots = tuple(int(each) for each in (rng.integers(1, 11, way) if shot == 0 else [shot] * way))
    picked = [features[c][rng.permutation(len(features[c]))] for c in order[:way]]
    strangers = [features[c][rng.permutation(len(features[c]))[:QUERIES]] for c in order[way : 2 * way]]
    queries = [images[n : n + QUERIES] for images, n in zip(picked, shots, strict=True)]
    return Task(
        np.concatenate([images[:n] for images, n in zip(picked, shots, strict=True)]),
        np.arange(way).repeat(shots),
        np.concatenate(queries),
        np.arange(way).repeat([len(each) for each in queries]),
        np.concatenate(strangers),
        shots,
    )


def tasks(families: list[Features], start: int, stop: int, seed: int) -> Iterator[tuple[int, Task]]:
    """Tasks `start` to `stop` of every number of shots, and twice as many of unequal ones, called 0."""
    for shot in (*SHOTS, 0):
        for number in range(start, stop) if shot else range(2 * start, 2 * stop):
            yield shot, draw(families, shot, [seed, shot, number])


def measure(task: Task) -> dict[str, Any]:
    """Everything about one task."""
    clf = FewShotClassifier().fit(task.examples, task.labels)
    accuracies = {name: _accuracy(make(), task) for name, make in peers().items()}
    return {"accuracy": accuracies, **honesty(clf, task), **_unknown(clf, task), **_doubtful(task)}


def honesty(clf: FewShotClassifier, task: Task) -> dict[str, Any]:
    """What a classifier says of itself, beside the truth: cheap, so that many tasks can be measured."""
    probabilities, estimate = clf.predict_proba(task.queries), clf.score_estimate_
    right = probabilities.argmax(1) == task.truth
    low, high = estimate.interval(len(right))
    truth = round(float(np.mean([right[task.truth == c].mean() for c in range(len(task.shots))])), 9)
    found = {"estimate": estimate.accuracy, "width": estimate.high - estimate.low, "truth": truth}
    gaps = calibration_gaps(probabilities, right)
    return {**found, "held": bool(low <= truth <= high), "queries": len(right), "gaps": gaps}


def calibration_gaps(probabilities: Matrix, right: Any) -> list[float]:
    """By bin of confidence, the sum of confidence less accuracy (Guo et al. 2017, eq. 3, before the division)."""
    confidence = probabilities.max(1)
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return [float(gap) for gap in np.bincount(bins, weights=confidence - right, minlength=BINS)]


def _accuracy(model: Any, task: Task) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NearestCentroid warns of classes with one example
        return float((model.fit(task.examples, task.labels).predict(task.queries) == task.truth).mean())


def _unknown(clf: FewShotClassifier, task: Task) -> dict[str, Any]:
    both = np.concatenate([task.queries, task.strangers])
    strange = np.arange(len(both)) >= len(task.queries)
    nearest = -(both @ task.examples.T).max(1)  # features have length 1
    scores = {"ours": clf.unknown_score(both), "maximum": -clf.predict_proba(both).max(1), "nearest": nearest}
    found: dict[str, Any] = {"auroc": {name: float(roc_auc_score(strange, each)) for name, each in scores.items()}}
    if len(clf._state.held_out):
        rejected = scores["ours"] > clf.unknown_threshold(FALSE_REJECTION)
        found |= {"rejected": float(rejected[~strange].mean()), "detected": float(rejected[strange].mean())}
    return found


def _doubtful(task: Task) -> dict[str, Any]:
    """How many labels are doubted when all are right, and how many rightly when some are wrong."""
    if min(task.shots) == max(task.shots) < 3:
        return {}
    rng, way = np.random.default_rng(len(task.labels)), len(task.shots)
    wrong = rng.choice(len(task.labels), max(1, round(WRONG * len(task.labels))), replace=False)
    noisy = task.labels.copy()
    noisy[wrong] = (noisy[wrong] + rng.integers(1, way, len(wrong))) % way
    clean = FewShotClassifier().fit(task.examples, task.labels).estimate().doubtful
    clf = FewShotClassifier().fit(task.examples, noisy)
    found = clf.estimate().doubtful
    true = sum(each.index in wrong for each in found)
    ranked = zip(label_doubts(clf.state_).round(4).tolist(), np.isin(clf.state_.held_out, wrong).tolist(), strict=True)
    counts = {"clean": len(clean), "labels": len(noisy), "wrong": len(wrong), "flagged": len(found), "true": true}
    return {**counts, "doubts": [each for each in ranked if each[0] > 0.01]}


def suggestion_gain(families: list[Features], seed: list[int]) -> float:
    """What 20 suggested labels gain over 20 random ones in accuracy, from one image for each of ten classes."""
    task, rng = draw(families, 1, seed), np.random.default_rng(seed)
    pool = rng.permutation(len(task.queries))
    pool, rest = pool[: len(pool) // 2], pool[len(pool) // 2 :]
    clf = FewShotClassifier().fit(task.examples, task.labels)
    count = min(LABELS_ADDED, len(pool) // 2)

    def accuracy(chosen: Any) -> float:
        more = clf.snapshot().partial_fit(task.queries[chosen], task.truth[chosen])
        return more.score(task.queries[rest], task.truth[rest])

    return accuracy(pool[clf.suggest(task.queries[pool], count)]) - accuracy(rng.choice(pool, count, replace=False))


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description="FewShotClassifier on real tasks, compared with scikit-learn")
    parser.add_argument("photographs", type=Path, help="folder of folders SET/CLASS/image")
    parser.add_argument("--sets", nargs="+", help="sets to measure; all by default, but for those named -dev")
    parser.add_argument(
        "--tasks", type=int, default=10, help="tasks for each number of shots, twice as many uneven ones"
    )
    parser.add_argument(
        "--more", type=int, default=40, help="more tasks of each kind, for calibration and the estimate only"
    )
    parser.add_argument("--embedding", default="photographs-large", help="the classifier's default is the default")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--seed", type=int, default=100)
    options = parser.parse_args()
    kept = [each for each in options.photographs.iterdir() if each.is_dir() or each.suffix == ".npz"]
    found = sorted({each.name.split(".")[0] for each in kept})
    names = options.sets or [name for name in found if not name.endswith("-dev")]
    rows: dict[str, list[dict[str, Any]]] = {}
    gains: dict[str, list[float]] = {}
    for name in names:
        families = families_of(options.photographs, name, options.embedding)
        kinds, stop = len(SHOTS) + 2, options.tasks + options.more
        drawn = tqdm(tasks(families, 0, options.tasks, options.seed), total=options.tasks * kinds, desc=name)
        rows[name] = [{"shot": shot, **measure(task)} for shot, task in drawn]
        drawn = tqdm(tasks(families, options.tasks, stop, options.seed), total=options.more * kinds, desc=name)
        rows[name] += [
            {"shot": shot, **honesty(FewShotClassifier().fit(task.examples, task.labels), task)} for shot, task in drawn
        ]
        gains[name] = [suggestion_gain(families, [options.seed, 77, number]) for number in range(2 * stop)]
        given = f"--tasks {options.tasks} --more {options.more} --seed {options.seed}"
        command = f"python -m benchmarks.own_images PHOTOGRAPHS {given}"
        facts = {"command": command, "tasks": rows, "suggestion_gains": gains}
        write_atomically(options.out / "own-images.json", json.dumps(facts).encode())
        write_atomically(options.out / "own-images.md", report(rows, gains, command).encode())


if __name__ == "__main__":
    main()
