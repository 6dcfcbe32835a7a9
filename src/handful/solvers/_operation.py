"""Operations with a backward of their own: cheap to call, batched by vmap, or differentiated at the solution."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

Solver = Callable[..., Tensor]
"""Parameters -> solution; its steps are not recorded."""

Adjoint = Callable[..., tuple[Tensor | None, ...]]
"""Solution, gradient of the solution, parameters -> gradient of each parameter, by differentiable operations."""


class Operation(torch.autograd.Function):
    """A Function with `setup_context`, as torch.func wants it, that costs no more than one without.

    Each call of such a Function binds its arguments to the signature of `forward`, which takes several times as long as
    a small solve. So every operation has a twin that sets up its context within `forward`; the twin is called unless a
    transform of torch.func is at work. Where no gradient is wanted, `forward` alone runs.
    """

    _twin: type[torch.autograd.Function]

    def __init_subclass__(cls) -> None:
        members = {"forward": staticmethod(_with_context(cls)), "backward": staticmethod(cls.backward)}
        cls._twin = type(cls.__name__, (torch.autograd.Function,), members)

    @classmethod
    def apply(cls, *inputs: Any) -> Any:
        """The outputs of `forward`, recorded for the backward."""
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
"""Whether values are looked at; one for all threads, because a backward may run in another one."""


@contextmanager
def unchecked() -> Iterator[None]:
    """Let solvers and learners look at no value, so that no device is waited for; bad values come out as NaN.

    For the training loop on an accelerator, which looks at the loss every few updates.
    """
    before, _CHECKS[0] = _CHECKS[0], False
    try:
        yield
    finally:
        _CHECKS[0] = before


def checking() -> bool:
    """Whether values may be looked at."""
    return _CHECKS[0]


def transforming() -> bool:
    """Whether a transform of torch.func (vmap, grad and the like) is at work."""
    return bool(torch._C._are_functorch_transforms_active())


def in_front(info: Any, in_dims: Iterable[int | None], tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """The tensors that a rule for vmap is given, each with the dimension of the batch in front."""
    for tensor, dim in zip(tensors, in_dims, strict=True):
        yield tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


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
        return implicit(solver, adjoint, *in_front(info, in_dims[2:], parameters)), 0
