"""The same network and data by today's means: cosine schedule, augmentation, averaged weights, a second loss.

Nothing here was chosen on test classes. `modern` uses Adam, one episode a step, and on CIFAR-FS tells all training
classes apart beside each episode's; `modern-sgd` follows Lee et al. (2019): Nesterov momentum, weight decay, several
episodes a step.
"""

from __future__ import annotations

from dataclasses import replace

from handful.meta.config import Plan, Recipe
from handful.paper.recipes.own import logistic, multiclass
from handful.paper.recipes.settings import NamedRecipe

_ADAM = Plan(
    episodes=12_000,
    rate=3e-3,
    schedule="cosine",
    weight_decay=0.02,
    classify=0.5,
    average="exponential",
    average_decay=0.998,
    validate_every=500,
    patience=0,
)
_SGD = Plan(
    episodes=24_000,
    optimiser="sgd",
    rate=0.1,
    schedule="cosine",
    weight_decay=5e-4,
    episodes_per_step=4,
    statistics="step",
    label_smoothing=0.1,
    average="exponential",
    average_decay=0.995,
    validate_every=1_000,
    patience=0,
)


def _cifar(recipe: Recipe) -> Recipe:
    return replace(recipe, val_query=43, dropout=0.1, augment=("crop", "flip"), plan=_ADAM)


def modern() -> dict[str, NamedRecipe]:
    """R2-D2, LR-D2 and prototypical networks with the 64C net on CIFAR-FS, R2-D2 on Omniglot."""
    ridge = _cifar(multiclass("cifar-fs", "64C", "modern"))
    characters = replace(multiclass("omniglot", "64C", "modern"), data="omniglot", val_ways=(5,), val_query=15)
    recipes = {
        "cifar-fs/r2d2-64C/modern": ridge,
        "cifar-fs/lrd2-5steps-64C/modern": _cifar(logistic("cifar-fs", 5, "64C", "modern")),
        "cifar-fs/protonet-64C/modern": replace(ridge, learner="protonet", options={"learn_scale": True, "scale": 0.1}),
        "cifar-fs/r2d2-64C/modern-sgd": replace(ridge, augment=("crop", "flip", "jitter"), plan=_SGD),
        "omniglot/r2d2-64C/modern": replace(
            characters,
            augment=("crop",),
            plan=replace(_ADAM, episodes=6_000, weight_decay=5e-3, classify=0.0, validate_every=250),
        ),
    }
    return {name: NamedRecipe(recipe, "beyond the paper") for name, recipe in recipes.items()}
