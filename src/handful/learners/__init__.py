"""Base learners: from a labelled support set to a predictor, all on one interface."""

from handful.learners.base import BaseLearner, KernelLearner, Limits, Predictor
from handful.learners.lrd2 import LRD2
from handful.learners.prototype import ProtoNet
from handful.learners.r2d2 import R2D2

__all__ = ["LRD2", "R2D2", "BaseLearner", "KernelLearner", "Limits", "Predictor", "ProtoNet"]
