"""Texts too long to be written down: in parts, each as it is, or so many times, or once for each number."""

from collections.abc import Mapping
from typing import Any


def spelled(parts: Any) -> str:
    """A text, or one of parts: ``"x"``, ``["x", 90]``, ``{ each = "a%n = a%d\\n", times = 9, between = "," }``.

    In what is there for each number ``%d`` is that number, ``%n`` the next one, and ``%s`` so many spaces.
    """
    if isinstance(parts, str):
        return parts.replace("<surrogate>", "\udce9")
    return "".join(map(_part, parts))


def spelled_table(table: Mapping[str, Any]) -> dict[str, str]:
    """The texts by their names."""
    return {name: spelled(parts) for name, parts in table.items()}


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping):
        each: str = part["each"]
        deep = "%s" in each  # so many spaces for every number would be gigabytes
        numbered = ((n, each.replace("%d", str(n)).replace("%n", str(n + 1))) for n in range(part["times"]))
        texts = (text.replace("%s", " " * n) if deep else text for n, text in numbered)
        return str(part.get("between", "")).join(texts)
    text, times = part
    return spelled(text) * int(times)
