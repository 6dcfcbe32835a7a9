"""The accuracy of a classifier estimated by leave-one-out, with its confidence interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, betaln

from handful.errors import InvalidOptionError

TAIL = 0.025
"""The probability beyond each end of a 95% interval."""
PRIOR = 0.5
"""Pseudo-counts of right and of wrong answers (Jeffreys' prior)."""


@dataclass(frozen=True)
class ScoreEstimate:
    """Accuracy estimated by leave-one-out, with its 95% interval (Jeffreys', see Brown, Cai and DasGupta 2001).

    An example that is the only one of its class cannot be held out: no class would be left to predict. Such examples
    are not counted in `examples`; if all are of that kind, the accuracy is not a number.
    """

    accuracy: float
    low: float
    """Lower end of the interval of the accuracy on any number of new images with the same mix of classes."""
    high: float
    """Upper end of that interval."""
    examples: int
    """Examples that were held out."""
    exact: bool = True
    """True if it equals refitting without each example, False if it is a one-step approximation."""

    def interval(self, new_images: int) -> tuple[float, float]:
        """The 95% interval of the accuracy on a test set of `new_images`: wider, because that set is a sample too.

        It is the beta-binomial prediction with the same prior. Compare the accuracy on your own test set with it.
        """
        if new_images < 1:
            raise InvalidOptionError(f"new_images must be at least 1, but got {new_images}.")
        if not self.examples:
            return math.nan, math.nan
        right = self.accuracy * self.examples
        a, b, k = right + PRIOR, self.examples - right + PRIOR, np.arange(new_images + 1)
        ways = -np.log(new_images + 1) - betaln(new_images - k + 1, k + 1)
        reached = np.cumsum(np.exp(ways + betaln(k + a, new_images - k + b) - betaln(a, b)))
        low, high = np.searchsorted(reached, [TAIL, 1 - TAIL])
        return float(low) / new_images, float(min(high, new_images)) / new_images

    def __float__(self) -> float:
        return self.accuracy

    def __str__(self) -> str:
        if not self.examples:
            return "accuracy unknown: no class has two images, so none can be held out"
        about = "" if self.exact else "about "
        return (
            f"{about}{100 * self.accuracy:.1f}% by leave-one-out of {self.examples} images "
            f"(95% interval {100 * self.low:.1f} to {100 * self.high:.1f}%)"
        )


def estimate_score(right: NDArray[np.bool_], exact: bool = True) -> ScoreEstimate:
    """The estimate from which held-out examples were classified correctly."""
    n, k = len(right), int(right.sum())
    if n == 0:
        return ScoreEstimate(math.nan, math.nan, math.nan, 0, exact)
    low = float(betaincinv(k + PRIOR, n - k + PRIOR, TAIL)) if k else 0.0
    high = float(betaincinv(k + PRIOR, n - k + PRIOR, 1 - TAIL)) if k < n else 1.0
    return ScoreEstimate(k / n, low, high, n, exact)
