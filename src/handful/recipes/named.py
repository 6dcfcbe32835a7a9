"""The recipes that have a name, DATA/METHOD-WIDTH/VARIANT: every experiment of the paper, and what goes beyond it."""

from __future__ import annotations

from handful.errors import InvalidOptionError
from handful.meta.config import Recipe
from handful.recipes.baselines import baselines
from handful.recipes.learners import learner_recipes
from handful.recipes.modern import modern
from handful.recipes.originals import originals
from handful.recipes.ours import ablations, ours
from handful.recipes.settings import NamedRecipe
from handful.recipes.sweeps import hyperparameters, iterations

NAMED: dict[str, NamedRecipe] = dict(
    sorted(
        {
            **hyperparameters(),
            **iterations(),
            **ablations(),
            **ours(),
            **baselines(),
            **originals(),
            **learner_recipes(),
            **modern(),
        }.items()
    )
)


def named_recipe(name: str) -> Recipe:
    """The recipe of that name."""
    if name not in NAMED:
        near = [known for known in NAMED if name in known] or list(NAMED)
        raise InvalidOptionError(
            f"There is no recipe '{name}'. Near it: {', '.join(near[:4])}. `handful recipes` lists all {len(NAMED)}."
        )
    return NAMED[name].recipe
