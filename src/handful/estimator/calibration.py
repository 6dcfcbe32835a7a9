"""Probabilities that mean something: the scale of the scores by leave-one-out likelihood, and how well it fits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from handful.estimator.cholesky import Matrix

Labels = NDArray[np.int64]

SPREAD = 0.25
"""The standard deviation of the scale's logarithm before any evidence. With that, a few held-out examples that are all
right do not make every probability 1."""
LOWEST, HIGHEST = math.log(1e-2), math.log(1e3)


@dataclass(frozen=True)
class Calibration:
    """The scale to multiply scores with before softmax, and its loss: negative log likelihood and prior, in nats."""

    scale: float
    loss: float


def log_softmax(logits: Matrix) -> Matrix:
    """Logarithms of probabilities, along the last axis; a score of -inf is a probability of 0."""
    shifted = logits - logits.max(-1, keepdims=True)
    logs: Matrix = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return logs


def softmax(logits: Matrix) -> Matrix:
    """Probabilities along the last axis."""
    probabilities: Matrix = np.exp(log_softmax(logits))
    return probabilities


def calibrate(
    scores: Matrix, labels: Labels, usual: float, spread: float = SPREAD, precision: float = 1e-4
) -> Calibration:
    """The most probable scale for held-out scores (n, way) and their true classes, under a log-normal prior at `usual`.

    With no held-out score at all the prior alone speaks. `spread`, the prior's standard deviation, and `precision` are
    those of the scale's logarithm.
    """
    rows = np.arange(len(labels))

    def loss(log_scale: float) -> float:
        prior = 0.5 * ((log_scale - math.log(usual)) / spread) ** 2
        if not len(labels):
            return prior
        return prior - float(log_softmax(math.exp(log_scale) * scores)[rows, labels].sum())

    found = minimize_scalar(loss, bounds=(LOWEST, HIGHEST), method="bounded", options={"xatol": precision})
    return Calibration(math.exp(float(found.x)), float(found.fun))


def expected_calibration_error(probabilities: Matrix, labels: Labels, bins: int = 15) -> float:
    """The mean gap between confidence and accuracy over bins of confidence (Guo et al. 2017, eq. 3)."""
    confidence, right = probabilities.max(-1), probabilities.argmax(-1) == labels
    bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = np.bincount(bin_of, weights=confidence - right, minlength=bins)
    return float(np.abs(gaps).sum()) / len(labels)
