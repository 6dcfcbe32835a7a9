"""Embeddings by name, for recipes and the command line."""

from __future__ import annotations

from typing import Literal

from torch import nn

from handful.embeddings.conv4 import WIDTHS, Norm, Width, conv4
from handful.embeddings.plain import PLAIN, PlainName, plain
from handful.embeddings.resnet12 import ResNet12
from handful.errors import InvalidOptionError

OwnName = Literal["gnn-net", "relation-net", "snail-resnet"]
Name = Literal[Width, PlainName, OwnName, "resnet12"]


def build_embedding(
    name: Name,
    channels: int = 3,
    norm: Norm = "batch",
    dropout: float = 0.0,
    concatenate: bool = True,
    shrink: bool = True,
) -> nn.Module:
    """The paper's convolutional network by its width, or another by its name: those have one output only.

    `gnn-net`, `relation-net` and `snail-resnet` have the dropout of their originals, whatever is asked for.
    """
    if name in WIDTHS:
        return conv4(name, channels, norm, dropout, concatenate, shrink)
    if name in PLAIN:
        return plain(name, channels, norm, dropout)
    if norm != "batch":
        raise InvalidOptionError(f"{name} comes with batch norm only, but got norm = '{norm}'.")
    if name == "resnet12":
        return ResNet12(channels, dropout=dropout)
    raise InvalidOptionError(f"There is no embedding '{name}'.")
