"""Versions as numbers, however many a text has."""

from __future__ import annotations

import re


def release_numbers(text: str) -> tuple[int, ...]:
    """``2.11.0+cu130`` -> (2, 11, 0); the first three numbers, fewer when there are fewer."""
    return tuple(int(n) for n in re.findall(r"\d+", text)[:3])
