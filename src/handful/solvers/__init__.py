"""Differentiable closed-form solvers: pure functions on tensors, batched over any leading dimensions."""

from handful.solvers._linear import solve_psd
from handful.solvers._operation import checking, unchecked
from handful.solvers.kernels import (
    cross_gram,
    diagonal_prior,
    dual_weights,
    gram,
)
from handful.solvers.logistic import Gradient, logistic, logistic_dual
from handful.solvers.ridge import leave_one_out, ridge, ridge_dual, ridge_predictions, ridge_primal
from handful.solvers.softmax import softmax_dual
from handful.solvers.svm import svm_dual

__all__ = [
    "Gradient",
    "checking",
    "cross_gram",
    "diagonal_prior",
    "dual_weights",
    "gram",
    "leave_one_out",
    "logistic",
    "logistic_dual",
    "ridge",
    "ridge_dual",
    "ridge_predictions",
    "ridge_primal",
    "softmax_dual",
    "solve_psd",
    "svm_dual",
    "unchecked",
]
