"""The JSON documents splatfix prints and stores: versioned, and the same content as what people read."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from splatfix import __version__
from splatfix.checks.model import Finding, Goal, Status
from splatfix.core.codec import to_json
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.step import step_json
from splatfix.facts.model import Facts

if TYPE_CHECKING:
    from splatfix.plan.ways import Ways

SCHEMA_VERSION = 2


def envelope(kind: str, exit_code: Exit, **content: Any) -> dict[str, Any]:
    """What every document starts with: schema version, kind, splatfix's version, exit code."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": kind,
        "splatfix": __version__,
        "exit_code": int(exit_code),
        **content,
    }


def diagnosis(
    facts: Facts, goal: Goal, findings: tuple[Finding, ...], ways: Ways | None = None
) -> dict[str, Any]:
    """The document of ``diagnose``; ``ways`` is null where nothing failed that a way out could mend."""
    return envelope(
        "diagnosis",
        verdict(findings),
        summary=counts(findings),
        goal=to_json(goal),
        findings=[_finding(item, facts.machine.system == "windows") for item in findings],
        ways=_ways(ways),
        facts=to_json(facts),
    )


def _finding(item: Finding, windows: bool) -> dict[str, Any]:
    """A finding, its commands for the shell of the machine that was diagnosed."""
    return {**to_json(item), "remedy": [step_json(step, windows=windows) for step in item.remedy]}


def _ways(ways: Ways | None) -> dict[str, Any] | None:
    if ways is None:
        return None
    from splatfix.report.ways import ways_part

    return ways_part(ways)


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
