"""Answering many queries piece by piece, for learners whose intermediate values are far larger than their answers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

CHUNK_NUMBERS = 2**23
"""Intermediate numbers held at once when no gradient is wanted: 32 MB in single precision."""


def by_chunks(answer: Callable[[Tensor, Tensor], Tensor], support: Tensor, query: Tensor, cost: int) -> Tensor:
    """`answer(support, query)` for a batch of episodes, (b, n, ...) and (b, q, ...) -> (b, q, way).

    `cost` is how many numbers a query takes on the way. With gradients everything has to be kept, and normalisation
    layers in training want the whole batch, so only a call without gradients is cut.
    """
    room = max(1, CHUNK_NUMBERS // cost)
    if torch.is_grad_enabled() or query.shape[0] * query.shape[1] <= room:
        return answer(support, query)
    if query.shape[1] > room:
        return torch.cat([by_chunks(answer, support, part, cost) for part in query.split(room, dim=1)], dim=1)
    episodes = max(1, room // query.shape[1])
    parts = zip(support.split(episodes), query.split(episodes), strict=True)
    return torch.cat([answer(*part) for part in parts])
