"""What the paper fixes for each data set, whatever the learner: ways, images, dropout, the start of alpha."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from handful.meta.config import Plan, Recipe

Variant = Literal["paper", "authors", "modern", "modern-sgd"]
"""What the text says; what released code does; the best that we know, with Adam or with SGD."""
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


@dataclass(frozen=True)
class Setting:
    """One data set in the paper's hands."""

    way: int
    images_per_class: int
    dropout: float
    scale: float
    classes: int
    images: int
    """Images per class."""
    table: str
    val_ways: tuple[int, ...] = (5,)
    """Numbers of classes by which checkpoints are chosen: those of the table's columns."""

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
"""What the name of a data set adds when its images were resized by nearest neighbour, as in the authors' code."""
PLAN = Plan(validate_every=500)
EPOCH = 100
"""Episodes after which the authors' code validates."""
BINARY = "-binary"
"""What the names of two-way experiments add to the name of the data set."""


def cited(source: str, fields: str) -> dict[str, str]:
    """One source for several fields of a recipe, whose names are words of one string."""
    return dict.fromkeys(fields.split(), source)


def setting_of(data: str) -> Setting:
    """The paper's choices for a data set, however its images were resized."""
    return SETTINGS[data.removesuffix(NEAREST)]


def as_resized_by_the_authors(data: str) -> str:
    """The data set with the pixels of the authors' code, which differ on Omniglot only."""
    return f"{data}{NEAREST}" if data == "omniglot" else data


def plan_of(variant: Variant) -> Plan:
    """The schedule of section 4.2; the authors' code validates after every epoch, of which the text says nothing."""
    return replace(PLAN, validate_every=EPOCH) if variant == "authors" else PLAN


def binary_plan_of(variant: Variant) -> Plan:
    """The schedule of the two-way experiments."""
    return replace(plan_of(variant), rate=1e-3, decay=0.99, patience=50_000)
