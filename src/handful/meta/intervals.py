"""Accuracy of episodes, and 95% intervals around its mean.

The usual interval over many episodes, 1.96 standard errors, is 'closed': episodes share images, so it narrows with
their number and only says how well the mean over all episodes of exactly these images is known. The 'open' interval is
taken over episodes that share no image, so it covers other images of the same classes (Lafargue et al. 2024, "Oops, I
sampled it again: reinterpreting confidence intervals in few-shot learning"). Neither covers other classes or another
training run; for the latter, use several training seeds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


def accuracy(logits: Tensor, targets: Tensor) -> Tensor:
    """The share of queries whose largest logit is that of the true class, per episode: (..., q, way) -> (...)."""
    right = logits.argmax(-1) == targets.argmax(-1)
    return right.to(torch.float32 if right.device.type == "mps" else torch.float64).mean(-1)


def ci95(values: Tensor, quantile: float = 1.96) -> float:
    """Half the width of the 95% interval of the mean, 1.96 std / sqrt(n), as reported in few-shot papers."""
    if len(values) < 2:
        return math.nan
    return quantile * float(values.double().std()) / math.sqrt(len(values))


@dataclass(frozen=True)
class Interval:
    """A mean, half its 95% interval, and the number of values behind it."""

    mean: float
    half: float
    n: int

    @property
    def excludes_zero(self) -> bool:
        """Whether zero lies outside the interval."""
        return abs(self.mean) > self.half

    def __str__(self) -> str:
        return f"{100 * self.mean:.2f} ± {100 * self.half:.2f}"


def closed_interval(values: Tensor) -> Interval:
    """1.96 standard errors over episodes that may share images, as in the paper."""
    return Interval(float(values.double().mean()), ci95(values), len(values))


def open_interval(values: Tensor) -> Interval:
    """Student's interval over values that share nothing: episodes without common images, or training seeds."""
    from scipy.special import stdtrit

    quantile = float(stdtrit(len(values) - 1, 0.975)) if len(values) > 1 else math.nan
    return Interval(float(values.double().mean()), ci95(values, quantile), len(values))
