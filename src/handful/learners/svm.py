"""The multi-class support-vector machine as a base learner: MetaOptNet-SVM (Lee et al. 2019, eq. 6).

W = argmin |W|^2 / 2 + C sum_i max_c (1 - [c = y_i] + x_i.w_c - x_i.w_{y_i}), the machine of Crammer and Singer (2001);
logits are scale x.w_c with a learnt scale.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from handful.errors import InvalidOptionError
from handful.learners.base import GramPredictor, KernelLearner, log_parameter
from handful.solvers import svm_dual


class SVM(KernelLearner):
    """MetaOptNet's learner with its conventions: C = 0.1, no intercept, 15 solver steps, a learnt scale.

    `gradient` differentiates the optimality conditions ('implicit') or all steps ('unrolled').
    """

    def __init__(
        self,
        C: float = 0.1,
        steps: int = 15,
        *,
        scale: float = 1.0,
        learn_C: bool = False,
        learn_scale: bool = True,
        intercept: bool = False,
        gradient: Literal["implicit", "unrolled"] = "implicit",
    ) -> None:
        super().__init__()
        if steps < 1:
            raise InvalidOptionError(f"The interior-point method needs at least one step, but got steps = {steps}.")
        self.steps, self.intercept, self.gradient = steps, intercept, gradient
        self.log_C = log_parameter("C", C, learn_C)
        self.log_scale = log_parameter("scale", scale, learn_scale)

    def fit_gram(self, gram: Tensor, targets: Tensor) -> GramPredictor:
        """Solve the dual from the Gram matrix."""
        kernel = gram + self.intercept
        coefficients = svm_dual(kernel, targets.to(gram.dtype), self.log_C.exp(), self.steps, self.gradient)
        scale = self.log_scale.exp()
        return lambda cross, norms: scale * ((cross + self.intercept) @ coefficients)
