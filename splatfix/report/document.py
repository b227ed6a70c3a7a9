"""The JSON documents splatfix prints and stores: versioned, and the same content as what people read."""

from __future__ import annotations

from collections import Counter
from typing import Any

from splatfix import __version__
from splatfix.checks.model import Finding, Goal, Status
from splatfix.core.codec import to_json
from splatfix.core.errors import Exit, SplatfixError
from splatfix.facts.model import Facts

SCHEMA_VERSION = 1


def envelope(kind: str, exit_code: Exit, **content: Any) -> dict[str, Any]:
    """What every document starts with: schema version, kind, splatfix's version, exit code."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": kind,
        "splatfix": __version__,
        "exit_code": int(exit_code),
        **content,
    }


def diagnosis(facts: Facts, goal: Goal, findings: tuple[Finding, ...]) -> dict[str, Any]:
    """The document of ``diagnose``."""
    return envelope(
        "diagnosis",
        verdict(findings),
        summary=counts(findings),
        goal=to_json(goal),
        findings=to_json(findings),
        facts=to_json(facts),
    )


def error(problem: SplatfixError) -> dict[str, Any]:
    """The document of a command that ended in an error."""
    return envelope("error", problem.exit_code, error=problem.to_json())


def counts(findings: tuple[Finding, ...]) -> dict[str, int]:
    """How many findings have each status, in a fixed order."""
    found = Counter(finding.status for finding in findings)
    return {status.value: found[status] for status in Status}


def verdict(findings: tuple[Finding, ...]) -> Exit:
    """1 when something failed or a check broke; 3 when nothing failed but something could not be learned; else 0."""
    statuses = {finding.status for finding in findings}
    if statuses & {Status.FAIL, Status.CRASH}:
        return Exit.FAILURE
    return Exit.UNDETERMINED if Status.UNKNOWN in statuses else Exit.OK
