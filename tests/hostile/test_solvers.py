"""Ridge regression against a float64 SVD, over shapes, ranks, duplicates and |K| / lambda from 1e-12 to 1e12.

The SVD gives W = V diag(s / (s^2 + lam)) U^T Y with no system to solve. What is compared are predictions for the
support, relative to the size of the targets.
"""

from __future__ import annotations

import os
import random

import pytest
import torch
from torch import Tensor

from handful.solvers import ridge, ridge_predictions

PROBLEMS = 100_000 if "HANDFUL_FUZZ" in os.environ else 1_500


def bound(ratio: float, dtype: torch.dtype) -> float:
    """The largest error of predictions, relative to the targets, at this |K| / lambda.

    Solving in float64 costs a few times 2.2e-16 of relative error times the condition number. A Gram matrix in
    float32 costs 6e-8 of |K|, but is used only while |x|^2 / lambda is below 1e4 for each of the samples, 40 at most;
    beyond that it is computed in float64, too.
    """
    exact = 1e-14 + 1e-15 * ratio
    return exact if dtype == torch.float64 else exact + 1e-6 + 6e-8 * min(ratio, 40 * 1e4)


def problem(draw: random.Random, dtype: torch.dtype) -> tuple[Tensor, Tensor, float, float]:
    """Features, targets, lambda and |K| / lambda."""
    n, e, o, rank = (draw.choice((1, 2, 3, 5, 8, 20, 40)) for _ in range(4))
    generator = torch.Generator().manual_seed(draw.getrandbits(40))
    made = {"dtype": torch.float64, "generator": generator}
    X = torch.randn(n, min(rank, e), **made) @ torch.randn(min(rank, e), e, **made)  # type: ignore[call-overload]
    if draw.random() < 0.3:
        X = X[torch.randint(0, n, (n,), generator=generator)]  # duplicates
    X = (X * 10.0 ** draw.uniform(-4, 4)).to(dtype)
    Y = torch.randn(n, o, **made).to(dtype)  # type: ignore[call-overload]
    ratio = 10.0 ** draw.uniform(-12, 12)
    largest = float(torch.linalg.matrix_norm(X.double(), 2)) ** 2
    return X, Y, max(largest / ratio, 1e-300), ratio


def by_svd(X: Tensor, Y: Tensor, lam: float) -> Tensor:
    U, s, Vh = torch.linalg.svd(X.double(), full_matrices=False)
    return Vh.mT @ ((s / (s.square() + lam))[:, None] * (U.mT @ Y.double()))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_ridge_is_right_to_the_stated_bound(dtype: torch.dtype) -> None:
    for number in range(PROBLEMS):
        X, Y, lam, ratio = problem(random.Random(number), dtype)
        wanted = by_svd(X, Y, lam)
        size = float(Y.double().norm()) + 1e-300
        found, told = ridge(X, Y, lam).double(), ridge_predictions(X, Y, lam, X).double()
        expected = X.double() @ wanted
        error = max(float((X.double() @ found - expected).norm()), float((told - expected).norm())) / size
        assert error < bound(ratio, dtype), f"problem {number}: {X.shape}, |K|/lambda {ratio:.1e}"
