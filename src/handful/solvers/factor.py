"""Updatable ridge regression: exact addition, removal and merging of examples, leave-one-out, predictive variance.

These are the paper's eq. 4 and 5 with an unpenalised bias, so that adding a constant to a feature changes nothing. A
factor is immutable: an update returns a new one. Everything is computed and returned in float64 (float32 on devices
without it), takes leading batch dimensions, and is differentiable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Literal

import torch
from torch import Tensor

from handful.errors import InvalidOptionError, ShapeError
from handful.solvers._checks import require_finite, require_positive, require_rows
from handful.solvers._linear import add_diagonal, bordered, cholesky, rank_one, solve_cholesky, solve_lower, without
from handful.solvers._precision import system_dtype

REFACTOR_SHARE = 8
"""If more than one in this many rows of the factor change at once, factorising again is cheaper than updating."""


@dataclass(frozen=True, eq=False)
class LinearMap:
    """The fitted map from features (..., q, e) to features @ weights + bias (..., q, o)."""

    weights: Tensor
    bias: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        """The predictions for these features."""
        return features.to(self.weights) @ self.weights + self.bias.unsqueeze(-2)


@dataclass(frozen=True, eq=False, repr=False)
class RidgeFactor(ABC):
    """Ridge regression on features X (..., n, e), before it has seen targets; made by `ridge_factor`.

    It keeps the Cholesky factor of the smaller system: of K + lam I (eq. 5) if n <= e, else of X^T X + lam I (eq. 4).
    Both give the same results. If an update makes the other system the smaller one, the form changes.
    """

    X: Tensor
    lam: Tensor
    L: Tensor
    bias: bool

    @property
    @abstractmethod
    def form(self) -> Literal["dual", "primal"]:
        """Which of the two systems is factorised, the one of eq. 5 or of eq. 4."""

    @abstractmethod
    def solve(self, Y: Tensor) -> LinearMap:
        """Weights and bias for targets (..., n, o)."""

    @abstractmethod
    def covariance(self, queries: Tensor) -> Tensor:
        """Predictive covariance of all pairs of queries (..., q, q); its diagonal is `variances`."""

    @abstractmethod
    def variances(self, queries: Tensor) -> Tensor:
        """Predictive variance of each query (..., q) in units of the kernel, seen as a Gaussian process."""

    @abstractmethod
    def residuals(self, Y: Tensor) -> Tensor:
        """The residuals of targets (..., n, o): (I - H) Y, with the hat matrix H, so that predictions are H Y."""

    @abstractmethod
    def residual_columns(self, rows: Tensor) -> Tensor:
        """The columns of I - H for these rows (..., n, r), at a cost quadratic in the size of the factor."""

    @property
    @abstractmethod
    def slack(self) -> Tensor:
        """1 minus the leverage of each example (..., n): the diagonal of I - H."""

    @abstractmethod
    def _with_rows(self, X: Tensor, rows: Tensor) -> RidgeFactor: ...

    @abstractmethod
    def _without_rows(self, X: Tensor, index: list[int]) -> RidgeFactor: ...

    @abstractmethod
    def _system_times(self, v: Tensor) -> Tensor: ...

    def add(self, rows: Tensor) -> RidgeFactor:
        """Append examples: each adds a row and a column to the factor (dual) or is a rank-one update (primal)."""
        rows = rows.to(self.X)
        X = torch.cat([self.X, rows], -2)
        many = REFACTOR_SHARE * rows.shape[-2] > self.L.shape[-1]
        if (many and self.form == "primal") or _form(X) != self.form:
            return ridge_factor(X, self.lam, self.bias)
        grown = self._with_rows(X, rows)
        if "slack" in self.__dict__ and not many:
            new = torch.arange(self.X.shape[-2], X.shape[-2], device=X.device)
            before = torch.cat([self.slack, torch.zeros_like(rows[..., 0])], -1)
            grown.__dict__["slack"] = before + grown._slack_taken(new)
        return grown

    def remove(self, index: Sequence[int]) -> RidgeFactor:
        """Remove the examples at these positions."""
        rows = set(index)
        if outside := [i for i in rows if not 0 <= i < self.X.shape[-2]]:
            raise InvalidOptionError(
                f"Cannot remove example {min(outside)}: there are {self.X.shape[-2]}, numbered from 0."
            )
        kept = [i for i in range(self.X.shape[-2]) if i not in rows]
        X = self._rest(sorted(rows))
        many = REFACTOR_SHARE * len(rows) > self.L.shape[-1]
        if many or _form(X) != self.form:
            return ridge_factor(X, self.lam, self.bias)
        shrunk = self._without_rows(X, sorted(rows, reverse=True))
        if "slack" in self.__dict__:
            gone = torch.tensor(sorted(rows), dtype=torch.int64, device=X.device)
            shrunk.__dict__["slack"] = (self.slack - self._slack_taken(gone))[..., kept]
        return shrunk

    def _rest(self, gone: list[int]) -> Tensor:
        """X without some rows; what stands between them is copied at once, which is several times faster."""
        bounds = zip([-1, *gone], [*gone, self.X.shape[-2]], strict=True)
        return torch.cat([self.X[..., start + 1 : end, :] for start, end in bounds], -2)

    def _slack_taken(self, rows: Tensor) -> Tensor:
        """How much each example's slack falls when these rows are removed (..., n): the diagonal of R_G R_GG^-1 R_G^T.

        This updates a known slack at quadratic cost; computing it from L is cubic.
        """
        columns = self.residual_columns(rows)
        shares: Tensor = torch.linalg.solve(columns[..., rows, :], columns.mT)
        return (columns * shares.mT).sum(-1)

    def merge(self, other: RidgeFactor) -> RidgeFactor:
        """Add the examples of another factor with the same lambda; `Moments` merge without needing the examples."""
        if not torch.equal(self.lam, other.lam) or self.bias != other.bias:
            raise InvalidOptionError(f"Factors with different lambda or bias cannot be merged: {self} and {other}.")
        return self.add(other.X)

    def leave_one_out(self, Y: Tensor) -> Tensor:
        """The prediction for each example by a fit on all others (..., n, o): y_i - (y_i - f_i) / (1 - leverage_i)."""
        self._require_rest(1)
        Y = Y.to(self.X)
        return held_out(Y, self.residuals(Y), self.slack.unsqueeze(-1))

    def leave_one_out_variances(self) -> Tensor:
        """The predictive variance of each example for a fit on all others: lam leverage_i / (1 - leverage_i)."""
        self._require_rest(1)
        return self.lam.unsqueeze(-1) * (1 / self.slack - 1).clamp_min(0)

    def leave_group_out(self, Y: Tensor, groups: Tensor) -> Tensor:
        """The prediction for each example by a fit without its whole group, for group labels (n,).

        Leaving out a group G multiplies its residuals by (I - H)_GG^-1. That is one small system per group, or a
        division if the group has one example.
        """
        Y = Y.to(self.X)
        return Y - self.residuals_without(self.residuals(Y), groups)

    def residuals_without(self, residuals: Tensor, groups: Tensor) -> Tensor:
        """The residuals (..., n, o) of each example when its group is left out, from those of the full fit."""
        self._require_rest(1)
        found = residuals / self.slack.unsqueeze(-1)
        for rows, block in self._blocks(groups):
            self._require_rest(len(rows))
            found[..., rows, :] = torch.linalg.solve(block, residuals[..., rows, :])
        return found

    def moved_residuals(self, residuals: Tensor, rows: Sequence[int], Y: Tensor | None = None) -> Tensor:
        """Residuals (..., n, o) after the targets of some rows change to those of Y, or, without Y, rows are removed.

        Both add a combination of the columns of these rows, chosen so that their own residuals become those of Y, or
        0 if they are removed. This takes one column per row instead of solving for all targets again.
        """
        if not len(rows):
            return residuals
        index = torch.as_tensor(list(rows), dtype=torch.int64, device=residuals.device)
        columns = self.residual_columns(index)
        wanted = 0.0 if Y is None else columns.mT @ Y.to(self.X)
        shares: Tensor = torch.linalg.solve(columns[..., index, :], wanted - residuals[..., index, :])
        return residuals + columns @ shares

    def leave_group_out_variances(self, groups: Tensor) -> Tensor:
        """The predictive variance of each example for a fit without its group: lam ((I - H)_GG^-1 - I)_ii."""
        self._require_rest(1)
        found = 1 / self.slack
        for rows, block in self._blocks(groups):
            self._require_rest(len(rows))
            found[..., rows] = torch.linalg.inv(block).diagonal(dim1=-2, dim2=-1)
        return self.lam.unsqueeze(-1) * (found - 1).clamp_min(0)

    def _blocks(self, groups: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The rows of each group that has several examples, with their block of I - H."""
        _, numbers, sizes = torch.unique(groups, return_inverse=True, return_counts=True)
        inside = torch.nonzero(sizes[numbers] > 1).squeeze(-1)
        if not len(inside):
            return
        columns, numbers = self.residual_columns(inside), numbers[inside]
        for number in numbers.unique():
            mine = torch.nonzero(numbers == number).squeeze(-1)
            yield inside[mine], columns[..., inside[mine], :][..., mine]

    def _require_rest(self, left_out: int) -> None:
        if self.X.shape[-2] <= left_out and self.bias:
            raise InvalidOptionError(
                f"Cannot leave out {left_out} of {self.X.shape[-2]} examples: none would be left to fit."
            )

    def __repr__(self) -> str:
        n, e = self.X.shape[-2:]
        lam = f"{self.lam.item():.4g}" if self.lam.numel() == 1 else f"{tuple(self.lam.shape)}"
        return f"RidgeFactor(examples={n}, features={e}, lam={lam}, bias={self.bias}, form='{self.form}')"


