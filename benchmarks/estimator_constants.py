"""The constants of FewShotClassifier, each beside other values, on validation classes only.

    python -m benchmarks.estimator_constants   # needs the data sets cifar-fs and omniglot, and handful[images]

writes results/estimator-constants.json and .md. One constant is varied at a time while the others stay as shipped. A
shipped value that another one beats by more than the paired 95% interval should give way to it.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks.estimator_constants_report import Constant, Measured, report, verdict
from benchmarks.own_images import QUERIES, Task, families_of, features_of, matched_accuracy, over_tasks, tasks
from benchmarks.own_images_report import FALSE_REJECTION
from handful import FewShotClassifier, data
from handful._io import data_root, write_atomically
from handful.classifier import selection
from handful.classifier.cholesky import Matrix
from handful.classifier.embedder import named_embedder
from handful.classifier.exact_ridge import factorise
from handful.classifier.examples import FAMILIARITY
from handful.classifier.heads import (
    MAKERS,
    LogisticHead,
    PrototypeHead,
    RidgeHead,
    SoftmaxHead,
    balanced,
    held_out_shares,
)
from handful.classifier.selection import GRID, Labels, Spectrum, calibrate, log_softmax, prior_cost, size_of

SEED = 4000
"""Far from the seeds of benchmarks.own_images, though the classes differ anyway."""
FEWEST_CLASSES = 12
"""CIFAR-FS has 16 validation classes."""
EVEN = 0.5
"""The exponent of the shares in `scores.balanced`."""


def _around(centre: float) -> tuple[float, ...]:
    return tuple(centre * factor for factor in (0.5, 0.7, 1.0, 1.4, 2.0))


REJECTED_PLAIN = f"known queries rejected at {FALSE_REJECTION:.0%}, plain quantile"
REJECTED = f"known queries rejected at {FALSE_REJECTION:.0%}, as shipped"
HOLDS_PLAIN = "accuracy of the queries within the interval of the accuracy"
HOLDS = "accuracy of the queries within the interval for so many images"
SHARES = Constant("exponent of the class shares", (0.0, 0.25, 0.5, 0.75, 1.0), EVEN, "accuracy")
LAM = Constant("lambda, centre", tuple(10 ** (step / 4) for step in range(-5, 4)), selection.USUAL_LAM, "accuracy")
LAM_SPREAD = Constant("lambda, spread in decades", (0.125, 0.25, 0.5, 1.0, 2.0), selection.LAM_SPREAD, "accuracy")
SCALE_SPREAD = Constant("scale, spread in nats", (0.125, 0.25, 0.5, 1.0, 2.0), selection.SCALE_SPREAD, "log loss")
SCALES = {
    "ridge": Constant("scale, ridge", _around(RidgeHead.usual_scale), RidgeHead.usual_scale, "log loss"),
    "prototypes": Constant(
        "scale, prototypes", _around(PrototypeHead.usual_scale), PrototypeHead.usual_scale, "log loss"
    ),
    "logistic": Constant("scale, logistic", _around(LogisticHead.usual_scale), LogisticHead.usual_scale, "log loss"),
    "softmax": Constant("scale, softmax", _around(SoftmaxHead.usual_scale), SoftmaxHead.usual_scale, "log loss"),
}
UNKNOWN = Constant("unknown: best score against variance", (0.0, 0.5, 1.0, 2.0, 4.0, 8.0), FAMILIARITY, "AUROC")
CONSTANTS = (SHARES, LAM, LAM_SPREAD, SCALES["ridge"], SCALE_SPREAD, UNKNOWN, *list(SCALES.values())[1:])


@dataclass(frozen=True)
class Tried:
    """One lambda: scores of the held-out examples (h, way) and of the queries (q, way), and the lambda's prior cost."""

    multiple: float
    held: Matrix
    queries: Matrix


def tried(task: Task, exponent: float) -> list[Tried]:
    """Ridge regression at every lambda of the grid; with the shipped exponent, scores as in the classifier."""
    centred, targets = task.examples - task.examples.mean(0), np.eye(len(task.shots))[task.labels]
    spectrum, size, held = Spectrum.of(centred), size_of(centred), _held(task)
    shares, held_shares = targets.mean(0), held_out_shares(targets)
    queries = task.queries - task.examples.mean(0)

    def scored(predictions: Matrix, shares: Matrix) -> Matrix:
        even: Matrix = balanced(predictions, shares) * (len(task.shots) * shares) ** (EVEN - exponent)
        return even

    return [
        Tried(
            multiple,
            scored(spectrum.leave_one_out(targets, multiple * size)[held], held_shares[held]),
            scored(factorise(centred, multiple * size).solve(targets)(queries), shares),
        )
        for multiple in GRID
    ]


def _held(task: Task) -> Labels:
    return np.flatnonzero(np.array(task.shots)[task.labels] > 1)


def losses(options: list[Tried], labels: Labels) -> dict[float, float]:
    """What leave-one-out costs at each lambda, the scale chosen as the classifier does."""
    usual = RidgeHead.usual_scale
    return {each.multiple: calibrate(each.held, labels, usual, precision=0.05).loss for each in options}


