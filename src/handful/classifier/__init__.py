"""A classifier for people with a handful of images: exact fits, exact updates, exact leave-one-out, no training run."""

from handful.classifier.classifier import FewShotClassifier
from handful.classifier.embedder import ImageEmbedding

__all__ = ["FewShotClassifier", "ImageEmbedding"]
