"""Averages of the weights along a training run, which judge and generalise better than its last weights."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from handful.episodes import EpisodeSampler
from handful.model import FewShotModel
from handful.plan import Plan

STATISTICS_EPISODES = 20
"""Training episodes from which the averaged network's batch-norm statistics are taken."""


class WeightAverage:
    """The mean of the weights since it began, uniform (Izmailov et al. 2018) or with exponentially fading memory."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.values: dict[str, Tensor] = {}
        self.count = 0

    def note(self, parameters: Mapping[str, Tensor]) -> None:
        """Take in the weights after an update."""
        if not self.count:
            self.values = {name: value.detach().clone() for name, value in parameters.items()}
        for name, value in parameters.items():
            self.values[name].lerp_(value.detach(), self.weight)
        self.count += 1

    @property
    def weight(self) -> float:
        """The share of the next weights in the average; the memory of a young average is short."""
        if self.plan.average == "uniform":
            return 1 / (self.count + 1)
        return 1 - min(self.plan.average_decay, (1 + self.count) / (10 + self.count))

    def applied(self, model: FewShotModel, episodes: EpisodeSampler) -> FewShotModel:
        """A copy of the model with the averaged weights and batch-norm statistics of its own; the model stays."""
        averaged = deepcopy(model)
        with torch.no_grad():
            for name, parameter in averaged.named_parameters():
                if name in self.values:
                    parameter.copy_(self.values[name])
        retake_statistics(averaged, episodes)
        return averaged


def retake_statistics(model: FewShotModel, episodes: EpisodeSampler, count: int = STATISTICS_EPISODES) -> None:
    """Replace the running statistics of batch norm by means over training episodes 0 .. count - 1, dropout off.

    The running statistics belong to the weights that met them; averaged weights have others.
    """
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]
    if not norms:
        return
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    training, momenta = model.training, [norm.momentum for norm in norms]
    model.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain mean over batches
        nn.Module.train(norm)
    with torch.no_grad():
        for index in range(count):
            model(episodes[index].to(device))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.train(training)
