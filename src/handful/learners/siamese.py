"""Siamese networks: verification of pairs by a learnt weighted L1 metric (Koch et al. 2015, section 3).

Two images are of one class with probability p = sigma(sum_j alpha_j |h_j - h'_j| + b), h = sigma(V x + c). It is
trained on pairs; in an N-way problem it chooses the class whose examples most probably form a pair with the query.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from handful.errors import InvalidOptionError
from handful.learners.base import BaseLearner, Predictor, check_support
from handful.learners.reading import by_chunks


class Siamese(BaseLearner):
    """The logit of a class is the mean over its examples of the log-odds that query and example are a pair.

    Train with one shot: then each logit belongs to a pair of a query and a support image, and the loss is that of
    verification, weighted so that pairs of the same class count as much as all others together.
    """

    def __init__(self, features: int, hidden: int = 4096) -> None:
        super().__init__()
        if hidden < 1:
            raise InvalidOptionError(f"hidden must be at least 1, but got {hidden}.")
        self.encode = nn.Linear(features, hidden)
        self.weigh = nn.Linear(hidden, 1)

    def fit(self, support: Tensor, targets: Tensor) -> Predictor:
        """Learn from support embeddings (..., n, e) with one-hot targets (..., n, way)."""
        check_support(support, targets)
        codes = torch.sigmoid(self.encode(support.reshape(-1, *support.shape[-2:])))  # (b, n, hidden)
        weights = (targets / targets.sum(-2, keepdim=True)).to(support.dtype)  # (..., n, way)
        cost = codes.shape[-1] * codes.shape[-2]

        def predictor(query: Tensor) -> Tensor:
            queries = torch.sigmoid(self.encode(query))
            pairs = by_chunks(self._odds, codes, queries.reshape(-1, *queries.shape[-2:]), cost)  # (b, q, n)
            return pairs.reshape(*query.shape[:-1], -1) @ weights

        return predictor

    def objective(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The verification loss, `pair_loss`."""
        return pair_loss(logits, targets)

    def _odds(self, support: Tensor, query: Tensor) -> Tensor:
        apart = (query.unsqueeze(-2) - support.unsqueeze(-3)).abs()  # (b, q, n, hidden)
        odds: Tensor = self.weigh(apart)
        return odds.squeeze(-1)


def pair_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Binary cross-entropy over all pairs; the one true pair of a query counts as much as its way - 1 false ones."""
    others = torch.tensor(targets.shape[-1] - 1.0, dtype=logits.dtype, device=logits.device)
    return nn.functional.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), pos_weight=others)
