"""Relation networks: a learnt comparison of feature maps (Sung et al. 2018, eq. 1 and 2).

The relation of a query with a class is r = g([sum_i f(x_i), f(x)]) in (0, 1), where the sum runs over the class's
examples, [ , ] stacks channels and g is a small convolutional network; training makes it 1 for the true class and 0 for
the others by mean squared error.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from handful.errors import InvalidOptionError, ShapeError
from handful.learners.base import BaseLearner, Predictor, check_support
from handful.learners.chunks import by_chunks


class RelationNet(BaseLearner):
    """Logits are the log-odds of relation scores; embeddings are feature maps of `shape` (channels, height, width).

    The relation module is the paper's: two blocks of 3x3 convolution, batch norm, ReLU and 2x2 max-pool, then two
    linear layers. The first convolution is linear in both halves of its input, so that it runs once for each class and
    once for each query instead of once for each pair of them. The paper adds up the examples of a class; `average`
    takes their mean, so that a network trained with one number of shots works with others.
    """

    def __init__(
        self, shape: tuple[int, int, int], *, channels: int = 64, hidden: int = 8, average: bool = False
    ) -> None:
        super().__init__()
        if channels < 1 or hidden < 1:
            raise InvalidOptionError(f"channels and hidden must be at least 1, but got {channels} and {hidden}.")
        if min(shape[1:]) < 4:
            raise ShapeError(
                f"The relation module halves feature maps twice, so they need at least 4x4 positions, but the "
                f"embedding gives {shape[1]}x{shape[2]}. Use larger images or an embedding that pools less."
            )
        self.shape, self.average = tuple(shape), average
        self.of_class = nn.Conv2d(shape[0], channels, 3, padding=1)
        self.of_query = nn.Conv2d(shape[0], channels, 3, padding=1, bias=False)
        self.compare = nn.Sequential(
            *_after_convolution(channels),
            nn.Conv2d(channels, channels, 3, padding=1),
            *_after_convolution(channels),
            nn.Flatten(),
            nn.Linear(channels * (shape[1] // 4) * (shape[2] // 4), hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )
        self.objective = relation_loss

    def fit(self, support: Tensor, targets: Tensor) -> Predictor:
        """Learn from support feature maps (..., n, c, h, w) with one-hot targets (..., n, way)."""
        if support.shape[-3:] != self.shape:
            raise ShapeError(
                f"This relation network compares feature maps of shape {self.shape}, "
                f"but the embedding gives {tuple(support.shape[targets.ndim - 1 :])}."
            )
        check_support(support, targets)
        weights = targets / targets.sum(-2, keepdim=True) if self.average else targets
        sums = weights.to(support.dtype).mT @ support.flatten(-3)  # (..., way, c h w)
        way = targets.shape[-1]
        classes = self.of_class(sums.reshape(-1, *self.shape)).unflatten(0, (-1, way))  # (b, way, channels, h, w)

        def predictor(query: Tensor) -> Tensor:
            flat = query.reshape(-1, *self.shape)
            queries = self.of_query(flat).unflatten(0, (len(classes), -1))  # (b, q, channels, h, w)
            cost = 2 * way * classes[0, 0].numel()
            return by_chunks(self._odds, classes, queries, cost).reshape(*query.shape[:-3], way)

        return predictor

    def _odds(self, classes: Tensor, queries: Tensor) -> Tensor:
        pairs = queries.unsqueeze(2) + classes.unsqueeze(1)  # (b, q, way, channels, h, w)
        odds: Tensor = self.compare(pairs.flatten(0, 2))
        return odds.reshape(pairs.shape[:3])


def relation_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error between relation scores and 1 for the true class, 0 for the others (eq. 2)."""
    return nn.functional.mse_loss(torch.sigmoid(logits), targets.to(logits.dtype))


def _after_convolution(channels: int) -> list[nn.Module]:
    return [nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(2)]
