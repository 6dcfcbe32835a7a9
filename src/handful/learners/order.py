"""The order of a support set, for learners that read it as a sequence."""

from __future__ import annotations

import torch
from torch import Tensor


def shuffled(support: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The support set in a new random order, one for all episodes of a batch, drawn from torch's default generator.

    Episodes come sorted by class; a sequence learner trained on them as they are would learn that order too.
    """
    lead = targets.ndim - 2
    order = torch.randperm(targets.shape[-2], device=targets.device)
    return support.index_select(lead, order), targets.index_select(lead, order)
