"""Choices by leave-one-out: lambda, the scale that turns scores into probabilities, and the novelty threshold."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
import torch

from handful.classifier.inputs import Labels, Matrix
from handful.solvers.factor import Spectrum

GRID = tuple(10.0 ** (step / 2) for step in range(-8, 5))
"""Lambdas to choose from, as multiples of the features' size."""
USUAL_LAM, LAM_SPREAD = 10**-0.25, 0.25
"""The prior's mode of that multiple, and the standard deviation of its decimal logarithm, from validation classes
of CIFAR-FS and Omniglot."""

SCALE_SPREAD = 0.3
"""The width of the prior of the scale's logarithm. Without a prior, a few held-out examples that are all
right would make every probability 1."""
RIDGE_SCALE = 4.0
"""The prior's scale of ridge scores before there is a fit, while lambda is chosen."""
MARGIN, MARGIN_SLOPE = 12.0, -0.2
"""The prior of the scale times the mean margin of the fit to the examples: MARGIN shots ** MARGIN_SLOPE.

The best scale varies by a factor of 3 over tasks of one shot; multiplied by the margin it varies by a fifth within most
sets, for drawn characters, tiny pictures and photographs, and for all learners."""
USUAL_VARIETY, LEAST_VARIETY = 0.55, 0.25
"""The usual mean squared distance of features of length 1 from their mean, and the smallest value that is used.

If all images look alike it is smaller, and scores are less reliable: MARGIN is multiplied by the square root of its
ratio to the usual value. These constants were chosen on development classes (`results/own-images.md`)."""
LOWEST, HIGHEST = math.log(1e-2), math.log(1e3)


def size_of(features: Matrix) -> float:
    """The mean squared distance of an example from the mean, which is the unit of lambdas and variances."""
    mean = features.mean(0)
    square = float(np.einsum("ij,ij->", features, features)) / len(features)
    size = size_from(mean, square)
    if size is None:
        size = float(np.square(features - mean).sum(1).mean())
    return size or 1.0


def size_from(mean: Matrix, square: float) -> float | None:
    """The size of features from their mean and mean square; None if the difference would lose precision."""
    size = square - float(mean @ mean)
    return None if size < 1e-3 * square else size


def prior_cost(multiple: float, usual: float = USUAL_LAM, spread: float = LAM_SPREAD) -> float:
    """The prior cost of a lambda, as a multiple of the features' size, in nats."""
    return 0.5 * (math.log10(multiple / usual) / spread) ** 2


def choose_lam(features: Matrix, targets: Matrix, loss: Callable[[Matrix], float]) -> float:
    """The most probable lambda of the grid; `loss` returns the loss of leave-one-out predictions (n, way) in nats.

    The prior is worth a few examples: it decides if nothing can be held out, and gives way to evidence.
    """
    spectrum, size, Y = Spectrum.of(torch.from_numpy(features)), size_of(features), torch.from_numpy(targets)

    def cost(multiple: float) -> float:
        return prior_cost(multiple) + loss(spectrum.leave_one_out(Y, multiple * size).numpy())

    chosen: float = min(GRID, key=cost)
    return chosen * size


def surprise(distance: Any) -> Any:
    """The cost of a distance from the usual value, in nats: about half its square near 0, only its logarithm far away.

    It is Student's t with 3 degrees of freedom, so that unusual features can outweigh the prior.
    """
    return 2 * np.log1p(np.square(distance) / 3)


def variety(squares: Matrix, size: float) -> float:
    """How much images differ: the size of features of length 1, and the usual value for all other features."""
    return max(size, LEAST_VARIETY) if np.allclose(squares, 1, atol=1e-3) else USUAL_VARIETY


def usual_scale(scores: Matrix, labels: Labels, variety: float = USUAL_VARIETY) -> float:
    """The prior's scale, from the scores of the fit for its own examples (n, way)."""
    own = scores[np.arange(len(labels)), labels]
    mean = float((own - scores.mean(1)).mean())
    margin = MARGIN * (len(labels) / scores.shape[1]) ** MARGIN_SLOPE * math.sqrt(variety / USUAL_VARIETY)
    return float(np.clip(margin / max(mean, 1e-9), math.exp(LOWEST), math.exp(HIGHEST)))


def probabilities(scores: Matrix, scale: float) -> Matrix:
    """The softmax of scale times scores (q, way)."""
    logits = scale * scores
    odds = np.exp(logits - logits.max(-1, keepdims=True))
    shares: Matrix = odds / odds.sum(-1, keepdims=True)
    return shares


@dataclass(frozen=True)
class Calibration:
    """The factor for scores before the softmax, and its loss: negative log likelihood and prior, in nats."""

    scale: float
    loss: float


def calibrate(
    scores: Matrix,
    labels: Labels,
    usual: float,
    spread: float = SCALE_SPREAD,
    precision: float = 1e-4,
    weights: Matrix | None = None,
) -> Calibration:
    """The most probable scale for held-out scores (n, way) and their true classes, under a prior at `usual`.

    Without held-out scores, the prior alone decides. `spread`, the prior's width, and `precision` refer to the scale's
    logarithm.
    """
    counted = np.ones(len(labels)) if weights is None else weights
    shifted = scores - scores.max(1, keepdims=True)  # once for all scales, so that exp cannot overflow
    of_labels = float(counted @ shifted[np.arange(len(labels)), labels])

    def loss(log_scale: float) -> float:
        scale = math.exp(log_scale)
        return (
            float(surprise((log_scale - math.log(usual)) / spread))
            + float(counted @ np.log(np.exp(scale * shifted).sum(1)))
            - scale * of_labels
        )

    found = scipy.optimize.minimize_scalar(
        loss, bounds=(LOWEST, HIGHEST), method="bounded", options={"xatol": precision}
    )
    return Calibration(math.exp(float(found.x)), float(found.fun))


# ------------------------------------------------------------------------------------------------------ unknown queries

FAMILIARITY = 2.0
"""The weight of the best score relative to the variance."""


def foreignness(variances: Matrix, best: Matrix) -> Matrix:
    """The predictive variance of each query, in units of the features' size, minus twice its best ridge score.

    It is -2 for a query that equals an example, and 1 or more for a query that resembles none.
    """
    foreign: Matrix = variances - FAMILIARITY * best
    return foreign


def rejection_threshold(scores: Matrix, share: float) -> float:
    """The threshold that a new score from the same distribution as these n exceeds with probability `share`.

    The k-th smallest of n is exceeded with probability 1 - k / (n + 1), for any distribution; between two scores it is
    interpolated. With n < 1 / share - 1 the threshold is above the largest score: it is the one for normally
    distributed scores (Student's t), if that is higher.
    """
    n = len(scores)
    if (n + 1) * (1 - share) <= n:
        return float(np.quantile(scores, 1 - share, method="weibull"))
    normal = scores.mean() + scipy.special.stdtrit(n - 1, 1 - share) * scores.std(ddof=1) * math.sqrt(1 + 1 / n)
    return float(max(scores.max(), normal))
