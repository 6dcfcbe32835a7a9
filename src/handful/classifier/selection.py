"""What leave-one-out decides: lambda, over a grid, and the scale that turns scores into calibrated probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from handful.classifier.cholesky import Matrix

GRID = tuple(10.0 ** (step / 2) for step in range(-8, 5))
"""Lambdas to choose from, as multiples of the features' size."""
USUAL_LAM, LAM_SPREAD = 10**-0.25, 0.25
"""The multiple before any evidence, and the standard deviation of its decimal logarithm; from validation classes, as
all constants of the classifier (`python -m benchmarks.estimator_constants`)."""


@dataclass(frozen=True)
class Spectrum:
    """Centred features as U with U U^T = K and U^T U diagonal: every lambda costs one product from here on."""

    U: Matrix
    values: Matrix
    squares: Matrix
    """U squared, entry by entry."""

    @staticmethod
    def of(features: Matrix) -> Spectrum:
        """Decompose the smaller of the two Gram matrices of the centred features."""
        centred = features - features.mean(0)
        n, e = centred.shape
        if n > e:
            values, vectors = np.linalg.eigh(centred.T @ centred)
            U = centred @ vectors
        else:
            values, vectors = np.linalg.eigh(centred @ centred.T)
            U = vectors * np.sqrt(np.maximum(values, 0))
        return Spectrum(U, np.maximum(values, 0), np.square(U))

    def leave_one_out(self, targets: Matrix, lam: float) -> Matrix:
        """What a fit on all other examples predicts for each, as `exact_ridge.leave_one_out` does from a factor."""
        centred = targets - targets.mean(0)
        shrunk = self.U.T @ centred / (self.values + lam)[:, None]
        residuals = centred - self.U @ shrunk
        slack = 1 - 1 / len(self.U) - self.squares @ (1 / (self.values + lam))
        held_out: Matrix = targets - residuals / slack[:, None]
        return held_out


def size_of(features: Matrix) -> float:
    """The mean squared distance of an example from the mean: the unit in which lambdas and variances are given."""
    return float(np.square(features - features.mean(0)).sum(1).mean()) or 1.0


def prior_cost(multiple: float, usual: float = USUAL_LAM, spread: float = LAM_SPREAD) -> float:
    """What a multiple of the features' size costs as lambda before any evidence, in nats."""
    return 0.5 * (math.log10(multiple / usual) / spread) ** 2


def choose_lam(features: Matrix, targets: Matrix, loss: Callable[[Matrix], float]) -> float:
    """The most probable lambda of the grid; `loss` gives the nats that leave-one-out predictions (n, way) cost.

    The prior is worth a few examples: it decides where nothing can be held out and gives way to evidence.
    """
    spectrum, size = Spectrum.of(features), size_of(features)

    def cost(multiple: float) -> float:
        return prior_cost(multiple) + loss(spectrum.leave_one_out(targets, multiple * size))

    chosen: float = min(GRID, key=cost)
    return chosen * size


Labels = NDArray[np.int64]

SCALE_SPREAD = 0.25
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
    scores: Matrix, labels: Labels, usual: float, spread: float = SCALE_SPREAD, precision: float = 1e-4
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
