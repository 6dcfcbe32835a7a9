"""Accuracy of episodes and the interval around its mean."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def accuracy(logits: Tensor, targets: Tensor) -> Tensor:
    """The share of queries whose largest logit is the true class, for each episode: (..., q, way) -> (...)."""
    right = logits.argmax(-1) == targets.argmax(-1)
    return right.to(torch.float32 if right.device.type == "mps" else torch.float64).mean(-1)


def ci95(values: Tensor) -> float:
    """Half the width of the 95% interval of the mean, 1.96 std / sqrt(n), as few-shot papers report it."""
    if len(values) < 2:
        return math.nan
    return 1.96 * float(values.double().std()) / math.sqrt(len(values))
