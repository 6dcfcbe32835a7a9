"""The choice of lambda: the best of the grid by refits."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import Ridge

from handful.classifier.inputs import Matrix
from handful.classifier.selection import choose_lam, size_of


def test_the_chosen_lambda_is_the_best_of_the_grid_by_refits() -> None:
    X = np.random.default_rng(0).normal(size=(30, 8))
    Y = X @ np.random.default_rng(1).normal(size=(8, 2)) + 3.0 * np.random.default_rng(2).normal(size=(30, 2))

    def loss(predictions: Matrix) -> float:
        return 1e6 * float(np.square(predictions - Y).sum())  # the evidence outweighs the prior

    def press(lam: float) -> float:
        folds = [
            Ridge(alpha=lam).fit(np.delete(X, i, 0), np.delete(Y, i, 0)).predict(X[i : i + 1])[0] for i in range(30)
        ]
        return float(np.square(np.array(folds) - Y).sum())

    chosen, size = choose_lam(X, Y, loss), size_of(X)
    assert min((chosen / 10**0.5, chosen, chosen * 10**0.5), key=press) == chosen
    assert 1e-4 * size < chosen < 1e2 * size
