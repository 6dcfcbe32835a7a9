"""Accuracy of episodes and the interval around its mean."""

from __future__ import annotations

import math

from torch import Tensor

from handful.solvers._precision import system_dtype


def accuracy(logits: Tensor, targets: Tensor) -> Tensor:
    """The share of queries whose largest logit is the true class, for each episode: (..., q, way) -> (...)."""
    return (logits.argmax(-1) == targets.argmax(-1)).to(system_dtype(logits.device)).mean(-1)


def ci95(values: Tensor) -> float:
    """Half the width of the 95% interval of the mean, 1.96 std / sqrt(n), as few-shot papers report it."""
    if len(values) < 2:
        return math.nan
    return 1.96 * float(values.double().std()) / math.sqrt(len(values))
