"""Results say what was measured, in verdicts, pairs and words; the numbers are made up so that the answer is known."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from handful.data.table import Benchmark
from handful.paper.published import Figure
from handful.paper.report import (
    pair_lines,
    summary,
)
from handful.paper.results import Comparison, Outcome, compare, pair
from tests.paper.made import COLUMN, cell, lines_of, results, score, with_counts


def test_pairs_are_differences_episode_by_episode(tiny: Benchmark) -> None:
    ridge, proto = cell("R2-D2 (64C)", score(0.63)), cell("Proto net", score(0.55))
    both = pair(proto, ridge)
    assert both.closed.mean == pytest.approx(-0.08)
    assert both.closed.half == pytest.approx(0.0, abs=1e-12)  # the same wave in both: no spread is left
    assert both.published == pytest.approx(55.5 - 62.3)
    assert both.same_order is True
    assert pair(cell("Proto net", score(0.7)), ridge).same_order is False
    assert pair(proto, replace(ridge, published=None)).same_order is None
    assert pair(proto, replace(ridge, published=Figure(55.9, 0.2, 1))).same_order is None  # the paper's own are close
    assert len(results(tiny, ridge, proto, cell("MAML", score(0.5))).pairs()) == 3


def test_a_row_tested_on_fewer_episodes_is_paired_on_those_and_says_so(tiny: Benchmark) -> None:
    ridge, slow = cell("R2-D2 (64C)", score(0.63)), score(0.5)
    fewer = with_counts(slow, correct=slow.measurement.counts.correct[:7])
    both = pair(cell("MAML", fewer), ridge)
    assert (both.closed.n, both.closed.mean) == (7, pytest.approx(-0.13))
    made = results(tiny, ridge, cell("MAML", fewer))
    assert made.episodes(COLUMN) == 10
    assert [row[0] for row in lines_of(made).rows][1] == "MAML · authors, first 7 episodes"
    lines = pair_lines(made, COLUMN)
    assert lines is not None
    assert lines.rows[0][0] == "MAML · authors, first 7 episodes"


def test_a_row_may_have_a_reference_of_its_own(tiny: Benchmark) -> None:
    ridge, proto = cell("R2-D2 (64C)", score(0.63)), cell("Proto net", score(0.55))
    maml = cell("MAML", score(0.5))
    other = replace(maml, row=replace(maml.row, against="Proto net"))
    seconds = [each.second for each in results(tiny, ridge, proto, other).against_reference(COLUMN)]
    assert seconds == ["R2-D2 (64C) · authors", "Proto net · authors"]


def test_a_variant_is_compared_with_its_own_reference(tiny: Benchmark) -> None:
    authors, paper = cell("R2-D2 (64C)", score(0.63)), cell("R2-D2 (64C)", score(0.6), variant="paper")
    proto = cell("Proto net", score(0.55), variant="paper")
    made = results(tiny, authors, paper, proto)
    assert [(each.first, each.second) for each in made.against_reference(COLUMN)] == [
        ("R2-D2 (64C) · paper", "R2-D2 (64C) · authors"),
        ("Proto net · paper", "R2-D2 (64C) · paper"),
    ]
    lines = pair_lines(made, COLUMN)
    assert lines is not None
    assert [row[-1] for row in lines.rows] == ["—", "as published"]  # two variants of one row have no printed order


def test_seeds_are_averaged_and_their_spread_is_told(tiny: Benchmark) -> None:
    both = cell("R2-D2 (64C)", score(0.60), score(0.64, seed=1))
    assert both.ours.closed.mean == pytest.approx(0.62)
    assert both.ours.over_seeds.half == pytest.approx(12.706 * 0.02, rel=1e-3)  # t quantile, 1 degree of freedom
    line = lines_of(results(tiny, both))
    assert line.rows[0][line.head.index("seeds")] == "± 25.41 (2)"
    alone = lines_of(results(tiny, cell("R2-D2 (64C)", score(0.6))))
    assert "seeds" not in alone.head


def test_accuracies_of_seeds_pair_up(tiny: Benchmark) -> None:
    both: Tensor = cell("MAML", score(0.2), score(0.4)).ours.shared.mean(0)
    torch.testing.assert_close(both, cell("MAML", score(0.3)).ours.shared[0])


def test_a_changed_schedule_allows_no_verdict() -> None:
    one = score(0.623)
    assert cell("R2-D2 (64C)", one).verdict == "agrees"
    other = replace(one, manifest=replace(one.manifest, changes="cosine in place of step schedule", altered=True))
    assert cell("R2-D2 (64C)", other).verdict is None
    seldom = replace(one, manifest=replace(one.manifest, changes="validated every 1,000 episodes"))
    assert cell("R2-D2 (64C)", seldom).verdict == "agrees"


def test_the_spread_over_seeds_enters_the_verdict(tiny: Benchmark) -> None:
    alone = cell("R2-D2 (64C)", score(0.64))
    several = cell("R2-D2 (64C)", score(0.63), score(0.65, seed=1))
    assert (alone.verdict, several.verdict) == ("above", "agrees")
    assert "With one training seed the verdict knows nothing" in summary(results(tiny, alone))
    assert "With one training seed" not in summary(results(tiny, several))


def test_episodes_with_other_pixels_of_the_same_images_are_named_apart(tiny: Benchmark) -> None:
    made = results(tiny, cell("R2-D2 (64C)", score(0.63)))
    (drawn,) = made.sets.values()
    both = replace(made, sets={**made.sets, (COLUMN, f"{COLUMN.data}-nearest"): drawn})
    assert list(both.as_json()["test_episodes"]) == [COLUMN.title, f"{COLUMN.title}, pixels of {COLUMN.data}-nearest"]
    assert both.drawn(COLUMN) == drawn


@pytest.mark.parametrize(
    ("difference", "verdict"),
    [(0.2, "agrees"), (-0.25, "agrees"), (0.8, "above"), (-2.0, "below"), (2.0, "above")],
)
def test_a_verdict_follows_from_the_closed_interval_and_the_open_one_is_a_second_opinion(
    difference: float, verdict: str
) -> None:
    got = Comparison(difference, 0.3, 1.0)
    assert got.verdict == verdict
    assert got.within_open is (abs(difference) <= 1.0)


def outcome(*seeds: tuple[float, ...], apart: tuple[float, ...] = (0.5,)) -> Outcome:
    values = torch.tensor(seeds, dtype=torch.float64)
    return Outcome(values, torch.tensor([apart] * len(seeds), dtype=torch.float64))


def test_the_difference_carries_both_intervals_and_the_rounding() -> None:
    ours = outcome((0.62, 0.63, 0.64), apart=(0.60, 0.64))
    got = compare(ours, Figure(62.3, 0.2, 1))
    assert got.difference == pytest.approx(0.7)
    assert got.half == pytest.approx(math.hypot(100 * ours.closed.half, 0.2, 0.05))
    assert got.open == pytest.approx(math.hypot(100 * ours.opened.half, 0.2, 0.05))
    assert ours.opened.half > ours.closed.half
    bare = compare(outcome((0.49, 0.51)), Figure(50.0, None, 0))  # one episode apart has no interval
    assert bare.half == bare.open == pytest.approx(math.hypot(1.96, 0.5))


def test_several_seeds_add_their_spread_and_one_adds_none() -> None:
    seeds = ((0.60, 0.64), (0.61, 0.65), (0.62, 0.66))  # their means have a standard deviation of 0.01
    got, published = compare(outcome(*seeds), Figure(62.3, None, 1)), Figure(62.3, None, 1)
    closed = 100 * outcome(*seeds).closed.half
    # of the paper's one training and the mean of our three, in points
    # with the Student quantile of two degrees of freedom
    assert got.half == pytest.approx(math.hypot(closed, 4.3026527 * math.sqrt(4 / 3), 0.05))
    alone = outcome(seeds[0])
    assert compare(alone, published).half == pytest.approx(math.hypot(100 * alone.closed.half, 0.05))


def test_results_show_themselves_in_a_line(tiny: Benchmark) -> None:
    ridge = cell("R2-D2 (64C)", score(0.63))
    made = results(tiny, ridge, cell("MAML", variant=""))
    assert repr(made) == "Results(table1, 1 of 2 cells measured)"
    assert repr(ridge).startswith("Cell(R2-D2 (64C) · authors, CIFAR-FS 5-way 1-shot: paper 62.3 ± 0.2, ours 63.00 ± ")
    assert repr(made.cells[1]).endswith("ours not run)")
    assert repr(made.drawn(COLUMN)).startswith("EpisodeSet(5-way 1-shot, 10 test episodes with 4 queries per class")
    assert repr(ridge.scores[0].measurement.counts) == "Counts(63.00% of 400 episodes, 20 apart)"
