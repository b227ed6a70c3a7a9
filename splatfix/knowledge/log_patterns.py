"""Patterns that lines of a log are searched for, with what spares nearly every search: literals that a match must hold."""

import importlib
import re
import sys
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct, field

# the parser of the re module; Python 3.11 renamed it
PARSER: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
"""Its names of what repeats."""


class LogPattern(Struct, frozen=True, eq=False, kw_only=True, dict=True):
    """A pattern for one line with plain quotes, compiled when it is first asked for. Two of one text in two files are two."""

    text: str = field(name="pattern")
    any_case: bool = True

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        if self.any_case:
            return re.compile(self.text, re.IGNORECASE)
        return re.compile(self.text)

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """As :func:`required`."""
        return required(self.pattern)

    def possible_in(self, text: str) -> bool:
        """Whether a text (in lower case) has what the pattern needs."""
        return not self.literals or any(literal in text for literal in self.literals)

    def search(self, text: str, lower: str) -> re.Match[str] | None:
        """The first match in a line; ``lower`` is the line in lower case."""
        # nearly every line is none of a pattern's, and to look for a literal is far cheaper than to match
        if not self.possible_in(lower):
            return None
        return self.pattern.search(text)


def required(pattern: re.Pattern[str]) -> tuple[str, ...]:
    """Literals in lower case, one of which is in every line that the pattern matches (in lower case too).

    Empty where there is none: such a pattern is tried on every line.
    """
    return _best(list(PARSER.parse(pattern.pattern, pattern.flags & ~re.UNICODE)))


def _best(tokens: Sequence[Any]) -> tuple[str, ...]:
    """The set of literals of a sequence whose shortest is the longest."""
    candidates: list[tuple[str, ...]] = []
    run = ""
    for operator, argument in tokens:
        name = str(operator)
        if name == "LITERAL":
            run += chr(argument)
            continue
        if run:
            candidates.append((run,))
            run = ""
        if name == "SUBPATTERN":
            candidates.append(_best(list(argument[-1])))
        elif name == "BRANCH":
            branches = [_best(list(branch)) for branch in argument[1]]
            if all(branches):  # else one of them can match without any
                candidates.append(tuple(text for branch in branches for text in branch))
        elif name in REPEATS and argument[0] > 0:
            candidates.append(_best(list(argument[2])))
    if run:
        candidates.append((run,))
    candidates = [texts for texts in candidates if texts]
    if not candidates:
        return ()
    # long literals are rare in logs, so they spare most searches; of equally long ones fewer are cheaper to look for
    best = max(candidates, key=lambda texts: (min(map(len, texts)), -len(texts)))
    return tuple(dict.fromkeys(text.lower() for text in best))
