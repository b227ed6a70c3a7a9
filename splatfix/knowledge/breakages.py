"""What breaks known sources (a toolkit, compiler or library that changed), and names that hold something else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from splatfix.knowledge._tables import cached, table


@dataclass(frozen=True)
class Lookalike:
    """A PyPI name that does not hold what a splatting user expects. ``found`` None: nothing there."""

    name: str
    found: str | None
    really: str
    wanted: str


def lookalike(name: str) -> Lookalike | None:
    """What a PyPI name really holds, where that is not what a splatting user expects; None: nothing known against it."""
    key = name.lower().replace("_", "-")
    row = table("stacks")["lookalikes"].get(key)
    return Lookalike(key, row["found"], row["really"], row["wanted"]) if row else None


@dataclass(frozen=True)
class Breakage:
    """A change of a toolkit, compiler or library that stops known sources from building or running."""

    key: str
    symptom: str
    cure: str
    since: Mapping[str, tuple[int, ...]]
    """What brought it: ``{"cuda": (13, 0)}``."""
    until: Mapping[str, tuple[int, ...]]
    """The last version that has it; empty: no end."""
    note: str
    source: str


def breakages() -> tuple[Breakage, ...]:
    """All known breakages."""
    document = table("stacks")
    return tuple(
        Breakage(
            key=key,
            symptom=row["symptom"],
            cure=row["cure"],
            since=_limits(row, "since_"),
            until=_limits(row, "until_"),
            note=row.get("note", ""),
            source=document["source"].get(row["source"], row["source"]),
        )
        for key, row in document["breakages"].items()
    )


@cached
def _by_key() -> Mapping[str, Breakage]:
    return {row.key: row for row in breakages()}


def breakage(key: str) -> Breakage | None:
    """The breakage of this key, or None."""
    return _by_key().get(key)


def _limits(row: Mapping[str, object], prefix: str) -> dict[str, tuple[int, ...]]:
    found = {}
    for name, value in row.items():
        if name.startswith(prefix) and not isinstance(value, str):
            number = tuple(value) if isinstance(value, list) else (int(str(value)),)
            found[name.removeprefix(prefix)] = number
    return found
