"""The shape of episodes: the number of classes, of labelled images and of queries per class, and which classes."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from handful.episodes.random import below, random_words
from handful.errors import InvalidOptionError


class EpisodeShape(ABC):
    """What a sampler needs to know about a protocol; to add a protocol, write another shape."""

    way: int
    images_per_class: int
    """Support and query images of each class in an episode."""
    hold: int
    """Number of consecutive episodes, counted from 0, that have equal shots and can be stacked."""
    within_group: bool
    """Whether all classes of an episode come from one group of the split, for example an alphabet of Omniglot."""

    @abstractmethod
    def shots(self, seed: int, index: int) -> int:
        """The number of shots of episode `index`, a pure function of both arguments."""


@dataclass(frozen=True)
class FixedShots(EpisodeShape):
    """N-way K-shot with Q queries per class, the same for every episode."""

    way: int = 5
    shot: int = 1
    query: int = 15
    within_group: bool = False

    def __post_init__(self) -> None:
        for name in ("way", "shot", "query"):
            value = getattr(self, name)
            if value < 1:
                raise InvalidOptionError(f"An episode needs {name} >= 1, but got {name} = {value}.")

    @property
    def images_per_class(self) -> int:  # type: ignore[override]
        """K + Q, the number of images of each class in an episode."""
        return self.shot + self.query

    @property
    def hold(self) -> int:  # type: ignore[override]
        """Unlimited, because all episodes have equal shots."""
        return sys.maxsize

    def shots(self, seed: int, index: int) -> int:
        """The number of shots, which is the same for all episodes."""
        return self.shot


@dataclass(frozen=True)
class RandomShots(EpisodeShape):
    """Shots drawn uniformly from `min_shot`..`max_shot` for each episode, at a constant S = N (K + Q) images.

    The paper trains one model for all shots this way (section 3.4); its code draws 1..9. `hold` consecutive episodes
    have equal shots, so that they can be stacked into one training step.
    """

    way: int
    images_per_class: int
    min_shot: int = 1
    max_shot: int = 9
    hold: int = 1
    within_group: bool = False

    def __post_init__(self) -> None:
        if self.way < 1 or self.hold < 1:
            raise InvalidOptionError(f"way and hold must be at least 1, but got {self.way} and {self.hold}.")
        if not 1 <= self.min_shot <= self.max_shot:
            raise InvalidOptionError(
                f"Random shots need 1 <= min_shot <= max_shot, but got {self.min_shot} and {self.max_shot}."
            )
        if self.max_shot >= self.images_per_class:
            raise InvalidOptionError(
                f"With {self.images_per_class} images per class, at most {self.images_per_class - 1} can be shots "
                f"(a query must remain), but max_shot = {self.max_shot}. Lower max_shot or raise images_per_class."
            )

    def shots(self, seed: int, index: int) -> int:
        """The number of shots, drawn once for every `hold` episodes."""
        words = random_words(seed ^ 0x5807, np.array([index // self.hold]), 1)
        return self.min_shot + int(below(words[:, 0], np.array([self.max_shot - self.min_shot + 1]))[0])
