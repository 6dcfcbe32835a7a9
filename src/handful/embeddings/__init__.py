"""Embeddings phi(.; omega): networks from images to feature vectors. Any other `nn.Module` works too."""

from handful.embeddings.conv4 import Conv4, conv4
from handful.embeddings.registry import build_embedding
from handful.embeddings.resnet12 import ResNet12
from handful.embeddings.views import Centred, MeanOverViews

__all__ = ["Centred", "Conv4", "MeanOverViews", "ResNet12", "build_embedding", "conv4"]
