"""Differentiating a solution by the equation that it satisfies, whatever the steps that led there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from handful.solvers._operation import Operation

Solver = Callable[..., Tensor]
"""Parameters -> solution; its steps are not recorded."""

Adjoint = Callable[..., tuple[Tensor | None, ...]]
"""Solution, gradient of the solution, parameters -> gradient of each parameter, by differentiable operations."""


def implicit(solver: Solver, adjoint: Adjoint, *parameters: Tensor) -> Tensor:
    """solver(*parameters), with the gradient that `adjoint` derives from the optimality conditions.

    Only the solution and the parameters are kept, so memory does not depend on what the solver does. The adjoint is
    evaluated on the solution as a function of the parameters, which makes higher derivatives exact too. Parameters
    have equal leading dimensions, of which solver and adjoint take any number.
    """
    solution: Tensor = _Implicit.apply(solver, adjoint, *parameters)
    return solution


class _Implicit(Operation):
    @staticmethod
    def forward(solver: Solver, adjoint: Adjoint, *parameters: Tensor) -> Tensor:
        return solver(*parameters)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, ctx.adjoint, *parameters = inputs
        ctx.save_for_backward(output, *parameters)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        solution, *parameters = ctx.saved_tensors
        return None, None, *ctx.adjoint(solution, grad, *parameters)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], solver: Solver, adjoint: Adjoint, *parameters: Tensor
    ) -> tuple[Tensor, int]:
        moved = (
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip(parameters, in_dims[2:], strict=True)
        )
        return implicit(solver, adjoint, *moved), 0
