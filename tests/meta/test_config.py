"""Recipes go to JSON and back, refuse what cannot be trained, and show what is not a default."""

from __future__ import annotations

import json
from typing import Any, get_args, get_type_hints

import pytest

from handful.data.augment import AUGMENTATIONS
from handful.embeddings.conv4 import NORMS
from handful.embeddings.registry import EMBEDDINGS
from handful.errors import CheckpointError, InvalidOptionError
from handful.meta.config import Plan, Recipe, recipe_from_json


def test_a_recipe_survives_json() -> None:
    recipe = Recipe(learner="lrd2", options={"lam": 1.0, "learn_lam": True}, val_ways=(5, 20), plan=Plan(rate=0.1))
    assert recipe_from_json(json.loads(json.dumps(recipe.as_json()))) == recipe


@pytest.mark.parametrize(
    ("field", "registry"),
    [("width", EMBEDDINGS), ("norm", NORMS), ("augment", AUGMENTATIONS)],
    ids=["width", "norm", "augment"],
)
def test_a_choice_is_that_of_its_registry(field: str, registry: dict[str, Any]) -> None:
    """Recipes spell choices out, because the command line shows them without importing torch."""
    choice = get_type_hints(Recipe)[field]
    literal = choice if field != "augment" else get_args(choice)[0]
    assert get_args(literal) == tuple(registry)


def test_a_field_of_a_later_version_is_refused_by_name() -> None:
    with pytest.raises(CheckpointError, match="warp_drive"):
        recipe_from_json({**Recipe().as_json(), "warp_drive": 9})


@pytest.mark.parametrize(
    "wrong",
    [
        {"episodes": 0},
        {"patience": -1},
        {"rate": 0.0},
        {"rate": float("inf")},
        {"momentum": 1.0},
        {"decay": 0.0},
        {"episodes_per_step": 3},
    ],
)
def test_a_plan_that_cannot_be_trained_is_refused_with_the_option_s_name(wrong: dict[str, Any]) -> None:
    name = next(iter(wrong))
    with pytest.raises(InvalidOptionError, match="learning rate" if name == "rate" else name):
        Plan(**wrong)


def test_a_configuration_shows_the_values_that_are_not_defaults() -> None:
    assert repr(Recipe()) == "Recipe()"
    assert repr(Recipe(way=5, plan=Plan(rate=0.1))) == "Recipe(way=5, plan=Plan(rate=0.1))"
