"""What leave-one-out decides: lambda, over a grid, and the scale that turns scores into calibrated probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize_scalar

from handful.classifier.inputs import Labels, Matrix
from handful.solvers.factor import Spectrum

GRID = tuple(10.0 ** (step / 2) for step in range(-8, 5))
"""Lambdas to choose from, as multiples of the features' size."""
USUAL_LAM, LAM_SPREAD = 10**-0.25, 0.25
"""The multiple before any evidence, and the standard deviation of its decimal logarithm; from validation classes, as
all constants of the classifier (`python -m benchmarks.estimator_constants`)."""

SCALE_SPREAD = 0.25
"""The standard deviation of the scale's logarithm before any evidence. It keeps a few held-out examples that are all
right from making every probability 1."""
LOWEST, HIGHEST = math.log(1e-2), math.log(1e3)


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
    spectrum, size, Y = Spectrum.of(torch.from_numpy(features)), size_of(features), torch.from_numpy(targets)

    def cost(multiple: float) -> float:
        return prior_cost(multiple) + loss(spectrum.leave_one_out(Y, multiple * size).numpy())

    chosen: float = min(GRID, key=cost)
    return chosen * size


@dataclass(frozen=True)
class Calibration:
    """The scale to multiply scores with before softmax, and its loss: negative log likelihood and prior, in nats."""

    scale: float
    loss: float


def calibrate(
    scores: Matrix, labels: Labels, usual: float, spread: float = SCALE_SPREAD, precision: float = 1e-4
) -> Calibration:
    """The most probable scale for held-out scores (n, way) and their true classes, under a log-normal prior at `usual`.

    With no held-out score, the prior alone decides. `spread`, the prior's standard deviation, and `precision` are
    those of the scale's logarithm.
    """
    shifted = scores - scores.max(1, keepdims=True)  # once for all scales, so that exp cannot overflow
    of_labels = float(shifted[np.arange(len(labels)), labels].sum())

    def loss(log_scale: float) -> float:
        prior = 0.5 * ((log_scale - math.log(usual)) / spread) ** 2
        scale = math.exp(log_scale)
        return prior + float(np.log(np.exp(scale * shifted).sum(1)).sum()) - scale * of_labels

    found = minimize_scalar(loss, bounds=(LOWEST, HIGHEST), method="bounded", options={"xatol": precision})
    return Calibration(math.exp(float(found.x)), float(found.fun))
