"""Relation networks: a learnt comparison of feature maps (Sung et al. 2018, eq. 1 and 2).

The relation of a query with a class is r = g([sum_i f(x_i), f(x)]) in (0, 1), where the sum runs over the class's
examples, [ , ] stacks channels and g is a small convolutional network; it is trained to be 1 for the true class and 0
for the others, with mean squared error.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from handful.embeddings.relation_net import start_as_original
from handful.errors import InvalidOptionError, ShapeError
from handful.learners.adapting import EpisodeNorm
from handful.learners.base import BaseLearner, Limits, Predictor, check_support
from handful.learners.reading import by_chunks

Statistics = Literal["running", "batch"]
Start = Literal["torch", "original"]


class RelationNet(BaseLearner):
    """Logits are the log-odds of relation scores; embeddings are feature maps of `shape` (channels, height, width).

    The relation module is the paper's: two blocks of 3x3 convolution, batch norm, ReLU and 2x2 max-pool, then two
    linear layers. `padding` is that of its convolutions: the authors' code has 0 on miniImageNet and 1 on Omniglot.
    The first convolution is linear in both halves of its input, so it runs once for each class and once for each
    query instead of once for each pair of them. The paper sums the examples of a class; `average` takes their mean,
    so that a network trained with one number of shots works with others.

    The released evaluation keeps batch norm in training mode: support, queries and pairs are normalised by
    the moments of their own batch. `statistics='batch'` does the same, one episode at a time, in a learner that owns
    the embedding (`network`, from images to feature maps). It is transductive: an answer depends on the other queries.
    `start='original'` initialises weights as the authors' code does.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        *,
        channels: int = 64,
        hidden: int = 8,
        average: bool = False,
        padding: int = 1,
        statistics: Statistics = "running",
        start: Start = "torch",
        network: nn.Module | None = None,
    ) -> None:
        super().__init__()
        _check_options(channels, hidden, padding, statistics, start)
        height, width = (_positions_left(side, padding) for side in shape[1:])
        if min(height, width) < 1:
            raise ShapeError(
                f"The relation module halves feature maps twice, so with padding {padding} they need at least "
                f"{_SMALLEST[padding]} positions, but the embedding returns {shape[1]}x{shape[2]}. Use larger images "
                f"or an embedding that pools less{'' if padding else ', or padding 1'}."
            )
        self.shape, self.average = tuple(shape), average
        self.of_class = nn.Conv2d(shape[0], channels, 3, padding=padding)
        self.of_query = nn.Conv2d(shape[0], channels, 3, padding=padding, bias=False)
        self.compare = nn.Sequential(
            *_after_convolution(channels),
            nn.Conv2d(channels, channels, 3, padding=padding),
            *_after_convolution(channels),
            nn.Flatten(),
            nn.Linear(channels * height * width, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )
        if start == "original":
            start_as_original(self)
        self.network: nn.Module | None = None
        if statistics == "batch":
            self.network = network if network is not None else nn.Identity()
            _use_batch_statistics(self)
            self.limits = Limits(transductive=True)

    def fit(self, support: Tensor, targets: Tensor) -> Predictor:
        """Learn from support feature maps (..., n, c, h, w), or images, with one-hot targets (..., n, way)."""
        lead = targets.ndim - 2
        if self.network is not None:
            check_support(support, targets)
            return self._fit_each(
                support.reshape(-1, *support.shape[lead:]), targets.reshape(-1, *targets.shape[lead:])
            )
        self._check_maps(support, lead + 1)
        check_support(support, targets)
        classes = self._of_classes(support, targets)  # (b, way, channels, h, w)
        way = targets.shape[-1]

        def predictor(query: Tensor) -> Tensor:
            flat = query.reshape(-1, *self.shape)
            queries = self.of_query(flat).unflatten(0, (len(classes), -1))  # (b, q, channels, h, w)
            cost = 2 * way * classes[0, 0].numel()
            return by_chunks(self._odds, classes, queries, cost).reshape(*query.shape[:-3], way)

        return predictor

    def objective(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The squared error of eq. 2, `relation_loss`."""
        return relation_loss(logits, targets)

    def _fit_each(self, supports: Tensor, targets: Tensor) -> Predictor:
        """Images (b, n, *shape): each episode passes through the network separately, because it has its own moments."""
        classes = [self._of_classes(self._maps(each), labels) for each, labels in zip(supports, targets, strict=True)]

        def predictor(query: Tensor) -> Tensor:
            queries = query.reshape(len(classes), -1, *supports.shape[2:])
            maps = (self.of_query(self._maps(each)) for each in queries)
            odds = [self._odds(known, each.unsqueeze(0)) for known, each in zip(classes, maps, strict=True)]
            return torch.cat(odds).reshape(*query.shape[: query.ndim - supports.ndim + 2], -1)

        return predictor

    def _maps(self, images: Tensor) -> Tensor:
        maps: Tensor = images if self.network is None else self.network(images)
        self._check_maps(maps, 1)
        return maps

    def _check_maps(self, maps: Tensor, depth: int) -> None:
        if maps.shape[-3:] != self.shape:
            raise ShapeError(
                f"This relation network compares feature maps of shape {self.shape}, "
                f"but the embedding returns {tuple(maps.shape[depth:])}."
            )

    def _of_classes(self, support: Tensor, targets: Tensor) -> Tensor:
        """Feature maps (..., n, c, h, w) -> each class's half of the first convolution, (b, way, channels, h, w)."""
        weights = targets / targets.sum(-2, keepdim=True) if self.average else targets
        sums = weights.to(support.dtype).mT @ support.flatten(-3)  # (..., way, c h w)
        classes: Tensor = self.of_class(sums.reshape(-1, *self.shape))
        return classes.reshape(-1, targets.shape[-1], *classes.shape[1:])

    def _odds(self, classes: Tensor, queries: Tensor) -> Tensor:
        pairs = queries.unsqueeze(2) + classes.unsqueeze(1)  # (b, q, way, channels, h, w)
        odds: Tensor = self.compare(pairs.flatten(0, 2))
        return odds.reshape(pairs.shape[:3])


def relation_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error between relation scores and 1 for the true class, 0 for the others (eq. 2)."""
    return nn.functional.mse_loss(torch.sigmoid(logits), targets.to(logits.dtype))


def _after_convolution(channels: int) -> list[nn.Module]:
    return [nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(2)]


def _positions_left(side: int, padding: int) -> int:
    """Positions per side after two convolutions with kernel size 3 and two poolings."""
    for _ in range(2):
        side = (side - 2 + 2 * padding) // 2
    return side


_SMALLEST = {0: "10x10", 1: "4x4"}


def _use_batch_statistics(network: nn.Module) -> None:
    """Make every batch norm use the moments of the current batch, in training and in evaluation."""
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.BatchNorm2d):
                setattr(module, name, EpisodeNorm(child))


def _check_options(channels: int, hidden: int, padding: int, statistics: str, start: str) -> None:
    if channels < 1 or hidden < 1:
        raise InvalidOptionError(f"channels and hidden must be at least 1, but got {channels} and {hidden}.")
    if padding not in _SMALLEST:
        raise InvalidOptionError(f"padding must be 0 or 1, but got {padding}.")
    for name, value, known in (("statistics", statistics, Statistics), ("start", start, Start)):
        if value not in get_args(known):
            raise InvalidOptionError(f"{name} must be one of {', '.join(get_args(known))}, but got '{value}'.")
