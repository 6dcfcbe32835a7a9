"""Every value of a recipe that stands for the paper names the place that it comes from."""

from __future__ import annotations

import pytest

from handful.learners.registry import default_options
from handful.paper.recipes import NAMED
from handful.paper.recipes.provenance import DEFAULT, additions, flattened, values_of

OWN = sorted(name for name in NAMED if ("r2d2" in name or "lrd2" in name) and name.endswith(("/paper", "/authors")))


@pytest.mark.parametrize("name", OWN)
def test_every_value_of_the_papers_own_methods_has_a_source(name: str) -> None:
    entry = NAMED[name]
    values = values_of(entry, default_options(entry.recipe.learner))
    assert [value.field for value in values if value.source == DEFAULT] == []


@pytest.mark.parametrize("name", OWN)
def test_sources_speak_only_of_fields_that_the_recipe_has(name: str) -> None:
    entry = NAMED[name]
    fields = flattened(entry.recipe, default_options(entry.recipe.learner))
    assert set(entry.sources) <= set(fields)


def test_the_options_that_a_recipe_leaves_alone_are_shown_with_their_defaults() -> None:
    entry = NAMED["cifar-fs/r2d2-64C/authors"]
    shown = {value.field: value.value for value in values_of(entry, default_options("r2d2"))}
    assert shown["options.lam"] == 50.0
    assert shown["options.scale"] == 10.0
    assert shown["plan.rate"] == 5e-3


def test_an_extended_recipe_names_only_what_it_adds_to_its_base() -> None:
    for name, added in {
        "r2d2-64C-four-episodes": ("4 episodes per update",),
        "frn-64C": ("learner frn in place of r2d2",),
    }.items():
        full = f"cifar-fs/{name}/modern"
        said = additions(full, NAMED[full].recipe)
        assert said[: len(added)] == added
        assert not any("cosine" in each or "augmentation" in each for each in said)
