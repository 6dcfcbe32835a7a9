"""From which unknown score on a query is called unknown, so that it is a mistake at a chosen rate."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import stdtrit

from handful.classifier.cholesky import Matrix


def rejection_threshold(scores: Matrix, share: float) -> float:
    """What a new score of the same kind as these n exceeds with probability `share`.

    The k-th smallest of n is exceeded with probability 1 - k / (n + 1), whatever the scores' distribution; between two
    of them it is interpolated. A threshold above the greatest, which n < 1 / share - 1 asks for, is that for normally
    distributed scores (Student's t), if that is higher.
    """
    n = len(scores)
    if (n + 1) * (1 - share) <= n:
        return float(np.quantile(scores, 1 - share, method="weibull"))
    normal = scores.mean() + stdtrit(n - 1, 1 - share) * scores.std(ddof=1) * math.sqrt(1 + 1 / n)
    return float(max(scores.max(), normal))