def ridge_factor(X: Tensor, lam: float | Tensor, bias: bool = True) -> RidgeFactor:
    """The factor of ridge regression on features X (..., n, e), with an unpenalised bias or none.

    `lam` is a number or a tensor of the batch's shape, and multiplies the sum of squares as in the paper.
    """
    require_rows("X", X, "X", X)
    X = X.to(system_dtype(X.device))
    lam = torch.as_tensor(lam, dtype=X.dtype, device=X.device)
    require_positive("lam", lam.detach())
    if _form(X) == "dual":
        return _Dual(X, lam, _cholesky(_shifted(_gram(X), lam)), bias)
    return _Primal(X, lam, _cholesky(_primal_system(_gram(X.mT), X.sum(-2), X.shape[-2], lam, bias)), bias)


def restored_factor(X: Tensor, lam: float, L: Tensor, form: Literal["dual", "primal"]) -> RidgeFactor:
    """A factor with a bias, from stored float64 parts; raises if L is not the factor for X and lam."""
    stored = _FORMS[form](X, torch.tensor(lam, dtype=X.dtype), L, True)
    size = X.shape[-2] if form == "dual" else X.shape[-1] + 1
    if L.shape == (size, size) and not L.triu(1).any():
        v = torch.cos(torch.arange(size, dtype=L.dtype)).unsqueeze(-1)
        expected = stored._system_times(v)
        if float((L @ (L.mT @ v) - expected).abs().max()) <= 1e-6 * max(1.0, float(expected.abs().max())):
            return stored
    raise ShapeError(
        f"The stored factor of shape {tuple(L.shape)} is not the {form} factor of features of shape {tuple(X.shape)} "
        f"at lam = {lam}."
    )


