"""Experiments: their rows and columns, the recipe of each cell, and the part that is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from handful.data.table import Benchmark
from handful.errors import InvalidOptionError
from handful.paper.experiments import EXPERIMENTS, narrowed
from handful.paper.jobs import Departures
from handful.paper.recipes import NAMED
from handful.paper.recipes.own import NEAREST
from handful.paper.reproduce import Options, Source, draw_sets, plan_cells
from handful.paper.testing import draw_set
from tests.conftest import blobs

QUOTED = {
    "table1": {"Matching net", "Meta-LSTM", "SNAIL (ResNet)", "SNAIL (32C)", "Relation net (inductive)"},
    "table2": {"Siamese net", "Matching net", "MAML", "SNAIL", "GNN"},
    "table3": {"Relation net (inductive)"},
}
"""Rows that the paper did not run itself, or that are ours: they have no recipe by its policy."""


def test_rows_have_recipes_by_the_papers_policy_where_the_paper_ran_them_itself() -> None:
    for experiment in EXPERIMENTS.values():
        for row in experiment.rows if experiment.name not in ("ablation", "beyond") else ():
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
                    assert row.recipe_name(column, experiment.variants[0]) in NAMED, (row.label, column.title)


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


def test_a_figure_compares_what_is_learnt_with_what_is_fixed_at_the_same_value() -> None:
    against = {row.label: row.against for row in EXPERIMENTS["figure-hyperparameters"].rows}
    assert against["lambda diagonal, 0.01"] == "lambda fixed, 0.01"
    assert against["alpha learnt, 0.0001"] == "alpha fixed, 0.0001"
    assert against["alpha fixed, 100"] == "alpha fixed, 10"
    steps = {row.label: row.against for row in EXPERIMENTS["figure-iterations"].rows}
    assert steps["MAML, 5 steps"] == steps["R2-D2, beside 5 steps"] == "LR-D2, 5 steps"


def test_rows_of_the_wide_net_are_compared_with_r2d2_on_it() -> None:
    against = {row.label: row.against for row in EXPERIMENTS["table1"].rows}
    assert {against[label] for label in ("LR-D2 (1 iteration)", "LR-D2 (5 iterations)", "MAML *")} == {"R2-D2"}
    assert {against[label] for label in ("R2-D2", "R2-D2 (64C)", "MAML", "SNAIL (ResNet)")} == {""}
    rows = {row.label: row for row in EXPERIMENTS["appendix-a"].rows}
    assert rows["Pre-trained + ridge"].against == "R2-D2"
    assert rows["Pre-trained + ridge (64C)"].against == ""


def test_choices_beyond_the_paper_extend_modern_and_see_other_episodes_than_validation() -> None:
    options, beyond = Options(Path("nowhere"), test_episodes=5), EXPERIMENTS["beyond"]
    planned = plan_cells(beyond, options)
    assert {cell.recipe.rpartition("/")[2] for cell, _ in planned} == {"modern"}
    names = {cell.row.label: cell.recipe for cell, _ in planned}
    assert names["turned and mixed"] == "cifar-fs/r2d2-64C-turned-mixed/modern"
    assert {NAMED[name].base for name in names.values()} == {"", names["the variant `modern`"]}

    table = blobs(classes=18, images=60, size=16)
    parts = zip(("train", "val", "test"), (0, 6, 12), strict=True)
    benchmark = Benchmark("blobs", *(table.split(name, table.classes[first : first + 6]) for name, first in parts))
    sources = {"cifar-fs": Source(benchmark, "content")}
    chosen = draw_sets(planned, sources, options, lambda _: None, beyond.split)
    for (column, _), episodes in chosen.items():
        assert episodes.dataset.name == "val"
        for seed in range(5):  # of training, and so of validation
            same = draw_set(benchmark.val, "content", column.way, column.shot, episodes.query, 5, seed)
            assert episodes.digest != same.digest
