"""LR-D2: logistic regression by iteratively reweighted least squares (Bertinetto et al. 2019, eq. 7)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from handful.errors import InvalidOptionError
from handful.learners.base import GramPredictor, KernelLearner, log_parameter
from handful.solvers import logistic_dual
from handful.solvers.logistic import Gradient


class LRD2(KernelLearner):
    """With two classes, one binary problem with logits (0, t); with more, one-vs-rest problems, one logit each.

    All problems and all steps share one Gram matrix. The defaults follow the authors' conventions: lam = 50 (1 in their
    binary runs), not multiplied by the number of examples, no calibration, and a penalised column of ones. `scale` and
    `bias` apply to the logits and stay at 1 and 0 unless learnt. `gradient` differentiates all steps ('unrolled'), the
    last step ('last_step'), or the solution ('implicit', whose memory does not grow with the steps).
    """

    def __init__(
        self,
        lam: float = 50.0,
        steps: int = 5,
        *,
        scale: float = 1.0,
        bias: float = 0.0,
        learn_lam: bool = False,
        learn_scale: bool = False,
        learn_bias: bool = False,
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
        self.bias = nn.Parameter(torch.tensor(float(bias)), requires_grad=learn_bias)

    def fit_gram(self, gram: Tensor, targets: Tensor) -> GramPredictor:
        """Solve all problems in one batch from one Gram matrix."""
        lam = self.log_lam.exp() * (gram.shape[-1] if self.lam_per_example else 1)
        binary = targets.shape[-1] == 2
        labels = targets[..., 1:] if binary else targets
        coefficients = logistic_dual(gram + self.intercept, labels.to(gram.dtype), lam, self.steps, self.gradient)
        scale = self.log_scale.exp()

        def predictor(cross: Tensor, norms: Tensor) -> Tensor:
            logits = scale * ((cross + self.intercept) @ coefficients) + self.bias
            return torch.cat([torch.zeros_like(logits), logits], dim=-1) if binary else logits

        return predictor
