"""Base learners: from a labelled support set to a predictor, all on one interface."""

from handful.learners.base import BaseLearner, KernelLearner, Limits, Predictor

__all__ = ["BaseLearner", "KernelLearner", "Limits", "Predictor"]
