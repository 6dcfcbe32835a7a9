"""The paper's own methods, R2-D2 and LR-D2, many-way and two-way, with a switch for each detail that the text omits.

`authors` is what the released code does. `paper` is what the text says: lambda is learnt and not multiplied by the
number of examples, and no column of ones is appended (eq. 5 taken literally).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from handful.recipes.recipe import Option, Recipe
from handful.recipes.settings import BINARY, SETTINGS, NamedRecipe, Variant, Width, binary_plan_of, plan_of

LITERAL: dict[str, Option] = {"learn_lam": True, "lam_per_example": False, "intercept": False}
"""Equation 5 as it is printed."""


def multiclass(data: str, width: Width, variant: Variant) -> Recipe:
    """R2-D2 of tables 1 and 2."""
    setting = SETTINGS[data]
    literal = LITERAL if variant == "paper" else {}
    return Recipe(
        data=data,
        width=width,
        dropout=setting.dropout,
        way=setting.way,
        images_per_class=setting.images_per_class,
        options={"scale": setting.scale, **literal},
        plan=plan_of(variant),
        val_query=setting.val_query,
    )


def logistic(data: str, steps: int, width: Width, variant: Variant) -> Recipe:
    """LR-D2, one class against the rest, of table 1: ten ways; the text's S = 240 against the code's 200."""
    literal = LITERAL if variant == "paper" else {}
    return replace(
        multiclass(data, width, variant),
        learner="lrd2",
        way=10,
        images_per_class=24 if variant == "paper" else 20,
        options={"steps": steps, **literal},
    )


def binary(data: str, learner: str, variant: Variant, steps: int = 10) -> Recipe:
    """R2-D2 and LR-D2 of table 3: group norm, 32 images an episode, another schedule."""
    dropout = {"mini-imagenet": 0.1, "cifar-fs": 0.4 if variant == "paper" else 0.3}[data]
    own: dict[str, Option] = {"scale": 1e-4} if learner == "r2d2" else {"lam": 1.0, "steps": steps}
    return Recipe(
        data=data,
        width="wide",
        norm="group",
        dropout=dropout,
        learner=learner,
        options={**own, **(LITERAL if variant == "paper" else {})},
        way=2,
        images_per_class=16,
        plan=binary_plan_of(variant),
        val_way=2,
        val_query=15,
    )


def ours() -> dict[str, NamedRecipe]:
    """Every experiment of tables 1 to 3 with R2-D2 and LR-D2, by name."""
    found: dict[str, NamedRecipe] = {}
    variants: tuple[Variant, ...] = ("paper", "authors")
    widths: tuple[Width, ...] = ("64C", "wide")
    for variant in variants:
        for data, setting in SETTINGS.items():
            for width in widths:
                found[f"{data}/r2d2-{width}/{variant}"] = NamedRecipe(multiclass(data, width, variant), setting.table)
        for data in ("cifar-fs", "mini-imagenet"):
            for width in widths:
                for steps in (1, 5):
                    found[f"{data}/lrd2-{steps}steps-{width}/{variant}"] = NamedRecipe(
                        logistic(data, steps, width, variant), "table 1"
                    )
            for learner in ("r2d2", "lrd2"):
                found[f"{data}{BINARY}/{learner}-wide/{variant}"] = NamedRecipe(
                    binary(data, learner, variant), "table 3"
                )
    return found


def with_options(**options: Option) -> Callable[[Recipe], Recipe]:
    """A recipe with other options of its learner."""
    return lambda recipe: replace(recipe, options={**recipe.options, **options})


def _five_way(recipe: Recipe) -> Recipe:
    """As many images an episode as before, where a class has so many."""
    images = min(recipe.way * recipe.images_per_class // 5, SETTINGS[recipe.data].images)
    return replace(recipe, way=5, images_per_class=images)


SWITCHES: dict[str, Callable[[Recipe], Recipe]] = {
    "lam-learnt": with_options(learn_lam=True),
    "lam-as-printed": with_options(lam_per_example=False),
    "no-intercept": with_options(intercept=False),
    "scale-1": with_options(scale=1.0),
    "scale-direct": with_options(direct_scale=True),
    "no-extra-pool": lambda recipe: replace(recipe, shrink=False),
    "last-block-alone": lambda recipe: replace(recipe, concatenate=False),
    "statistics-apart": lambda recipe: replace(recipe, together=False),
    "no-dropout": lambda recipe: replace(recipe, dropout=0.0),
    "five-way": _five_way,
    "one-shot": lambda recipe: replace(recipe, min_shot=1, max_shot=1),
    "slow-decay": lambda recipe: replace(recipe, plan=replace(recipe.plan, decay=0.99)),
}
"""Each detail on its own, against the variant `authors`, which learns log alpha where their code learns alpha."""


def ablations() -> dict[str, NamedRecipe]:
    """R2-D2 64C by the authors' code with one detail changed at a time."""
    return {
        f"{data}/r2d2-64C-{name}/authors": NamedRecipe(switch(multiclass(data, "64C", "authors")), "ablation")
        for data in ("cifar-fs", "omniglot")
        for name, switch in SWITCHES.items()
    }
