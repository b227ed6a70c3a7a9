"""Makes characters visible that a terminal would obey, hide or reorder; and keeps bytes that are no text."""

import json
import re

_SUSPECT = re.compile(r"[^ -~]")


def visible(text: str, *, keep: str = "") -> str:
    """``text`` with every character that is not printable spelled out: ``\\x1b``, ``\\n``, ``\\u202e``.

    These are control characters, marks of direction, zero-width signs, line separators, tags, blanks other than the
    ordinary one, and what Unicode does not know; what ``keep`` has stays. A byte of a file name that is not UTF-8, in Python a
    lone surrogate, becomes ``\\xff``.
    """
    if text.isprintable():
        return text
    return _SUSPECT.sub(lambda match: match[0] if match[0] in keep else _spelled(match[0]), text)


def visible_in_json(document: str) -> str:
    """A JSON text in which the same characters are escapes of JSON: it reads as it was, and is UTF-8 whatever was in it."""
    return _SUSPECT.sub(
        lambda match: match[0] if match[0].isprintable() or match[0] == "\n" else json.dumps(match[0])[1:-1],
        document,
    )


def _spelled(sign: str) -> str:
    if sign.isprintable():
        return sign
    if "\udc80" <= sign <= "\udcff":  # Python's stand-in for a byte that is not UTF-8
        return f"\\x{ord(sign) - 0xDC00:02x}"
    if "\x80" <= sign <= "\xff":  # \x80 would read as a byte
        return f"\\u{ord(sign):04x}"
    return sign.encode("unicode_escape").decode()
