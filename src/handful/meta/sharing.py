"""One pass through the network divided among processes: each embeds a part of the images, and all get all features.

Batch norm takes its statistics from the images of all processes, so an update equals that of one process, up to
rounding and other dropout masks. The learner works on all features in every process, which costs little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from handful.embeddings.shared_norm import shared_norms
from handful.errors import InvalidOptionError
from handful.meta.engine import Engine


@contextmanager
def shared_images(network: nn.Module, engine: Engine) -> Iterator[None]:
    """Within the block, each process passes only its part of a training batch through the network."""
    parts = _Parts(engine)
    hooks = [network.register_forward_pre_hook(parts.take), network.register_forward_hook(parts.give)]
    try:
        yield
    finally:
        parts.norms.close()
        for hook in hooks:
            hook.remove()


def sum_gradients(network: nn.Module, parameters: Iterable[nn.Parameter], engine: Engine) -> None:
    """Sum the gradients that the parts of a batch gave the network; all processes have the same ones for the rest."""
    own = {id(each) for each in network.parameters()}
    shares = [(each.grad, 1 if id(each) in own else engine.world) for each in parameters if each.grad is not None]
    summed = engine.total(torch.cat([gradient.flatten() / share for gradient, share in shares]))
    parts = summed.split([gradient.numel() for gradient, _ in shares])
    for (gradient, _), part in zip(shares, parts, strict=True):
        gradient.copy_(part.view_as(gradient))


class _Parts:
    """Hooks that give a network this process's part of the images, and replace its features by those of all images."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.count = 0
        self.norms = ExitStack()
        """Restores the norms after a pass, so that those of a whole batch are not shared."""

    def take(self, network: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor] | None:
        """Before the network: this process's part of the images."""
        if not network.training:
            return None
        (images,), world = inputs, self.engine.world
        if len(images) < world:
            raise InvalidOptionError(f"{len(images)} images cannot be divided among {world} processes. Start fewer.")
        self.count = len(images)
        self.norms.enter_context(shared_norms(network))
        torch.manual_seed(torch.initial_seed() + self.engine.rank)  # dropout masks that differ between the parts
        return (images[_part(self.count, self.engine, self.engine.rank)],)

    def give(self, network: nn.Module, inputs: tuple[Tensor], features: Tensor) -> Tensor | None:
        """After the network: the features of all images."""
        if not network.training:
            return None
        self.norms.close()
        torch.manual_seed(torch.initial_seed() - self.engine.rank)
        gathered: Tensor = _Gathered.apply(features, self.count, self.engine)  # type: ignore[no-untyped-call]
        return gathered


def _part(count: int, engine: Engine, rank: int) -> slice:
    """The images of a process; the first processes have one more if their number is not a multiple of the processes."""
    each, more = divmod(count, engine.world)
    start = rank * each + min(rank, more)
    return slice(start, start + each + (rank < more))


class _Gathered(Function):
    """The features of all images from those of each process, (part, *features) -> (count, *features)."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, count: int, engine: Engine) -> Tensor:
        ctx.mine = _part(count, engine, engine.rank)
        parts = [_part(count, engine, rank) for rank in range(engine.world)]
        longest = parts[0].stop
        padded = features.new_zeros(longest, *features.shape[1:])  # parts must have the same size to be gathered
        padded[: len(features)] = features
        every = engine.gathered(padded).split(longest)
        return torch.cat([each[: part.stop - part.start] for each, part in zip(every, parts, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return gradient[ctx.mine], None, None
