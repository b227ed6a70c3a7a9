"""Splatting stacks: how to recognise a checkout, what it pins, and which extension variants it needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from splatfix.knowledge._tables import cached, table
from splatfix.knowledge.breakages import Breakage, Lookalike, breakage, breakages, lookalike
from splatfix.knowledge.variants import Match, Variant, explain_mismatch, identify, variant, variants

__all__ = [
    "Breakage",
    "Lookalike",
    "Match",
    "Stack",
    "Variant",
    "breakage",
    "breakages",
    "explain_mismatch",
    "identify",
    "lookalike",
    "pure_torch_substitute",
    "recognise_checkout",
    "stack",
    "stacks",
    "variant",
    "variants",
]


@dataclass(frozen=True)
class Stack:
    """One trainer that people check out and run."""

    key: str
    name: str
    repository: str
    commit: str
    licence: str
    commercial_use: bool
    recognise: tuple[str, ...]
    """Files and folders that its checkout has; empty: no file tells it from the stack that it was made from."""
    needs: tuple[str, ...]
    """Keys of the variants that it calls."""
    also_needs: tuple[str, ...]
    submodules: Mapping[str, str]
    """Path -> commit ("" where not known)."""
    python: str | None
    torch: str | None
    cuda: str | None
    entry: str
    vram_gb: tuple[float, float] | None
    """Mean and maximum over published scenes with defaults."""
    note: str
    verified: bool
    source: str


@cached
def _stacks() -> Mapping[str, Stack]:
    document = table("stacks")
    return {
        key: Stack(
            key=key,
            name=row["name"],
            repository=row["repository"],
            commit=row["commit"],
            licence=row["licence"],
            commercial_use=row["commercial_use"],
            recognise=tuple(row["recognise"]),
            needs=tuple(row["needs"]),
            also_needs=tuple(row["also_needs"]),
            submodules=row["submodules"],
            python=row["python"],
            torch=row["torch"],
            cuda=row["cuda"],
            entry=row["entry"],
            vram_gb=(row["vram_gb"]["mean"], row["vram_gb"]["max"]) if row["vram_gb"] else None,
            note=row["note"],
            verified=row["verified"],
            source=document["source"].get(row["source"], row["source"]),
        )
        for key, row in document["stacks"].items()
    }


def stacks() -> tuple[Stack, ...]:
    """All stacks."""
    return tuple(_stacks().values())


def stack(key: str) -> Stack | None:
    """The stack of this key, or None."""
    return _stacks().get(key)


def recognise_checkout(paths: Collection[str]) -> tuple[Stack, ...]:
    """Stacks that a checkout can be, the most telling first, from the paths it has (relative, with '/').

    A stack counts when all its files are there. Most were made from Inria's and kept its files, so only those
    that Inria's lacks tell how well one fits; Inria's own comes last.
    """
    have = {path.rstrip("/") for path in paths}
    have |= {parent for path in have for parent in _parents(path)}
    base = frozenset(_stacks()["inria-v1"].recognise)
    found = [row for row in stacks() if row.recognise and have.issuperset(row.recognise)]
    return tuple(sorted(found, key=lambda row: -len(frozenset(row.recognise) - base)))


def _parents(path: str) -> Iterable[str]:
    parts = path.split("/")
    return ("/".join(parts[:end]) for end in range(1, len(parts)))


def pure_torch_substitute(extension: str) -> str | None:
    """How far pure PyTorch can stand in for an extension ("exact", "same formula" ...); None: not practical."""
    row = table("stacks")["extensions"].get(extension)
    return row["pure_torch"] if row else None
