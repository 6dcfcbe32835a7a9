"""Base learners turn a labelled support set into a predictor; all share one interface."""

from handful.learners.base import BaseLearner, KernelLearner, Limits, Predictor, with_lam
from handful.learners.frn import FRN
from handful.learners.gnn import GNN
from handful.learners.lrd2 import LRD2
from handful.learners.maml import MAML
from handful.learners.matching import MatchingNet
from handful.learners.meta_lstm import MetaLSTM
from handful.learners.prototype import ProtoNet
from handful.learners.r2d2 import R2D2
from handful.learners.relation import RelationNet
from handful.learners.siamese import Siamese
from handful.learners.snail import SNAIL
from handful.learners.softmax import SoftmaxRegression
from handful.learners.svm import SVM
from handful.learners.transfer import Transfer

__all__ = [
    "FRN",
    "GNN",
    "LRD2",
    "MAML",
    "R2D2",
    "SNAIL",
    "SVM",
    "BaseLearner",
    "KernelLearner",
    "Limits",
    "MatchingNet",
    "MetaLSTM",
    "Predictor",
    "ProtoNet",
    "RelationNet",
    "Siamese",
    "SoftmaxRegression",
    "Transfer",
    "with_lam",
]
