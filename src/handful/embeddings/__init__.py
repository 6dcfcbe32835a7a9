"""Embeddings phi(.; omega): networks from images to feature vectors; any `nn.Module` of yours works too."""

from handful.embeddings.conv4 import Conv4, conv4

__all__ = ["Conv4", "conv4"]
