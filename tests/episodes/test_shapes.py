"""Shapes of episodes: their limits, and shots that depend on the seed and the number of the episode only."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest

from handful.data.table import Benchmark
from handful.episodes import EpisodeSampler, EpisodeShape, FixedShots, RandomShots
from handful.errors import InvalidOptionError


@pytest.mark.parametrize("name", ["way", "shot", "query"])
def test_an_episode_needs_at_least_one_of_everything(name: str) -> None:
    with pytest.raises(InvalidOptionError, match=rf"{name} = 0"):
        FixedShots(**{name: 0})


def test_fixed_shots_are_the_same_for_every_episode_and_can_all_be_stacked() -> None:
    shape = FixedShots(5, 3, 7)
    assert {shape.shots(seed, index) for seed in range(3) for index in (0, 1, 10**9)} == {3}
    assert shape.images_per_class == 10
    assert 10**12 // shape.hold == 0


def test_random_shots_are_uniform_over_their_range_and_held() -> None:
    shape = RandomShots(5, 12, min_shot=2, max_shot=4, hold=5)
    drawn = [shape.shots(0, index) for index in range(5 * 3000)]
    assert all(len(set(drawn[start : start + 5])) == 1 for start in range(0, len(drawn), 5))
    counts = Counter(drawn[::5])
    assert set(counts) == {2, 3, 4}
    # 3000 draws at 1/3: the standard deviation of a count is 26, so this is four of them
    assert all(abs(count - 1000) < 104 for count in counts.values())


def test_random_shots_follow_the_seed() -> None:
    shape = RandomShots(5, 12)
    first, second = ([shape.shots(seed, index) for index in range(50)] for seed in (0, 1))
    assert first == [shape.shots(0, index) for index in range(50)]
    assert first != second


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"way": 0}, "way"),
        ({"hold": 0}, "hold"),
        ({"min_shot": 0}, "min_shot"),
        ({"min_shot": 5, "max_shot": 4}, "5 and 4"),
        ({"max_shot": 12}, "at most 11"),
    ],
)
def test_random_shots_refuse_ranges_that_leave_no_query_or_no_shot(options: dict[str, int], fact: str) -> None:
    with pytest.raises(InvalidOptionError, match=fact):
        RandomShots(**{"way": 5, "images_per_class": 12, **options})


@dataclass(frozen=True)
class Alternating(EpisodeShape):
    """A protocol of one's own: one shot, then two, and so on."""

    way: int = 3
    images_per_class: int = 4
    hold: int = 1
    within_group: bool = False

    def shots(self, seed: int, index: int) -> int:
        """One or two by turns."""
        return 1 + index % 2


def test_a_new_protocol_is_one_more_shape(tiny: Benchmark) -> None:
    sampler = EpisodeSampler(tiny.train, Alternating())
    assert [len(sampler[index].support.targets) for index in range(4)] == [3, 6, 3, 6]
