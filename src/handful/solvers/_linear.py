"""Positive definite systems by Cholesky, with clear errors and a backward pass that reuses the factor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from handful.errors import NotPositiveDefiniteError
from handful.solvers._checks import common_batch, inspect, require_finite, require_gram, require_rows, require_symmetric
from handful.solvers._operation import Operation, checking, in_front
from handful.solvers._precision import no_autocast, recast, result_dtype, system_dtype


def solve_psd(S: Tensor, B: Tensor) -> Tensor:
    """The solution X of S X = B for symmetric positive definite S: (..., n, n), (..., n, o) -> (..., n, o).

    Only the symmetric part of S counts. A singular matrix is accepted if its negative eigenvalues are within the
    rounding error of its dtype; its diagonal is then raised by that much. Anything worse raises an error.
    """
    require_gram(S)
    require_rows("S", S, "B", B)
    dtype, work = result_dtype(S, B), system_dtype(S.device)
    inspect(_require_sound, S, B)
    with no_autocast(S.device):
        return recast(solve(symmetric(recast(S, work)), recast(B, work), rounding(S)), dtype)


def solve(S: Tensor, B: Tensor, eps: float) -> Tensor:
    """`solve_psd` without checks, for symmetric S; `eps` is the relative rounding error of S."""
    return solve_factorised(S, factorise(S, eps), B)


def symmetric(S: Tensor) -> Tensor:
    """The symmetric part of S, so that the gradient is symmetric too."""
    return (S + S.mT) / 2


def add_diagonal(K: Tensor, diagonal: Tensor) -> Tensor:
    """K + diag(diagonal) for K (..., n, n) and a diagonal (..., n) or (..., 1)."""
    identity = torch.eye(K.shape[-1], dtype=K.dtype, device=K.device)
    return torch.addcmul(K, diagonal.unsqueeze(-1), identity)


def factorise(S: Tensor, eps: float) -> Tensor:
    """The Cholesky factor of S as a constant; gradients flow through `solve_factorised` instead."""
    L: Tensor = _Factorise.apply(S.detach(), eps)
    return L


def solve_factorised(S: Tensor, L: Tensor, B: Tensor) -> Tensor:
    """Solve S X = B with the factor L of S; S and B can be differentiated any number of times with the same factor."""
    batch = common_batch(S=S.shape[:-2], B=B.shape[:-2])
    n = S.shape[-1]
    X: Tensor = _SolveFactorised.apply(S.expand(*batch, n, n), L.expand(*batch, n, n), B.expand(*batch, n, B.shape[-1]))
    return X


def rounding(K: Tensor) -> float:
    """The relative rounding error of a matrix that was computed in K's dtype."""
    return torch.finfo(K.dtype if K.is_floating_point() else torch.float64).eps


def cholesky(S: Tensor, eps: float, inspector: Callable[[], None] | None = None) -> Tensor:
    """The factor L of S = L L^T, not recorded by autograd; `factorise` wraps it for autograd and torch.func.

    Only the lower half of S is read. If S is not positive definite, `inspector` may raise a more helpful error; with
    checks off, its factor becomes NaN.
    """
    L, info = torch.linalg.cholesky_ex(S)
    if not checking():
        return torch.where((info > 0)[..., None, None], torch.nan, L)
    if info.sum().item():
        if inspector is not None:
            inspector()
        failed = info > 0
        L = L.clone()
        L[failed] = _factorise_rounded(S[failed], eps)
    return L  # type: ignore[no-any-return]


def solve_lower(L: Tensor, B: Tensor) -> Tensor:
    """L^-1 B."""
    X: Tensor = torch.linalg.solve_triangular(L, B, upper=False)
    return X


def solve_cholesky(L: Tensor, B: Tensor) -> Tensor:
    """(L L^T)^-1 B; torch.cholesky_solve takes several times as long for a few columns."""
    X: Tensor = torch.linalg.solve_triangular(L.mT, solve_lower(L, B), upper=True)
    return X


def bordered(L: Tensor, cross: Tensor, corner: Tensor) -> Tensor:
    """The factor of [[S, cross], [cross^T, corner]] from the factor L of S, at a cost quadratic in the size of S."""
    n, k = cross.shape[-2:]
    below = solve_lower(L, cross).mT  # (..., k, n)
    grown = L.new_zeros(*L.shape[:-2], n + k, n + k)
    grown[..., :n, :n] = L
    grown[..., n:, :n] = below
    grown[..., n:, n:] = cholesky(corner - below @ below.mT, torch.finfo(L.dtype).eps)
    return grown


