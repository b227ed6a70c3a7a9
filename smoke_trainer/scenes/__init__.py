"""Our own sample scenes: procedural worlds, a ray tracer, and writers of the field's layouts. Needs numpy and Pillow only."""

from smoke_trainer.scenes.make import check_scene, make_scene
from smoke_trainer.scenes.recipes import RECIPES, Recipe

__all__ = ["RECIPES", "Recipe", "check_scene", "make_scene"]
