"""How much a query looks like none of the classes, and from which score on to call it unknown."""

from __future__ import annotations

import math

import numpy as np
import scipy

from handful.classifier.inputs import Matrix

FAMILIARITY = 2.0
"""The weight of the best score relative to the variance."""


def foreignness(variances: Matrix, best: Matrix) -> Matrix:
    """The predictive variance of each query, in units of the features' size, less twice its best ridge score.

    It is -2 for a query that equals an example, and 1 or more for one that resembles none.
    """
    foreign: Matrix = variances - FAMILIARITY * best
    return foreign


def rejection_threshold(scores: Matrix, share: float) -> float:
    """What a new score of the same kind as these n exceeds with probability `share`.

    The k-th smallest of n is exceeded with probability 1 - k / (n + 1), whatever the distribution; between two scores
    it is interpolated. With n < 1 / share - 1 the threshold is above the largest score: it is the one for
    normally distributed scores (Student's t), if that is higher.
    """
    n = len(scores)
    if (n + 1) * (1 - share) <= n:
        return float(np.quantile(scores, 1 - share, method="weibull"))
    normal = scores.mean() + scipy.special.stdtrit(n - 1, 1 - share) * scores.std(ddof=1) * math.sqrt(1 + 1 / n)
    return float(max(scores.max(), normal))
