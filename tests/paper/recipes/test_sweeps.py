"""The paper's figures: every value of a grid is one recipe that differs from the others in that value alone."""

from __future__ import annotations

from itertools import product

from handful.paper.recipes import named_recipe
from handful.paper.recipes.own import BINARY
from handful.paper.recipes.sweeps import LAM_KINDS, LAMBDAS, SCALE_KINDS, SCALES, STEPS, hyperparameters, iterations


def test_the_binary_run_of_ten_steps_is_the_table_3_run() -> None:
    stem = "cifar-fs-binary/lrd2"
    assert named_recipe(f"{stem}-10steps-wide/authors") == named_recipe(f"{stem}-wide/authors")


def test_each_point_of_the_hyper_parameter_figure_is_one_recipe() -> None:
    found = hyperparameters()
    assert len(found) == 2 * 2 * (len(LAMBDAS) * len(LAM_KINDS) + len(SCALES) * len(SCALE_KINDS))
    for value in LAMBDAS:
        options = found[f"cifar-fs/r2d2-lam-learnt-{value:g}-wide/authors"].recipe.options
        assert (options["lam"], options["learn_lam"]) == (value, True)
    diagonal = found["omniglot/r2d2-lam-diagonal-0.01-wide/paper"].recipe
    assert diagonal.options["prior"] == "diagonal"
    fixed = found["cifar-fs/r2d2-scale-fixed-0.001-wide/authors"].recipe.options
    assert (fixed["scale"], fixed["learn_scale"]) == (1e-3, False)


def test_the_learnt_alpha_that_starts_where_the_paper_does_shares_the_run_of_the_table() -> None:
    for data, variant in product(("cifar-fs", "omniglot"), ("paper", "authors")):
        table = named_recipe(f"{data}/r2d2-wide/{variant}")
        assert hyperparameters()[f"{data}/r2d2-scale-learnt-10-wide/{variant}"].recipe == table


def test_points_of_a_line_differ_in_their_value_alone() -> None:
    first, second = (
        hyperparameters()[f"cifar-fs/r2d2-lam-fixed-{value:g}-wide/authors"].recipe.as_json() for value in LAMBDAS[:2]
    )
    assert {key for key in first if first[key] != second[key]} == {"options"}
    assert {key for key in first["options"] if first["options"][key] != second["options"][key]} == {"lam"}


def test_steps_are_the_same_in_training_and_test() -> None:
    found = iterations()
    for steps in STEPS:
        assert found[f"cifar-fs{BINARY}/lrd2-{steps}steps-wide/paper"].recipe.options["steps"] == steps
        for name in (f"maml-{steps}steps-64C/paper", f"maml-{steps}steps-64C-5shot/authors"):
            options = found[f"cifar-fs{BINARY}/{name}"].recipe.options
            assert (options["steps"], options["test_steps"]) == (steps, steps)
    assert {entry.recipe.way for name, entry in found.items() if "/lrd2-" in name} == {2}
