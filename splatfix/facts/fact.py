"""One fact: a value with how it was learned, or the reason why it is not known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Fact(Generic[T]):
    """A value with how it was learned, or the reason why it is not known.

    ``value is None`` means unknown; ``error`` then says why. A fact that is known to be nothing has a type whose
    emptiness says so (an empty tuple of GPUs).
    """

    value: T | None = None
    found_via: str = ""
    error: str = ""

    @property
    def known(self) -> bool:
        """There is a value to reason with."""
        return self.value is not None


def unknown(error: str, found_via: str = "") -> Fact[Any]:
    """A fact nobody could learn, with the reason."""
    return Fact(None, found_via, error)
