"""The paper's settings for each data set, and its own methods, R2-D2 and LR-D2, with a switch for each open detail.

`authors` follows the released code, with the PyTorch 0.3 that it pins. `paper` follows the text: lambda is
learnt and not multiplied by the number of examples, and no column of ones is appended (eq. 5 taken literally). `modern`
is the basis of our own recipes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Literal

from handful.meta.config import Option, Plan, Recipe

Variant = Literal["paper", "authors", "modern", "modern-sgd"]
"""The paper's text, released code, or the best training that we know, with Adam or with SGD."""
REPRODUCING: tuple[Variant, ...] = ("paper", "authors")
"""The variants that reproduce the paper; others go beyond it."""
PICTURES = ("cifar-fs", "mini-imagenet")
"""Data sets of table 1 and of two-way problems."""
Width = Literal["32C", "64C", "wide"]
Schedule = Literal["step", "cosine", "constant"]


@dataclass(frozen=True)
class NamedRecipe:
    """A recipe with the experiment that it belongs to, and where its values come from."""

    recipe: Recipe
    about: str
    sources: Mapping[str, str] = field(default_factory=dict)
    """By field (`way`, `plan.rate`, `options.lam`): the section of a paper, a file of released code, or our choice with
    its reason."""
    base: str = ""
    """The name of the recipe that it extends, if that is not the authors' recipe of the same row."""


@dataclass(frozen=True)
class Setting:
    """The paper's settings for one data set."""

    way: int
    images_per_class: int
    dropout: float
    scale: float
    classes: int
    images: int
    """Images per class."""
    table: str
    val_ways: tuple[int, ...] = (5,)
    """Numbers of ways for choosing checkpoints: those of the table's columns."""

    @property
    def size(self) -> int:
        """S, the images of a training episode."""
        return self.way * self.images_per_class


SETTINGS = {
    "omniglot": Setting(60, 10, 0.0, 10.0, 4112, 20, "table 2", (5, 20)),
    "cifar-fs": Setting(20, 12, 0.4, 10.0, 64, 600, "table 1"),
    "mini-imagenet": Setting(16, 15, 0.1, 1e-4, 64, 600, "table 1"),
}
NEAREST = "-nearest"
"""Suffix of a data set whose images were resized by nearest neighbour, as in the authors' code."""
PLAN = Plan(validate_every=500)
EPOCH = 100
"""Episodes after which the authors' code validates."""
BINARY = "-binary"
"""Suffix of the data set in the names of two-way experiments."""


def cited(source: str, fields: str) -> dict[str, str]:
    """One source for several fields of a recipe, whose names are given in one string."""
    return dict.fromkeys(fields.split(), source)


def setting_of(data: str) -> Setting:
    """The paper's settings for a data set, whichever way its images were resized."""
    return SETTINGS[data.removesuffix(NEAREST)]


def as_resized_by_the_authors(data: str) -> str:
    """The data set with the pixels of the authors' code, which only differ on Omniglot."""
    return f"{data}{NEAREST}" if data == "omniglot" else data


def plan_of(variant: Variant) -> Plan:
    """The schedule of section 4.2; the authors' code validates after every epoch, which the text does not mention."""
    return replace(PLAN, validate_every=EPOCH) if variant == "authors" else PLAN


def binary_plan_of(variant: Variant) -> Plan:
    """The schedule of the two-way experiments."""
    return replace(plan_of(variant), rate=1e-3, decay=0.99, patience=50_000)


LITERAL: dict[str, Option] = {"learn_lam": True, "lam_per_example": False, "intercept": False}
"""Options for equation 5 as printed."""

TEXT = "text, section 4.2"
CODE = "code of the authors, "
SHELL, YAML = f"{CODE}scripts/train/experiments.sh", f"{CODE}scripts/train/conf/fewshots.yaml"
NEWTON = f"{CODE}fewshots/models/lrd2.py"
NETWORK, HEAD = f"{CODE}fewshots/models/load_model.py", f"{CODE}fewshots/models/r2d2.py"


def multiclass(data: str, width: Width, variant: Variant) -> Recipe:
    """R2-D2 of tables 1 and 2."""
    setting = SETTINGS[data]
    recipe = Recipe(
        data=as_resized_by_the_authors(data),
        width=width,
        dropout=setting.dropout,
        way=setting.way,
        images_per_class=setting.images_per_class,
        options={"scale": setting.scale, **_head(variant)},
        plan=plan_of(variant),
        val_ways=setting.val_ways,
        val_query=0,
    )
    return as_released(recipe) if variant == "authors" else recipe


def _head(variant: Variant) -> dict[str, Option]:
    """A variant's options for ridge regression and its calibration."""
    if variant == "authors":
        return {"direct_scale": True}
    return LITERAL if variant == "paper" else {}


