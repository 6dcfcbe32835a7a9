"""The shape of episodes: how many classes, how many labelled images and queries per class, from which classes."""

from __future__ import annotations

from dataclasses import dataclass

from handful.errors import InvalidOptionError


@dataclass(frozen=True)
class FixedShots:
    """N-way K-shot with Q queries per class, the same for every episode."""

    way: int = 5
    shot: int = 1
    query: int = 15
    within_group: bool = False
    """Whether all classes of an episode come from one group of the split, an alphabet of Omniglot for example."""

    def __post_init__(self) -> None:
        for name in ("way", "shot", "query"):
            value = getattr(self, name)
            if value < 1:
                raise InvalidOptionError(f"An episode needs {name} >= 1, but got {name} = {value}.")

    @property
    def images_per_class(self) -> int:
        """K + Q, the images that an episode takes of each of its classes."""
        return self.shot + self.query


@dataclass(frozen=True)
class RandomShots:
    """Shots drawn uniformly from `min_shot`..`max_shot` for each episode, at a constant S = N (K + Q) images.

    The paper trains one model for all shots this way (section 3.4); its code draws 1..9. `hold` consecutive episodes
    share their number of shots, so that they can be stacked into one training step.
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
                f"With {self.images_per_class} images a class, at most {self.images_per_class - 1} can be shots "
                f"(a query must remain), but max_shot = {self.max_shot}. Lower max_shot or raise images_per_class."
            )


EpisodeShape = FixedShots | RandomShots
