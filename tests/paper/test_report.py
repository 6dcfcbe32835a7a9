"""Reports tell what was measured in words: tables, pairs, a summary, Markdown, HTML and JSON that agree."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from handful.data.table import Benchmark
from handful.paper.experiments import EXPERIMENTS
from handful.paper.plots import beside_picture
from handful.paper.recipes import NAMED
from handful.paper.report import (
    beyond_lines,
    markdown,
    pair_lines,
    run_lines,
    summary,
    write_report,
)
from handful.paper.results import Cell
from tests.paper.made import COLUMN, ROWS, cell, lines_of, results, score, with_counts


def test_an_order_that_other_images_might_turn_says_so(tiny: Benchmark) -> None:
    ridge, proto = cell("R2-D2 (64C)", score(0.63)), cell("Proto net", score(0.66))
    backwards = proto.scores[0].measurement.counts.correct_apart.flip(0)
    loose = replace(proto, scores=(with_counts(proto.scores[0], correct_apart=backwards),))
    made = results(tiny, ridge, loose)
    lines = pair_lines(made, COLUMN)
    assert lines is not None
    assert lines.rows[0][-1] == "other than published, but too close by the open interval"
    assert summary(made).endswith("0 are too close to call, 1 more by the open interval.")


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
    assert lines.rows[0][-1] == "abacus x 1"
    named = replace(one, manifest=replace(one.manifest, name="d/e/f"))
    shared = run_lines(results(tiny, cell("MAML", one), cell("Proto net", named)))
    assert [row[0] for row in shared.rows] == ["a/b/c = d/e/f"]


def test_a_run_of_several_processes_says_so(tiny: Benchmark) -> None:
    one = score(0.5)
    machine = {**one.manifest.sessions[0].machine, "processes": 2}
    many = replace(one, manifest=replace(one.manifest, sessions=(replace(one.manifest.sessions[0], machine=machine),)))
    assert run_lines(results(tiny, cell("MAML", many))).rows[0][-1] == "abacus x 2 processes x 1"


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


def test_the_order_of_methods_is_summed_up(tiny: Benchmark) -> None:
    ridge, proto = cell("R2-D2 (64C)", score(0.63)), cell("Proto net", score(0.55))
    told = summary(results(tiny, ridge, proto, cell("MAML", score(0.7))))
    counts = r"(\d) published differences.* (\d) have .* (\d) the other, (\d) are"
    assert re.findall(counts, told) == [("2", "1", "1", "0")]
    assert re.findall(counts, summary(results(tiny, ridge, proto))) == [("1", "1", "0", "0")]
    assert "Order" not in summary(results(tiny, ridge))
    shared = replace(ridge, row=replace(ridge.row, label="R2-D2"))
    assert "Order" not in summary(results(tiny, ridge, shared))  # one run in two rows is no comparison


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


def test_the_open_interval_of_a_pair_has_its_own_mean(tiny: Benchmark) -> None:
    ridge, proto = cell("R2-D2 (64C)", score(0.63)), cell("Proto net", score(0.66))
    fewer = proto.scores[0].measurement.counts.correct_apart - 20
    other = replace(proto, scores=(with_counts(proto.scores[0], correct_apart=fewer),))
    lines = pair_lines(results(tiny, ridge, other), COLUMN)
    assert lines is not None
    shown = dict(zip(lines.head, lines.rows[0], strict=True))
    assert shown["ours, paired"].startswith("+3.00 ")
    assert shown["open"].startswith("+1.00 ")


def test_a_run_with_another_schedule_is_neither_complete_nor_in_part(tiny: Benchmark) -> None:
    given = score(0.623)
    altered = replace(given, manifest=replace(given.manifest, changes="cosine in place of step schedule", altered=True))
    made = results(tiny, cell("R2-D2 (64C)", altered))
    assert lines_of(made).rows[0][-1] == "CHANGED: cosine in place of step schedule; all 100 episodes"
    assert "1 number from runs with another network or schedule allow no verdict." in summary(made)
    assert "in part" not in summary(made)


def test_only_what_was_measured_is_counted_beyond_the_paper(tiny: Benchmark) -> None:
    measured, absent = (cell("R2-D2 (64C)", *scores, variant="modern") for scores in ((score(0.63),), ()))
    assert "1 number beyond the paper are listed apart" in summary(results(tiny, measured, absent))
    assert "beyond" not in summary(results(tiny, absent))