def as_released(recipe: Recipe) -> Recipe:
    """The recipe with the initialisation and validation of the authors' code."""
    return replace(recipe, norm_start="uniform", val_query=0, val_fresh=True)


def logistic(data: str, steps: int, width: Width, variant: Variant) -> Recipe:
    """One-vs-rest LR-D2 of table 1: ten ways, with S = 240 in the text and 200 in the code."""
    return replace(
        multiclass(data, width, variant),
        learner="lrd2",
        way=10,
        images_per_class=24 if variant == "paper" else 20,
        options={"steps": steps, **(LITERAL if variant == "paper" else {})},
    )


def binary(data: str, learner: str, variant: Variant, steps: int = 10) -> Recipe:
    """R2-D2 and LR-D2 of table 3: group norm, 32 images per episode, another schedule."""
    dropout = {"mini-imagenet": 0.1, "cifar-fs": 0.4 if variant == "paper" else 0.3}[data]
    ridge: dict[str, Option] = {"scale": 1e-4, **_head(variant)}
    newton: dict[str, Option] = {"lam": 1.0, "steps": steps, **(LITERAL if variant == "paper" else {})}
    recipe = Recipe(
        data=data,
        width="wide",
        norm="group-unbiased" if variant == "authors" else "group",
        dropout=dropout,
        learner=learner,
        options=ridge if learner == "r2d2" else newton,
        way=2,
        images_per_class=16,
        plan=binary_plan_of(variant),
        val_ways=(2,),
        val_query=0,
    )
    # the released group norm starts at ones, unlike batch norm in that version of PyTorch
    return replace(as_released(recipe), norm_start="ones") if variant == "authors" else recipe


def sources(recipe: Recipe, variant: Variant) -> Mapping[str, str]:
    """Where the values of an R2-D2 or LR-D2 recipe come from, by field."""
    return {**_common_sources(recipe), **(_code_sources(recipe) if variant == "authors" else _text_sources(recipe))}


def _common_sources(recipe: Recipe) -> dict[str, str]:
    """Sources of values on which text and code agree, or which the text implies."""
    rates = "plan.episodes_per_step plan.optimiser plan.rate plan.schedule plan.decay plan.decay_every plan.patience"
    two_runs = "; a run for each there, one run here" if len(recipe.val_ways) > 1 else ""
    return {
        **cited(TEXT, f"dropout concatenate learner way norm {rates}"),
        "data": "text, section 4.1 (classes and splits); Omniglot resized as in the code, fewshots/data/utils.py",
        "width": f"{TEXT}; 64C: {NETWORK}, RRNet_small",
        "shrink": f"{NETWORK}, pool3; the text's feature sizes need it",
        "together": f"{HEAD}, one call of the encoder",
        "images_per_class": f"{TEXT}: S / ways",
        "min_shot": f"{YAML}, data.shot_min",
        "max_shot": f"{YAML}, data.shot_max = 10 excluded; the text says only that shots are random",
        **(_ridge_sources() if recipe.learner == "r2d2" else _newton_sources()),
        "plan.episodes": f"{YAML}, train.epochs x data.train_episodes",
        "val_ways": f"{SHELL}, data.test_way{two_runs}",
        "val_shots": f"{CODE}scripts/train/train.py, val1 and val5",
        "val_query": f"{CODE}fewshots/data/SetupEpisode.py: validation episodes have S images too",
        "val_episodes": f"{YAML}, data.test_episodes",
    }


def _ridge_sources() -> dict[str, str]:
    return {
        **cited(TEXT, "options.learn_scale options.learn_bias"),
        "options.scale": f"{SHELL}, init_adj_scale",
        "options.bias": f"{CODE}fewshots/models/adjust.py",
        "options.direct_scale": "our choice: a logarithm cannot turn negative",
        "options.prior": "text, eq. 5; the diagonal prior of appendix B is in no released code",
    }


def _newton_sources() -> dict[str, str]:
    unused = "options.scale options.bias options.learn_scale options.learn_bias"
    return {
        "options.steps": TEXT,
        "options.gradient": f"{NEWTON}: automatic differentiation through all steps",
        **cited(f"{NEWTON}: the calibration is not applied", unused),
    }


