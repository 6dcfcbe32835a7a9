"""The paper's two figures: base-learner hyper-parameters fixed, learnt or diagonal, and the number of its steps.

The figures' grids are not in the text, so these span the ranges of which it speaks: lambda beyond 0.01, where the
diagonal prior is said to break down, and alpha from 1e-3 to its best value 10.
"""

from __future__ import annotations

from dataclasses import replace

from handful.meta.config import Option
from handful.paper.recipes.baselines import original, own_width, reran
from handful.paper.recipes.originals import SHOTS
from handful.paper.recipes.own import binary, multiclass, sources, with_options
from handful.paper.recipes.settings import BINARY, NamedRecipe, Variant

LAMBDAS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
SCALES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
STEPS = (1, 2, 3, 5, 10)
LAM_KINDS: dict[str, dict[str, Option]] = {
    "lam-fixed": {"learn_lam": False},
    "lam-learnt": {"learn_lam": True},
    "lam-diagonal": {"learn_lam": True, "prior": "diagonal"},
}
SCALE_KINDS: dict[str, dict[str, Option]] = {
    "scale-fixed": {"learn_scale": False},
    "scale-learnt": {"learn_scale": True},
}
GRID = "our choice: the figure's axis is not given in the text"
DATA = ("cifar-fs", "omniglot")
_VARIANTS: tuple[Variant, ...] = ("paper", "authors")


def hyperparameters() -> dict[str, NamedRecipe]:
    """R2-D2 over a grid of lambda and of alpha's start, each fixed or learnt, lambda also one a feature."""
    found: dict[str, NamedRecipe] = {}
    for data in DATA:
        for variant in _VARIANTS:
            base = multiclass(data, "wide", variant)
            for name, grid, kinds in (("lam", LAMBDAS, LAM_KINDS), ("scale", SCALES, SCALE_KINDS)):
                for kind, options in kinds.items():
                    for value in grid:
                        recipe = with_options(**{name: value}, **options)(base)
                        swept = dict.fromkeys((f"options.{key}" for key in (name, *options)), GRID)
                        found[f"{data}/r2d2-{kind}-{value:g}-wide/{variant}"] = NamedRecipe(
                            recipe, "figure, hyper-parameters", {**sources(recipe, variant), **swept}
                        )
    return found


def iterations() -> dict[str, NamedRecipe]:
    """LR-D2 and MAML in two-way problems by the number of steps, the same in training and test."""
    found: dict[str, NamedRecipe] = {}
    for data in ("cifar-fs", "mini-imagenet"):
        stem = f"{data}{BINARY}"
        for steps in STEPS:
            for variant in _VARIANTS:
                newton = binary(data, "lrd2", variant, steps)
                found[f"{stem}/lrd2-{steps}steps-wide/{variant}"] = NamedRecipe(
                    newton, "figure, iterations", {**sources(newton, variant), "options.steps": GRID}
                )
            width = own_width("maml", data)
            maml = f"{stem}/maml-{steps}steps-{width}"
            found[f"{maml}/paper"] = _stepped(reran("maml", data, width, two_way=True), steps)
            for shot in SHOTS:
                found[f"{maml}-{shot}shot/authors"] = _stepped(original("maml", data, 2, shot, width), steps)
    return found


def _stepped(entry: NamedRecipe, steps: int) -> NamedRecipe:
    """MAML with as many steps in training as at test time."""
    recipe = replace(entry.recipe, options={**entry.recipe.options, "steps": steps, "test_steps": steps})
    swept = {"options.steps": GRID, "options.test_steps": GRID}
    return NamedRecipe(recipe, "figure, iterations", {**entry.sources, **swept})
