"""Recipes: every choice of a training run as plain values, and the named ones of the paper."""

from handful.meta.config import Option, Recipe, parse_options, recipe_from_json
from handful.paper.recipes.registry import NAMED, named_recipe
from handful.paper.recipes.settings import NamedRecipe

__all__ = ["NAMED", "NamedRecipe", "Option", "Recipe", "named_recipe", "parse_options", "recipe_from_json"]
