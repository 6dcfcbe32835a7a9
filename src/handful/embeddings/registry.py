"""The registry of embeddings, for recipes and the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from handful.embeddings.conv4 import WIDTHS, Norm, conv4
from handful.embeddings.gnn_net import gnn_net
from handful.embeddings.plain import PLAIN, plain
from handful.embeddings.relation_net import RelationEmbedding
from handful.embeddings.resnet12 import ResNet12, block_size_for
from handful.embeddings.snail_resnet import snail_resnet
from handful.errors import InvalidOptionError


@dataclass(frozen=True)
class Wanted:
    """What a recipe says about its embedding. Networks raise an error for settings that they do not support."""

    channels: int
    norm: Norm
    dropout: float
    concatenate: bool
    shrink: bool
    side: int
    """Height and width of the images, for networks that depend on them."""


Build = Callable[[Wanted], nn.Module]


def build_embedding(
    name: str,
    channels: int = 3,
    norm: Norm = "batch",
    dropout: float = 0.0,
    concatenate: bool = True,
    shrink: bool = True,
    side: int = 84,
) -> nn.Module:
    """The paper's network by its width, or another one by name; `concatenate` and `shrink` only apply to the former."""
    if name not in EMBEDDINGS:
        raise InvalidOptionError(f"There is no embedding '{name}'. Choose one of {', '.join(EMBEDDINGS)}.")
    return EMBEDDINGS[name](Wanted(channels, norm, dropout, concatenate, shrink, side))


def _paper(width: str) -> Build:
    return lambda it: conv4(width, it.channels, it.norm, it.dropout, it.concatenate, it.shrink)  # type: ignore[arg-type]


def _plain(name: str) -> Build:
    return lambda it: plain(name, it.channels, it.norm, it.dropout)  # type: ignore[arg-type]


def _with_batch_norm(name: str, build: Build, own_dropout: bool = False) -> tuple[str, Build]:
    """Build a network that only supports batch norm, and possibly only its original dropout."""

    def checked(it: Wanted) -> nn.Module:
        if it.norm != "batch":
            raise InvalidOptionError(f"{name} only supports batch norm, but got norm = '{it.norm}'.")
        if own_dropout and it.dropout:
            raise InvalidOptionError(
                f"{name} has its original dropout, which cannot be changed, but got dropout = {it.dropout}."
            )
        return build(it)

    return name, checked


class Reduced(nn.Module):
    """`embedding`, then a linear layer from `features` to `size`, then batch norm.

    Batch norm removes what all images have in common, which is most of an untrained network's output. Without it,
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


EMBEDDINGS: dict[str, Build] = {
    **{width: _paper(width) for width in WIDTHS},
    **{name: _plain(name) for name in PLAIN},
    **dict(
        (
            _with_batch_norm("gnn-net", lambda it: gnn_net(it.channels, it.side), own_dropout=True),
            _with_batch_norm("relation-net", lambda it: RelationEmbedding(it.channels), own_dropout=True),
            _with_batch_norm("snail-resnet", lambda it: snail_resnet(it.channels, it.dropout)),
            _with_batch_norm(
                "resnet12", lambda it: ResNet12(it.channels, dropout=it.dropout, block_size=block_size_for(it.side))
            ),
        )
    ),
}
