"""Recipes as data: for each stack its extensions in build order, where their sources are, and what replaces them."""

from splatfix.plan.recipes.loader import Needs, Part, Recipe, recipe, recipes

__all__ = ["Needs", "Part", "Recipe", "recipe", "recipes"]
