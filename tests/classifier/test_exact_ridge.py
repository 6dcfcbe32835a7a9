"""The factor that follows its examples: every update against a fresh factor, leave-one-out against refits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from handful.classifier.cholesky import Matrix, bordered, factor, rank_one, without
from handful.classifier.exact_ridge import (
    DualFactor,
    PrimalFactor,
    added,
    factorise,
    leave_one_out,
    leave_one_out_variances,
    removed,
)
from handful.classifier.selection import Spectrum, choose_lam, size_of
from handful.errors import NotPositiveDefiniteError

SHAPES = [(6, 40), (40, 6), (12, 12), (13, 12), (2, 3)]
"""Wide, tall, square, one past square, the smallest."""


def features(n: int, e: int, seed: int = 0) -> Matrix:
    return np.random.default_rng(seed).normal(size=(n, e))


def positive_definite(n: int, seed: int = 0) -> Matrix:
    X = features(n, n + 3, seed)
    return X @ X.T + 0.1 * np.eye(n)


def test_a_bordered_factor_is_the_factor_of_the_bordered_matrix() -> None:
    S = positive_definite(9)
    np.testing.assert_allclose(bordered(factor(S[:6, :6]), S[:6, 6:], S[6:, 6:]), factor(S), atol=1e-12)


@pytest.mark.parametrize("row", [0, 4, 8])
def test_a_factor_without_a_row_is_the_factor_of_the_smaller_matrix(row: int) -> None:
    S = positive_definite(9)
    smaller = np.delete(np.delete(S, row, 0), row, 1)
    np.testing.assert_allclose(without(factor(S), row), factor(smaller), atol=1e-12)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_rank_one_change_of_the_factor_is_one_of_the_matrix(sign: int) -> None:
    S, v = positive_definite(9), 0.2 * features(9, 1)[:, 0]
    np.testing.assert_allclose(rank_one(factor(S), v, sign), factor(S + sign * np.outer(v, v)), atol=1e-11)


def test_a_downdate_that_leaves_nothing_positive_is_refused() -> None:
    with pytest.raises(NotPositiveDefiniteError, match="rank-one"):
        rank_one(np.eye(3), np.array([2.0, 0, 0]), -1)


@pytest.mark.parametrize(("n", "e"), SHAPES)
def test_both_forms_are_scikit_learns_ridge(n: int, e: int) -> None:
    X, Y, queries = features(n, e), features(n, 3, 1), features(7, e, 2)
    theirs = Ridge(alpha=0.7, solver="cholesky").fit(X, Y).predict(queries)
    for form in (DualFactor, PrimalFactor):
        np.testing.assert_allclose(form.of(X, 0.7).solve(Y)(queries), theirs, atol=1e-10)


@pytest.mark.parametrize(("n", "e"), SHAPES)
def test_both_forms_agree_on_slack_and_variance(n: int, e: int) -> None:
    X, queries = features(n, e), features(7, e, 2)
    dual, primal = DualFactor.of(X, 0.7), PrimalFactor.of(X, 0.7)
    np.testing.assert_allclose(dual.slack, primal.slack, atol=1e-10)
    np.testing.assert_allclose(dual.variances(queries), primal.variances(queries), atol=1e-10)


@pytest.mark.parametrize(("n", "e"), SHAPES)
@pytest.mark.parametrize("lam", [1e-3, 1.0, 1e3])
def test_leave_one_out_is_n_refits_in_mean_and_variance(n: int, e: int, lam: float) -> None:
    X, Y = features(n, e), features(n, 3, 1)
    whole = factorise(X, lam)
    refits = [factorise(np.delete(X, i, 0), lam) for i in range(n)]
    means = [fit.solve(np.delete(Y, i, 0))(X[i : i + 1])[0] for i, fit in enumerate(refits)]
    variances = [fit.variances(X[i : i + 1])[0] for i, fit in enumerate(refits)]
    # 1e-8 is what is promised; the smallest lambda loses some digits in 1 - leverage
    np.testing.assert_allclose(leave_one_out(whole, Y), means, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(leave_one_out_variances(whole), variances, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("n", "e"), SHAPES)
def test_the_spectrum_gives_the_same_leave_one_out_at_every_lambda(n: int, e: int) -> None:
    X, Y = features(n, e), features(n, 3, 1)
    for lam in (1e-2, 1.0, 1e2):
        held_out = leave_one_out(factorise(X - X.mean(0), lam), Y)
        np.testing.assert_allclose(Spectrum.of(X).leave_one_out(Y, lam), held_out, rtol=1e-8, atol=1e-8)


def test_the_chosen_lambda_is_the_best_of_the_grid_by_refits() -> None:
    X = features(30, 8)
    Y = X @ features(8, 2, 1) + 3.0 * features(30, 2, 2)

    def loss(predictions: Matrix) -> float:
        return 1e6 * float(np.square(predictions - Y).sum())  # the evidence drowns the prior

    def press(lam: float) -> float:
        folds = [
            Ridge(alpha=lam).fit(np.delete(X, i, 0), np.delete(Y, i, 0)).predict(X[i : i + 1])[0] for i in range(30)
        ]
        return float(np.square(np.array(folds) - Y).sum())

    chosen, size = choose_lam(X, Y, loss), size_of(X)
    assert min((chosen / 10**0.5, chosen, chosen * 10**0.5), key=press) == chosen
    assert 1e-4 * size < chosen < 1e2 * size


@settings(max_examples=60, deadline=None)
@given(
    e=st.integers(2, 12),
    start=st.integers(2, 14),
    moves=st.lists(st.tuples(st.booleans(), st.integers(0, 10**6), st.integers(1, 5)), min_size=1, max_size=12),
    lam=st.sampled_from([1e-2, 1.0, 30.0]),
    seed=st.integers(0, 99),
)
def test_any_sequence_of_updates_equals_a_fresh_factor(
    e: int, start: int, moves: list[tuple[bool, int, int]], lam: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(start, e))
    current = factorise(X, lam)
    for grow, pick, k in moves:
        if grow:
            rows = rng.normal(size=(k, e))
            X, current = np.vstack([X, rows]), added(current, rows)
        else:
            index = sorted({(pick + step) % len(X) for step in range(min(k, len(X) - 2))})
            X, current = np.delete(X, index, 0), removed(current, index)
    fresh = factorise(X, lam)
    assert type(current) is type(fresh)
    targets, queries = rng.normal(size=(len(X), 3)), rng.normal(size=(5, e))
    np.testing.assert_allclose(current.solve(targets)(queries), fresh.solve(targets)(queries), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(current.variances(queries), fresh.variances(queries), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(current.slack, fresh.slack, rtol=1e-8, atol=1e-8)


def test_an_update_leaves_the_factor_that_it_started_from_alone() -> None:
    before = factorise(features(6, 9), 1.0)
    copies = before.features.copy(), before.L.copy()
    before.add(features(2, 9, 1))
    before.remove([1])
    np.testing.assert_array_equal(before.features, copies[0])
    np.testing.assert_array_equal(before.L, copies[1])
