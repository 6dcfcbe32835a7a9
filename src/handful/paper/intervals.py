"""Means with intervals, and what they allow to say about a difference.

The usual interval over many episodes, 1.96 standard errors, is 'closed': episodes share images, so it narrows with
their number and says only how well the mean over all episodes of these very images is known. The 'open' interval is
taken over episodes that share no image, so that it says what other images of the same classes might have given
(Lafargue et al. 2024, "Oops, I sampled it again: reinterpreting confidence intervals in few-shot learning"). Neither
speaks of other classes or of another training run; several training seeds do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from scipy import stats
from torch import Tensor

from handful.paper.published import Figure

Verdict = Literal["agrees", "above", "below"]


@dataclass(frozen=True)
class Interval:
    """A mean, half its 95% interval, and the number of values behind it."""

    mean: float
    half: float
    n: int

    @property
    def excludes_zero(self) -> bool:
        """Whether zero lies outside."""
        return abs(self.mean) > self.half

    def __str__(self) -> str:
        return f"{100 * self.mean:.2f} ± {100 * self.half:.2f}"


def closed_interval(values: Tensor) -> Interval:
    """1.96 standard errors over episodes that may share images, as the paper has it."""
    return Interval(float(values.double().mean()), _half(values, 1.96), len(values))


def open_interval(values: Tensor) -> Interval:
    """Student's interval over values that share nothing: episodes without common images, or training seeds."""
    quantile = float(stats.t.ppf(0.975, len(values) - 1)) if len(values) > 1 else math.nan
    return Interval(float(values.double().mean()), _half(values, quantile), len(values))


def _half(values: Tensor, quantile: float) -> float:
    if len(values) < 2:
        return math.nan
    return quantile * float(values.double().std()) / math.sqrt(len(values))


@dataclass(frozen=True)
class Comparison:
    """Ours less the published number, in percent points, with half the interval of the difference."""

    difference: float
    half: float
    """By the episodes, the training seeds where there are several, and the paper's own interval and rounding."""
    open: float
    """By the open interval in place of the closed one: a second opinion that the verdict does not use."""

    @property
    def verdict(self) -> Verdict:
        """Whether zero lies within the difference's interval, or on which side ours lies."""
        if abs(self.difference) <= self.half:
            return "agrees"
        return "above" if self.difference > 0 else "below"

    @property
    def within_open(self) -> bool:
        """Whether other images of the same classes might account for the difference."""
        return abs(self.difference) <= self.open


def compare(closed: Interval, opened: Interval | None, figure: Figure, seeds: Tensor | None = None) -> Comparison:
    """Ours against a published number, which both were measured on the same images.

    Half a unit of the last printed digit stands for its rounding. The means of several training `seeds` add their
    spread: the paper's is one training, ours the mean of n, so that they differ by sqrt(1 + 1/n) standard deviations.
    """
    printed = math.hypot(figure.ci or 0.0, 0.5 * 10.0**-figure.digits)
    spread = 0.0
    if seeds is not None and len(seeds) > 1:
        spread = 1.96 * float(seeds.double().std()) * math.sqrt(1 + 1 / len(seeds))
    wide = closed.half if opened is None or math.isnan(opened.half) else max(opened.half, closed.half)
    return Comparison(
        100 * closed.mean - figure.value,
        math.hypot(100 * closed.half, 100 * spread, printed),
        math.hypot(100 * wide, 100 * spread, printed),
    )
