"""Embeddings by name, for recipes and the command line."""

from __future__ import annotations

from typing import Literal, get_args

from torch import nn

from handful.embeddings.conv4 import Norm, conv4
from handful.embeddings.gnn_net import gnn_net
from handful.embeddings.relation_net import RelationEmbedding
from handful.embeddings.resnet12 import ResNet12, block_size_for
from handful.embeddings.snail_resnet import snail_resnet
from handful.errors import InvalidOptionError

OwnName = Literal["gnn-net", "relation-net", "snail-resnet"]
"""Networks that other methods brought with them."""
Name = Literal["32C", "64C", "wide", "resnet12", OwnName]


def build_embedding(
    name: Name,
    channels: int = 3,
    norm: Norm = "batch",
    dropout: float = 0.0,
    concatenate: bool = True,
    shrink: bool = True,
    side: int = 84,
) -> nn.Module:
    """The paper's convolutional network by its width, or another by its name.

    Only the paper's comes with group norm or two outputs. `side` is the height and width of the images, for networks
    that depend on it.
    """
    if name not in ("resnet12", *get_args(OwnName)):
        return conv4(name, channels, norm, dropout, concatenate, shrink)  # type: ignore[arg-type]
    if norm != "batch":
        raise InvalidOptionError(f"{name} comes with batch norm only, but got norm = '{norm}'.")
    if name == "resnet12":
        return ResNet12(channels, dropout=dropout, block_size=block_size_for(side))
    return _own(name, channels, dropout, side)  # type: ignore[arg-type]


def _own(name: OwnName, channels: int, dropout: float, side: int) -> nn.Module:
    if name == "snail-resnet":
        return snail_resnet(channels, dropout)
    if dropout:
        raise InvalidOptionError(f"{name} comes with the dropout of its original, but got dropout = {dropout}.")
    return gnn_net(channels, side) if name == "gnn-net" else RelationEmbedding(channels)
