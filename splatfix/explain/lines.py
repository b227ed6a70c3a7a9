"""Who says a line of a log, and what it names, by the tables ``speakers.toml`` and ``log_lines``."""

import re
from collections.abc import Iterable, Mapping, Sequence

from splatfix.knowledge.log_patterns import LogPattern
from splatfix.knowledge.rows import decode
from splatfix.knowledge.tables import cached, table


class Speech(LogPattern, frozen=True, eq=False, kw_only=True):
    """How one program says that something failed."""

    by: str
    step: str = ""
    """``compile``, ``link``, ``resolve``...; "" where what stands around it tells."""
    kind: str = ""
    """``cause``: it makes everything else fail; ``weak``: what said it may have gone on; ``consequence``: of another failure."""
    any_case: bool = False


@cached
def speeches() -> Sequence[Speech]:
    """Every way to say it; the first that fits a line is meant."""
    return tuple(decode(Speech, row) for row in table("speakers")["says"])


@cached
def _patterns() -> Mapping[str, Sequence[re.Pattern[str]]]:
    """The ways to say each kind of line, and in which a line names each kind of place, the surest first."""
    lines = table("log_lines")
    kinds = {name: ["|".join(ways)] for name, ways in lines["lines"].items()}
    for step, row in lines["steps"].items():
        kinds |= {f"{step} by {kind}": ["|".join(ways)] for kind, ways in row.items()}
    kinds |= {**lines["places"], **lines["versions"], **lines["told"]}
    return {name: [re.compile(way) for way in ways] for name, ways in kinds.items()}


def line_pattern(name: str) -> re.Pattern[str]:
    """The pattern of a kind of line, all alternatives in one."""
    return _patterns()[name][0]


def steps_by(kind: str) -> Mapping[str, re.Pattern[str]]:
    """The pattern of each step that has one of this kind (``code``, ``words``), in the order in which they are asked."""
    steps = table("log_lines")["steps"]
    return {step: line_pattern(f"{step} by {kind}") for step, row in steps.items() if kind in row}


def named_in(name: str, text: str) -> tuple[str, ...]:
    """What a text names of a kind of place: the groups that matched of the surest way that fits; () where it names none."""
    for pattern in _patterns()[name]:
        if match := pattern.search(text):
            return tuple(group for group in match.groups() if group) or (match[0],)
    return ()


def first_named(name: str, texts: Iterable[str]) -> str:
    """What the first text names that names one; "" where none does."""
    return next((found[0] for text in texts if (found := named_in(name, text))), "")
