"""What a learner sees: a labelled support set, and the queries that it is tested on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from handful.errors import ShapeError


@dataclass(frozen=True)
class LabelledSet:
    """Inputs (..., n, *shape) with one-hot targets (..., n, way); those of mixed queries are shares of two classes."""

    inputs: Tensor
    targets: Tensor

    def __post_init__(self) -> None:
        lead = self.targets.shape[:-1]
        if self.inputs.shape[: len(lead)] != lead:
            raise ShapeError(
                f"Inputs of shape {tuple(self.inputs.shape)} and one-hot targets of shape {tuple(self.targets.shape)} "
                f"do not match: the inputs' shape must begin with all dimensions of the targets except the last."
            )

    def to(self, device: torch.device) -> LabelledSet:
        """The same set on another device; a pinned set is copied asynchronously."""
        ahead = device.type != "cpu"
        return LabelledSet(self.inputs.to(device, non_blocking=ahead), self.targets.to(device, non_blocking=ahead))

    def pinned(self) -> LabelledSet:
        """The same set in page-locked memory."""
        return LabelledSet(self.inputs.pin_memory(), self.targets.pin_memory())


@dataclass(frozen=True)
class Episode:
    """One few-shot problem, or a batch of them along leading dimensions.

    `classes` (..., way) gives the number of each class within the split that the episode was drawn from; turned classes
    are numbered after all others.
    """

    support: LabelledSet
    query: LabelledSet
    classes: Tensor

    def to(self, device: torch.device) -> Episode:
        """The same episode on another device; a pinned episode is copied asynchronously."""
        classes = self.classes.to(device, non_blocking=device.type != "cpu")
        return Episode(self.support.to(device), self.query.to(device), classes)

    def pinned(self) -> Episode:
        """The same episode in page-locked memory, from which a CUDA device can copy asynchronously."""
        return Episode(self.support.pinned(), self.query.pinned(), self.classes.pin_memory())

    def over_classes(self, count: int) -> Episode:
        """The episode as plain classification: every image is a query, labelled among all `count` classes."""
        lead = self.classes.ndim - 1
        inputs, targets = torch.cat([self.support.inputs, self.query.inputs], dim=lead), self.class_targets(count)
        nothing = LabelledSet(inputs.narrow(lead, 0, 0), targets.narrow(lead, 0, 0))
        every = torch.arange(count, device=self.classes.device).expand(*self.classes.shape[:-1], -1)
        return Episode(nothing, LabelledSet(inputs, targets), every)

    def class_targets(self, count: int) -> Tensor:
        """The targets of support and queries among all `count` classes: (..., n + q, count)."""
        # on an accelerator, reading the classes would wait for it
        if self.classes.device.type == "cpu" and int(self.classes.max()) >= count:
            raise ShapeError(
                f"The episode holds class number {int(self.classes.max())} of its split, but the number of classes is "
                f"{count}. Set it to that of the training split, or four times as many if its classes are turned."
            )
        within = torch.cat([self.support.targets, self.query.targets], dim=-2)
        return within @ nn.functional.one_hot(self.classes, count).to(within.dtype)
