"""Operations: the twin that is called in place of the Function gives the same values, gradients and refusals."""

from typing import Any

import pytest
import torch
from torch import Tensor

from handful.solvers._operation import Operation, transforming


class Scaled(Operation):
    """x * factor, with a count of the ways in which it was called."""

    recorded = 0

    @staticmethod
    def forward(x: Tensor, factor: float) -> Tensor:
        return x * factor

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        Scaled.recorded += 1
        ctx.factor = inputs[1]
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return Scaled.apply(grad, ctx.factor), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None], x: Tensor, factor: float) -> tuple[Tensor, int]:
        return Scaled.apply(x, factor), in_dims[0]


@pytest.fixture
def leaf():
    Scaled.recorded = 0
    return torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)


def test_gradients_of_the_twin_are_right_twice(leaf):
    assert torch.autograd.gradcheck(lambda x: Scaled.apply(x, 3.0).sin(), (leaf,))
    assert torch.autograd.gradgradcheck(lambda x: Scaled.apply(x, 3.0).sin(), (leaf,))


def test_nothing_is_recorded_where_no_gradient_is_wanted(leaf):
    assert not Scaled.apply(leaf.detach(), 3.0).requires_grad
    with torch.no_grad():
        assert not Scaled.apply(leaf, 3.0).requires_grad
    assert Scaled.recorded == 0
    assert Scaled.apply(leaf, 3.0).requires_grad
    assert Scaled.recorded == 1


def test_transforms_get_the_operation_itself(leaf):
    seen = []

    def function(x):
        seen.append(transforming())
        return Scaled.apply(x, 3.0).sin().sum()

    each = torch.func.vmap(torch.func.grad(function))(leaf.detach()[:, None])
    assert seen == [True]
    assert not transforming()
    (expected,) = torch.autograd.grad(Scaled.apply(leaf, 3.0).sin().sum(), leaf)
    torch.testing.assert_close(each[:, 0], expected)