def ridge(task: Task) -> Measured:
    """Everything about ridge regression on one task."""
    labels = task.labels[_held(task)]
    by_exponent = {exponent: tried(task, exponent) for exponent in SHARES.values}
    cost = {exponent: losses(options, labels) for exponent, options in by_exponent.items()}

    def chosen(
        exponent: float = SHARES.shipped, usual: float = LAM.shipped, spread: float = LAM_SPREAD.shipped
    ) -> Tried:
        return min(
            by_exponent[exponent],
            key=lambda each: cost[exponent][each.multiple] + prior_cost(each.multiple, usual, spread),
        )

    def accuracy(option: Tried) -> float:
        return float((option.queries.argmax(1) == task.truth).mean())

    ours = chosen()

    def loss(usual: float = RidgeHead.usual_scale, spread: float = selection.SCALE_SPREAD) -> float:
        return _log_loss(calibrate(ours.held, labels, usual, spread).scale * ours.queries, task.truth)

    return {
        SHARES.name: {value: accuracy(chosen(exponent=value)) for value in SHARES.values},
        LAM.name: {value: accuracy(chosen(usual=value)) for value in LAM.values},
        LAM_SPREAD.name: {value: accuracy(chosen(spread=value)) for value in LAM_SPREAD.values},
        SCALES["ridge"].name: {value: loss(usual=value) for value in SCALES["ridge"].values},
        SCALE_SPREAD.name: {value: loss(spread=value) for value in SCALE_SPREAD.values},
    }


def learner(name: str, task: Task) -> Measured:
    """The usual scale of another learner, which chooses its lambda by the same likelihood."""
    state = FewShotClassifier(learner=name).fit(task.examples, task.labels)._state
    size, held = size_of(state.factor.features), state.held_out
    states = [replace(state, head_lam=multiple * size) for multiple in MAKERS[name].grid] or [state]
    scores = [(each.held_out_scores[held], each.scores(task.queries)) for each in states]

    def loss(usual: float) -> float:
        found = [calibrate(leave_one_out, state.codes[held], usual) for leave_one_out, _ in scores]
        best = min(range(len(found)), key=lambda i: found[i].loss)
        return _log_loss(found[best].scale * scores[best][1], task.truth)

    return {SCALES[name].name: {value: loss(value) for value in SCALES[name].values}}


def unknown(task: Task) -> Measured:
    """How well strangers are told by the variance less a multiple of the best score."""
    if not len(task.strangers):
        return {}
    state = FewShotClassifier().fit(task.examples, task.labels)._state
    both = np.concatenate([task.queries, task.strangers]) - state.origin
    variances = state.factor.variances(both) / size_of(state.factor.features)
    scores = balanced(state.factor.solve(state.targets)(both), state.counts / state.counts.sum())
    best, strange = scores.max(1) / math.sqrt(len(state.classes)), np.arange(len(both)) >= len(task.queries)
    return {UNKNOWN.name: {value: float(roc_auc_score(strange, variances - value * best)) for value in UNKNOWN.values}}


def _log_loss(logits: Matrix, truth: Labels) -> float:
    return -float(log_softmax(logits)[np.arange(len(truth)), truth].mean())


def rules(task: Task) -> dict[str, float]:
    """The rules of threshold and interval beside the plain ones: known queries rejected, and whether intervals hold."""
    clf = FewShotClassifier().fit(task.examples, task.labels)
    held, known = clf._state.held_out_unknown_scores, clf.unknown_score(task.queries)
    estimate, (truth, images) = clf.score_estimate_, matched_accuracy(task, clf.predict(task.queries) == task.truth)
    low, high = estimate.interval(images)
    return {
        REJECTED_PLAIN: float((known > np.quantile(held, 1 - FALSE_REJECTION)).mean()),
        REJECTED: float((known > clf.unknown_threshold(FALSE_REJECTION)).mean()),
        HOLDS_PLAIN: float(estimate.low <= truth <= estimate.high),
        HOLDS: float(low <= truth <= high),
    }


def measure(task: Task) -> Measured:
    """All constants on one task."""
    found = ridge(task) | unknown(task)
    for name in ("prototypes", "logistic", "softmax"):
        found |= learner(name, task)
    return found


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description="The constants of FewShotClassifier on validation classes")
    parser.add_argument("--tasks", type=int, default=100, help="tasks of each of the two data sets")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    options = parser.parse_args()
    rows: dict[str, list[Measured]] = {}
    checks: dict[str, list[dict[str, float]]] = {}
    for name, embedding in (("cifar-fs", "photographs"), ("omniglot", "characters")):
        dataset = data.load(name).val
        families = families_of(dataset, features_of(dataset, named_embedder(embedding), data_root()), FEWEST_CLASSES)
        drawn = list(tasks(families, options.tasks, QUERIES[name], options.seed))
        rows[name] = over_tasks(measure, iter(drawn), options.tasks, options.workers, name)
        checks[name] = [rules(task) for task in drawn]
    facts = {
        "command": f"python -m benchmarks.estimator_constants --tasks {options.tasks} --seed {options.seed}",
        "constants": [verdict(constant, rows) for constant in CONSTANTS],
        "rules": {
            name: {rule: float(np.mean([row[rule] for row in found])) for rule in found[0]}
            for name, found in checks.items()
        },
    }
    write_atomically(options.out / "estimator-constants.json", json.dumps(facts, indent=1).encode())
    write_atomically(options.out / "estimator-constants.md", report(facts).encode())
    print(report(facts))


if __name__ == "__main__":
    main()
