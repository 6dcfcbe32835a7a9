"""Every value of a baseline's recipe that is not a default says where it comes from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields

import pytest

from handful.meta.config import Plan, Recipe
from handful.paper.recipes import NAMED
from handful.paper.recipes.baselines import baselines
from handful.paper.recipes.originals import originals

SOURCED = {name: entry for name, entry in {**baselines(), **originals()}.items() if not name.endswith("/modern")}


def chosen(recipe: Recipe) -> Iterator[str]:
    """The fields that differ from a recipe's defaults, by the names of `NamedRecipe.sources`."""
    default = Recipe()
    for each in fields(Recipe):
        if each.name not in ("plan", "options") and getattr(recipe, each.name) != getattr(default, each.name):
            yield each.name
    yield from (f"plan.{each.name}" for each in fields(Plan) if getattr(recipe.plan, each.name) != each.default)
    yield from (f"options.{name}" for name in recipe.options)


@pytest.mark.parametrize("name", SOURCED)
def test_every_value_that_is_no_default_has_a_source(name: str) -> None:
    entry = SOURCED[name]
    missing = [field for field in chosen(entry.recipe) if not entry.sources.get(field)]
    assert not missing


def test_sources_name_fields_that_exist() -> None:
    known = {each.name for each in fields(Recipe)} | {f"plan.{each.name}" for each in fields(Plan)}
    for name, entry in SOURCED.items():
        assert all(field in known or field.startswith("options.") for field in entry.sources), name


REASON = re.compile(r"our choice(: (\S+ ){2,}\S+| within the range .+ of .+| for .+: .+)")
"""A choice of ours with words after it: why, within which published range, or for which case and why."""


def test_a_choice_of_ours_gives_its_reason() -> None:
    for name, entry in NAMED.items():
        for field, source in entry.sources.items():
            if "our choice" in source:
                assert REASON.search(source), (name, field, source)
