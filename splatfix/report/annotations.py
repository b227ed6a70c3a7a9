"""GitHub's annotations: what was found, at the file and line that it is about.

Source: GitHub's documentation of workflow commands (``::error file=,line=,title=::message``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from splatfix.checks.model import Finding, Status

_LEVELS = {Status.FAIL: "error", Status.CRASH: "error", Status.WARN: "warning", Status.UNKNOWN: "notice"}
_PLACE = re.compile(r"(?<![\w./-])([\w.-]+(?:/[\w.-]+)*\.\w+)(?::| line )(\d+)")
_IN_MESSAGE = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_IN_PROPERTY = {**_IN_MESSAGE, ":": "%3A", ",": "%2C"}


def of_findings(findings: Iterable[Finding]) -> str:
    """A line for each finding that needs attention; it names the first place that the finding names."""
    return "".join(_annotation(item) + "\n" for item in findings if item.status in _LEVELS)


def _annotation(item: Finding) -> str:
    texts = (item.subject, item.summary, *(f"{part.name} {part.value}" for part in item.evidence))
    place = next(filter(None, map(_PLACE.search, texts)), None)
    properties = {"title": item.code}
    if place:
        properties = {"file": place[1], "line": place[2], **properties}
    named = ",".join(f"{name}={_escaped(value, _IN_PROPERTY)}" for name, value in properties.items())
    steps = [step.line() for step in item.remedy]
    return f"::{_LEVELS[item.status]} {named}::{_escaped(chr(10).join([item.summary, *steps]), _IN_MESSAGE)}"


def _escaped(text: str, signs: dict[str, str]) -> str:
    return "".join(signs.get(sign, sign) for sign in text)
