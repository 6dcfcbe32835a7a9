"""Cholesky factors that follow their matrix: a border added, a row and column removed, a rank-one term in or out."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from handful.errors import NotPositiveDefiniteError

Matrix = NDArray[np.float64]


def factor(S: Matrix) -> Matrix:
    """The lower triangular L with L L^T = S."""
    try:
        L: Matrix = cholesky(S, lower=True, check_finite=False)
    except np.linalg.LinAlgError as error:
        raise NotPositiveDefiniteError(
            f"A system of {len(S)} equations is not positive definite ({error}). Its features are too large or too "
            f"alike for this lambda: raise lam, or scale the features."
        ) from error
    return L


def solve_lower(L: Matrix, B: Matrix, *, transposed: bool = False) -> Matrix:
    """L^-1 B, or L^-T B."""
    X: Matrix = solve_triangular(L, B, lower=True, trans=int(transposed), check_finite=False)
    return X


def bordered(L: Matrix, cross: Matrix, corner: Matrix) -> Matrix:
    """The factor of [[S, cross], [cross^T, corner]] from the factor L of S, at a cost quadratic in the size of S."""
    n, k = cross.shape
    below = solve_lower(L, cross).T  # (k, n)
    grown = np.zeros((n + k, n + k))
    grown[:n, :n] = L
    grown[n:, :n] = below
    grown[n:, n:] = factor(corner - below @ below.T)
    return grown


def without(L: Matrix, row: int) -> Matrix:
    """The factor of S with one row and column taken out: what stands below them grows by a rank-one term."""
    n = len(L)
    shrunk = np.zeros((n - 1, n - 1))
    shrunk[:row, :row] = L[:row, :row]
    shrunk[row:, :row] = L[row + 1 :, :row]
    if row < n - 1:
        shrunk[row:, row:] = rank_one(L[row + 1 :, row + 1 :], L[row + 1 :, row], 1)
    return shrunk


def rank_one(L: Matrix, v: Matrix, sign: Literal[1, -1]) -> Matrix:
    """The factor of L L^T + sign v v^T, at quadratic cost and with no loop.

    With p = L^-1 v the new factor is L R, where R is the factor of I + sign p p^T, known in closed form: with
    rho_j = 1 + sign (p_1^2 + ... + p_j^2), R_jj = sqrt(rho_j / rho_{j-1}) and, for i > j,
    R_ij = sign p_i p_j / sqrt(rho_j rho_{j-1}). So L R needs the sums over i > j of L_i p_i only (after Gill, Golub,
    Murray and Saunders, 1974).
    """
    p = solve_lower(L, v)
    rho = 1 + sign * np.cumsum(p * p)
    if rho[-1] <= 0:
        raise NotPositiveDefiniteError(
            f"Taking out a rank-one term leaves no positive definite matrix (1 - |p|^2 = {rho[-1]:.3g})."
        )
    before = np.concatenate([[1.0], rho[:-1]])
    later = np.zeros_like(L)  # column j: the sum over i > j of L_i p_i
    later[:, :-1] = np.cumsum((L * p)[:, :0:-1], axis=1)[:, ::-1]
    changed: Matrix = L * np.sqrt(rho / before) + later * (sign * p / np.sqrt(rho * before))
    return changed
