"""Lines of logs by their kind (``data/log_lines.toml``): warnings, exceptions, where packages and files are named."""

import re
from collections.abc import Iterable, Mapping
from functools import cache

from splatfix.knowledge.tables import table


@cache
def line_pattern(name: str, section: str = "lines") -> re.Pattern[str]:
    """The pattern of a kind of line, all alternatives in one."""
    return re.compile("|".join(table("log_lines")[section][name]))


@cache
def place_patterns(name: str) -> tuple[re.Pattern[str], ...]:
    """The ways in which a line names a place, the surest first."""
    return tuple(map(re.compile, table("log_lines")["places"][name]))


def named_in(name: str, text: str) -> tuple[str, ...]:
    """What a text names of a kind of place: the groups that matched of the first way that fits; () where it names none."""
    for pattern in place_patterns(name):
        if match := pattern.search(text):
            return tuple(group for group in match.groups() if group) or (match[0],)
    return ()


def first_named(name: str, texts: Iterable[str]) -> str:
    """What the first text names that names one; "" where none does."""
    return next((found[0] for text in texts if (found := named_in(name, text))), "")


@cache
def steps_by(kind: str) -> Mapping[str, re.Pattern[str]]:
    """The pattern of each step that has one of this kind (``code``, ``words``), in the order in which they are asked."""
    rows = table("log_lines")["steps"].items()
    return {step: re.compile("|".join(row[kind])) for step, row in rows if kind in row}
