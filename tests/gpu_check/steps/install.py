"""Each source installed for the GPU that is here; at the end all of it is taken back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..context import SOURCES, Context, changes, contents, error_of, outcome_items
from ..plan import Notes, Skip

RUNGS = ("built", "loads", "computes")
LIMIT = 430
"""Seconds; the step's own limit ends it sooner."""


def environment(context: Context, notes: Notes, name: str, *more: str) -> None:
    """Install what is tried in one environment; ``more`` are further words of the command."""
    names = [source for source, where in SOURCES.items() if where == name and source in context.sources]
    if not names:
        wanted = ", ".join(source for source, where in SOURCES.items() if where == name)
        raise Skip(f"GPU_SOURCES holds none of: {wanted}")
    python = context.python(name)
    before = contents(python)
    _before(context, name).write_text(json.dumps(before), encoding="utf-8")
    words = ["install", *(context.sources[source] for source in names), "--python", python, "--yes", *more]
    code, document = context.splatfix(*words, timeout=LIMIT)
    if not notes.expect(code == 0, f"{', '.join(names)} installs", error_of(document) or f"exit code {code}"):
        found = changes(before, contents(python))
        notes.expect(
            not found, "a failed installation leaves nothing behind", ", ".join(found[:5]) or "nothing"
        )
        return
    items = {item["subject"]: _rungs(item) for item in outcome_items(document)}
    notes.numbers["proof"] = items
    notes.numbers["seconds"] = {item["subject"]: round(item["seconds"]) for item in outcome_items(document)}
    for subject, proof in items.items():
        for rung in RUNGS:
            reached, shown_by = proof[rung]
            # what has no reference is said so in the proof; that is no failure of the installation
            if reached or rung != "computes":
                notes.expect(bool(reached), f"{subject} {rung}", shown_by)


def take_back(context: Context, notes: Notes) -> None:
    """Revert every installation that is still there; each environment must be what it was before the first."""
    environments = dict.fromkeys(SOURCES[name] for name in context.sources)
    for environment in environments:
        earlier = _before(context, environment)
        if not earlier.is_file():
            continue
        python = context.python(environment)
        code, document = context.splatfix("revert", "--all", "--python", python, timeout=60)
        said = error_of(document)
        if not said.startswith("nothing-to-revert"):  # the installation had failed
            notes.expect(code == 0, f"revert ends well in {environment}", said or "exit code 0")
        found = changes(json.loads(earlier.read_text(encoding="utf-8")), contents(python))
        shown = ", ".join(found[:5]) or "every file has the content that it had"
        notes.expect(not found, f"revert leaves {environment} as it was", shown)


def _before(context: Context, environment: str) -> Path:
    return context.folder("before") / f"{environment}.json"


def _rungs(item: Any) -> dict[str, tuple[bool | None, str]]:
    return {rung["name"]: (rung["reached"], rung["shown_by"]) for rung in item["proof"]}
