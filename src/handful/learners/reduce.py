"""From an embedding of any size to the few features that a network over examples works with."""

from __future__ import annotations

from torch import Tensor, nn


class Reduce(nn.Module):
    """A linear layer and batch norm, (..., features) -> (..., size), every other dimension taken as a batch.

    Batch norm takes away what all images have in common, which is most of what an untrained network sees; without it
    sequence learners spend thousands of episodes at chance before they begin to learn.
    """

    def __init__(self, features: int, size: int) -> None:
        super().__init__()
        self.project = nn.Linear(features, size)
        self.normalise = nn.BatchNorm1d(size)

    def forward(self, embeddings: Tensor) -> Tensor:
        """(..., features) -> (..., size)."""
        rows: Tensor = self.normalise(self.project(embeddings).flatten(0, -2))
        return rows.reshape(*embeddings.shape[:-1], -1)
