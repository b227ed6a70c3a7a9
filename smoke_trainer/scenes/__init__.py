"""Our own sample scenes: procedural worlds, a ray tracer, and writers of the field's layouts. Needs numpy and Pillow only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smoke_trainer.scenes.make import check_scene, make_scene
    from smoke_trainer.scenes.recipes import RECIPES, Recipe

__all__ = ["RECIPES", "Recipe", "check_scene", "make_scene"]


def __getattr__(name: str) -> Any:
    """Load what stands on numpy and Pillow when it is asked for: the command must be able to say that they are missing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from smoke_trainer.scenes import make

    return getattr(make, name)