def _code_sources(recipe: Recipe) -> dict[str, str]:
    """Sources of values that only the code gives, or that differ from the text."""
    found = {
        "norm_start": "PyTorch 0.3, which environment.yml of the authors' code pins",
        "options.direct_scale": f"{CODE}fewshots/models/adjust.py",
        "options.lam": f"{YAML} and experiments.sh, init_lambda",
        "options.learn_lam": f"{YAML}, learn_lambda",
        "options.lam_per_example": f"{HEAD}: features and labels are divided by the root of their number",
        "options.intercept": f"{HEAD}: a column of ones, penalised like the rest",
        "plan.validate_every": f"{YAML}, data.train_episodes: an epoch has 100 episodes",
        "val_fresh": f"{CODE}fewshots/data/load.py: validation episodes are drawn each time",
    }
    if recipe.learner == "lrd2":
        del found["options.direct_scale"]
        found["options.lam_per_example"] = f"{NEWTON}: nothing is divided"
        found["options.intercept"] = f"{NEWTON}: a column of ones, penalised like the rest"
        if recipe.way != 2:
            found["images_per_class"] = f"{SHELL}, data.batch_size (200 where the text implies 240)"
    if recipe.way == 2:
        norm = f"{CODE}fewshots/utils/norm.py"
        found |= {"norm_start": norm, "norm": f"{TEXT}; {norm}", "images_per_class": f"{SHELL}, data.batch_size"}
        found |= {"dropout": f"{SHELL}, model.drop", **_TWO_WAY}
    return found


_TWO_WAY = {"plan.rate": f"{SHELL}, train.learning_rate", "plan.patience": f"{SHELL}, train.patience"}


def _text_sources(recipe: Recipe) -> dict[str, str]:
    """Sources of values from the text, and our choices where it does not say."""
    return {
        "options.learn_lam": TEXT,
        **cited("text, eq. 5", "options.lam_per_example options.intercept"),
        "options.lam": f"{SHELL}, init_lambda; the text gives no start",
        "plan.validate_every": "our choice: the text does not say how often",
        "val_fresh": "our choice: the same episodes each time are the sharper comparison",
        **(_TWO_WAY if recipe.way == 2 else {}),
    }


def _named(recipe: Recipe, about: str, variant: Variant) -> NamedRecipe:
    return NamedRecipe(recipe, about, sources(recipe, variant))


def ours() -> dict[str, NamedRecipe]:
    """Every experiment of tables 1 to 3 with R2-D2 and LR-D2, by name."""
    found: dict[str, NamedRecipe] = {}
    widths: tuple[Width, ...] = ("64C", "wide")
    for variant, width in product(REPRODUCING, widths):
        for data, setting in SETTINGS.items():
            recipe = multiclass(data, width, variant)
            found[f"{data}/r2d2-{width}/{variant}"] = _named(recipe, setting.table, variant)
        for data, steps in product(PICTURES, (1, 5)):
            recipe = logistic(data, steps, width, variant)
            found[f"{data}/lrd2-{steps}steps-{width}/{variant}"] = _named(recipe, "table 1", variant)
    for variant, data, learner in product(REPRODUCING, PICTURES, ("r2d2", "lrd2")):
        recipe = binary(data, learner, variant)
        found[f"{data}{BINARY}/{learner}-wide/{variant}"] = _named(recipe, "table 3", variant)
    return found


def with_options(**options: Option) -> Callable[[Recipe], Recipe]:
    """A recipe with other options of its learner."""
    return lambda recipe: replace(recipe, options={**recipe.options, **options})


def _five_way(recipe: Recipe) -> Recipe:
    """The recipe with five ways and the same number of images per episode, if classes have enough images."""
    wanted, have = recipe.way * recipe.images_per_class // 5, setting_of(recipe.data).images
    shorter = replace(recipe, way=5, images_per_class=min(wanted, have))
    return shorter if wanted <= have else replace(shorter, val_query=have - max(recipe.val_shots))


SWITCHES: dict[str, Callable[[Recipe], Recipe]] = {
    "lam-learnt": with_options(learn_lam=True),
    "lam-as-printed": with_options(lam_per_example=False),
    "no-intercept": with_options(intercept=False),
    "scale-1": with_options(scale=1.0),
    "scale-as-logarithm": with_options(direct_scale=False),
    "gamma-ones": lambda recipe: replace(recipe, norm_start="ones"),
    "same-validation": lambda recipe: replace(recipe, val_fresh=False),
    "no-extra-pool": lambda recipe: replace(recipe, shrink=False),
    "last-block-alone": lambda recipe: replace(recipe, concatenate=False),
    "statistics-apart": lambda recipe: replace(recipe, together=False),
    "no-dropout": lambda recipe: replace(recipe, dropout=0.0),
    "five-way": _five_way,
    "one-shot": lambda recipe: replace(recipe, min_shot=1, max_shot=1),
    "slow-decay": lambda recipe: replace(recipe, plan=replace(recipe.plan, decay=0.99)),
}
"""One changed detail each, relative to the variant `authors`."""


def ablations() -> dict[str, NamedRecipe]:
    """R2-D2 64C by the authors' code with one detail changed at a time."""
    return {
        f"{data}/r2d2-64C-{name}/authors": _named(switch(multiclass(data, "64C", "authors")), "ablation", "authors")
        for data in ("cifar-fs", "omniglot")
        for name, switch in SWITCHES.items()
    }
