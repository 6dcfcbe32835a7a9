"""What holding out the examples says: accuracy, rates of classes, confusions, doubtful labels, and what is missing."""

from __future__ import annotations

import numpy as np
from scipy.special import betaincinv

from handful.classifier.answers import (
    PRIOR,
    TAIL,
    ClassEstimate,
    Doubtful,
    Estimate,
    Need,
    ScoreEstimate,
    estimate_score,
    plain,
)
from handful.classifier.examples import State
from handful.classifier.explain import confusion_matrix, confusions, suspects
from handful.classifier.inputs import Matrix

NEEDY = 5
"""Classes to name as most in need of images."""


def credit(state: State) -> Matrix:
    """How right each held-out example is predicted: 1, 0, or 1 / k if its class ties with k - 1 others."""
    held = state.held_out
    scores = state.held_out_scores[held]
    best = scores >= scores.max(1, keepdims=True)
    own = best[np.arange(len(held)), state.codes[held]]
    return np.where(own, 1 / best.sum(1), 0.0)


def score_estimate(state: State) -> ScoreEstimate:
    """The accuracy on new images."""
    return estimate_score(credit(state), state.head.exact)


def estimate(state: State) -> Estimate:
    """Everything at once."""
    classes = class_estimates(state)
    counts = tuple(tuple(int(count) for count in row) for row in confusion_matrix(state))
    doubtful = tuple(
        Doubtful(each.index, state.sources[each.index].digest, each.name, each.label, each.looks_like,
                 1 - each.probability)
        for each in suspects(state)
    )  # fmt: skip
    return Estimate(
        score_estimate(state), classes, counts, tuple(confusions(state)), doubtful, (), needs(classes), state.version
    )


def class_estimates(state: State) -> tuple[ClassEstimate, ...]:
    """How well each class is recognised."""
    right, held = credit(state), state.codes[state.held_out]
    found = []
    for number, label in enumerate(state.classes):
        k, n = float(right[held == number].sum()), int((held == number).sum())
        low, high = (float(betaincinv(k + PRIOR, n - k + PRIOR, tail)) for tail in (TAIL, 1 - TAIL))
        found.append(
            ClassEstimate(plain(label), int(state.counts[number]), n, k, low if n else 0.0, high if n else 1.0)
        )
    return tuple(found)


def needs(classes: tuple[ClassEstimate, ...]) -> tuple[Need, ...]:
    """The classes that more images would help most: untested ones first, then the worst recognised."""

    def reason(each: ClassEstimate) -> str:
        if not each.tested:
            return "only one image, so it cannot be tested"
        return f"{each.tested - each.right:g} of {each.tested} not recognised when held out"

    poor = [each for each in classes if not each.tested or each.right < each.tested]
    poor.sort(key=lambda each: (each.tested > 0, each.right / max(each.tested, 1), each.images))
    return tuple(Need(each.label, each.images, reason(each)) for each in poor[:NEEDY])
