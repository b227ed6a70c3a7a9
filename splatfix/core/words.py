"""Numbers and lists in sentences."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key")


def counted(number: float, noun: str) -> str:
    """``1 file``, ``2 files``; the noun in the singular."""
    if round(number) != 1:
        if noun.endswith("y") and noun[-2] not in "aeiou":
            noun = f"{noun[:-1]}ie"
        noun = {"criterion": "criteria"}.get(noun, f"{noun}s")
    return f"{number:.0f} {noun}"


def verb(number: float, singular: str, plural: str) -> str:
    """Return the form of a verb that agrees with a number: ``is`` with 1, ``are`` with 2."""
    if round(number) == 1:
        return singular
    return plural


def few(items: Sequence[str], most: int = 5, between: str = ", ") -> str:
    """Return the first of a list, and how many more there are: a line that a person reads names no hundreds."""
    if len(items) <= most + 1:  # to name the one takes no more room than to count it
        return between.join(items)
    return f"{between.join(items[:most])} and {len(items) - most} more"


def beginning(text: str, most: int = 400) -> str:
    """Return a text that may be of any length, up to the word where it gets too long for a line."""
    if len(text) <= most:
        return text
    return f"{text[:most].rpartition(' ')[0] or text[:most]} ... ({len(text)} characters in all)"


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items by what they share, such as a reason that holds for most of them."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
