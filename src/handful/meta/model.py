"""A few-shot model: the embedding phi, shared by all episodes, and the learner Lambda, applied to each (eq. 2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from handful.episodes import Episode, LabelledSet
from handful.errors import NotFiniteError
from handful.learners import BaseLearner, Predictor


class FewShotModel(nn.Module):
    """An embedding followed by a learner. `forward` answers an episode's queries; `adapt` returns a reusable predictor.

    In training, support and query pass through the embedding `together`, so that they share batch statistics, or
    separately.
    """

    def __init__(self, embedding: nn.Module, learner: BaseLearner, together: bool = True) -> None:
        super().__init__()
        self.together = together
        self.embedding = embedding
        self.learner = learner

    def __repr__(self) -> str:
        weights = sum(each.numel() for each in self.embedding.parameters())
        return f"FewShotModel({type(self.embedding).__name__} of {weights:,} weights, {self.learner})"

    def forward(self, episode: Episode) -> Tensor:
        """Logits of an episode's queries, (..., q, way); leading batch dimensions are episodes."""
        support, query = self.embedded(episode)
        return self.learner.fit(support, episode.support.targets)(query)

    def embedded(self, episode: Episode) -> tuple[Tensor, Tensor]:
        """Features of an episode's support and query images, (..., n, *features) and (..., q, *features)."""
        support, query = episode.support.inputs, episode.query.inputs
        *lead, n, _ = episode.support.targets.shape
        depth = len(lead)
        if self.training and not self.together:
            return self.embed(support, depth + 1), self.embed(query, depth + 1)
        # one pass, so that support and query share batch statistics
        features = self.embed(torch.cat([support, query], dim=depth), depth + 1)
        return features.narrow(depth, 0, n), features.narrow(depth, n, features.shape[depth] - n)

    def adapt(self, support: LabelledSet) -> Predictor:
        """Learn the support's classes; the predictor maps query inputs (..., q, *shape) to logits."""
        depth = support.targets.ndim - 1
        predict = self.learner.fit(self.embed(support.inputs, depth), support.targets)
        return lambda inputs: check_logits(predict(self.embed(inputs, depth)))

    def embed(self, inputs: Tensor, depth: int = 1) -> Tensor:
        """Embed inputs whose first `depth` dimensions count images: (..., n, *shape) -> (..., n, *features)."""
        flat = inputs.flatten(0, depth - 1)
        if flat.ndim == 4:
            flat = flat.contiguous(memory_format=torch.channels_last)
        features: Tensor = self.embedding(flat)
        return features.reshape(*inputs.shape[:depth], *features.shape[1:])


def check_logits(logits: Tensor) -> Tensor:
    """The same logits (..., q, way); raises if any of them is not finite."""
    finite = torch.isfinite(logits).all(-1)
    if not bool(finite.all()):
        raise NotFiniteError(
            f"The logits of {int((~finite).sum())} of {finite.numel()} queries are NaN or infinite. Either their "
            f"features are not finite: check the images and the embedding network. Or the learner's own steps "
            f"diverged: lower its rate."
        )
    return logits
