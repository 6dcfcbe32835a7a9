"""Results say what was measured, in verdicts, pairs and words; the numbers are made up so that the answer is known."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from handful.data.table import Benchmark
from handful.meta.config import Recipe
from handful.meta.manifest import Manifest, Session
from handful.paper.experiments import EXPERIMENTS, Experiment, narrowed
from handful.paper.jobs import Departures
from handful.paper.plots import beside_picture, lines_picture
from handful.paper.published import Column, Figure, Row
from handful.paper.recipes import NAMED
from handful.paper.report import (
    Lines,
    beyond_lines,
    column_lines,
    markdown,
    pair_lines,
    report_blocks,
    run_lines,
    summary,
    write_report,
)
from handful.paper.reproduce import Options, plan_cells
from handful.paper.results import Cell, Comparison, Outcome, Results, Score, compare, pair
from handful.paper.testing import Counts, Measurement, draw_set

COLUMN = Column("cifar-fs", 5, 1)
TABLE = narrowed(EXPERIMENTS["table1"], ("cifar-fs/r2d2-64C", "cifar-fs/protonet-64C", "cifar-fs/maml-64C"))
ROWS = {row.label: row for row in TABLE.rows}
QUERIES = 1_000
"""Of an episode, so that a mean to three digits is a whole number of correct answers."""


def score(mean: float, planned: int = 100, limits: str = "inductive", seed: int = 0) -> Score:
    """A run of 100 episodes whose test accuracies spread evenly around a mean."""
    wave = torch.linspace(-0.1, 0.1, 400, dtype=torch.float64)
    recipe = replace(Recipe(), seed=seed, plan=replace(Recipe().plan, episodes=100))
    session = Session("2026-01-01", 60.0, 0, 100, {"torch": "2"}, {"processor": "abacus", "threads": 1})
    manifest = Manifest("a/b/c", recipe, planned, "cifar-fs", "f" * 64, (session,), finished=True)
    correct = ((mean + wave) * QUERIES).round().long()
    measurement = Measurement(Counts(correct, QUERIES, correct[::20], QUERIES), 100, limits, "best-1-shot")
    return Score(manifest, measurement, Path(f"run-{mean}-{seed}"))


def cell(label: str, *scores: Score, variant: str = "authors") -> Cell:
    return Cell(ROWS[label], COLUMN, variant, "a/b/c", ROWS[label].numbers[0], scores)


def with_counts(score: Score, **changes: Tensor) -> Score:
    """The score with other numbers of correct answers."""
    measurement = score.measurement
    return replace(score, measurement=replace(measurement, counts=replace(measurement.counts, **changes)))  # type: ignore[arg-type]


def lines_of(results: Results) -> Lines:
    """The rows of the column, of which there is one at least."""
    lines = column_lines(results, COLUMN)
    assert lines is not None
    return lines


def results(tiny: Benchmark, *cells: Cell, experiment: Experiment = TABLE) -> Results:
    drawn = draw_set(tiny.test, "content", 5, 1, 4, 10, 0)
    machine: dict[str, str | int] = {"processor": "abacus", "threads": 1, "gpu": "none"}
    return Results(
        experiment, cells, {(COLUMN, COLUMN.data): drawn}, ("SNAIL: quoted",), "handful", "now", {"torch": "2"}, machine
    )


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


def test_an_order_that_other_images_might_turn_says_so(tiny: Benchmark) -> None:
    ridge, proto = cell("R2-D2 (64C)", score(0.63)), cell("Proto net", score(0.66))
    backwards = proto.scores[0].measurement.counts.correct_apart.flip(0)
    loose = replace(proto, scores=(with_counts(proto.scores[0], correct_apart=backwards),))
    made = results(tiny, ridge, loose)
    lines = pair_lines(made, COLUMN)
    assert lines is not None
    assert lines.rows[0][-1] == "other than published, but too close by the open interval"
    assert summary(made).endswith("0 are too close to call, 1 more by the open interval.")


def test_seeds_are_averaged_and_their_spread_is_told(tiny: Benchmark) -> None:
    both = cell("R2-D2 (64C)", score(0.60), score(0.64, seed=1))
    assert both.ours.closed.mean == pytest.approx(0.62)
    assert both.ours.over_seeds.half == pytest.approx(12.706 * 0.02, rel=1e-3)  # t quantile, 1 degree of freedom
    line = lines_of(results(tiny, both))
    assert line.rows[0][line.head.index("seeds")] == "± 25.41 (2)"
    alone = lines_of(results(tiny, cell("R2-D2 (64C)", score(0.6))))
    assert "seeds" not in alone.head


def test_a_run_in_part_is_told_everywhere_and_proves_nothing(tiny: Benchmark, tmp_path: Path) -> None:
    whole, part = cell("R2-D2 (64C)", score(0.623)), cell("Proto net", score(0.3, planned=120_000))
    made = results(tiny, whole, part)
    assert part.shortfall == "100 of 120,000 episodes, 98% of the summed learning rate left"
    lines = lines_of(made)
    assert lines.rows[1][-1] == "IN PART: 100 of 120,000 episodes, 98% of the summed learning rate left"
    assert lines.rows[1][lines.head.index("agrees?")] == "—"
    assert lines.rows[0][-1] == "complete: all 100 episodes"
    assert lines.strong == (0,)
    assert summary(made).startswith("Of 1 published number compared with complete runs, 1 agree, 0 lie above")
    assert "1 number from runs in part allow no verdict yet" in summary(made)
    _, json_path, picture_path, text_path, page_path = write_report(made, tmp_path)
    assert picture_path.read_bytes().startswith(b"<?xml")
    assert f"]({picture_path.name})" in text_path.read_text()
    facts = json.loads(json_path.read_text())
    assert facts["cells"][1]["shortfall"] == part.shortfall
    assert facts["cells"][0]["comparison"]["verdict"] == "agrees"
    assert "IN PART: 100 of 120,000" in text_path.read_text()
    assert "IN PART: 100 of 120,000" in page_path.read_text()


def test_a_transductive_result_says_so(tiny: Benchmark) -> None:
    lines = lines_of(results(tiny, cell("MAML", score(0.5, limits="transductive, 5-way only"))))
    assert lines.rows[0][0] == "MAML · authors, transductive"


def test_a_row_that_was_not_run_shows_the_published_number_alone(tiny: Benchmark) -> None:
    lines = lines_of(results(tiny, cell("MAML", variant="")))
    assert lines.rows[0][:3] == ("MAML", "58.9 ± 1.9", "—")
    assert lines.rows[0][-1] == "not run"
    assert pair_lines(results(tiny, cell("MAML", variant="")), COLUMN) is None
    assert beside_picture(results(tiny, cell("MAML", variant=""))) is None


def test_markdown_escapes_what_would_be_formatting(tiny: Benchmark) -> None:
    starred = replace(cell("MAML", score(0.5)), row=replace(ROWS["MAML"], label="MAML *"))
    assert "| MAML \\* · authors |" in markdown("A title", [lines_of(results(tiny, starred))])


def test_runs_are_listed_once_with_their_time(tiny: Benchmark) -> None:
    one = score(0.5)
    lines = run_lines(results(tiny, cell("MAML", one), cell("Proto net", one)))
    assert len(lines.rows) == 1
    assert lines.rows[0][:4] == ("a/b/c", "0", "100 of 100", "1.0")
    named = replace(one, manifest=replace(one.manifest, name="d/e/f"))
    shared = run_lines(results(tiny, cell("MAML", one), cell("Proto net", named)))
    assert [row[0] for row in shared.rows] == ["a/b/c = d/e/f"]


def test_a_figure_has_a_line_for_each_method(tiny: Benchmark) -> None:
    base = EXPERIMENTS["figure-iterations"]
    cells = tuple(
        Cell(Row(f"{line} {x}", (), (None,) * 4, line, x), COLUMN, "authors", "a", None, (score(0.5 + 0.01 * x),))
        for line in ("LR-D2", "MAML")
        for x in (1, 2, 5)
    )
    made = results(tiny, *cells, experiment=replace(base, columns=(COLUMN,)))
    assert made.pairs() == []  # none of these rows is another's reference
    picture = lines_picture(made)
    assert picture is not None
    assert b"LR-D2" in picture.data
    assert lines_picture(made) == picture
    assert any(
        "The paper gives no numbers for this" in block for block in report_blocks(made) if isinstance(block, str)
    )


def test_points_of_a_figure_are_hollow_where_the_run_was_cut(tiny: Benchmark) -> None:
    base = replace(EXPERIMENTS["figure-iterations"], columns=(COLUMN,))

    def drawn(planned: int) -> bytes:
        row = Row("LR-D2", (), (None,) * 4, "LR-D2", 1)
        made = results(tiny, Cell(row, COLUMN, "authors", "a", None, (score(0.5, planned=planned),)), experiment=base)
        picture = lines_picture(made)
        assert picture is not None
        return picture.data

    hollow = b"fill: #ffffff; stroke: #0b6bcb"
    assert hollow not in drawn(100)
    assert hollow in drawn(120_000)


def test_pairs_of_rows_without_published_numbers_have_no_order(tiny: Benchmark) -> None:
    fixed, learnt = EXPERIMENTS["figure-hyperparameters"].rows[5:13:7]
    cells = (Cell(row, COLUMN, "authors", "a", None, (score(mean),)) for row, mean in ((fixed, 0.5), (learnt, 0.6)))
    lines = pair_lines(results(tiny, *cells), COLUMN)
    assert lines is not None
    assert lines.head == ("Method", "less", "ours, paired", "open")
    assert lines.rows[0][:3] == ("lambda learnt, 10 · authors", "lambda fixed, 10 · authors", "+10.00 ± 0.00")
    printed = pair_lines(results(tiny, cell("R2-D2 (64C)", score(0.6)), cell("Proto net", score(0.5))), COLUMN)
    assert printed is not None
    assert printed.head[-1] == "order"


def test_a_figure_compares_what_is_learnt_with_what_is_fixed_at_the_same_value() -> None:
    against = {row.label: row.against for row in EXPERIMENTS["figure-hyperparameters"].rows}
    assert against["lambda diagonal, 0.01"] == "lambda fixed, 0.01"
    assert against["alpha learnt, 0.0001"] == "alpha fixed, 0.0001"
    assert against["alpha fixed, 100"] == "alpha fixed, 10"
    steps = {row.label: row.against for row in EXPERIMENTS["figure-iterations"].rows}
    assert steps["MAML, 5 steps"] == steps["R2-D2, beside 5 steps"] == "LR-D2, 5 steps"


def test_accuracies_of_seeds_pair_up(tiny: Benchmark) -> None:
    both: Tensor = cell("MAML", score(0.2), score(0.4)).ours.shared.mean(0)
    torch.testing.assert_close(both, cell("MAML", score(0.3)).ours.shared[0])


def test_the_order_of_methods_is_summed_up(tiny: Benchmark) -> None:
    ridge, proto = cell("R2-D2 (64C)", score(0.63)), cell("Proto net", score(0.55))
    told = summary(results(tiny, ridge, proto, cell("MAML", score(0.7))))
    assert "of 2 published differences from a reference row, 1 have the published sign here, 1 the other, 0 are" in told
    assert "Order" not in summary(results(tiny, ridge))
    shared = replace(ridge, row=replace(ridge.row, label="R2-D2"))
    assert "Order" not in summary(results(tiny, ridge, shared))  # one run in two rows is no comparison


def test_rows_of_the_wide_net_are_compared_with_r2d2_on_it() -> None:
    against = {row.label: row.against for row in EXPERIMENTS["table1"].rows}
    assert {against[label] for label in ("LR-D2 (1 iteration)", "LR-D2 (5 iterations)", "MAML *")} == {"R2-D2"}
    assert {against[label] for label in ("R2-D2", "R2-D2 (64C)", "MAML", "SNAIL (ResNet)")} == {""}
    rows = {row.label: row for row in EXPERIMENTS["appendix-a"].rows}
    assert rows["Pre-trained + ridge"].against == "R2-D2"
    assert rows["Pre-trained + ridge (64C)"].against == ""


def test_what_all_rows_lack_is_told_once(tiny: Benchmark) -> None:
    cells = [cell(label, score(0.5, planned=120_000)) for label in ("R2-D2 (64C)", "Proto net", "MAML")]
    lines = lines_of(results(tiny, *cells))
    part = "IN PART: 100 of 120,000 episodes, 98% of the summed learning rate left"
    assert lines.note == f"All rows were trained {part}."
    assert {row[-1] for row in lines.rows} == {"IN PART"}
    mixed = lines_of(results(tiny, *cells[:2], cell("MAML", score(0.5))))
    assert (mixed.note, mixed.rows[0][-1]) == ("", part)


def test_what_goes_beyond_the_paper_stands_apart_and_never_agrees(tiny: Benchmark, tmp_path: Path) -> None:
    authors, proto = cell("R2-D2 (64C)", score(0.623)), cell("Proto net", score(0.55))
    name = "cifar-fs/r2d2-64C/modern"
    better = score(0.64)
    better = replace(better, manifest=replace(better.manifest, recipe=NAMED[name].recipe))
    modern = replace(cell("R2-D2 (64C)", better, variant="modern"), recipe=name)
    made = results(tiny, authors, proto, modern)
    assert modern.comparison is None
    assert modern.verdict is None
    assert [row[0] for row in lines_of(made).rows] == ["R2-D2 (64C) · authors", "Proto net · authors"]
    lines = beyond_lines(made, COLUMN)
    assert lines is not None
    assert [row[0] for row in lines.rows] == ["R2-D2 (64C) · modern"]
    assert "agrees?" not in lines.head
    adds = lines.rows[0][lines.head.index("adds")]
    for word in (
        "a second loss over all training classes (weight 0.5)",
        "augmentation (crop, flip)",
        "averaged weights (exponential)",
        "cosine in place of step schedule",
        "weight decay 0.02",
        "dropout 0.1 in place of 0.4",
    ):
        assert word in adds
    assert summary(made).startswith("Of 2 published numbers compared with complete runs, 2 agree")
    assert "1 number beyond the paper are listed apart" in summary(made)
    assert [each.published is None for each in made.pairs()] == [False, True, True]
    _, json_path, _, text_path, page_path = write_report(made, tmp_path)
    facts = json.loads(json_path.read_text())
    assert [each["variant"] for each in facts["cells"]] == ["authors", "authors"]
    assert facts["beyond_the_paper"][0]["comparison"] is None
    assert facts["beyond_the_paper"][0]["adds"] == adds.split("; ")
    for path in (text_path, page_path):
        assert "Beyond the paper" in path.read_text()
        assert "a second loss" in path.read_text()


def test_a_row_with_another_network_has_no_published_number() -> None:
    wide = narrowed(EXPERIMENTS["table1"], ("cifar-fs/r2d2-64C", "cifar-fs/r2d2-wide"))
    cells = [cell for cell, _ in plan_cells(wide, Options(Path("none"), departures=Departures(width="64C")))]
    assert [(cell.label, cell.published is None) for cell in cells[::2]] == [
        ("R2-D2 (64C) · authors", False),
        ("R2-D2, on 64C · authors", True),
    ]
    assert [cell.published is None for cell, _ in plan_cells(wide, Options(Path("none")))] == [False] * 4


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
    assert got.half == pytest.approx(math.hypot(closed, 1.96 * math.sqrt(4 / 3), 0.05))
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
