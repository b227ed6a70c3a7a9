"""Numbers in sentences."""

from __future__ import annotations


def counted(number: float, noun: str) -> str:
    """``1 file``, ``2 files``; the noun in the singular, whose plural takes an s, or -ies after a consonant and y."""
    if round(number) == 1:
        return f"{number:.0f} {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"
    return f"{number:.0f} {plural}"
