"""Recipes beyond the paper: its networks with modern training, every learner in ten minutes, and MetaOptNet's.

Nothing here was chosen on test classes. `modern` changes the training of the 64C net on the same data: cosine schedule,
augmentation, averaged weights, Adam with one episode per step, and on CIFAR-FS an auxiliary loss over all training
classes. `modern-sgd` follows Lee et al. (2019): Nesterov momentum, weight decay, several episodes per step. `quick`
trains each learner on 5-way 1-shot problems of Omniglot with the 32C net in ten minutes on two cores, with rates chosen
on validation classes in runs of a minute. `metaoptnet` has the ResNet-12 of Lee et al.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from handful.meta.config import Option, Plan, Recipe
from handful.paper.recipes.own import NamedRecipe, logistic, multiclass

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


def _pictures(recipe: Recipe) -> Recipe:
    return replace(recipe, val_query=43, dropout=0.1, augment=("crop", "flip"), plan=_ADAM)


def _mini_imagenet() -> Recipe:
    """CIFAR-FS's recipe, including the first alpha, but shorter, because its images are seven times as large."""
    ridge = _pictures(multiclass("mini-imagenet", "64C", "modern"))
    return replace(ridge, options={**ridge.options, "scale": 10.0}, plan=replace(ridge.plan, episodes=5_000))


@dataclass(frozen=True)
class Addition:
    """A change to a recipe, and its label in the report."""

    label: str
    to: Callable[[Recipe], Recipe]


ADDITIONS = {
    "turned": Addition("turned", lambda recipe: replace(recipe, turned=0.5)),
    "mixed": Addition("mixed", lambda recipe: replace(recipe, mixed=0.5)),
    "turned-mixed": Addition("turned and mixed", lambda recipe: replace(recipe, turned=0.5, mixed=0.5)),
    "four-episodes": Addition(
        "four episodes", lambda recipe: replace(recipe, plan=replace(recipe.plan, episodes_per_step=4))
    ),
}
"""What the experiment `beyond` adds to the variant `modern` of R2-D2 64C on CIFAR-FS."""


def modern() -> dict[str, NamedRecipe]:
    """R2-D2, LR-D2, prototypical and feature map reconstruction networks, 64C, on CIFAR-FS; R2-D2 on the others."""
    ridge = _pictures(multiclass("cifar-fs", "64C", "modern"))
    characters = replace(multiclass("omniglot", "64C", "modern"), data="omniglot", val_ways=(5,), val_query=15)
    recipes = {
        "cifar-fs/r2d2-64C/modern": ridge,
        "cifar-fs/lrd2-5steps-64C/modern": _pictures(logistic("cifar-fs", 5, "64C", "modern")),
        "cifar-fs/protonet-64C/modern": replace(ridge, learner="protonet", options={"learn_scale": True, "scale": 0.1}),
        "cifar-fs/r2d2-64C/modern-sgd": replace(ridge, augment=("crop", "flip", "jitter"), plan=_SGD),
        "mini-imagenet/r2d2-64C/modern": _mini_imagenet(),
        "omniglot/r2d2-64C/modern": replace(
            characters,
            augment=("crop",),
            plan=replace(_ADAM, episodes=6_000, weight_decay=5e-3, classify=0.0, validate_every=250),
        ),
    }
    extended = {
        "cifar-fs/frn-64C/modern": replace(ridge, learner="frn", options={"scale": 10.0}),
        **{f"cifar-fs/r2d2-64C-{name}/modern": each.to(ridge) for name, each in ADDITIONS.items()},
    }
    about = "beyond the paper"
    return {
        **{name: NamedRecipe(recipe, about) for name, recipe in recipes.items()},
        **{name: NamedRecipe(recipe, about, base="cifar-fs/r2d2-64C/modern") for name, recipe in extended.items()},
    }


