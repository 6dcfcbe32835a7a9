"""Base classes for learners that adapt a network's weights to each episode by gradients of the support loss."""

from __future__ import annotations

import threading
from abc import abstractmethod
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call

from handful.errors import InvalidOptionError
from handful.learners.base import BaseLearner, Limits, Predictor, check_support

Weights = dict[str, Tensor]
Statistics = Literal["support", "batch", "batch-in-training"]

_TURN = threading.RLock()
"""Held while a network runs with adapted weights, because torch temporarily puts them into the module."""


class EpisodeNorm(nn.Module):
    """Batch norm with the moments of the current episode: of the first len(first) images of the batch, or of all if 0.

    It keeps no running averages. With len(first) = n for a batch of n support images followed by queries, the queries
    are normalised by the support's moments (MetaBN in Bronskill et al. 2020), and no query affects another.
    """

    first: Tensor

    def __init__(self, like: nn.BatchNorm2d) -> None:
        super().__init__()
        self.weight = nn.Parameter(like.weight.detach().clone(), requires_grad=like.weight.requires_grad)
        self.bias = nn.Parameter(like.bias.detach().clone(), requires_grad=like.bias.requires_grad)
        self.eps = like.eps
        # a buffer, so that a call can set it like the weights without writing to the module; its length counts, because
        # reading a value would wait for the device
        self.register_buffer("first", torch.empty(0, 0), persistent=False)

    def forward(self, maps: Tensor) -> Tensor:
        """(n, channels, height, width) -> the same shape."""
        first = len(self.first)
        if not first:
            return nn.functional.batch_norm(maps, None, None, self.weight, self.bias, training=True, eps=self.eps)
        var, mean = torch.var_mean(maps[:first], dim=(0, 2, 3), correction=0, keepdim=True)
        scale = torch.rsqrt(var + self.eps) * self.weight[:, None, None]
        return maps * scale + (self.bias[:, None, None] - mean * scale)


class AdaptedNetwork(nn.Module):
    """Maps weights and images to logits. Its own weights are the starting point; a call never writes to them.

    `statistics` says whose moments batch norm uses for a query: the support's, so that each query is answered
    separately; those of all queries together, as in the original MAML, which makes it transductive; or, as in the
    original Meta-LSTM, those of all queries in training and the support's in evaluation. With `keep_norms` the scales
    and shifts of batch norm are not adapted. Threads may share a network; their calls take turns.
    """

    def __init__(self, network: nn.Module, statistics: Statistics = "support", keep_norms: bool = False) -> None:
        super().__init__()
        if statistics not in get_args(Statistics):
            known = ", ".join(f"'{each}'" for each in get_args(Statistics))
            raise InvalidOptionError(f"statistics must be one of {known}, but got '{statistics}'.")
        self.body = _with_episode_norms(network)
        norms = [f"body.{name}" for name, module in self.body.named_modules() if isinstance(module, EpisodeNorm)]
        self._norms = [f"{name}.first" for name in norms]
        self._kept = {f"{name}.{each}" for name in norms for each in ("weight", "bias")} if keep_norms else set()
        self.statistics = statistics
        self.transductive = bool(self._norms) and statistics == "batch"

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs (n, ...) -> logits (n, way), with the weights of the starting point."""
        logits: Tensor = self.body(inputs)
        return logits

    def start(self) -> Weights:
        """The weights before adaptation, by name."""
        with _TURN:
            return {
                name: parameter
                for name, parameter in self.named_parameters()
                if parameter.requires_grad and name not in self._kept
            }

    def loss(self, weights: Weights, support: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy on the support set, (n, ...) and (n, way)."""
        return nn.functional.cross_entropy(self._run(weights, support), targets)

    def logits(self, weights: Weights, support: Tensor, query: Tensor) -> Tensor:
        """Logits of queries (q, ...) -> (q, way)."""
        if not self._norms or self.statistics == "batch" or (self.statistics != "support" and self.training):
            return self._run(weights, query)
        first = torch.empty(len(support), 0)
        settings = {**weights, **dict.fromkeys(self._norms, first)}
        return self._run(settings, torch.cat([support, query]))[len(support) :]

    def _run(self, weights: Weights, inputs: Tensor) -> Tensor:
        with _TURN:
            logits: Tensor = functional_call(self, weights, (inputs,))
        return logits


def _with_episode_norms(network: nn.Module) -> nn.Module:
    if isinstance(network, nn.BatchNorm2d):
        return EpisodeNorm(network)
    for name, child in list(network.named_children()):
        setattr(network, name, _with_episode_norms(child))
    return network


Batching = Literal["loop", "vmap"]
"""Whether a batch of episodes runs one by one, or in one call with torch.func.vmap."""

TOGETHER = 8
"""Episodes in one call of vmap; the weights and activations of more do not fit into the CPU cache."""


class AdaptingLearner(BaseLearner):
    """A learner with a `network` that has one logit per class, so its way is fixed; `adapt` is the inner loop."""

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
