"""The shape of patterns, read from their parse tree: which of them can take long."""

import re
from typing import Any

from splatfix.knowledge.log_patterns import PARSER, REPEATS


def nested_repeats(pattern: re.Pattern[str]) -> bool:
    """Whether a repeat without a small bound stands inside another: the shape that takes exponential time."""
    return _nested(PARSER.parse(pattern.pattern, pattern.flags & ~re.UNICODE), False)


def unbounded_repeats(pattern: re.Pattern[str]) -> int:
    """How many repeats without a bound one after the other a pattern has; of alternatives the one with most counts."""
    return _unbounded(PARSER.parse(pattern.pattern, pattern.flags & ~re.UNICODE))


def _parts(name: str, argument: Any) -> list[Any]:
    if name == "SUBPATTERN":
        return [argument[-1]]
    if name == "BRANCH":
        return list(argument[1])
    if name in ("ASSERT", "ASSERT_NOT"):
        return [argument[1]]
    return [argument[2]] if name in REPEATS else []


def _nested(tokens: Any, inside: bool) -> bool:
    for operator, argument in tokens:
        name = str(operator)
        loops = name in REPEATS and argument[1] > 1
        if loops and inside:
            return True
        if any(_nested(part, inside or loops) for part in _parts(name, argument)):
            return True
    return False


def _unbounded(tokens: Any) -> int:
    count = 0
    for operator, argument in tokens:
        inside = [_unbounded(part) for part in _parts(str(operator), argument)]
        count += max(inside, default=0) + (str(operator) in REPEATS and str(argument[1]) == "MAXREPEAT")
    return count
