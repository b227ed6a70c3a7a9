"""Loads the recipes of ``stacks.toml`` and fills in what the variants of the knowledge room say."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from splatfix.knowledge.stacks import stack, variant
from splatfix.plan.dropin_table import dropin_for_variant, refusal

BUILDERS = ("setup.py", "cmake", "none")
ORIGINS = ("submodule", "vendored", "registry", "elsewhere")


@dataclass(frozen=True)
class Part:
    """One extension of a stack."""

    path: str
    """In the checkout, with '/'; "" when it is not in it."""
    variant: str
    origin: str
    """``submodule``, ``vendored``, ``registry`` or ``elsewhere``."""
    builder: str
    """``setup.py``: splatfix builds it; ``cmake``, ``none``: it says what to do instead."""
    arch_variable: str
    """Variable that decides on GPUs; "none" for CPU code."""
    glm: str | None
    """``submodule``, ``vendored`` or None."""
    note: str

    @property
    def replaced_by(self) -> str:
        """Name of the drop-in; "" when nothing replaces it."""
        dropin = dropin_for_variant(self.variant) if self.variant else None
        return dropin.name if dropin else ""

    @property
    def why_irreplaceable(self) -> str:
        """The reason where nothing replaces it; "" where something does."""
        if self.replaced_by:
            return ""
        return refusal(self.variant) or "plain PyTorch has no practical stand-in for it"


@dataclass(frozen=True)
class Needs:
    """What a program that is no Python extension needs of a machine."""

    cuda: tuple[int, ...]
    """Lowest toolkit release; () when it uses no CUDA."""
    tools: tuple[str, ...]
    adapters: str
    """``vulkan`` when it draws through a graphics adapter."""


@dataclass(frozen=True)
class Recipe:
    """How one stack is made to work."""

    stack: str
    name: str
    parts: tuple[Part, ...]
    needs: Needs | None
    note: str


@cache
def _recipes() -> Mapping[str, Recipe]:
    toml: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    text = Path(__file__).with_name("stacks.toml").read_text(encoding="utf-8")
    return {key: _recipe(key, row) for key, row in toml.loads(text).items()}


def recipes() -> tuple[Recipe, ...]:
    """Every recipe."""
    return tuple(_recipes().values())


def recipe(stack_key: str) -> Recipe | None:
    """The recipe of the stack of this key (``splatfix.knowledge.stacks``), or None."""
    return _recipes().get(stack_key)


def _recipe(key: str, row: Mapping[str, Any]) -> Recipe:
    known = stack(key)
    needs = row.get("needs")
    return Recipe(
        stack=key,
        name=known.name if known else key,
        parts=tuple(_part(part) for part in row.get("part", ())),
        needs=Needs(tuple(needs["cuda"]), tuple(needs["tools"]), needs["adapters"]) if needs else None,
        note=row.get("note", ""),
    )


def _part(row: Mapping[str, Any]) -> Part:
    known = variant(row["variant"]) if row["variant"] else None
    return Part(
        path=row["path"],
        variant=row["variant"],
        origin=row["from"],
        builder=row.get("builder", "setup.py"),
        arch_variable=known.arch_variable if known else row.get("arch", ""),
        glm=known.glm if known else None,
        note=row.get("note", ""),
    )
