"""Messages of build tools that say by themselves what is wrong: a pattern, its meaning, and what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from splatfix.core.step import Command, Step


@dataclass(frozen=True)
class Meaning:
    """What one message means."""

    key: str
    """The failure or the breakage record that knows it."""
    meaning: str
    steps: tuple[Step, ...]
    failure_class: str
    """"" where it belongs to no class of failures."""


@dataclass(frozen=True)
class Message:
    """A message, and what it means. ``{1}`` and ``{name}`` in texts stand for groups of the match."""

    key: str
    pattern: re.Pattern[str]
    meaning: str
    steps: tuple[Mapping[str, Any], ...]
    kind: str = ""
    """Only in messages of this kind (``splatfix/explain/build_output.py``); "": in every kind."""
    failure_class: str = ""

    def read(self, text: str) -> Meaning | None:
        """What it means, if it stands in the text."""
        match = self.pattern.search(text)
        if match is None:
            return None
        groups = (match.group(), *match.groups())
        named = match.groupdict()
        steps = tuple(step_of(row, groups, named) for row in self.steps)
        return Meaning(self.key, self.meaning.format(*groups, **named), steps, self.failure_class)


def message_of(key: str, row: Mapping[str, Any], failure_class: str) -> Message:
    """A message from its table in a data file."""
    return Message(
        key=key,
        pattern=re.compile(row["pattern"]),
        meaning=row.get("meaning", ""),
        steps=tuple(row.get("steps", ())),
        kind=row.get("kind", ""),
        failure_class=failure_class,
    )


def step_of(
    row: Mapping[str, Any], groups: Sequence[str] = (), named: Mapping[str, str] | None = None
) -> Step:
    """A step from a data file: ``text``, and ``argv``, ``env`` or ``unset`` where there is a command."""
    named = named or {}
    text = row.get("text", "").format(*groups, **named)
    argv = tuple(word.format(*groups, **named) for word in row.get("argv", ()))
    env: dict[str, str | None] = {**row.get("env", {}), **dict.fromkeys(row.get("unset", ()))}
    if not argv and not env:
        return Step(text)
    return Step(text, Command(argv, tuple(env.items())))
