"""Prototypical networks: the nearest class mean (Snell et al. 2017, eq. 1 and 2)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from handful.errors import InvalidOptionError
from handful.learners.base import GramPredictor, KernelLearner, log_parameter

Metric = Literal["euclidean", "cosine"]


class ProtoNet(KernelLearner):
    """Logits are minus the squared Euclidean distances to the class means, or their cosines times `scale`.

    The means are not computed explicitly: with M the row-normalised transposed targets, the products of queries and
    means are K(query, support) M^T, and the squared norms of the means are the diagonal of M K M^T.
    """

    def __init__(self, metric: Metric = "euclidean", scale: float | None = None, *, learn_scale: bool = False) -> None:
        super().__init__()
        if metric not in ("euclidean", "cosine"):
            raise InvalidOptionError(f"metric must be 'euclidean' or 'cosine', but got '{metric}'.")
        self.metric = metric
        start = (1.0 if metric == "euclidean" else 10.0) if scale is None else scale
        self.log_scale = log_parameter("scale", start, learn_scale)

    def fit_gram(self, gram: Tensor, targets: Tensor) -> GramPredictor:
        """Average inner products over the support of each class."""
        weights = (targets / targets.sum(-2, keepdim=True)).to(gram.dtype)  # (..., n, way)
        mean_norms = ((gram @ weights) * weights).sum(-2).unsqueeze(-2)  # (..., 1, way)
        scale = self.log_scale.exp()

        def predictor(cross: Tensor, norms: Tensor) -> Tensor:
            products = cross @ weights  # (..., q, way)
            if self.metric == "cosine":
                lengths = (norms.unsqueeze(-1) * mean_norms).clamp_min(torch.finfo(norms.dtype).tiny).sqrt()
                return scale * products / lengths
            return -scale * (norms.unsqueeze(-1) - 2 * products + mean_norms)

        return predictor
