"""Named recipes hold what the paper and its authors' code say, and every recipe survives JSON."""

from __future__ import annotations

import json

import pytest

from handful.errors import CheckpointError, InvalidOptionError
from handful.meta.config import Recipe, recipe_from_json
from handful.meta.run import validation_queries
from handful.paper.recipes import NAMED, named_recipe
from handful.paper.recipes.own import setting_of


def test_every_episode_fits_its_data_set() -> None:
    for name, entry in NAMED.items():
        recipe, setting = entry.recipe, setting_of(entry.recipe.data)
        assert recipe.way <= setting.classes, name
        assert recipe.max_shot < recipe.images_per_class <= setting.images, name
        for way in recipe.val_ways:
            for shot in recipe.val_shots:
                query = validation_queries(recipe, way, shot, setting.images)
                assert 1 <= query <= setting.images - shot, name


def test_every_recipe_survives_json() -> None:
    for name, entry in NAMED.items():
        assert recipe_from_json(json.loads(json.dumps(entry.recipe.as_json()))) == entry.recipe, name


def test_variants_of_an_experiment_stand_side_by_side() -> None:
    for stem in ("cifar-fs/r2d2-64C", "omniglot/r2d2-64C"):
        assert all(f"{stem}/{variant}" in NAMED for variant in ("paper", "authors", "modern"))
    ours = {name.rsplit("/", 1)[0] for name in NAMED if "r2d2-wide" in name or "lrd2" in name or "r2d2-lam" in name}
    for stem in ours - {"cifar-fs/lrd2-5steps-64C", "omniglot/lrd2-32C"}:
        assert {f"{stem}/paper", f"{stem}/authors"} <= NAMED.keys()


def test_unknown_names_and_fields_are_refused() -> None:
    with pytest.raises(InvalidOptionError, match=r"'omni'.*omniglot/"):
        named_recipe("omni")
    with pytest.raises(CheckpointError, match="flavour"):
        recipe_from_json({**Recipe().as_json(), "flavour": "sweet"})
