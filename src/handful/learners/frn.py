"""Feature map reconstruction: choose the class that reconstructs the query best (Wertheimer et al. 2021, section 3)."""

from __future__ import annotations

import torch
from torch import Tensor

from handful.errors import ShapeError
from handful.learners.base import BaseLearner, Predictor, check_support, log_parameter
from handful.learners.reading import by_chunks
from handful.solvers import solve_psd


class FRN(BaseLearner):
    """Logits are minus `scale` times the mean squared error of reconstructing the query's map from those of a class.

    A map of `shape` (d, height, width) is a set of r positions with d channels each. With S the positions of all k
    examples of a class and Q those of a query, ridge regression reconstructs Q as `magnitude` Q H, where
    H = (S^T S + lam I)^-1 S^T S and lam = `lam` k r / d. Maps are divided by sqrt(d) first, as in the authors' code.

    The error and H only need second moments: |Q - magnitude Q H|^2 = <Q^T Q, M> with M = (I - magnitude H)^2. So a
    query costs one d x d product per class for any number of shots, and classes may have different numbers of
    them. The authors pre-train, and penalise classes whose maps overlap; neither is part of the learner. From random
    weights, `scale` = 10 learns sooner than their initial value of 1.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        lam: float = 1.0,
        scale: float = 1.0,
        magnitude: float = 1.0,
        *,
        learn_lam: bool = True,
        learn_scale: bool = True,
        learn_magnitude: bool = True,
    ) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.log_lam = log_parameter("lam", lam, learn_lam)
        self.log_scale = log_parameter("scale", scale, learn_scale)
        self.log_magnitude = log_parameter("magnitude", magnitude, learn_magnitude)

    def fit(self, support: Tensor, targets: Tensor) -> Predictor:
        """Learn from support feature maps (..., n, d, h, w) with one-hot targets (..., n, way)."""
        if support.shape[-3:] != self.shape:
            raise ShapeError(
                f"This learner reconstructs feature maps of shape {self.shape}, but the embedding returns "
                f"{tuple(support.shape[targets.ndim - 1 :])}."
            )
        check_support(support, targets)
        channels, height, width = self.shape
        moments = _moments(support)
        labels = targets.to(moments.dtype)
        sums = (labels.mT @ moments.flatten(-2)).unflatten(-1, (channels, channels))  # (..., way, d, d)
        lam = self.log_lam.exp() * labels.sum(-2) * (height * width / channels)  # (..., way)
        identity = torch.eye(channels, dtype=moments.dtype, device=support.device)
        rebuilt = solve_psd(sums + lam[..., None, None] * identity, sums)  # (..., way, d, d)
        missing = identity - self.log_magnitude.exp() * rebuilt
        errors = (missing @ missing.mT).flatten(-2) / (height * width)  # (..., way, d d)
        scale = self.log_scale.exp()

        def predictor(query: Tensor) -> Tensor:
            flat = query.reshape(-1, *query.shape[targets.ndim - 2 :])  # (b, q, d, h, w)
            classes = errors.reshape(-1, *errors.shape[-2:])
            answers = by_chunks(lambda known, maps: _moments(maps).flatten(-2) @ known.mT, classes, flat, channels**2)
            return -scale * answers.reshape(*query.shape[:-3], -1)

        return predictor


def _moments(maps: Tensor) -> Tensor:
    """Second moments of the channels over all positions of each map, divided by d: (..., d, h, w) -> (..., d, d).

    They are at least float32, because squares of half-precision maps may overflow.
    """
    channels = maps.shape[-3]
    rows = maps.flatten(-2).to(torch.promote_types(maps.dtype, torch.float32))  # (..., d, r)
    moments: Tensor = rows @ rows.mT / channels
    return moments
