"""Embeddings by name, for recipes and the command line."""

from __future__ import annotations

from typing import Literal

from torch import nn

from handful.embeddings.conv4 import Norm, conv4
from handful.embeddings.resnet12 import ResNet12
from handful.errors import InvalidOptionError

Name = Literal["32C", "64C", "wide", "resnet12"]


def build_embedding(
    name: Name,
    channels: int = 3,
    norm: Norm = "batch",
    dropout: float = 0.0,
    concatenate: bool = True,
    shrink: bool = True,
) -> nn.Module:
    """The paper's convolutional network by its width, or ResNet-12, which has batch norm and one output only."""
    if name != "resnet12":
        return conv4(name, channels, norm, dropout, concatenate, shrink)
    if norm != "batch":
        raise InvalidOptionError(f"ResNet-12 comes with batch norm only, but got norm = '{norm}'.")
    return ResNet12(channels, dropout=dropout)
