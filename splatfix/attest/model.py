"""What the check of a signed report folder finds, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from splatfix.core.data import dataclass


@dataclass(frozen=True)
class Mismatch:
    """A file that is not as it was signed."""

    file: str
    """Its path below the report folder."""
    problem: str


@dataclass(frozen=True)
class Installed:
    """A file that ran, as an environment has it now."""

    file: str
    """Its path in site-packages."""
    problem: str = ""
    """Empty where it is byte for byte the one that ran."""


@dataclass(frozen=True)
class Verification:
    """What a signed report folder turned out to be."""

    key: str
    """The id of the key it was checked with: SHA-256 of its SubjectPublicKeyInfo."""
    mismatches: tuple[Mismatch, ...]
    files: tuple[str, ...] = ()
    """What was signed; empty where the signature does not hold."""
    statement: Mapping[str, Any] | None = None
    """The signed predicate; None where the signature does not hold, because then anyone may have written it."""
    not_looked_at: tuple[str, ...] = ()
    """Folders of earlier reports."""
    installed: tuple[Installed, ...] = ()
    """What ran beside splatfix's own sources, where an environment was named to compare with."""

    @property
    def holds(self) -> bool:
        """Every file is byte for byte what was signed, and nothing was added."""
        return not self.mismatches