class _Dual(RidgeFactor):
    """With M = (K + lam I)^-1 and its sums m = M 1, I - H is lam (M - m m^T / 1^T m).

    The bias b solves [[K + lam I, 1], [1^T, 0]] [A; b] = [Y; 0], whose Schur complement only needs K + lam I.
    """

    form = "dual"

    @cached_property
    def _ones(self) -> Tensor:
        """M 1 as a column (..., n, 1), or zeros without a bias."""
        ones = torch.full_like(self.L[..., :1], float(self.bias))
        return solve_cholesky(self.L, ones) if self.bias else ones

    @cached_property
    def _total(self) -> Tensor:
        return self._ones.sum(-2, keepdim=True) if self.bias else torch.ones_like(self.L[..., :1, :1])

    def solve(self, Y: Tensor) -> LinearMap:
        A, bias = self._coefficients(Y)
        return LinearMap(self.X.mT @ A, bias.squeeze(-2))

    def residuals(self, Y: Tensor) -> Tensor:
        return self.lam[..., None, None] * self._coefficients(Y)[0]  # K A + 1 b = Y - lam A, so this does not need X

    def _coefficients(self, Y: Tensor) -> tuple[Tensor, Tensor]:
        """A (..., n, o) and b (..., 1, o)."""
        Y = Y.to(self.X)
        bias = self._ones.mT @ Y / self._total
        return solve_cholesky(self.L, Y - bias), bias

    @cached_property
    def slack(self) -> Tensor:
        root = solve_lower(self.L, torch.eye(self.L.shape[-1], dtype=self.L.dtype, device=self.L.device))
        diagonal = root.square().sum(-2)
        return self.lam.unsqueeze(-1) * (diagonal - (self._ones.square() / self._total).squeeze(-1))

    def residual_columns(self, rows: Tensor) -> Tensor:
        return self.residuals(_unit_columns(self.X, rows))

    def variances(self, queries: Tensor) -> Tensor:
        queries = queries.to(self.X)
        cross = self.X @ queries.mT  # (..., n, q)
        explained = solve_lower(self.L, cross).square().sum(-2)
        doubt = self._bias_doubt(cross).square() / self._total
        return (queries.square().sum(-1) - explained + doubt.squeeze(-2)).clamp_min(0)

    def covariance(self, queries: Tensor) -> Tensor:
        queries = queries.to(self.X)
        cross = self.X @ queries.mT
        half, doubt = solve_lower(self.L, cross), self._bias_doubt(cross)
        return queries @ queries.mT - half.mT @ half + doubt.mT @ doubt / self._total

    def _bias_doubt(self, cross: Tensor) -> Tensor:
        return float(self.bias) - self._ones.mT @ cross  # (..., 1, q)

    def _with_rows(self, X: Tensor, rows: Tensor) -> RidgeFactor:
        return _Dual(X, self.lam, bordered(self.L, self.X @ rows.mT, _shifted(_gram(rows), self.lam)), self.bias)

    def _without_rows(self, X: Tensor, index: list[int]) -> RidgeFactor:
        return _Dual(X, self.lam, reduce(without, index, self.L), self.bias)

    def _system_times(self, v: Tensor) -> Tensor:
        return self.X @ (self.X.mT @ v) + self.lam * v


