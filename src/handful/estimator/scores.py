"""From what ridge regression predicts for one-hot targets to scores of classes with unequal numbers of examples."""

from __future__ import annotations

import numpy as np

from handful.estimator.cholesky import Matrix


def balanced(predictions: Matrix, shares: Matrix) -> Matrix:
    """Scores by which a class with few examples is not disadvantaged: (f - share) / sqrt(share).

    It is ridge regression on target columns that have been centred and brought to equal size, which, with a free bias,
    can be done after the fact: so exact updates and exact leave-one-out are kept. With equal shares the order of
    the classes is that of the predictions. A class without examples (share 0) scores -inf.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(shares > 0, (predictions - shares) / np.sqrt(shares), -np.inf)


def observed(predictions: Matrix, shares: Matrix) -> Matrix:
    """Scores that leave the shares of the classes as they are; a class without examples scores -inf."""
    way = predictions.shape[-1]
    return np.where(shares > 0, np.sqrt(way) * predictions, -np.inf)


def held_out_shares(targets: Matrix) -> Matrix:
    """For each example, the shares of the classes among all other examples (n, way)."""
    shares: Matrix = (targets.sum(0) - targets) / max(len(targets) - 1, 1)
    return shares
