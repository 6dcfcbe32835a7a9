"""The counter-based generator: pure, uniform, without repetition."""

from __future__ import annotations

import numpy as np

from handful.episodes.random import below, choose, random_words


def test_words_depend_on_seed_stream_and_position_only() -> None:
    whole = random_words(7, np.arange(10), 6)
    assert whole.shape == (10, 6)
    np.testing.assert_array_equal(random_words(7, np.array([8, 3]), 4), whole[[8, 3], :4])
    assert len(np.unique(np.concatenate([whole.ravel(), random_words(8, np.arange(10), 6).ravel()]))) == 120


def test_words_are_those_of_version_0_1() -> None:
    # every recorded result depends on these
    assert random_words(0, np.array([0]), 2)[0].tolist() == [9505946023674985164, 12556066866307235268]


def test_a_negative_seed_counts_as_its_remainder() -> None:
    np.testing.assert_array_equal(random_words(-1, np.array([0]), 2), random_words(2**64 - 1, np.array([0]), 2))


def test_integers_below_a_bound_are_uniform() -> None:
    drawn = below(random_words(0, np.arange(7000), 1)[:, 0], np.full(7000, 7))
    # the standard deviation of a count is 29, so this is five of them
    assert np.abs(np.bincount(drawn, minlength=7) - 1000).max() < 146


def test_choices_are_distinct_and_every_order_is_as_likely() -> None:
    words = random_words(0, np.arange(6000), 6)
    chosen = choose(words, np.full(6000, 3))
    assert (np.sort(chosen, axis=1) == np.arange(3)).all()
    _, counts = np.unique(chosen @ np.array([9, 3, 1]), return_counts=True)
    # 6 orders, 1000 each; the standard deviation of a count is 29
    assert len(counts) == 6
    assert np.abs(counts - 1000).max() < 146


def test_every_member_of_a_population_is_chosen_as_often() -> None:
    chosen = choose(random_words(1, np.arange(5000), 4), np.full(5000, 10))
    assert (chosen[:, 0] != chosen[:, 1]).all()
    # 1000 each with a standard deviation of 28
    assert np.abs(np.bincount(chosen.ravel(), minlength=10) - 1000).max() < 142
