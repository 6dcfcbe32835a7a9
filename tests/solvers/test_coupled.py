"""The coupled systems of all classes, against the one large linear system that they stand for."""

import pytest
import torch
from torch import Tensor

from handful.solvers._coupled import Coupled, couple

EPS = 1e-12
# the same solution by two routes in double precision; these systems have condition numbers of at most about 1e4
CLOSE = {"rtol": 1e-9, "atol": 1e-11}


def system(n: int, classes: int, seed: int, batch: tuple[int, ...] = ()) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """K, weights r in [0.1, 1], lam and right-hand sides z."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(*batch, n, 4, generator=generator, dtype=torch.float64)
    r = 0.1 + 0.9 * torch.rand(*batch, classes, n, generator=generator, dtype=torch.float64)
    z = torch.randn(*batch, classes, n, generator=generator, dtype=torch.float64)
    return X @ X.mT, r, torch.full(batch, 0.3, dtype=torch.float64), z


def written_out(K: Tensor, r: Tensor, lam: Tensor, z: Tensor, total: Tensor) -> Tensor:
    """A from (K + lam R_c^-2) A_c - u = z_c and sum_c A_c = total, as one system in all A_c and u."""
    classes, n = r.shape
    eye = torch.eye(n, dtype=K.dtype)
    whole = torch.zeros((classes + 1) * n, (classes + 1) * n, dtype=K.dtype)
    for c in range(classes):
        rows = slice(c * n, (c + 1) * n)
        whole[rows, rows] = K + torch.diag(lam / r[c].square())
        whole[rows, classes * n :] = -eye
        whole[classes * n :, rows] = eye
    solution = torch.linalg.solve(whole, torch.cat([z.flatten(), total]))
    return solution[: classes * n].reshape(classes, n)


def solved(K: Tensor, r: Tensor, lam: Tensor, z: Tensor, total: Tensor | float = 0.0) -> tuple[Coupled, Tensor]:
    coupled = couple(K, r, lam, EPS)
    return coupled, r * coupled.solve(r * z, total)


@pytest.mark.parametrize(("n", "classes"), [(6, 3), (3, 7), (1, 2)])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_solution_is_that_of_the_whole_system_written_out(n: int, classes: int, seed: int):
    K, r, lam, z = system(n, classes, seed)
    total = torch.linspace(-1, 1, n, dtype=torch.float64)
    for wanted in (torch.zeros(n, dtype=torch.float64), total):
        _, A = solved(K, r, lam, z, wanted)
        torch.testing.assert_close(A, written_out(K, r, lam, z, wanted), **CLOSE)
        torch.testing.assert_close(A.sum(0), wanted, **CLOSE)


def test_what_is_added_to_all_classes_of_a_sample_changes_nothing():
    K, r, lam, z = system(5, 4, seed=2)
    _, A = solved(K, r, lam, z)
    _, shifted = solved(K, r, lam, z + torch.arange(5.0, dtype=torch.float64))
    torch.testing.assert_close(shifted, A, **CLOSE)


def test_a_batch_has_the_solutions_of_its_members_and_one_factor_serves_many_right_hand_sides():
    K, r, lam, z = system(5, 3, seed=3, batch=(2,))
    coupled, A = solved(K, r, lam, z)
    for i in range(2):
        torch.testing.assert_close(A[i], solved(K[i], r[i], lam[i], z[i])[1], **CLOSE)
    torch.testing.assert_close(r * coupled.solve(r * 2 * z), 2 * A, **CLOSE)
