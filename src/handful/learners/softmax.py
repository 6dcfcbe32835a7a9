"""Softmax regression as a base learner: all classes coupled, by Newton's method in the dual (the paper's future work).

W = argmin sum_i (log sum_c exp(x_i.w_c) - x_i.w_{y_i}) + lam / 2 |W|^2. LR-D2 solves one problem per class, against the
rest; this is a single problem, and its logits give one distribution over the classes.
"""

from __future__ import annotations

from torch import Tensor

from handful.errors import InvalidOptionError
from handful.learners.base import GramPredictor, KernelLearner, log_parameter
from handful.solvers import softmax_dual
from handful.solvers.logistic import Gradient


class SoftmaxRegression(KernelLearner):
    """Multinomial logistic regression with LR-D2's conventions: a penalised column of ones, `lam` not scaled.

    `gradient` differentiates all `steps` ('unrolled'), the last one ('last_step'), or the solution ('implicit',
    whose memory does not grow with the steps); at convergence they agree.
    """

    def __init__(
        self,
        lam: float = 50.0,
        steps: int = 5,
        *,
        scale: float = 1.0,
        learn_lam: bool = False,
        learn_scale: bool = False,
        lam_per_example: bool = False,
        intercept: bool = True,
        gradient: Gradient = "unrolled",
    ) -> None:
        super().__init__()
        if steps < 1:
            raise InvalidOptionError(f"Newton's method needs at least one step, but got steps = {steps}.")
        self.steps, self.lam_per_example, self.intercept, self.gradient = steps, lam_per_example, intercept, gradient
        self.log_lam = log_parameter("lam", lam, learn_lam)
        self.log_scale = log_parameter("scale", scale, learn_scale)

    def fit_gram(self, gram: Tensor, targets: Tensor) -> GramPredictor:
        """Solve the coupled problem from the Gram matrix."""
        lam = self.log_lam.exp() * (gram.shape[-1] if self.lam_per_example else 1)
        kernel = gram + self.intercept
        coefficients = softmax_dual(kernel, targets.to(gram.dtype), lam, self.steps, self.gradient)
        scale = self.log_scale.exp()
        return lambda cross, norms: scale * ((cross + self.intercept) @ coefficients)
