"""R2-D2: ridge regression as a base learner (Bertinetto et al. 2019, eq. 5, 6 and 8)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from handful.errors import InvalidOptionError, ShapeError
from handful.learners.base import GramPredictor, KernelLearner, log_parameter, positive
from handful.solvers import ridge_dual

Prior = Literal["isotropic", "diagonal"]


class R2D2(KernelLearner):
    """Logits alpha X' W + beta (eq. 6) with W = X^T (X X^T + lam I)^-1 Y (eq. 5), from inner products alone.

    The defaults are conventions of the authors' code, which the paper does not mention: `lam` is multiplied by the
    number of support examples (`lam_per_example`), and a column of ones is appended to X and penalised like the rest
    (`intercept`), which adds 1 to every inner product. `lam` and `scale` are stored as logarithms, so they stay
    positive. `direct_scale` learns the scale itself, as the authors' code does, so that it grows faster from a very
    small initial value. `prior='diagonal'` gives each of `features` embedding dimensions its own lam (eq. 8); the
    column of ones then has a lam of 1.
    """

    def __init__(
        self,
        lam: float = 50.0,
        scale: float = 10.0,
        bias: float = 0.0,
        *,
        learn_lam: bool = False,
        learn_scale: bool = True,
        learn_bias: bool = True,
        direct_scale: bool = False,
        lam_per_example: bool = True,
        intercept: bool = True,
        prior: Prior = "isotropic",
        features: int | None = None,
    ) -> None:
        super().__init__()
        if prior not in ("isotropic", "diagonal"):
            raise InvalidOptionError(f"prior must be 'isotropic' or 'diagonal', but got '{prior}'.")
        if (prior == "diagonal") != (features is not None):
            raise InvalidOptionError(
                "The diagonal prior has one lam per feature: give `features`, the embedding's size, with "
                "prior='diagonal' and only with it."
            )
        self.lam_per_example, self.intercept, self.prior = lam_per_example, intercept, prior
        self.log_lam = log_parameter("lam", lam, learn_lam, (features,) if features is not None else ())
        self.direct_scale = direct_scale
        if direct_scale:
            self.scale = nn.Parameter(torch.tensor(float(positive("scale", scale))), requires_grad=learn_scale)
        else:
            self.log_scale = log_parameter("scale", scale, learn_scale)
        self.bias = nn.Parameter(torch.tensor(float(bias)), requires_grad=learn_bias)

    def feature_map(self, embeddings: Tensor) -> Tensor:
        """The embeddings, divided by sqrt(lam) with the diagonal prior, so that ridge regression has lam = 1."""
        if self.prior == "isotropic":
            return embeddings
        if embeddings.shape[-1] != len(self.log_lam):
            raise ShapeError(
                f"The diagonal prior was built for {len(self.log_lam)} features, but the embedding returns "
                f"{embeddings.shape[-1]}. Set `features` to that number."
            )
        return embeddings * torch.exp(-0.5 * self.log_lam)

    def fit_gram(self, gram: Tensor, targets: Tensor) -> GramPredictor:
        """Solve the dual once; a prediction is then one product with the query-support inner products."""
        lam = torch.ones_like(self.bias) if self.prior == "diagonal" else self.log_lam.exp()
        if self.lam_per_example:
            lam = lam * gram.shape[-1]
        coefficients = ridge_dual(gram + self.intercept, targets.to(gram.dtype), lam)
        scale = self.scale if self.direct_scale else self.log_scale.exp()

        def predictor(cross: Tensor, norms: Tensor) -> Tensor:
            return scale * ((cross + self.intercept) @ coefficients) + self.bias

        return predictor
