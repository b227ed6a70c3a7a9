"""What a step writes down while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .record import Claim

_LONGEST = 400


class Failed(Exception):
    """A program that the step cannot go on without; the message says how it ended."""


@dataclass
class Notes:
    """Of one step: what held, what did not, what was measured."""

    claims: list[Claim] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)

    def expect(self, good: bool, subject: str, shown_by: str) -> bool:
        """A claim where it holds, a problem where it does not; a problem fails the step only at its end."""
        if good:
            self.claims.append(Claim(subject, on_one_line(shown_by)))
        else:
            self.problems.append(on_one_line(f"{subject}: {shown_by}"))
        return good

    def add(self, other: Notes) -> None:
        """Take over what another one holds."""
        self.claims += other.claims
        self.problems += other.problems
        self.numbers.update(other.numbers)


def on_one_line(text: str) -> str:
    """Without line breaks, and without the tensors that some errors print."""
    line = " ".join(text.split())
    if len(line) > _LONGEST:
        line = f"{line[:_LONGEST]} ..."
    return line
