"""The published numbers hang together, and every rerun row has its recipes."""

from __future__ import annotations

import pytest

from handful.paper import published
from handful.paper.experiments import EXPERIMENTS
from handful.paper.published import Column, Figure, figure
from handful.paper.recipes import NAMED
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


def test_queries_fill_the_papers_episodes() -> None:
    assert [Column("cifar-fs", 5, shot).query(600) for shot in (1, 5)] == [47, 43]
    assert [Column("mini-imagenet", 5, shot).query(600) for shot in (1, 5)] == [47, 43]
    assert [Column("omniglot", way, shot).query(20) for way in (5, 20) for shot in (1, 5)] == [19, 15, 19, 15]
    assert [Column("cifar-fs-binary", 2, shot).query(600) for shot in (1, 5)] == [15, 11]
