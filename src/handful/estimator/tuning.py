"""The choice of lambda by exact leave-one-out over a grid, from one eigendecomposition."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from handful.estimator.cholesky import Matrix

GRID = tuple(10.0 ** (step / 2) for step in range(-8, 5))
"""Lambdas to choose from, as multiples of the features' size."""
USUAL, SPREAD = 10**-0.25, 0.25
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


def prior_cost(multiple: float, usual: float = USUAL, spread: float = SPREAD) -> float:
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
