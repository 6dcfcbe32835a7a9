"""The choice of lambda, the best of the grid by refits, and the scale before any evidence."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import Ridge

from handful.classifier.inputs import Matrix
from handful.classifier.selection import USUAL_VARIETY, choose_lam, size_of, usual_scale, variety


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


def length_and_size(X: Matrix) -> tuple[Matrix, float]:
    return np.square(X).sum(1), size_of(X)


def test_scores_of_images_that_look_alike_are_trusted_less() -> None:
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(20, 50))
    varied = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    alike = directions + 10
    alike /= np.linalg.norm(alike, axis=1, keepdims=True)
    scores, labels = np.eye(5).repeat(4, 0), np.arange(5).repeat(4)
    usual = usual_scale(scores, labels)
    assert (
        usual_scale(scores, labels, variety(*length_and_size(alike)))
        < usual
        < usual_scale(scores, labels, variety(*length_and_size(varied)))
    )


def test_where_features_lie_says_nothing_unless_they_have_length_one() -> None:
    X = np.random.default_rng(0).normal(size=(20, 50))
    assert variety(*length_and_size(X)) == variety(*length_and_size(X + 1e6)) == USUAL_VARIETY
