"""How far a training is, in words: the same on a terminal, in a log, in a report, and of a trainer that died."""

from collections.abc import Callable, Mapping
from typing import Any

from smoke_trainer.progress import words

__all__ = ["Progress", "title", "words"]

Progress = Callable[[str, Mapping[str, Any]], None]
"""Called with what runs now (scene or stage) and the trainer's own progress object."""


def title(where: str, state: Mapping[str, Any]) -> str:
    """``study (scene 2 of 3)``; the only scene, and what is none, such as the kernels, as it is."""
    if state.get("scenes", 1) == 1:
        return where
    return f"{where} (scene {state['scene']} of {state['scenes']})"
