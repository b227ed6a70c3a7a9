"""What a pattern cannot match without, read from its parse tree: the literals by which lines are looked for first."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from typing import Any

# the parser of the re module; Python 3.11 renamed it
_parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")


def required(pattern: re.Pattern[str]) -> tuple[str, ...]:
    """Literals in lower case, one of which is in every line that the pattern matches (in lower case too).

    Empty where there is none: such a pattern is tried on every line.
    """
    return _best(list(_parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)))


def nested_repeats(pattern: re.Pattern[str]) -> bool:
    """Whether a repeat without a small bound stands inside another: the shape that takes exponential time."""
    return _nested(_parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE), False)


def unbounded_repeats(pattern: re.Pattern[str]) -> int:
    """How many repeats without a bound one after the other a pattern has; of alternatives the one with most counts."""
    return _unbounded(_parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE))


_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")


def _best(tokens: Sequence[Any]) -> tuple[str, ...]:
    """The set of literals of a sequence whose shortest is the longest."""
    found: list[tuple[str, ...]] = []
    run = ""
    for operator, argument in tokens:
        name = str(operator)
        if name == "LITERAL":
            run += chr(argument)
            continue
        if run:
            found.append((run,))
            run = ""
        if name == "SUBPATTERN":
            found.append(_best(list(argument[-1])))
        elif name == "BRANCH":
            parts = [_best(list(branch)) for branch in argument[1]]
            found.append(tuple(text for part in parts for text in part) if all(parts) else ())
        elif name in _REPEATS and argument[0] > 0:
            found.append(_best(list(argument[2])))
    if run:
        found.append((run,))
    found = [texts for texts in found if texts]
    if not found:
        return ()
    best = max(found, key=lambda texts: (min(map(len, texts)), -len(texts)))
    return tuple(dict.fromkeys(text.lower() for text in best))


def _parts(name: str, argument: Any) -> list[Any]:
    if name == "SUBPATTERN":
        return [argument[-1]]
    if name == "BRANCH":
        return list(argument[1])
    if name in ("ASSERT", "ASSERT_NOT"):
        return [argument[1]]
    return [argument[2]] if name in _REPEATS else []


def _nested(tokens: Any, inside: bool) -> bool:
    for operator, argument in tokens:
        name = str(operator)
        loops = name in _REPEATS and argument[1] > 1
        if loops and inside:
            return True
        if any(_nested(part, inside or loops) for part in _parts(name, argument)):
            return True
    return False


def _unbounded(tokens: Any) -> int:
    count = 0
    for operator, argument in tokens:
        inside = [_unbounded(part) for part in _parts(str(operator), argument)]
        count += max(inside, default=0) + (str(operator) in _REPEATS and str(argument[1]) == "MAXREPEAT")
    return count
