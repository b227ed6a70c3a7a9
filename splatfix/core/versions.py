"""Versions as numbers to compare; what a version is, ``packaging`` says."""

import re
from collections.abc import Iterable
from functools import lru_cache

from packaging.version import InvalidVersion, Version


@lru_cache(maxsize=4096)  # a plan asks tens of thousands of times, of some hundred texts
def release(text: str | None) -> tuple[int, ...]:
    """``13.0.88`` -> (13, 0, 88), ``2.11.0+cu130`` -> (2, 11, 0); of another text its first number; () without one."""
    text = (text or "")[:200]  # Python refuses to make a number of thousands of digits
    try:
        return Version(text).release
    except InvalidVersion:
        number = re.search(r"\d+(?:\.\d+)*", text)
    if number is None:
        return ()
    return tuple(int(part) for part in number.group().split("."))


def dotted(version: Iterable[int]) -> str:
    """``(12, 8)`` -> ``12.8``."""
    return ".".join(map(str, version))


def major_minor(text: str | None) -> tuple[int, int] | None:
    """``12`` -> (12, 0), ``12.8.93`` -> (12, 8); None without a number."""
    numbers = release(text)
    if not numbers:
        return None
    return numbers[0], (*numbers, 0)[1]
