"""Renders what was found of a project's files, and the edits that mend them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from splatfix.checks.model import Status
from splatfix.core.data import dataclass
from splatfix.core.step import Step, run
from splatfix.core.words import counted
from splatfix.facts.project.model import Manager
from splatfix.projects.model import Judgement
from splatfix.report.console import escape, marked, prose, section, show_step
from splatfix.report.diagnosis import show_finding
from splatfix.report.diagnosis_document import finding_json
from splatfix.report.marks import Mark


@dataclass(frozen=True)
class Change:
    """One file as it is and as it will be."""

    file: str
    before: str
    after: str

    @property
    def diff(self) -> str:
        """Unified, with the file's name on both sides."""
        before, after = (text.splitlines(keepends=True) for text in (self.before, self.after))
        lines = difflib.unified_diff(before, after, f"a/{self.file}", f"b/{self.file}")
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def document(
    judgements: Sequence[Judgement], changes: Sequence[Change], targets: Sequence[str]
) -> dict[str, Any]:
    """The content of the JSON document."""
    files = []
    for item in judgements:
        manifest = item.manifest
        files.append(
            {
                "file": manifest.file,
                "manager": manifest.manager.value,
                "lock": manifest.lock,
                "torch": item.torch,
                "findings": [finding_json(finding) for finding in item.findings],
            }
        )
    return {
        "targets": list(targets),
        "files": files,
        "edits": [{"file": change.file, "diff": change.diff} for change in changes],
    }


def show(
    console: Console,
    judgements: Sequence[Judgement],
    changes: Sequence[Change],
    targets: Sequence[str],
    execute_it: Step,
    *,
    verbose: bool = False,
) -> None:
    """Verdict, each file with what was found of it, and the edits that ``execute_it`` would make."""
    _show_verdict(console, judgements, targets)
    for item in judgements:
        _show_file(console, item, verbose=verbose)
    if changes:
        show_changes(console, changes)
        show_step(console, execute_it, indent=0)


def show_changes(console: Console, changes: Sequence[Change]) -> None:
    """The edits, as a diff."""
    for change in changes:
        section(console, change.file)
        for line in change.diff.splitlines()[2:]:
            color = {"+": "green", "-": "red"}.get(line[:1], "dim")
            console.print(f"[{color}]{escape(line)}[/]", soft_wrap=True)


def show_written(
    console: Console,
    judgements: Sequence[Judgement],
    changes: Sequence[Change],
    targets: Sequence[str],
    folder: Path,
) -> None:
    """What was written and how it is undone; then what is left."""
    if not changes:
        marked(
            console,
            Mark.NONE,
            "[bold]Nothing was written[/]: no edit is needed, or none would help.",
            indent=0,
        )
    for change in changes:
        marked(console, Mark.GOOD, f"[bold]{escape(change.file)}[/] was written", indent=0)
    if changes:
        show_step(console, run("splatfix", "revert", "--project", folder, text="Undo with"), indent=2)
    by_uv = any(item.manifest.manager is Manager.UV for item in judgements)
    if by_uv and any(change.file == "pyproject.toml" for change in changes):
        show_step(console, run("uv", "sync", "--project", folder, text="Lock and install with"), indent=2)
    _show_verdict(console, judgements, targets)
    for item in judgements:
        if any(finding.status not in (Status.PASS, Status.SKIP) for finding in item.findings):
            _show_file(console, item, verbose=False)


def _show_verdict(console: Console, judgements: Sequence[Judgement], targets: Sequence[str]) -> None:
    findings = [finding for item in judgements for finding in item.findings]
    failed = sum(item.status in (Status.FAIL, Status.CRASH) for item in findings)
    unknown = sum(item.status is Status.UNKNOWN for item in findings)
    goal = ", ".join(targets)
    if failed:
        marked(console, Mark.BAD, f"[bold]{counted(failed, 'problem')}[/] on {goal}", indent=0)
    elif unknown:
        marked(
            console, Mark.UNKNOWN, f"[bold]No problem found, {unknown} undetermined[/] on {goal}", indent=0
        )
    else:
        marked(console, Mark.GOOD, f"[bold]No problem found[/] on {goal}", indent=0)


def _show_file(console: Console, item: Judgement, *, verbose: bool) -> None:
    section(console, f"{item.manifest.file} ({item.manifest.manager.value})")
    if item.torch:
        prose(console, "  ", escape(item.torch))
    last_remedy: tuple[Step, ...] = ()
    for finding in item.findings:
        if verbose or finding.status not in (Status.PASS, Status.SKIP):
            most = None if verbose else 1
            show_finding(console, finding, evidence=verbose, remedy=finding.remedy != last_remedy, most=most)
            last_remedy = finding.remedy