@dataclass(frozen=True)
class Quick:
    """What differs between the learners' ten-minute recipes."""

    learner: str
    options: dict[str, Option] = field(default_factory=dict)
    way: int = 20
    query: int = 5
    rate: float = 2e-3
    per_step: int = 1
    episodes: int = 8_000

    def recipe(self) -> Recipe:
        """The whole recipe; the rate falls to 0 at the last episode, so no checkpoint has to be chosen."""
        plan = Plan(
            episodes=self.episodes,
            rate=self.rate,
            schedule="cosine",
            episodes_per_step=self.per_step,
            statistics="step",
            clip=10.0,
            validate_every=0,
            patience=0,
        )
        return Recipe(
            data="omniglot",
            width="32C",
            learner=self.learner,
            options=self.options,
            way=self.way,
            images_per_class=1 + self.query,
            max_shot=1,
            plan=plan,
            val_shots=(1,),
            val_query=15,
        )


_FIVE: dict[str, Option] = {"way": 5}
_SMALL_STEPS: dict[str, Option] = {"learn_rates": True, "rate": 0.02, "batching": "vmap"}

QUICK = {
    "r2d2": Quick("r2d2"),
    "lrd2": Quick("lrd2"),
    "softmax": Quick("softmax"),
    "svm": Quick("svm", way=10, per_step=2),
    "protonet": Quick("protonet"),
    "matching": Quick("matching"),
    "matching-fce": Quick("matching", {"context": True}, rate=1e-3),
    "siamese": Quick("siamese", {"hidden": 512}),
    "relation": Quick("relation", {"channels": 32, "average": True}, way=5, per_step=4, episodes=16_000),
    "frn": Quick("frn", {"scale": 10.0}),
    "gnn": Quick("gnn", {**_FIVE, "hidden": 48}, way=5, per_step=4, episodes=16_000),
    "snail": Quick("snail", {**_FIVE, "width": 64}, way=5, rate=1e-3, per_step=8, episodes=20_000),
    "maml": Quick(
        "maml",
        {**_FIVE, **_SMALL_STEPS, "steps": 3, "test_steps": 3},
        way=5,
        query=3,
        rate=1e-3,
        per_step=4,
        episodes=7_000,
    ),
    "anil": Quick("anil", {**_FIVE, **_SMALL_STEPS, "steps": 5, "test_steps": 10}, way=5, per_step=4, episodes=20_000),
    "meta-lstm": Quick(
        "meta-lstm", {**_FIVE, "steps": 5, "hidden": 8, "rate": 0.03, "keep": 0.9999}, way=5, rate=1e-3, episodes=2_600
    ),
    "transfer": Quick("transfer", {"classes": 4112, "lam": 10.0}, way=60, query=1, rate=3e-3, episodes=6_000),
}


def _meta_opt_net() -> dict[str, Recipe]:
    """Lee et al. 2019: one model for all shots; their steps 0.1, 0.006, 0.0012, 0.00024 become a cosine."""
    plan = Plan(
        episodes=480_000,
        optimiser="sgd",
        rate=0.1,
        schedule="cosine",
        weight_decay=5e-4,
        label_smoothing=0.125,  # 0.9 for the true class and 0.025 for each other one, like their 0.1
        episodes_per_step=8,
        statistics="step",
        validate_every=8_000,
        patience=0,
    )
    shots = {"mini-imagenet": 15, "cifar-fs": 5}
    learners: dict[str, dict[str, Option]] = {
        "svm": {},
        "r2d2": {"scale": 1.0},
        "protonet": {"learn_scale": True},
    }
    return {
        f"{data}/{learner}-resnet12/metaoptnet": Recipe(
            data=data,
            width="resnet12",
            dropout=0.1,
            learner=learner,
            options=options,
            way=5,
            images_per_class=shot + 6,
            min_shot=shot,
            max_shot=shot,
            augment=("crop", "flip", "jitter"),
            plan=plan,
        )
        for data, shot in shots.items()
        for learner, options in learners.items()
    }


def learner_recipes() -> dict[str, NamedRecipe]:
    """Every learner's quick recipe, and those of MetaOptNet."""
    quick = {
        f"omniglot/{name}-32C/quick": NamedRecipe(each.recipe(), "every learner in ten minutes")
        for name, each in QUICK.items()
    }
    return quick | {name: NamedRecipe(recipe, "as Lee et al. train it") for name, recipe in _meta_opt_net().items()}