class _Primal(RidgeFactor):
    """With X~ = [X, 1] and S = X~^T X~ + lam diag(1, ..., 1, 0), so that the bias is free, H is X~ S^-1 X~^T."""

    form = "primal"

    def solve(self, Y: Tensor) -> LinearMap:
        return _linear_map(solve_cholesky(self.L, self._extended(self.X).mT @ Y.to(self.X)), self.bias)

    @cached_property
    def slack(self) -> Tensor:
        half = solve_lower(self.L, self._extended(self.X).mT)  # H is its transpose times itself
        return 1 - half.square().sum(-2)

    def residuals(self, Y: Tensor) -> Tensor:
        return Y.to(self.X) - self.solve(Y)(self.X)

    def residual_columns(self, rows: Tensor) -> Tensor:
        X = self._extended(self.X)
        return _unit_columns(X, rows) - X @ solve_cholesky(self.L, X[..., rows, :].mT)

    def variances(self, queries: Tensor) -> Tensor:
        half = solve_lower(self.L, self._extended(queries.to(self.X)).mT)
        return self.lam.unsqueeze(-1) * half.square().sum(-2)

    def covariance(self, queries: Tensor) -> Tensor:
        half = solve_lower(self.L, self._extended(queries.to(self.X)).mT)
        return self.lam[..., None, None] * (half.mT @ half)

    def _with_rows(self, X: Tensor, rows: Tensor) -> RidgeFactor:
        return self._changed(X, rows, 1)

    def _without_rows(self, X: Tensor, index: list[int]) -> RidgeFactor:
        return self._changed(X, self.X[..., index, :], -1)

    def _changed(self, X: Tensor, rows: Tensor, sign: Literal[1, -1]) -> RidgeFactor:
        L = reduce(lambda L, row: rank_one(L, row, sign), self._extended(rows).unbind(-2), self.L)
        return _Primal(X, self.lam, L, self.bias)

    def _extended(self, rows: Tensor) -> Tensor:
        return torch.cat([rows, torch.ones_like(rows[..., :1])], -1) if self.bias else rows

    def _system_times(self, v: Tensor) -> Tensor:
        X = self._extended(self.X)
        return X.mT @ (X @ v) + self.lam * torch.cat([v[:-1], torch.zeros_like(v[-1:])])


_FORMS = {"dual": _Dual, "primal": _Primal}


