"""The named recipes, DATA/METHOD-WIDTH/VARIANT: every experiment of the paper, and what goes beyond it."""

from __future__ import annotations

from handful.errors import InvalidOptionError
from handful.meta.config import Recipe
from handful.paper.recipes.baselines import baselines
from handful.paper.recipes.beyond import learner_recipes, modern
from handful.paper.recipes.originals import originals
from handful.paper.recipes.own import NamedRecipe, ablations, ours
from handful.paper.recipes.sweeps import hyperparameters, iterations

__all__ = ["NAMED", "NamedRecipe", "named_recipe"]

_ALL = (hyperparameters, iterations, ablations, ours, baselines, originals, learner_recipes, modern)
NAMED: dict[str, NamedRecipe] = dict(
    sorted((each for make in _ALL for each in make().items()), key=lambda each: each[0])
)


def named_recipe(name: str) -> Recipe:
    """The recipe with this name; the error for an unknown name suggests similar ones."""
    if name not in NAMED:
        near = [known for known in NAMED if name in known] or list(NAMED)
        raise InvalidOptionError(
            f"There is no recipe '{name}'. Similar: {', '.join(near[:4])}. `handful recipes` lists all {len(NAMED)}."
        )
    return NAMED[name].recipe
