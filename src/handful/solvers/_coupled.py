"""The linear system that multi-class problems share: one weighted ridge regression per class, coupled by an offset.

For classes c = 1..o with weights R_c = diag(r_c), find A and the offset u (one number per sample) such that

    (K + lam R_c^-2) A_c = z_c + u   for every c,      sum_c A_c = 0.

Newton's method takes this form for softmax regression and, inside an interior-point method, for the multi-class
support-vector machine: the offset reflects that adding a constant to all logits of a sample changes nothing.
Eliminating A leaves one n x n system for u, so the cost is that of o ridge regressions, not of one with n o
unknowns (Rasmussen and Williams, 2006, section 3.5, solve it for Gaussian processes in a different way).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from handful.solvers._linear import add_diagonal, factorise, solve_factorised, symmetric


@dataclass(frozen=True)
class Coupled:
    """The system with S_c = R_c K R_c + lam I, factorised once for any number of right-hand sides."""

    r: Tensor
    S: Tensor
    L: Tensor
    P: Tensor
    """S_c^-1 R_c."""
    M: Tensor
    """sum_c R_c S_c^-1 R_c."""
    L_M: Tensor

    def solve(self, q: Tensor, total: Tensor | float = 0.0) -> Tensor:
        """V with A_c = R_c V_c, for q_c = R_c z_c (..., o, n) and sum_c A_c = total (..., n)."""
        V = solve_factorised(self.S, self.L, q.unsqueeze(-1))  # (..., o, n, 1)
        sums = (self.r * V.squeeze(-1)).sum(-2)  # (..., n)
        u = solve_factorised(self.M, self.L_M, (total - sums).unsqueeze(-1))
        return (V + self.P @ u.unsqueeze(-3)).squeeze(-1)


def couple(K: Tensor, r: Tensor, lam: Tensor, eps: float) -> Coupled:
    """Factorise for symmetric K (..., n, n), weights r (..., o, n) and lam (...)."""
    S = add_diagonal(r.unsqueeze(-1) * K.unsqueeze(-3) * r.unsqueeze(-2), lam[..., None, None])
    L = factorise(S, eps)
    P = solve_factorised(S, L, torch.diag_embed(r))
    M = symmetric((r.unsqueeze(-1) * P).sum(-3))
    return Coupled(r, S, L, P, M, factorise(M, eps))
