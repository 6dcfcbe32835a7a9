"""Every named recipe builds a model that takes a training step."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from handful.episodes import EpisodeSampler, RandomShots
from handful.meta.config import Recipe
from handful.meta.run import build
from handful.meta.state import TrainingState
from handful.meta.train import train
from handful.paper.cost import stand_in
from handful.paper.recipes import NAMED
from handful.paper.recipes.own import setting_of


def small(recipe: Recipe) -> Recipe:
    """The same model, trained with episodes of as few images as it allows."""
    way = recipe.way if "way" in recipe.options else min(recipe.way, 5)
    plan = replace(
        recipe.plan, episodes=1, episodes_per_step=1, validate_every=0, classify=0.0, average="none", schedule="step"
    )
    shot = min(recipe.max_shot, 5)
    return replace(recipe, way=way, min_shot=shot, max_shot=shot, images_per_class=shot + 1, plan=plan)


def distinct() -> dict[str, Recipe]:
    """One recipe for each kind of model: numbers and switches of a learner are tested with the learner itself."""
    found: dict[str, tuple[str, Recipe]] = {}
    for name, entry in NAMED.items():
        recipe = entry.recipe
        words = {
            key: value for key, value in recipe.options.items() if isinstance(value, str) or key in ("way", "size")
        }
        kind = [recipe.data.partition("-nearest")[0], recipe.width, recipe.norm, recipe.learner, words]
        found.setdefault(json.dumps(kind), (name, recipe))
    return dict(found.values())


DISTINCT = distinct()


@pytest.mark.slow
@pytest.mark.parametrize("name", DISTINCT)
def test_a_recipe_builds_a_model_and_takes_a_training_step_on_noise(name: str) -> None:
    recipe = small(DISTINCT[name])
    noise = stand_in(recipe.data, per_class=8)
    model = build(recipe, noise.train.image_shape)
    assert model.learner.limits.way in (None, recipe.way)
    if recipe.learner == "transfer":
        recipe = replace(recipe, options={**recipe.options, "classes": setting_of(recipe.data).classes})
    episodes = EpisodeSampler(
        noise.train, RandomShots(recipe.way, recipe.images_per_class, recipe.min_shot, recipe.max_shot, 1), recipe.seed
    )
    progress = next(train(model, episodes, state=TrainingState(model, recipe.plan)))
    assert math.isfinite(progress.loss)
