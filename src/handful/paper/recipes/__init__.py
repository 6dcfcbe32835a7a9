"""Recipes: every choice of a training run as plain values, and the named ones of the paper."""

from handful.paper.recipes.registry import NAMED, named_recipe
from handful.paper.recipes.settings import NamedRecipe

__all__ = ["NAMED", "NamedRecipe", "named_recipe"]
