"""The updatable ridge regression: every update against a fresh factor, every left-out example against a refit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from torch import Tensor

from handful.errors import HandfulError, InvalidOptionError, NotPositiveDefiniteError, ShapeError
from handful.solvers import leave_one_out, ridge
from handful.solvers._linear import bordered, rank_one, without
from handful.solvers.factor import (
    LinearMap,
    Moments,
    RidgeFactor,
    Spectrum,
    _Dual,
    _gram,
    _Primal,
    _primal_system,
    _shifted,
    restored_factor,
    ridge_factor,
)

SHAPES = [(6, 40), (40, 6), (12, 12), (13, 12), (2, 3)]
"""Wide, tall, square, one past square, the smallest."""
BIAS = pytest.mark.parametrize("bias", [True, False])
CLOSE = {"rtol": 1e-8, "atol": 1e-8}  # what is promised; small lambdas lose some digits in 1 - leverage
EXACT = {"rtol": 1e-10, "atol": 1e-10}


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def positive_definite(n: int, seed: int = 0) -> Tensor:
    X = normal(n, n + 3, seed=seed)
    return X @ X.mT + 0.1 * torch.eye(n, dtype=torch.float64)


def both_forms(X: Tensor, lam: float, bias: bool = True) -> tuple[RidgeFactor, RidgeFactor]:
    """The two systems, whichever is the smaller."""
    strength = torch.tensor(lam, dtype=torch.float64)
    L = torch.linalg.cholesky(_primal_system(_gram(X.mT), X.sum(0), len(X), strength, bias))
    return _Dual(X, strength, torch.linalg.cholesky(_shifted(_gram(X), strength)), bias), _Primal(X, strength, L, bias)


def without_rows(X: Tensor, rows: list[int]) -> Tensor:
    return X[[i for i in range(len(X)) if i not in rows]]


def test_a_bordered_factor_is_the_factor_of_the_bordered_matrix() -> None:
    S = positive_definite(9)
    grown = bordered(torch.linalg.cholesky(S[:6, :6]), S[:6, 6:], S[6:, 6:])
    torch.testing.assert_close(grown, torch.linalg.cholesky(S), rtol=0, atol=1e-12)


@pytest.mark.parametrize("row", [0, 4, 8])
def test_a_factor_without_a_row_is_the_factor_of_the_smaller_matrix(row: int) -> None:
    S = positive_definite(9)
    smaller = without_rows(without_rows(S, [row]).mT, [row])
    shrunk = without(torch.linalg.cholesky(S), row)
    torch.testing.assert_close(shrunk, torch.linalg.cholesky(smaller), rtol=0, atol=1e-12)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_rank_one_change_of_the_factor_is_one_of_the_matrix(sign: int) -> None:
    S, v = positive_definite(9), 0.2 * normal(9)
    changed = rank_one(torch.linalg.cholesky(S), v, sign)
    torch.testing.assert_close(changed, torch.linalg.cholesky(S + sign * torch.outer(v, v)), rtol=0, atol=1e-11)
    assert not changed.triu(1).any()


def test_a_downdate_that_leaves_nothing_positive_is_refused() -> None:
    with pytest.raises(NotPositiveDefiniteError, match="rank-one"):
        rank_one(torch.eye(3), torch.tensor([2.0, 0, 0]), -1)


@BIAS
@pytest.mark.parametrize(("n", "e"), SHAPES)
def test_both_forms_are_scikit_learns_ridge(n: int, e: int, bias: bool) -> None:
    X, Y, queries = normal(n, e), normal(n, 3, seed=1), normal(7, e, seed=2)
    theirs = Ridge(alpha=0.7, solver="cholesky", fit_intercept=bias).fit(X.numpy(), Y.numpy()).predict(queries.numpy())
    for factor in both_forms(X, 0.7, bias):
        torch.testing.assert_close(factor.solve(Y)(queries), torch.from_numpy(theirs), **EXACT)


@BIAS
@pytest.mark.parametrize(("n", "e"), SHAPES)
def test_both_forms_agree_on_slack_variance_and_covariance(n: int, e: int, bias: bool) -> None:
    dual, primal = both_forms(normal(n, e), 0.7, bias)
    queries, rows = normal(7, e, seed=2), torch.tensor([0, 1])
    torch.testing.assert_close(dual.slack, primal.slack, **EXACT)
    torch.testing.assert_close(dual.residual_columns(rows), primal.residual_columns(rows), **EXACT)
    torch.testing.assert_close(dual.variances(queries), primal.variances(queries), **EXACT)
    for factor in (dual, primal):
        covariance = factor.covariance(queries)
        torch.testing.assert_close(covariance, dual.covariance(queries), **EXACT)
        torch.testing.assert_close(covariance.diagonal(), factor.variances(queries), **EXACT)


def test_without_a_bias_it_is_the_ridge_and_the_leave_one_out_of_the_meta_learner() -> None:
    for n, e in SHAPES:
        X, Y = normal(n, e), normal(n, 3, seed=1)
        factor = ridge_factor(X, 0.7, bias=False)
        torch.testing.assert_close(factor.solve(Y).weights, ridge(X, Y, 0.7), **EXACT)
        torch.testing.assert_close(factor.leave_one_out(Y), leave_one_out(X @ X.mT, Y, 0.7), **CLOSE)


@BIAS
@pytest.mark.parametrize(("n", "e"), SHAPES)
@pytest.mark.parametrize("lam", [1e-3, 1.0, 1e3])
def test_leave_one_out_is_n_refits_in_mean_and_variance(n: int, e: int, lam: float, bias: bool) -> None:
    X, Y = normal(n, e), normal(n, 3, seed=1)
    whole = ridge_factor(X, lam, bias)
    refits = [ridge_factor(without_rows(X, [i]), lam, bias) for i in range(n)]
    means = [fit.solve(without_rows(Y, [i]))(X[i : i + 1])[0] for i, fit in enumerate(refits)]
    variances = [fit.variances(X[i : i + 1])[0] for i, fit in enumerate(refits)]
    torch.testing.assert_close(whole.leave_one_out(Y), torch.stack(means), **CLOSE)
    torch.testing.assert_close(whole.leave_one_out_variances(), torch.stack(variances), **CLOSE)


@BIAS
@pytest.mark.parametrize(("n", "e"), SHAPES[:-1])
def test_leaving_a_group_out_is_a_refit_without_it(n: int, e: int, bias: bool) -> None:
    X, Y, groups = normal(n, e), normal(n, 3, seed=1), torch.arange(n) * 7 % 3
    found = ridge_factor(X, 0.3, bias).leave_group_out(Y, groups)
    for group in range(3):
        rows = torch.nonzero(groups == group).squeeze(-1).tolist()
        refit = ridge_factor(without_rows(X, rows), 0.3, bias).solve(without_rows(Y, rows))
        torch.testing.assert_close(found[rows], refit(X[rows]), **CLOSE)


def test_groups_of_one_are_leave_one_out() -> None:
    for n, e in SHAPES:
        X, Y = normal(n, e), normal(n, 3, seed=1)
        factor = ridge_factor(X, 0.3)
        torch.testing.assert_close(factor.leave_group_out(Y, torch.arange(n)), factor.leave_one_out(Y), **CLOSE)


@BIAS
@pytest.mark.parametrize(("n", "e"), [(40, 60), (60, 12)])
def test_slack_that_is_known_follows_updates_as_a_new_factor_has_it(n: int, e: int, bias: bool) -> None:
    X, more = normal(n, e), normal(1, e, seed=3)
    factor = ridge_factor(X, 0.7, bias)
    assert len(factor.slack) == n
    updated = factor.add(more).remove([7])
    assert "slack" in updated.__dict__  # not computed again from L
    fresh = ridge_factor(torch.cat([without_rows(X, [7]), more]), 0.7, bias)
    torch.testing.assert_close(updated.slack, fresh.slack, **CLOSE)


@BIAS
@pytest.mark.parametrize(("n", "e"), [(40, 60), (60, 12)])
def test_residuals_follow_targets_that_change_and_rows_that_go(n: int, e: int, bias: bool) -> None:
    X, Y, rows = normal(n, e), normal(n, 3, seed=1), [3, 30]
    factor = ridge_factor(X, 0.7, bias)
    changed = Y.index_fill(0, torch.tensor(rows), 2.0)
    moved = factor.moved_residuals(factor.residuals(Y), rows, changed)
    torch.testing.assert_close(moved, factor.residuals(changed), **CLOSE)
    left = factor.moved_residuals(factor.residuals(Y), rows)
    expected = ridge_factor(without_rows(X, rows), 0.7, bias).residuals(without_rows(Y, rows))
    torch.testing.assert_close(without_rows(left, rows), expected, **CLOSE)


def test_leaving_all_examples_out_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="4 of 4"):
        ridge_factor(normal(4, 3), 1.0).leave_group_out(normal(4, 2), torch.zeros(4))
    with pytest.raises(InvalidOptionError, match="1 of 1"):
        ridge_factor(normal(1, 3), 1.0).leave_one_out(normal(1, 2))


@pytest.mark.parametrize(("n", "e"), SHAPES)
def test_the_spectrum_gives_the_same_leave_one_out_at_every_lambda(n: int, e: int) -> None:
    X, Y = normal(n, e) + 3, normal(n, 3, seed=1)
    for lam in (1e-2, 1.0, 1e2):
        held_out = ridge_factor(X, lam).leave_one_out(Y)
        torch.testing.assert_close(Spectrum.of(X).leave_one_out(Y, lam), held_out, **CLOSE)


@settings(max_examples=60, deadline=None)
@given(
    e=st.integers(2, 12),
    start=st.integers(2, 14),
    moves=st.lists(st.tuples(st.booleans(), st.integers(0, 10**6), st.integers(1, 5)), min_size=1, max_size=12),
    lam=st.sampled_from([1e-2, 1.0, 30.0]),
    bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_sequence_of_updates_equals_a_fresh_factor(
    e: int, start: int, moves: list[tuple[bool, int, int]], lam: float, bias: bool, seed: int
) -> None:
    X = normal(start, e, seed=seed)
    current = ridge_factor(X, lam, bias)
    for number, (grow, pick, k) in enumerate(moves):
        if grow:
            rows = normal(k, e, seed=1000 * seed + number)
            X, current = torch.cat([X, rows]), current.add(rows)
        else:
            index = sorted({(pick + step) % len(X) for step in range(min(k, len(X) - 2))})
            X, current = without_rows(X, index), current.remove(index)
    fresh = ridge_factor(X, lam, bias)
    assert current.form == fresh.form
    targets, queries = normal(len(X), 3, seed=seed), normal(5, e, seed=seed + 1)
    torch.testing.assert_close(current.X, X, rtol=0, atol=0)
    torch.testing.assert_close(current.solve(targets)(queries), fresh.solve(targets)(queries), **CLOSE)
    torch.testing.assert_close(current.variances(queries), fresh.variances(queries), **CLOSE)
    torch.testing.assert_close(current.slack, fresh.slack, **CLOSE)


def test_an_update_leaves_the_factor_that_it_started_from_alone() -> None:
    for n, e in ((6, 9), (90, 9)):
        before = ridge_factor(normal(n, e), 1.0)
        copies = before.X.clone(), before.L.clone()
        before.add(normal(1, e, seed=1))
        before.remove([1])
        assert torch.equal(before.X, copies[0])
        assert torch.equal(before.L, copies[1])


@pytest.mark.parametrize(("n", "e"), SHAPES)
def test_merged_factors_are_the_factor_of_all_examples(n: int, e: int) -> None:
    X, Y, more = normal(n, e), normal(n + 4, 2, seed=1), normal(4, e, seed=2)
    merged = ridge_factor(X, 0.5).merge(ridge_factor(more, 0.5))
    whole = ridge_factor(torch.cat([X, more]), 0.5)
    torch.testing.assert_close(merged.solve(Y).weights, whole.solve(Y).weights, **EXACT)
    with pytest.raises(InvalidOptionError, match=r"lam=0\.5.*lam=0\.6"):
        merged.merge(ridge_factor(more, 0.6))


@BIAS
@pytest.mark.parametrize(("n", "e"), SHAPES)
def test_moments_of_parts_add_up_to_the_fit_to_all_and_subtract_again(n: int, e: int, bias: bool) -> None:
    X, Y = normal(n, e), normal(n, 3, seed=1)
    whole, part = ridge_factor(X, 0.5, bias).solve(Y), ridge_factor(X[:1], 0.5, bias).solve(Y[:1])
    first, rest = Moments.of(X[:1], Y[:1]), Moments.of(X[1:], Y[1:])
    for found, expected in (((first + rest).solve(0.5, bias), whole), ((first + rest - rest).solve(0.5, bias), part)):
        torch.testing.assert_close(found.weights, expected.weights, **CLOSE)
        torch.testing.assert_close(found.bias, expected.bias, **CLOSE)


def test_moments_of_other_shapes_are_refused() -> None:
    with pytest.raises(ShapeError, match="cannot be merged"):
        _ = Moments.of(normal(4, 3), normal(4, 2)) + Moments.of(normal(4, 3), normal(4, 1))


@BIAS
@pytest.mark.parametrize(("n", "e"), [(4, 6), (7, 3)])
def test_everything_can_be_differentiated_in_features_targets_and_lambda(n: int, e: int, bias: bool) -> None:
    def everything(X: Tensor, Y: Tensor, lam: Tensor) -> tuple[Tensor, ...]:
        factor = ridge_factor(X[:-2], lam, bias).add(X[-2:]).remove([0])
        rest = Y[1:]
        solution: LinearMap = factor.solve(rest)
        groups = torch.arange(n - 1) % 2
        left_out = factor.leave_one_out(rest), factor.leave_group_out(rest, groups), factor.variances(X[:2])
        return solution.weights, solution.bias, *left_out, Moments.of(X, Y).solve(lam, bias).weights

    inputs = normal(n, e), normal(n, 2, seed=1), torch.tensor(0.8, dtype=torch.float64)
    for each in inputs:
        each.requires_grad_()
    assert torch.autograd.gradcheck(everything, inputs)


@BIAS
@pytest.mark.parametrize(("n", "e"), SHAPES[:-1])
def test_a_batch_of_problems_is_each_problem_alone(n: int, e: int, bias: bool) -> None:
    X, Y, Q, more = normal(2, n, e), normal(2, n, 3, seed=1), normal(2, 4, e, seed=2), normal(2, 1, e, seed=3)
    lam, groups = torch.tensor([0.3, 2.0], dtype=torch.float64), torch.arange(n) % 2

    def results(factor: RidgeFactor, Y: Tensor, Q: Tensor, more: Tensor) -> list[Tensor]:
        updated = factor.add(more).remove([0])
        first = [factor.solve(Y)(Q), factor.leave_one_out(Y), factor.leave_group_out(Y, groups)]
        return [*first, factor.variances(Q), factor.covariance(Q), updated.solve(Y)(Q), updated.slack]

    together = results(ridge_factor(X, lam, bias), Y, Q, more)
    for i in range(2):
        alone = results(ridge_factor(X[i], lam[i], bias), Y[i], Q[i], more[i])
        for one, other in zip(together, alone, strict=True):
            torch.testing.assert_close(one[i], other, **CLOSE)


def test_float32_features_are_computed_with_in_float64() -> None:
    X, Y = torch.tensor([[1.0, 2, 3]] * 2), torch.tensor([[1.0], [0]])
    found = ridge_factor(X, 1e-9).solve(Y)(X)
    assert found.dtype == torch.float64
    # twice the same features: half of each target, whatever lambda is
    torch.testing.assert_close(found, torch.full((2, 1), 0.5, dtype=torch.float64), rtol=0, atol=1e-6)
    assert Moments.of(X, Y).xx.dtype == torch.float64


def test_what_cannot_be_fitted_is_refused_with_the_reason() -> None:
    for lam in (0.0, -1.0, float("nan")):
        with pytest.raises(InvalidOptionError, match=r"lam .*positive"):
            ridge_factor(normal(3, 4), lam)
    with pytest.raises(HandfulError, match="NaN"):
        ridge_factor(torch.full((3, 4), float("nan")), 1.0)


@pytest.mark.parametrize(("n", "e"), SHAPES)
def test_a_stored_factor_is_restored_unless_it_belongs_to_something_else(n: int, e: int) -> None:
    factor = ridge_factor(normal(n, e), 0.5)
    again = restored_factor(factor.X, 0.5, factor.L, factor.form)
    assert torch.equal(again.slack, factor.slack)
    other = ridge_factor(normal(n, e, seed=1), 0.5)
    for X, lam, L in ((other.X, 0.5, factor.L), (factor.X, 0.6, factor.L), (factor.X, 0.5, factor.L[:-1])):
        with pytest.raises(ShapeError, match=rf"{factor.form} .*lam = {lam}"):
            restored_factor(X, lam, L, factor.form)


def test_a_factor_says_what_it_is_and_not_what_it_holds() -> None:
    assert repr(ridge_factor(normal(4, 9), 0.5)) == (
        "RidgeFactor(examples=4, features=9, lam=0.5, bias=True, form='dual')"
    )


@pytest.mark.parametrize("position", [-1, 5, 99])
@pytest.mark.parametrize("shape", [(5, 20), (5, 3)], ids=["dual", "primal"])
def test_a_position_that_does_not_exist_cannot_be_removed(position: int, shape: tuple[int, int]) -> None:
    with pytest.raises(InvalidOptionError, match=rf"{position}\b.* 5\b"):
        ridge_factor(normal(*shape), 1.0).remove([0, position])


def test_no_variance_remains_where_nothing_is_left_to_fit() -> None:
    factor = ridge_factor(normal(4, 6), 1.0)
    with pytest.raises(InvalidOptionError, match="4 of 4"):
        factor.leave_group_out_variances(torch.zeros(4, dtype=torch.int64))
    with pytest.raises(InvalidOptionError, match="1 of 1"):
        ridge_factor(normal(1, 6), 1.0).leave_one_out_variances()
