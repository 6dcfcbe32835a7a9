"""The paper's two figures: base-learner hyper-parameters fixed, learnt or diagonal, and the number of its steps.

The text does not give the grids of the figures, so these span the ranges that it mentions: lambda beyond 0.01, where
the diagonal prior is said to break down, and alpha from 1e-3 to its best value 10.
"""

from __future__ import annotations

from itertools import product

from handful.meta.config import Option
from handful.paper.recipes.baselines import original, own_width, reran
from handful.paper.recipes.originals import SHOTS
from handful.paper.recipes.own import (
    BINARY,
    PICTURES,
    REPRODUCING,
    NamedRecipe,
    binary,
    cited,
    multiclass,
    sources,
    with_options,
)

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
    "scale-learnt": {},  # the default, left out so that the paper's initial alpha shares the run of its table
}
GRID = "our choice: the figure's axis is not given in the text"
DATA = ("cifar-fs", "omniglot")


def hyperparameters() -> dict[str, NamedRecipe]:
    """R2-D2 over a grid of lambda and of initial alpha, each fixed or learnt, and lambda also one per feature."""
    found: dict[str, NamedRecipe] = {}
    grids = [("lam", value, *kind) for value, kind in product(LAMBDAS, LAM_KINDS.items())]
    grids += [("scale", value, *kind) for value, kind in product(SCALES, SCALE_KINDS.items())]
    for data, variant, (name, value, kind, options) in product(DATA, REPRODUCING, grids):
        recipe = with_options(**{name: value}, **options)(multiclass(data, "wide", variant))
        swept = dict.fromkeys((f"options.{key}" for key in (name, *options)), GRID)
        found[f"{data}/r2d2-{kind}-{value:g}-wide/{variant}"] = NamedRecipe(
            recipe, "figure, hyper-parameters", {**sources(recipe, variant), **swept}
        )
    return found


def iterations() -> dict[str, NamedRecipe]:
    """LR-D2 and MAML in two-way problems by the number of steps, the same in training and test."""
    found: dict[str, NamedRecipe] = {}
    for data, steps in product(PICTURES, STEPS):
        stem, width = f"{data}{BINARY}", own_width("maml", data)
        for variant in REPRODUCING:
            newton = binary(data, "lrd2", variant, steps)
            found[f"{stem}/lrd2-{steps}steps-wide/{variant}"] = NamedRecipe(
                newton, "figure, iterations", {**sources(newton, variant), "options.steps": GRID}
            )
        maml = f"{stem}/maml-{steps}steps-{width}"
        found[f"{maml}/paper"] = _stepped(reran("maml", data, width, two_way=True), steps)
        for shot in SHOTS:
            found[f"{maml}-{shot}shot/authors"] = _stepped(original("maml", data, 2, shot, width), steps)
    return found


def _stepped(entry: NamedRecipe, steps: int) -> NamedRecipe:
    """MAML with as many steps in training as at test time."""
    recipe = with_options(steps=steps, test_steps=steps)(entry.recipe)
    swept = cited(GRID, "options.steps options.test_steps")
    return NamedRecipe(recipe, "figure, iterations", {**entry.sources, **swept})
