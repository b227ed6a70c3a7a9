"""GitHub's annotations: what was found, at the file and line that it is about.

Source: GitHub's documentation of workflow commands (``::error file=,line=,title=::message``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from splatfix.certify.model import Certificate, Outcome, Verdict
from splatfix.model import Finding, Status
from splatfix.report.console import shorten_home

_LEVELS = {Status.FAIL: "error", Status.CRASH: "error", Status.WARN: "warning", Status.UNKNOWN: "notice"}
_PLACE = re.compile(r"(?<![\w./-])([\w.-]+(?:/[\w.-]+)*\.\w+)(?::| line )(\d+)")
_IN_MESSAGE = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_PROPERTY = _IN_MESSAGE | str.maketrans({":": "%3A", ",": "%2C"})


def of_findings(findings: Iterable[Finding]) -> str:
    """A line for each finding that needs attention; it names the first place that the finding names."""
    lines = []
    for item in findings:
        if item.status in _LEVELS:
            texts = (item.subject, item.summary, *(f"{part.name} {part.value}" for part in item.evidence))
            steps = [step.line() for step in item.remedy]
            lines.append(
                _annotation(_LEVELS[item.status], item.code, "\n".join([item.summary, *steps]), texts)
            )
    return "".join(lines)


def of_certificate(certificate: Certificate) -> str:
    """A line for the verdict where it is none that certifies, and one for each criterion that was not met."""
    level = {Verdict.NOT_CERTIFIED: "error", Verdict.UNDETERMINED: "warning"}.get(certificate.verdict)
    if level is None:
        return ""
    lines = [_annotation(level, certificate.verdict.value, certificate.summary, (certificate.summary,))]
    runs = [("diagnosis", certificate.diagnosis), *((run.scene, run.criteria) for run in certificate.scenes)]
    for where, criteria in runs:
        for item in criteria:
            if item.outcome is Outcome.FAILED:
                text = f"{where}: {item.measured} (required: {item.required})"
                texts = (item.measured, item.why, item.advice)
                lines.append(
                    _annotation("error", item.code, "\n".join(filter(None, (text, item.advice))), texts)
                )
    return "".join(lines)


def _annotation(level: str, title: str, message: str, texts: Iterable[str]) -> str:
    """One line of it; it is shown at the first place that one of the texts names."""
    location = next(filter(None, map(_PLACE.search, texts)), None)
    properties = {"title": title}
    if location:
        properties = {"file": location[1], "line": location[2], **properties}
    named = ",".join(f"{name}={value.translate(_IN_PROPERTY)}" for name, value in properties.items())
    return f"::{level} {named}::{shorten_home(message).translate(_IN_MESSAGE)}\n"
