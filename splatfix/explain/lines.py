"""Who says a line of a log, and what it names, by the tables ``speakers.toml`` and ``log_lines.toml``."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from splatfix.knowledge.log_patterns import LogPattern
from splatfix.knowledge.rows import decode
from splatfix.knowledge.tables import table


class Speech(LogPattern, frozen=True, eq=False, kw_only=True):
    """How one program says that something failed."""

    by: str
    step: str = ""
    """``compile``, ``link``, ``resolve``...; "" where what stands around it tells."""
    kind: str = ""
    """``cause``: it makes everything else fail; ``weak``: what said it may have gone on; ``consequence``: of another failure."""
    any_case: bool = False


@cache
def speeches() -> Sequence[Speech]:
    """Every way to say it; the first that fits a line is meant."""
    return tuple(decode(Speech, row) for row in table("speakers")["says"])


@cache
def line_pattern(name: str) -> re.Pattern[str]:
    """The pattern of a kind of line, all alternatives in one."""
    return re.compile("|".join(table("log_lines")["lines"][name]))


@cache
def steps_by(kind: str) -> Mapping[str, re.Pattern[str]]:
    """The pattern of each step that has one of this kind (``code``, ``words``), in the order in which they are asked."""
    rows = table("log_lines")["steps"].items()
    return {step: re.compile("|".join(row[kind])) for step, row in rows if kind in row}


@cache
def _ways(name: str) -> tuple[re.Pattern[str], ...]:
    lines = table("log_lines")
    return tuple(map(re.compile, lines["places"].get(name) or lines["versions"][name]))


def named_in(name: str, text: str) -> tuple[str, ...]:
    """What a text names of a kind of place: the groups that matched of the surest way that fits; () where it names none."""
    for pattern in _ways(name):
        if match := pattern.search(text):
            return tuple(group for group in match.groups() if group) or (match[0],)
    return ()


def first_named(name: str, texts: Iterable[str]) -> str:
    """What the first text names that names one; "" where none does."""
    return next((found[0] for text in texts if (found := named_in(name, text))), "")
