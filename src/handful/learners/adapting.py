"""What learners share that adapt a network's weights to each episode by gradients of the support loss."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn

from handful.errors import InvalidOptionError
from handful.learners.base import BaseLearner, Limits, Predictor, check_support
from handful.learners.network import AdaptedNetwork, Statistics, Weights

Batching = Literal["loop", "vmap"]
"""A batch of episodes one after the other, or all in one call with torch.func.vmap."""

TOGETHER = 8
"""Episodes in one call of vmap: weights and activations of more fall out of the processor's cache."""


class AdaptingLearner(BaseLearner):
    """Owns a `network` from inputs to one logit a class, so its way is fixed; `adapt` is the inner loop."""

    def __init__(
        self, network: nn.Module, way: int, statistics: Statistics, batching: Batching, keep_norms: bool = False
    ) -> None:
        super().__init__()
        if batching not in ("loop", "vmap"):
            raise InvalidOptionError(f"batching must be 'loop' or 'vmap', but got '{batching}'.")
        self.network, self.batching = AdaptedNetwork(network, statistics, keep_norms), batching
        self.limits = Limits(way=way, transductive=self.network.transductive)

    @abstractmethod
    def adapt(self, support: Tensor, targets: Tensor) -> Weights:
        """The weights of one episode, from support inputs (n, *shape) and one-hot targets (n, way)."""

    def fit(self, support: Tensor, targets: Tensor) -> Predictor:
        """Adapt to support inputs (..., n, *shape) with one-hot targets (..., n, way)."""
        check_support(support, targets, self.limits.way)
        lead = targets.ndim - 2
        supports = support.reshape(-1, *support.shape[lead:])  # (b, n, *shape)
        labels = targets.reshape(-1, *targets.shape[lead:]).to(support.dtype)
        answer = self._fit_together(supports, labels) if self.batching == "vmap" else self._fit_each(supports, labels)

        def predictor(query: Tensor) -> Tensor:
            return answer(query.reshape(-1, *query.shape[lead:])).reshape(*query.shape[: lead + 1], -1)

        return predictor

    def _fit_each(self, supports: Tensor, labels: Tensor) -> Predictor:
        adapted = [self.adapt(*episode) for episode in zip(supports, labels, strict=True)]
        return lambda queries: torch.stack(
            [self.network.logits(*task) for task in zip(adapted, supports, queries, strict=True)]
        )

    def _fit_together(self, supports: Tensor, labels: Tensor) -> Predictor:
        adapted = torch.vmap(self.adapt, randomness="different", chunk_size=TOGETHER)(supports, labels)
        answer = torch.vmap(self.network.logits, randomness="different", chunk_size=TOGETHER)
        return lambda queries: answer(adapted, supports, queries)
