"""What programs and the system's files say, taken apart without a second thought for what is not there."""

from __future__ import annotations

import re

# Python takes numbers of any length, and a forged file's would make it count for minutes; no file of a machine has longer ones.
_MOST_DIGITS = 19


def captured(pattern: str | re.Pattern[str], text: str, flags: int = 0) -> str:
    """The group of the first match; "" where there is none."""
    match = re.search(pattern, text, flags)
    return (match.group(1) or "") if match else ""


def whole_number(text: str | None) -> int | None:
    """The number that a text is, blanks around it aside; None for any other text."""
    digits = (text or "").strip()
    if not digits.isascii() or not digits.isdigit() or len(digits) > _MOST_DIGITS:
        return None
    return int(digits)
