"""A classifier for a handful of images: exact fits, exact updates and exact leave-one-out, without a training run."""

from handful.classifier.classifier import FewShotClassifier
from handful.classifier.embedder import ImageEmbedding

__all__ = ["FewShotClassifier", "ImageEmbedding"]
