"""What all operations with a backward of their own have in common: they are called at little cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


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


def transforming() -> bool:
    """Whether a transform of torch.func (vmap, grad and the like) is at work."""
    return bool(torch._C._are_functorch_transforms_active())


def _with_context(operation: type[Operation]) -> Callable[..., Any]:
    def forward(ctx: Any, *inputs: Any) -> Any:
        output = operation.forward(*inputs)
        operation.setup_context(ctx, inputs, output)
        return output

    return forward
