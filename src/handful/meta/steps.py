"""One update from several episodes, with the same bits for any number of processes.

Floating-point sums depend on their order, so the order follows the positions of the episodes in the step, not the
processes that hold them. Gradients are summed along a binary tree over the episodes (0 + 1, 2 + 3, then those two,
...). A process with consecutive episodes sums whole branches locally, so it sends about as much as in a plain
all-reduce.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from handful.errors import InvalidOptionError
from handful.meta.engine import Engine


@dataclass(frozen=True)
class Branch:
    """The sum over the episodes first .. first + size - 1 of a step; size is a power of two that divides first."""

    first: int
    size: int
    value: Tensor


def grown(branches: Iterable[Branch]) -> list[Branch]:
    """Consecutive branches, with the two halves of each larger branch summed."""
    done: list[Branch] = []
    for new in branches:
        while done and done[-1].size == new.size and done[-1].first % (2 * new.size) == 0:
            left = done.pop()
            new = Branch(left.first, 2 * new.size, left.value + new.value)  # noqa: PLW2901
        done.append(new)
    return done


def joined(branches: Sequence[Branch]) -> Tensor:
    """The sum of the branches, in order."""
    total = branches[0].value
    for branch in branches[1:]:
        total = total + branch.value
    return total


class GradientMean:
    """The mean gradient of a step's episodes over all processes; the episodes of this process are added in order."""

    def __init__(self, parameters: Iterable[nn.Parameter], count: int, engine: Engine) -> None:
        self.parameters, self.count, self.engine = list(parameters), count, engine
        self._branches: list[Branch] = []
        self._next = engine.share(count, "episodes per step").start
        self._reached = [False] * len(self.parameters)
        self._width = -(-sum(each.numel() for each in self.parameters) // engine.world)
        """Length of the slice of the gradient that each process sums."""

    def take(self) -> None:
        """Collect the gradient of another episode from the parameters."""
        self._reached = [was or each.grad is not None for was, each in zip(self._reached, self.parameters, strict=True)]
        parts = [torch.zeros_like(each) if each.grad is None else each.grad for each in self.parameters]
        rest = self._width * self.engine.world - sum(each.numel() for each in parts)
        gradient = Branch(self._next, 1, torch.cat([*(each.flatten() for each in parts), parts[0].new_zeros(rest)]))
        self._branches = grown([*self._branches, gradient])
        self._next += 1
        for each in self.parameters:
            each.grad = None

    def give(self) -> None:
        """Set the mean as the parameters' gradient; a parameter that no episode reached gets None."""
        mean = self._sum() / self.count
        sizes = [each.numel() for each in self.parameters]
        for each, part, reached in zip(self.parameters, mean[: sum(sizes)].split(sizes), self._reached, strict=True):
            each.grad = part.view_as(each).to(each) if reached else None

    def _sum(self) -> Tensor:
        if self.engine.world == 1:
            return joined(self._branches)
        if self.engine.reduce == "fast":
            return self.engine.total(joined(self._branches))
        return self._ordered()

    def _ordered(self) -> Tensor:
        """Sum one slice of all branches in each process, then gather the slices."""
        world, rank, width = self.engine.world, self.engine.rank, self._width
        held = [_places(self.count, world, each) for each in range(world)]
        sent = torch.stack([each.value.view(world, width) for each in self._branches], 1).flatten()
        received = sent.new_empty(sum(len(each) for each in held) * width)
        torch.distributed.all_to_all_single(
            received, sent, [len(each) * width for each in held], [len(held[rank]) * width] * world
        )
        places = [place for held_by_one in held for place in held_by_one]
        slices = (Branch(*place, value) for place, value in zip(places, received.split(width), strict=True))
        return self.engine.gathered(joined(grown(slices)))


def _places(count: int, world: int, rank: int) -> list[tuple[int, int]]:
    """First episode and size of the branches of a process."""
    each = count // world
    ends = grown(Branch(place, 1, torch.empty(0)) for place in range(rank * each, (rank + 1) * each))
    return [(branch.first, branch.size) for branch in ends]


class RunningStatistics:
    """What a training pass writes into a model: running statistics of batch norm, and counters of passes.

    Each episode of a step starts from empty statistics. What it leaves in them is collected, and merged afterwards in
    the order of the episodes: running = (1 - momentum)^calls running + left. Other counters are reset for every episode
    to their values before the step, so they count steps.
    """

    def __init__(self, model: nn.Module) -> None:
        norms = [each for each in model.modules() if isinstance(each, _BatchNorm) and each.track_running_stats]
        if any(norm.momentum is None for norm in norms):
            raise InvalidOptionError(
                "Batch norm with momentum=None averages over all batches ever seen, which several episodes per step "
                "do not support. Give it a momentum, or train with one episode per step."
            )
        self._statistics = [
            value for norm in norms for value in (norm.running_mean, norm.running_var) if value is not None
        ]
        self._calls = [norm.num_batches_tracked for norm in norms if norm.num_batches_tracked is not None]
        self._keep = [1 - norm.momentum for norm in norms if norm.momentum is not None]
        of_norms = {id(each) for each in (*self._statistics, *self._calls)}
        self._counters = [each for each in model.buffers() if id(each) not in of_norms]
        self._before = [each.clone() for each in self._written]

    @property
    def _written(self) -> list[Tensor]:
        return [*self._statistics, *self._calls, *self._counters]

    def begin(self) -> None:
        """Prepare for the pass of another episode."""
        for each in (*self._statistics, *self._calls):
            each.zero_()
        for counter, before in zip(
            self._counters, self._before[len(self._written) - len(self._counters) :], strict=True
        ):
            counter.copy_(before)

    def left(self, dtype: torch.dtype) -> list[Tensor]:
        """What the last episode left: the number of calls of each norm, then their statistics."""
        return [each.reshape(-1).to(dtype) for each in (*self._calls, *self._statistics)]

    def take(self, episodes: Tensor) -> None:
        """Return to the state before the step and merge what all its episodes left, (episodes, size of `left`)."""
        calls, statistics = episodes[:, : len(self._calls)], episodes[:, len(self._calls) :]
        self.restore()
        if not self._statistics:
            return
        columns = [keep**called for keep, called in zip(self._keep, calls.split(1, 1), strict=True)]
        sizes = [2 * mean.numel() for mean in self._statistics[::2]]
        kept = torch.cat([column.expand(-1, size) for column, size in zip(columns, sizes, strict=True)], 1)
        running = torch.cat([each.reshape(-1).to(episodes.dtype) for each in self._statistics])
        for share, left in zip(kept, statistics, strict=True):
            running = running * share + left
        for each, value in zip(
            self._statistics, running.split([each.numel() for each in self._statistics]), strict=True
        ):
            each.copy_(value.view_as(each))
        for count, called in zip(self._calls, calls.sum(0), strict=True):
            count.add_(called.to(count.dtype))

    def restore(self) -> None:
        """Undo all passes since the beginning of the step, except in counters of passes."""
        for each, before in zip((*self._statistics, *self._calls), self._before, strict=False):
            each.copy_(before)
