"""Engines and models that tests of shared work have in common."""

from __future__ import annotations

import torch
from torch import nn

from handful.learners import BaseLearner
from handful.meta.engine import Engine
from handful.meta.model import FewShotModel
from handful.meta.train import seeded


class Apart(Engine):
    """A process that is shown only what it computed itself."""

    def total(self, mine: torch.Tensor) -> torch.Tensor:
        return mine


def model_of(learner: BaseLearner) -> FewShotModel:
    with seeded(0):
        return FewShotModel(nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 5)), learner)
