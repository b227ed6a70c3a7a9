"""Messages of build tools that say by themselves what is wrong: a pattern, its meaning, and what to do."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from splatfix.core.step import step_of


class Message(Struct, frozen=True, dict=True):
    """A message, and what it means. ``{1}`` and ``{name}`` in texts stand for groups of the match."""

    key: str
    """The failure or the breakage record that knows it."""
    text: str = field(name="pattern")
    failure_class: str
    """"" where it belongs to no class of failures."""
    meaning: str = ""
    steps: tuple[Any, ...] = ()
    """As the data file has them: what they are in full, a match tells."""
    kind: str = ""
    """Only in messages of this kind (``splatfix/explain/build_output.py``); "": in every kind."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.text)

    def read(self, text: str) -> Message | None:
        """The same with the text's own words in meaning and steps, if it stands in the text."""
        match = self.pattern.search(text)
        if match is None:
            return None
        groups, named = (match.group(), *match.groups()), match.groupdict()
        steps = tuple(step_of(row, groups, named) for row in self.steps)
        return replace(self, meaning=self.meaning.format(*groups, **named), steps=steps)
