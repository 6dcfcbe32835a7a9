"""Pictures of results: lines over a hyper-parameter, hollow points for runs in part, and curves of training."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from handful.data.table import Benchmark
from handful.meta.run import LOG
from handful.paper.experiments import EXPERIMENTS
from handful.paper.plots import beside_picture, curves_of, lines_picture, panels
from handful.paper.published import Row
from handful.paper.report import (
    report_blocks,
)
from handful.paper.results import Cell
from tests.paper.made import COLUMN, cell, results, score


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
        "The paper gives no numbers for these rows" in block for block in report_blocks(made) if isinstance(block, str)
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


def test_a_picture_shows_each_row_that_has_a_number_published_or_measured(tiny: Benchmark) -> None:
    picture = beside_picture(results(tiny, cell("R2-D2 (64C)", score(0.63)), cell("MAML", variant="")))
    assert picture is not None
    for word in ("R2-D2 (64C)", "MAML", COLUMN.title, "the paper", "open interval"):
        assert word.encode() in picture.data
    assert beside_picture(results(tiny, cell("MAML", variant=""))) is None


def test_a_picture_has_no_line_for_a_row_without_any_number(tiny: Benchmark) -> None:
    neither = replace(cell("MAML"), published=None)
    picture = beside_picture(results(tiny, cell("R2-D2 (64C)", score(0.63)), neither))
    assert picture is not None
    assert b"MAML" not in picture.data


def test_curves_are_the_mean_validation_scores_of_each_run(tiny: Benchmark, tmp_path: Path) -> None:
    lines = [
        {"episode": 1},
        {"episode": 2, "validation": {"1-shot": 0.2, "5-shot": 0.4}},
        {"episode": 4, "validation": {"1-shot": 0.4, "5-shot": 0.8}},
    ]
    made = []
    for seed, kept in ((0, lines), (1, lines), (2, lines[:2])):  # one point is no curve
        folder = tmp_path / str(seed)
        folder.mkdir()
        (folder / LOG).write_text("".join(json.dumps(line) + "\n" for line in kept))
        made.append(replace(score(0.5, seed=seed), folder=folder))
    curves = curves_of(results(tiny, cell("MAML", *made)))
    assert curves == {name: [(2, pytest.approx(0.3)), (4, pytest.approx(0.6))] for name in ("a/b/c", "a/b/c, seed 1")}


@pytest.mark.parametrize(("count", "size"), [(1, (6.4, 2.0)), (2, (9.2, 2.0)), (3, (9.2, 4.0))])
def test_panels_stand_two_side_by_side(count: int, size: tuple[float, float]) -> None:
    canvas, axes = panels(count, height=2.0)
    assert len(axes) == len(canvas.axes) == count
    assert tuple(canvas.get_size_inches()) == size
