"""How far a training is, in words: the same on a terminal, in a log, in a report, and of a trainer that died."""

from collections.abc import Mapping
from typing import Any

from smoke_trainer.progress import words

__all__ = ["title", "words"]


def title(where: str, state: Mapping[str, Any]) -> str:
    """``study (scene 2 of 3)``; what is no scene, such as the kernels, as it is."""
    if "scenes" not in state:
        return where
    return f"{where} (scene {state['scene']} of {state['scenes']})"
