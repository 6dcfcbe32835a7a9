"""Operations with a custom backward pass: cheap to call, batched by vmap, or differentiated at the solution."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

Solver = Callable[..., Tensor]
"""Maps parameters to the solution; its steps are not recorded by autograd."""

Adjoint = Callable[..., tuple[Tensor | None, ...]]
"""Maps the solution, its gradient and the parameters to the gradient of each parameter, differentiably."""


class Operation(torch.autograd.Function):
    """A Function with `setup_context`, which torch.func needs, that is as fast as one without.

    Calling such a Function binds its arguments to the signature of `forward`, which takes several times as long as a
    small solve. So every operation has a twin that sets up its context within `forward`, and the twin is called unless
    a torch.func transform is active. If no gradient is needed, only `forward` runs.
    """

    _twin: type[torch.autograd.Function]

    def __init_subclass__(cls) -> None:
        members = {"forward": staticmethod(_with_context(cls)), "backward": staticmethod(cls.backward)}
        cls._twin = type(cls.__name__, (torch.autograd.Function,), members)

    @classmethod
    def apply(cls, *inputs: Any) -> Any:
        """The outputs of `forward`, recorded for the backward pass."""
        if transforming():
            return super().apply(*inputs)  # type: ignore[no-untyped-call]
        if not torch.is_grad_enabled() or not any(isinstance(each, Tensor) and each.requires_grad for each in inputs):
            return cls.forward(*inputs)
        return cls._twin.apply(*inputs)


def _with_context(operation: type[Operation]) -> Callable[..., Any]:
    def forward(ctx: Any, *inputs: Any) -> Any:
        output = operation.forward(*inputs)
        operation.setup_context(ctx, inputs, output)
        return output

    return forward


_CHECKS = [True]
"""Whether values are checked; shared by all threads, because a backward pass may run in another one."""


@contextmanager
def unchecked() -> Iterator[None]:
    """Skip all checks of values in solvers and learners, so that nothing waits for the device; bad values become NaN.

    The training loop uses it on accelerators, where it reads the loss every few updates only.
    """
    before, _CHECKS[0] = _CHECKS[0], False
    try:
        yield
    finally:
        _CHECKS[0] = before


def checking() -> bool:
    """Whether values are checked, which waits for the device."""
    return _CHECKS[0]


def transforming() -> bool:
    """Whether a torch.func transform (vmap, grad and so on) is active."""
    return bool(torch._C._are_functorch_transforms_active())


def in_front(info: Any, in_dims: Iterable[int | None], tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """The tensors that a vmap rule receives, each with the batch dimension moved to the front."""
    for tensor, dim in zip(tensors, in_dims, strict=True):
        yield tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def implicit(solver: Solver, adjoint: Adjoint, *parameters: Tensor) -> Tensor:
    """solver(*parameters), with the gradient that `adjoint` derives from the optimality conditions.

    Only the solution and the parameters are stored, so memory does not depend on the solver. The adjoint is
    evaluated on the solution as a function of the parameters, which makes higher derivatives exact too. All
    parameters must have the same leading dimensions, of which there may be any number.
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
        return implicit(solver, adjoint, *in_front(info, in_dims[2:], parameters)), 0