@dataclass(frozen=True, eq=False)
class Moments:
    """The sufficient statistics of ridge regression: counts and sums, which merge by addition and contain no examples.

    Machines with different examples of the same problem can each send theirs. Features are not centred before they are
    squared, so shift them near 0 first, all by the same amount, if they are far from it.
    """

    n: int
    x_sum: Tensor
    y_sum: Tensor
    xx: Tensor
    """X^T X (..., e, e)."""
    xy: Tensor
    """X^T Y (..., e, o)."""

    @staticmethod
    def of(X: Tensor, Y: Tensor) -> Moments:
        """The moments of features (..., n, e) and targets (..., n, o)."""
        require_rows("X", X, "Y", Y)
        X = X.to(system_dtype(X.device))
        Y = Y.to(X)
        return Moments(X.shape[-2], X.sum(-2), Y.sum(-2), _gram(X.mT), X.mT @ Y)

    def __add__(self, other: Moments) -> Moments:
        return self._combined(other, 1)

    def __sub__(self, other: Moments) -> Moments:
        return self._combined(other, -1)

    def solve(self, lam: float | Tensor, bias: bool = True) -> LinearMap:
        """The weights and bias of a fit to all examples that were added and not subtracted again."""
        lam = torch.as_tensor(lam, dtype=self.xx.dtype, device=self.xx.device)
        require_positive("lam", lam.detach())
        L = _cholesky(_primal_system(self.xx, self.x_sum, self.n, lam, bias))
        return _linear_map(
            solve_cholesky(L, torch.cat([self.xy, self.y_sum.unsqueeze(-2)], -2) if bias else self.xy), bias
        )

    def _combined(self, other: Moments, sign: int) -> Moments:
        if self.xy.shape != other.xy.shape:
            raise ShapeError(f"Moments of shapes {tuple(self.xy.shape)} and {tuple(other.xy.shape)} cannot be merged.")
        names = ("n", "x_sum", "y_sum", "xx", "xy")
        return Moments(*(getattr(self, name) + sign * getattr(other, name) for name in names))


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Centred features as U, with U U^T = K and U^T U diagonal, so that each further lambda costs one product."""

    U: Tensor
    values: Tensor
    squares: Tensor
    """The squared entries of U."""

    @staticmethod
    def of(X: Tensor) -> Spectrum:
        """Decompose the smaller of the two Gram matrices of the centred features (..., n, e)."""
        X = X.to(system_dtype(X.device))
        X = X - X.mean(-2, keepdim=True)
        dual = _form(X) == "dual"
        values, vectors = torch.linalg.eigh(_gram(X if dual else X.mT))
        values = values.clamp_min(0)
        U = vectors * values.sqrt().unsqueeze(-2) if dual else X @ vectors
        return Spectrum(U, values, U.square())

    def leave_one_out(self, Y: Tensor, lam: float) -> Tensor:
        """The result of `RidgeFactor.leave_one_out` at this lambda, with a bias."""
        Y = Y.to(self.U)
        centred = Y - Y.mean(-2, keepdim=True)
        shrinkage = (self.values + lam).reciprocal().unsqueeze(-1)
        shrunk = self.U.mT @ centred * shrinkage
        slack = 1 - 1 / self.U.shape[-2] - self.squares @ shrinkage
        return held_out(Y, centred - self.U @ shrunk, slack)


def held_out(Y: Tensor, residuals: Tensor, slack: Tensor) -> Tensor:
    """Leave-one-out predictions from the residuals of the full fit and the diagonal of I - H."""
    return Y - residuals / slack


def _form(X: Tensor) -> Literal["dual", "primal"]:
    return "primal" if X.shape[-2] > X.shape[-1] else "dual"


def _gram(X: Tensor) -> Tensor:
    """X X^T. NumPy computes only half of this symmetric product, so it is used if autograd records nothing."""
    if X.device.type != "cpu" or X.ndim > 2 or (X.requires_grad and torch.is_grad_enabled()):
        return X @ X.mT
    rows = X.detach().numpy()
    return torch.from_numpy(rows @ rows.T)


def _unit_columns(X: Tensor, rows: Tensor) -> Tensor:
    """The columns of the identity for these rows (..., n, r)."""
    n = X.shape[-2]
    columns = torch.zeros(n, len(rows), dtype=X.dtype, device=X.device)
    columns[rows, torch.arange(len(rows), device=X.device)] = 1
    return columns.expand(*X.shape[:-2], n, len(rows))


def _shifted(S: Tensor, lam: Tensor) -> Tensor:
    return add_diagonal(S, lam.unsqueeze(-1))


def _primal_system(xx: Tensor, x_sum: Tensor, n: int, lam: Tensor, bias: bool) -> Tensor:
    S = _shifted(xx, lam)
    if not bias:
        return S
    count = torch.full_like(x_sum[..., :1], n)
    return torch.cat([torch.cat([S, x_sum.unsqueeze(-1)], -1), torch.cat([x_sum, count], -1).unsqueeze(-2)], -2)


def _linear_map(solution: Tensor, bias: bool) -> LinearMap:
    if bias:
        return LinearMap(solution[..., :-1, :], solution[..., -1, :])
    return LinearMap(solution, torch.zeros_like(solution[..., 0, :]))


def _cholesky(S: Tensor) -> Tensor:
    return cholesky(S, torch.finfo(S.dtype).eps, lambda: require_finite("X X^T or X^T X", S.detach()))
