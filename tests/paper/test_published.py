"""The published numbers hang together, and every rerun row has its recipes."""

from __future__ import annotations

from pathlib import Path

import pytest

from handful.errors import InvalidOptionError
from handful.paper import published
from handful.paper.experiments import EXPERIMENTS, narrowed
from handful.paper.jobs import Departures
from handful.paper.published import Column, Figure, figure
from handful.paper.recipes import NAMED
from handful.paper.recipes.own import NEAREST
from handful.paper.reproduce import Options, plan_cells
from handful.paper.table4 import ROWS


def test_printed_numbers_are_read_with_interval_and_digits() -> None:
    assert figure("62.3±0.2") == Figure(62.3, 0.2, 1)
    assert figure("98.55±0.05") == Figure(98.55, 0.05, 2)
    assert figure("57") == Figure(57.0, None, 0)
    assert figure("-") is None
    assert str(Figure(98.9, 0.05, 2)) == "98.90 ± 0.05"


def test_appendix_a_is_table_1_less_the_printed_drops() -> None:
    by_label = {row.label: row.numbers for row in published.APPENDIX_A}
    for whole, less, drop in zip(
        by_label["R2-D2"], by_label["Pre-trained + ridge"], (13.8, 11.6, 11.5, 5.9), strict=True
    ):
        assert whole is not None
        assert less is not None
        assert whole.value - less.value == pytest.approx(drop)
    assert by_label["R2-D2"] == next(row.numbers for row in published.TABLE_1 if row.label == "R2-D2")


TABLES = {"table1": published.TABLE_1, "table2": published.TABLE_2, "table3": published.TABLE_3}


def test_each_of_the_114_printed_numbers_can_be_rerun() -> None:
    """108 accuracies in tables 1 to 3, each with a recipe of its method's own authors, and 6 times in table 4."""
    count = {}
    for name, printed in TABLES.items():
        experiment = EXPERIMENTS[name]
        rows = {row.label: row for row in experiment.rows}
        cells = [(row, column) for row in printed for column in zip(experiment.columns, row.numbers, strict=True)]
        count[name] = sum(number is not None for _, (_, number) in cells)
        for row, (column, number) in cells:
            if number is not None:
                assert rows[row.label].recipe_name(column, "authors") in NAMED, (name, row.label, column.title)
    count["table4"] = len(ROWS.keys() & published.TABLE_4.keys())
    assert count == {"table1": 52, "table2": 32, "table3": 24, "table4": 6}
    assert sum(count.values()) == 114


QUOTED = {
    "table1": {"Matching net", "Meta-LSTM", "SNAIL (ResNet)", "SNAIL (32C)", "Relation net (inductive)"},
    "table2": {"Siamese net", "Matching net", "MAML", "SNAIL", "GNN"},
    "table3": {"Relation net (inductive)"},
}
"""Rows that the paper did not run itself, or that are ours: they have no recipe by its policy."""


def test_rows_have_recipes_by_the_papers_policy_where_the_paper_ran_them_itself() -> None:
    for experiment in EXPERIMENTS.values():
        for row in experiment.rows if experiment.name != "ablation" else ():
            assert len(row.numbers) == len(experiment.columns), (experiment.name, row.label)
            cells = [row.recipe_name(column, "paper") for column in experiment.columns]
            if row.label in QUOTED.get(experiment.name, ()):
                assert not any(cells), (experiment.name, row.label)
            else:
                assert all(cells), (experiment.name, row.label)


def test_every_row_but_quoted_ones_fills_all_its_columns() -> None:
    for experiment in EXPERIMENTS.values():
        for row in experiment.rows:
            for column, number in zip(experiment.columns, row.numbers, strict=True):
                if row.label not in QUOTED.get(experiment.name, ()) or number is not None:
                    assert row.recipe_name(column, "authors") in NAMED, (row.label, column.title)


def test_a_recipe_that_fills_a_cell_fits_the_column() -> None:
    for experiment in EXPERIMENTS.values():
        for row in experiment.rows:
            for column in experiment.columns:
                for variant in ("paper", "authors", "modern"):
                    if (name := row.recipe_name(column, variant)) is not None:
                        recipe = NAMED[name].recipe
                        assert recipe.data.removesuffix(NEAREST) == column.data
                        # Siamese networks learn from pairs, whatever the problem that they are tested on
                        pairs = recipe.learner == "siamese" or "one-shot" in name
                        assert recipe.min_shot <= column.shot <= recipe.max_shot or pairs
                        assert recipe.options.get("way", column.way) == column.way
                        assert column.shot in recipe.val_shots


def test_queries_fill_the_papers_episodes() -> None:
    assert [Column("cifar-fs", 5, shot).query(600) for shot in (1, 5)] == [47, 43]
    assert [Column("mini-imagenet", 5, shot).query(600) for shot in (1, 5)] == [47, 43]
    assert [Column("omniglot", way, shot).query(20) for way in (5, 20) for shot in (1, 5)] == [19, 15, 19, 15]
    assert [Column("cifar-fs-binary", 2, shot).query(600) for shot in (1, 5)] == [15, 11]


def test_table_4_times_the_published_rows() -> None:
    assert list(ROWS) == list(published.TABLE_4)


def test_an_experiment_is_narrowed_to_what_is_asked_for() -> None:
    whole = EXPERIMENTS["table1"]
    part = narrowed(whole, ("cifar-fs/r2d2-64C",))
    assert [column.group for column in part.columns] == ["cifar-fs"] * 2
    assert [row.label for row in part.rows] == ["R2-D2 (64C)"]
    assert [str(number) for number in part.rows[0].numbers] == ["62.3 ± 0.2", "77.4 ± 0.2"]
    assert narrowed(whole, ()) == whole
    mixed = narrowed(whole, ("r2d2-wide", "cifar-fs/maml-64C"))
    planned = plan_cells(mixed, Options(Path("nowhere")))
    assert [cell.recipe for cell, _ in planned] == [
        "cifar-fs/maml-64C-1shot/authors",
        "cifar-fs/maml-64C-5shot/authors",
        *["mini-imagenet/r2d2-wide/authors"] * 2,
        *["cifar-fs/r2d2-wide/authors"] * 2,
    ]
    assert len(narrowed(whole, ("proto net",)).rows) == 2
    same = narrowed(whole, ("cifar-fs/r2d2-64C", "cifar-fs/r2d2-wide"))
    small = plan_cells(same, Options(Path("nowhere"), departures=Departures(width="64C")))
    assert len({run.folder for _, runs in small for run in runs}) == 1
    assert [runs[0].changes for _, runs in small] == ["", "", "64C in place of wide", "64C in place of wide"]
    with pytest.raises(InvalidOptionError, match=r"'r3d3'.*Matching net"):
        narrowed(whole, ("r3d3",))
