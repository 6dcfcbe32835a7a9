"""Helpers for learners that read an episode with a network: shuffling, starting as a vote, answering in chunks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

VOTE = 5.0
"""How much a unanimous vote initially adds to a class's logit."""

CHUNK_NUMBERS = 2**23
"""Intermediate numbers in memory at once when no gradient is needed: 32 MB in single precision."""


def shuffled(support: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The support set in a new random order, one for all episodes of a batch, drawn from torch's default generator.

    Episodes are sorted by class, and a sequence learner trained on them without shuffling would learn that order.
    """
    lead = targets.ndim - 2
    order = torch.randperm(targets.shape[-2], device=targets.device)
    return support.index_select(lead, order), targets.index_select(lead, order)


def start_as_vote(classify: nn.Linear, first: int, labels: int) -> None:
    """Initialise the last layer so that its inputs `first` to `first` + `labels`, the gathered labels, are a vote.

    With random weights, such a learner knows neither which examples to gather labels from nor what a label means, and
    it needs each to learn the other: it would spend thousands of episodes at chance.
    """
    with torch.no_grad():
        classify.weight[:, first : first + labels] += VOTE * torch.eye(classify.out_features)[:, :labels]


def by_chunks(answer: Callable[[Tensor, Tensor], Tensor], support: Tensor, query: Tensor, cost: int) -> Tensor:
    """`answer(support, query)` for a batch of episodes, (b, n, ...) and (b, q, ...) -> (b, q, way).

    `cost` is how many intermediate numbers a query needs. With gradients, all of them are kept anyway, and
    normalisation layers need the whole batch in training, so only calls without gradients are divided into chunks.
    """
    room = max(1, CHUNK_NUMBERS // cost)
    if torch.is_grad_enabled() or query.shape[0] * query.shape[1] <= room:
        return answer(support, query)
    if query.shape[1] > room:
        return torch.cat([by_chunks(answer, support, part, cost) for part in query.split(room, dim=1)], dim=1)
    episodes = max(1, room // query.shape[1])
    parts = zip(support.split(episodes), query.split(episodes), strict=True)
    return torch.cat([answer(*part) for part in parts])
