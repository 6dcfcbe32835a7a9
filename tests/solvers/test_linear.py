"""Positive definite systems: solutions, gradients, and a diagnosis for matrices that are not."""

import pytest
import torch

from handful.errors import NotFiniteError, NotPositiveDefiniteError, ShapeError
from handful.solvers import solve_psd, unchecked

from .problems import leaves, make


def system(n=6, seed=0):
    problem = make((n, n + 3), seed)
    return problem.K + torch.eye(n, dtype=torch.float64), problem.Y


def test_solution_satisfies_the_system():
    S, B = system()
    assert torch.allclose(S @ solve_psd(S, B), B, atol=1e-12)  # a few roundings of numbers of size 1 to 30


def test_leading_dimensions_broadcast():
    S = torch.stack([system(seed=seed)[0] for seed in range(3)])
    B = system()[1].expand(2, 1, 6, 3)
    X = solve_psd(S, B)
    assert X.shape == (2, 3, 6, 3)
    assert torch.allclose(X[1, 2], solve_psd(S[2], B[1, 0]), atol=1e-14)


def test_gradients_agree_with_finite_differences():
    S, B = leaves(*system(4))
    assert torch.autograd.gradcheck(solve_psd, (S, B))
    assert torch.autograd.gradgradcheck(solve_psd, (S, B))


def test_gradients_agree_with_finite_differences_in_a_broadcast_batch():
    S, B = leaves(system(3)[0], torch.stack([system(3, seed=seed)[1] for seed in range(2)]))
    assert torch.autograd.gradcheck(solve_psd, (S, B))


def test_vmap_equals_a_batch():
    S = torch.stack([system(seed=seed)[0] for seed in range(3)])
    B = torch.stack([system(seed=seed)[1] for seed in range(3)])
    assert torch.equal(torch.func.vmap(solve_psd)(S, B), solve_psd(S, B))
    assert torch.equal(torch.func.vmap(solve_psd, in_dims=(0, None))(S, B[0]), solve_psd(S, B[0]))


def test_func_grad_inside_vmap_equals_autograd():
    S = torch.stack([system(seed=seed)[0] for seed in range(3)])
    B = torch.stack([system(seed=seed)[1] for seed in range(3)])
    each = torch.func.vmap(torch.func.grad(lambda S, B: solve_psd(S, B).sin().sum()))(S, B)
    leaf = S.clone().requires_grad_()
    solve_psd(leaf, B).sin().sum().backward()
    assert torch.allclose(each, leaf.grad, atol=1e-14)


def test_indefinite_matrix_is_refused_with_its_lowest_eigenvalue():
    S = torch.diag(torch.tensor([1.0, 2.0, -0.5], dtype=torch.float64))
    with pytest.raises(NotPositiveDefiniteError, match=r"size 3 .*eigenvalue .*-0\.5"):
        solve_psd(S, torch.ones(3, 1, dtype=torch.float64))


def test_one_indefinite_matrix_in_a_batch_is_refused():
    S = torch.eye(3, dtype=torch.float64).repeat(4, 1, 1)
    S[2, 1, 1] = -1
    with pytest.raises(NotPositiveDefiniteError, match="1 systems"):
        solve_psd(S, torch.ones(4, 3, 1, dtype=torch.float64))


def test_asymmetric_matrix_is_refused():
    with pytest.raises(NotPositiveDefiniteError, match=r"symmetric.* 1, "):
        solve_psd(torch.eye(3) + torch.triu(torch.ones(3, 3), 1), torch.ones(3, 1))


def test_matrix_that_is_singular_up_to_its_rounding_is_solved():
    X = make((6, 2), 0).X.float()
    S = X @ X.mT
    lowest = torch.linalg.eigvalsh(S.double())[0]
    assert lowest < 1e-6
    assert torch.isfinite(solve_psd(S, torch.ones(6, 1))).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_counted(bad):
    S, B = system()
    with pytest.raises(NotFiniteError, match=r"B .*\(6, 3\)"):
        solve_psd(S, B.index_fill(0, torch.tensor(0), bad))
    S[1, 1] = bad
    with pytest.raises(NotFiniteError, match=r"S .*\(6, 6\)"):
        solve_psd(S, B)


def test_shapes_that_do_not_match_are_refused():
    S, B = system()
    with pytest.raises(ShapeError, match=r"\(6, 5\)"):
        solve_psd(S[:, :5], B)
    with pytest.raises(ShapeError, match=r"\(6, 6\) and \(5, 3\)"):
        solve_psd(S, B[:5])
    with pytest.raises(ShapeError, match="broadcast"):
        solve_psd(S.expand(2, 6, 6), B.expand(3, 6, 3))


def test_an_indefinite_matrix_gives_nan_without_checks_and_leaves_its_neighbours_alone():
    S = torch.stack([torch.tensor([[1.0, 2.0], [2.0, 1.0]]), 2 * torch.eye(2)])
    with unchecked():
        found = solve_psd(S, torch.eye(2))
    assert found[0].isnan().all()
    torch.testing.assert_close(found[1], 0.5 * torch.eye(2))
