"""The JSON document of a diagnosis; apart from what people read, because to import the means to lay that out takes long."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from splatfix.context.model import Goal
from splatfix.core.codec import to_json
from splatfix.core.step import Step
from splatfix.model import Facts, Finding, Status

if TYPE_CHECKING:
    from splatfix.model.option import Options

# The document promises these keys; a diagnosis is of a machine, and names no sources to install.
_NO_SOURCES: Mapping[str, Any] = {
    "stack": "",
    "extensions": [],
    "keep": [],
    "sources": [],
    "dropins": [],
    "no_dropins": {},
    "prepare": [],
    "fetch": False,
    "refused": None,
    "built_from": {},
    "variants": {},
}


def diagnosis_document(
    facts: Facts, goal: Goal, findings: tuple[Finding, ...], options: Options | None
) -> dict[str, Any]:
    """The content of ``diagnose``'s JSON document; ``options`` is null where nothing failed."""
    windows = facts.machine.system == "windows"
    return {
        "summary": counts(findings),
        "goal": {**to_json(goal), **_NO_SOURCES},
        "findings": [finding_json(item, windows=windows) for item in findings],
        "options": to_json(options),
        "facts": to_json(facts),
    }


def finding_json(item: Finding, *, windows: bool = os.name == "nt") -> dict[str, Any]:
    """A finding, its commands for the shell of the machine that was diagnosed."""
    row = to_json(item)
    # "check", as people select it with --only; in Python "code" is what every finding and error has
    remedy = [Step.to_json(step, windows=windows) for step in item.remedy]
    return {"check": row.pop("code"), **row, "remedy": remedy}


def counts(findings: tuple[Finding, ...]) -> dict[str, int]:
    """How many findings have each status, in a fixed order."""
    number = Counter(finding.status for finding in findings)
    return {status.value: number[status] for status in Status}
