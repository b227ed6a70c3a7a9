"""The classes of what goes wrong in splatting installs: their names, definitions and standard fixes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from splatfix.knowledge._tables import cached, table


@dataclass(frozen=True)
class FailureClass:
    """One way in which installs fail. The names are the vocabulary of checks, explanations and reports."""

    name: str
    definition: str
    fix: str
    examples: tuple[str, ...]
    """Issues that show it (``owner/repository#number``)."""
    source: str


@cached
def _classes() -> Mapping[str, FailureClass]:
    document = table("failures")
    return {
        name: FailureClass(
            name=name,
            definition=row["definition"],
            fix=row["fix"],
            examples=tuple(row.get("examples", [])),
            source=document["source"].get(row["source"], row["source"]),
        )
        for name, row in document["classes"].items()
    }


def failure_classes() -> tuple[FailureClass, ...]:
    """All classes, the commonest first."""
    return tuple(_classes().values())


def failure_class(name: str) -> FailureClass | None:
    """The class of this name, or None."""
    return _classes().get(name)
