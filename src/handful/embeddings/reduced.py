"""Any embedding followed by a linear layer to few features, for networks over examples."""

from __future__ import annotations

from torch import Tensor, nn


class Reduced(nn.Module):
    """`embedding`, then a linear layer from `features` to `size`, then batch norm.

    Batch norm takes away what all images have in common, which is most of what an untrained network sees; without it
    learners that read labels as inputs spend thousands of episodes at chance before they begin to learn.
    """

    def __init__(self, embedding: nn.Module, features: int, size: int) -> None:
        super().__init__()
        self.embedding = embedding
        self.project = nn.Linear(features, size)
        self.normalise = nn.BatchNorm1d(size)

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, ...) -> features (n, size)."""
        features: Tensor = self.normalise(self.project(self.embedding(images).flatten(1)))
        return features
