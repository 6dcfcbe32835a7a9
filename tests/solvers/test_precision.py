"""Which dtype a solver works in, and that nothing denormal leaves it."""

import torch

from handful.solvers import logistic_dual
from handful.solvers._precision import FLUSH_BELOW, recast, result_dtype, system_dtype

from .problems import leaves, make


def test_systems_are_solved_in_float64_where_the_device_has_it():
    assert system_dtype(torch.device("cpu")) == torch.float64
    assert system_dtype(torch.device("cuda")) == torch.float64
    assert system_dtype(torch.device("mps")) == torch.float32


def test_results_come_in_the_widest_floating_dtype_and_at_least_float32():
    assert result_dtype(torch.ones(1).bfloat16(), torch.ones(1, dtype=torch.int64)) == torch.float32
    assert result_dtype(torch.ones(1), torch.ones(1).double()) == torch.float64
    assert result_dtype(torch.ones(1).half(), torch.ones(1).bfloat16()) == torch.float32


def test_values_and_gradients_too_small_for_float32_become_zero():
    (wide,) = leaves(torch.tensor([1.0, 1e-20, 1e-35, 1e-41, -1e-41], dtype=torch.float64))
    narrow = recast(wide, torch.float32)
    assert narrow.tolist() == torch.tensor([1.0, 1e-20, 0, 0, 0]).tolist()
    (leaf,) = leaves(torch.ones(2))
    (gradient,) = torch.autograd.grad(recast(leaf, torch.float64), leaf, torch.tensor([1.0, 1e-41]).double())
    assert gradient.tolist() == [1.0, 0.0]


def test_recasting_differentiates_like_the_identity():
    (x,) = leaves(make((3, 4), 0).X)
    gradient = torch.autograd.grad(recast(recast(x, torch.float32), torch.float64).square().sum(), x)[0]
    torch.testing.assert_close(gradient, 2 * x.detach(), rtol=1e-6, atol=0)


def test_saturated_logistic_regression_produces_no_denormals():
    problem = make((20, 60), 0)
    X = problem.X.float() * torch.logspace(0, 3, 20)[:, None]  # logits from 1 to beyond 1000
    (K,) = leaves(X @ X.mT)
    A = logistic_dual(K, problem.one_hot, 1e-3, steps=15)
    (gradient,) = torch.autograd.grad(A.sum(), K)
    for tensor in (A.detach(), gradient):
        assert torch.isfinite(tensor).all()
        assert not ((tensor != 0) & (tensor.abs() < FLUSH_BELOW)).any()
