"""A classifier for people with a handful of images: exact fits, exact updates, exact leave-one-out, no training run."""

from handful.estimator.classifier import FewShotClassifier
from handful.estimator.embedders import ImageEmbedding

__all__ = ["FewShotClassifier", "ImageEmbedding"]
