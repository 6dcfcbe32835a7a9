"""Ridge regression as a value that examples can be added to and taken out of, each time exact: no refit, no drift.

The bias is not penalised, so adding a constant to a feature changes nothing. Everything here is float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from handful.classifier.cholesky import Matrix, bordered, factor, rank_one, solve_lower, without

REFACTOR_SHARE = 8
"""When more than one in so many examples change at once, a fresh factor is cheaper than as many updates."""


@dataclass(frozen=True)
class LinearMap:
    """What ridge regression learns: features (q, e) -> features @ weights + bias, (q, o)."""

    weights: Matrix
    bias: Matrix

    def __call__(self, features: Matrix) -> Matrix:
        """Apply it."""
        scores: Matrix = features @ self.weights + self.bias
        return scores


@dataclass(frozen=True)
class DualFactor:
    """The factor of K + lam I, n x n, for examples that are fewer than their features (eq. 5 of the paper).

    The free bias b solves [[K + lam I, 1], [1^T, 0]] [A; b] = [Y; 0], whose Schur complement needs K + lam I only.
    """

    features: Matrix
    lam: float
    L: Matrix

    @staticmethod
    def of(features: Matrix, lam: float) -> DualFactor:
        """Factorise from nothing."""
        return DualFactor(features, lam, factor(_shifted(features @ features.T, lam)))

    def add(self, rows: Matrix) -> DualFactor:
        """The same with more examples at the end."""
        L = bordered(self.L, self.features @ rows.T, _shifted(rows @ rows.T, self.lam))
        return DualFactor(np.vstack([self.features, rows]), self.lam, L)

    def remove(self, index: Sequence[int]) -> DualFactor:
        """The same without the examples at these positions."""
        kept = np.delete(self.features, list(index), axis=0)
        if REFACTOR_SHARE * len(index) > len(self.L):
            return DualFactor.of(kept, self.lam)
        L = self.L
        for row in sorted(index, reverse=True):
            L = without(L, row)
        return DualFactor(kept, self.lam, L)

    @cached_property
    def ones(self) -> Matrix:
        """(K + lam I)^-1 1."""
        return self._solve(np.ones(len(self.L)))

    def solve(self, targets: Matrix) -> LinearMap:
        """The weights and the bias for targets (n, o)."""
        bias = self.ones @ targets / self.ones.sum()
        return LinearMap(self.features.T @ self._solve(targets - bias), bias)

    @cached_property
    def slack(self) -> Matrix:
        """1 minus the leverage of each example: the share of its own target that its prediction does not take over."""
        inverse = solve_lower(self.L, np.eye(len(self.L)))
        diagonal = np.einsum("ij,ij->j", inverse, inverse)
        slack: Matrix = self.lam * (diagonal - self.ones**2 / self.ones.sum())
        return slack

    def variances(self, queries: Matrix) -> Matrix:
        """Predictive variance of each query under the Gaussian process whose mean this is, in units of the kernel."""
        cross = self.features @ queries.T  # (n, q)
        prior = np.einsum("qe,qe->q", queries, queries)
        explained = np.square(solve_lower(self.L, cross)).sum(0)
        unsure_bias = np.square(1 - self.ones @ cross) / self.ones.sum()
        variances: Matrix = np.maximum(prior - explained + unsure_bias, 0)
        return variances

    def covariance(self, queries: Matrix) -> Matrix:
        """Predictive covariance of all pairs of queries (q, q); its diagonal is `variances`."""
        cross = self.features @ queries.T
        half = solve_lower(self.L, cross)
        unsure_bias = 1 - self.ones @ cross
        covariance: Matrix = queries @ queries.T - half.T @ half + np.outer(unsure_bias, unsure_bias) / self.ones.sum()
        return covariance

    def _solve(self, B: Matrix) -> Matrix:
        return solve_lower(self.L, solve_lower(self.L, B), transposed=True)


@dataclass(frozen=True)
class PrimalFactor:
    """The factor of X^T X + lam I, with a column of ones in X that is not penalised (eq. 4): for n > e."""

    features: Matrix
    lam: float
    L: Matrix

    @staticmethod
    def of(features: Matrix, lam: float) -> PrimalFactor:
        """Factorise from nothing."""
        X = _with_ones(features)
        S = _shifted(X.T @ X, lam)
        S[-1, -1] = len(X)
        return PrimalFactor(features, lam, factor(S))

    def add(self, rows: Matrix) -> PrimalFactor:
        """The same with more examples at the end: a rank-one update for each."""
        grown = np.vstack([self.features, rows])
        if REFACTOR_SHARE * len(rows) > len(self.L):
            return PrimalFactor.of(grown, self.lam)
        L = self.L
        for row in _with_ones(rows):
            L = rank_one(L, row, 1)
        return PrimalFactor(grown, self.lam, L)

    def remove(self, index: Sequence[int]) -> PrimalFactor:
        """The same without the examples at these positions: a rank-one downdate for each."""
        kept = np.delete(self.features, list(index), axis=0)
        if REFACTOR_SHARE * len(index) > len(self.L):
            return PrimalFactor.of(kept, self.lam)
        L = self.L
        for row in _with_ones(self.features[list(index)]):
            L = rank_one(L, row, -1)
        return PrimalFactor(kept, self.lam, L)

    def solve(self, targets: Matrix) -> LinearMap:
        """The weights and the bias for targets (n, o)."""
        moments = _with_ones(self.features).T @ targets
        solution = solve_lower(self.L, solve_lower(self.L, moments), transposed=True)
        return LinearMap(solution[:-1], solution[-1])

    @cached_property
    def slack(self) -> Matrix:
        """1 minus the leverage of each example, as in the dual."""
        slack: Matrix = 1 - self._leverages(self.features)
        return slack

    def variances(self, queries: Matrix) -> Matrix:
        """Predictive variance of each query, as in the dual."""
        variances: Matrix = self.lam * self._leverages(queries)
        return variances

    def covariance(self, queries: Matrix) -> Matrix:
        """Predictive covariance of all pairs of queries, as in the dual."""
        half = solve_lower(self.L, _with_ones(queries).T)
        covariance: Matrix = self.lam * (half.T @ half)
        return covariance

    def _leverages(self, rows: Matrix) -> Matrix:
        leverages: Matrix = np.square(solve_lower(self.L, _with_ones(rows).T)).sum(0)
        return leverages


Factor = DualFactor | PrimalFactor


def factorise(features: Matrix, lam: float) -> Factor:
    """The smaller of the two systems."""
    return PrimalFactor.of(features, lam) if len(features) > features.shape[1] else DualFactor.of(features, lam)


def added(factor: Factor, rows: Matrix) -> Factor:
    """The factor with more examples, in the other form when it has become the smaller."""
    n, e = factor.features.shape
    if (n > e) == (n + len(rows) > e):
        return factor.add(rows)
    return factorise(np.vstack([factor.features, rows]), factor.lam)


def removed(factor: Factor, index: Sequence[int]) -> Factor:
    """The factor without some examples, in the other form when it has become the smaller."""
    n, e = factor.features.shape
    if (n > e) == (n - len(index) > e):
        return factor.remove(index)
    return factorise(np.delete(factor.features, list(index), axis=0), factor.lam)


def leave_one_out(factor: Factor, targets: Matrix) -> Matrix:
    """What a fit on all other examples predicts for each, exactly: y_i - (y_i - f_i) / (1 - leverage_i)."""
    residuals = targets - factor.solve(targets)(factor.features)
    held_out: Matrix = targets - residuals / factor.slack[:, None]
    return held_out


def leave_one_out_variances(factor: Factor) -> Matrix:
    """The predictive variance of each example under a fit on all others: lam leverage_i / (1 - leverage_i)."""
    variances: Matrix = factor.lam * np.maximum(1 / factor.slack - 1, 0)
    return variances


def _shifted(S: Matrix, lam: float) -> Matrix:
    S[np.diag_indices_from(S)] += lam
    return S


def _with_ones(rows: Matrix) -> Matrix:
    return np.hstack([rows, np.ones((len(rows), 1))])