def without(L: Tensor, row: int) -> Tensor:
    """The factor of S without one row and column: the part of L below them gets a rank-one update."""
    n = L.shape[-1]
    shrunk = L.new_zeros(*L.shape[:-2], n - 1, n - 1)
    shrunk[..., :row, :row] = L[..., :row, :row]
    shrunk[..., row:, :row] = L[..., row + 1 :, :row]
    if row < n - 1:
        below = L[..., row]
        p = solve_lower(
            L, torch.cat([torch.zeros_like(below[..., : row + 1]), below[..., row + 1 :]], -1).unsqueeze(-1)
        )
        _rank_one_into(
            shrunk[..., row:, row:], L[..., row + 1 :, row + 1 :], below[..., row + 1 :], p[..., row + 1 :, :].mT, 1
        )
    return shrunk


ROWS = 128
"""Rows of a factor that are updated at once, few enough to stay in the CPU cache."""


def rank_one(L: Tensor, v: Tensor, sign: Literal[1, -1]) -> Tensor:
    """The factor of L L^T + sign v v^T, at quadratic cost and without a loop over columns.

    With p = L^-1 v the new factor is L R, where R is the factor of I + sign p p^T, known in closed form: with
    rho_j = 1 + sign (p_1^2 + ... + p_j^2), R_jj = sqrt(rho_j / rho_{j-1}) and, for i > j,
    R_ij = sign p_i p_j / sqrt(rho_j rho_{j-1}). So L R needs only `later`, the sums over i > j of L_i p_i, which are
    v = L p minus the sums over i <= j (after Gill, Golub, Murray and Saunders, 1974).
    """
    changed = torch.zeros_like(L)
    _rank_one_into(changed, L, v, solve_lower(L, v.unsqueeze(-1)).mT, sign)
    return changed


def _rank_one_into(changed: Tensor, L: Tensor, v: Tensor, p: Tensor, sign: Literal[1, -1]) -> None:
    """The same, written to the lower half of a tensor, with p as a row (..., 1, n)."""
    rho = 1 + sign * p.square().cumsum(-1)
    if bool((rho[..., -1] <= 0).any()):
        raise NotPositiveDefiniteError(
            f"Without the rank-one term, the matrix is not positive definite (1 - |p|^2 = {float(rho.min()):.3g})."
        )
    before = torch.cat([torch.ones_like(rho[..., :1]), rho[..., :-1]], -1)
    grown, weights = (rho / before).sqrt(), sign * p / (rho * before).sqrt()
    for start in range(0, L.shape[-1], ROWS):
        end = min(start + ROWS, L.shape[-1])
        rows, part = L[..., start:end, :end], v[..., start:end, None]  # beyond the diagonal there is nothing
        later = (part - (rows * p[..., :end]).cumsum(-1)).tril(start - 1)
        changed[..., start:end, :end] = torch.addcmul(rows * grown[..., :end], later, weights[..., :end])


def _require_sound(S: Tensor, B: Tensor) -> None:
    require_finite("S", S)
    require_finite("B", B)
    require_symmetric(S)


class _Factorise(Operation):
    @staticmethod
    def forward(S: Tensor, eps: float) -> Tensor:
        return cholesky(S, eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None]:
        return None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None], S: Tensor, eps: float) -> tuple[Tensor, int]:
        return factorise(S.movedim(in_dims[0], 0), eps), 0


def _factorise_rounded(S: Tensor, eps: float) -> Tensor:
    """Factors of matrices (m, n, n) that are positive definite up to their rounding error."""
    require_finite("The system (a Gram matrix plus lam)", S)
    n = S.shape[-1]
    slack = n * eps * S.diagonal(dim1=-2, dim2=-1).abs().amax(-1)
    lowest = torch.linalg.eigvalsh(S)[:, 0]
    if bool((lowest < -slack).any()):
        worst = int((lowest + slack).argmin())
        raise NotPositiveDefiniteError(
            f"{int((lowest < -slack).sum())} systems of size {n} are not positive definite: the lowest eigenvalue of "
            f"the worst is {float(lowest[worst]):.3g}, its largest entry is {float(S[worst].max()):.3g}, "
            f"and rounding explains at most {-float(slack[worst]):.3g}. A Gram matrix plus a positive lam is positive "
            "definite: check that K is X @ X.mT (or a valid kernel), and raise lam if K comes from a lower precision."
        )
    L: Tensor = torch.linalg.cholesky(add_diagonal(S, 2 * slack[:, None]))
    return L


class _SolveFactorised(Operation):
    """X = S^-1 B. With G the gradient of X, dB = S^-1 G and dS = -dB X^T, both from the same factor."""

    @staticmethod
    def forward(S: Tensor, L: Tensor, B: Tensor) -> Tensor:
        return torch.cholesky_solve(B, L)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        S, L, _ = inputs
        ctx.save_for_backward(S, L, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, Tensor]:
        S, L, X = ctx.saved_tensors
        grad_B = solve_factorised(S, L, grad)
        grad_S = -grad_B @ X.mT if ctx.needs_input_grad[0] else None
        return grad_S, None, grad_B

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *tensors: Tensor) -> tuple[Tensor, int]:
        return solve_factorised(*in_front(info, in_dims, tensors)), 0
