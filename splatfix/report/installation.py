"""Renders plans, installations and the journal: as JSON documents and for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from splatfix.core.codec import to_json
from splatfix.core.shell import quoted
from splatfix.install.journal import Entry, Status
from splatfix.install.outcome import CachedWheel, InstalledItem, Outcome, Restored, RevertOutcome
from splatfix.plan.option import InstallPlan, Options
from splatfix.plan.steps import BuildWheel
from splatfix.report.console import paragraph, prose
from splatfix.report.options import options_part, show_rejected


def install_document(
    plan: InstallPlan | None = None,
    options: Options | None = None,
    outcome: Outcome | None = None,
    *,
    dry_run: bool = False,
) -> dict[str, Any]:
    """The content of ``install``'s JSON document; ``plan`` and ``options`` are those of a dry run."""
    return {
        "dry_run": dry_run,
        "plan": to_json(plan),
        "options": None if options is None else options_part(options),
        "outcome": to_json(outcome),
    }


def revert_document(
    outcomes: Sequence[RevertOutcome], journal: Sequence[Entry] | None = None
) -> dict[str, Any]:
    """The content of ``revert``'s JSON document: an outcome for each entry, newest first, or the journal (``--list``)."""
    return {
        "outcomes": to_json(tuple(outcomes)),
        "journal": None if journal is None else to_json(tuple(journal)),
    }


def cache_document(folder: Path, entries: Sequence[CachedWheel]) -> dict[str, Any]:
    """The content of ``cache list``'s JSON document."""
    return {"folder": str(folder), "wheels": to_json(tuple(entries))}


def show_cache(console: Console, folder: Path, entries: Sequence[CachedWheel]) -> None:
    """One line for each wheel: name, size, what it was built for, with and from, when, and its key."""
    number = "No wheels" if not entries else "1 wheel" if len(entries) == 1 else f"{len(entries)} wheels"
    prose(console, "", f"[bold]{number}[/] in {escape(str(folder))}")
    for entry in entries:
        archs = next(
            (v for k, v in entry.identity.items() if "ARCH" in k and k != "CUDA_HOME"), "no GPU code"
        )
        torch = entry.identity.get("torch", "").split(" ")[0] or "none"
        source = f", from {entry.source}" if entry.source else ""
        built = f"{archs}, torch {torch}{source}, {entry.created or 'of unknown age'}, key {entry.key[:8]}"
        prose(console, f"{escape(entry.wheel)}  ", f"{entry.size / 2**20:.1f} MiB  [dim]{escape(built)}[/]")


def show_plan(console: Console, plan: InstallPlan, *, why: bool = False) -> None:
    """Every step in order; with ``why`` the reasons, and what was considered."""
    goal = f" for {', '.join(plan.targets)}" if plan.targets else ""
    prose(console, "", f"[bold]Plan[/] ({plan.backend}{goal}) for {escape(plan.prefix)}")
    for number, step in enumerate(plan.steps, 1):
        prose(console, f"  {number}. ", escape(step.text))
        if isinstance(step, BuildWheel):
            _show_environment(console, step)
        if why:
            for reason in step.reasons:
                prose(console, "       [dim]because[/] ", escape(reason.text))
    if why and plan.considered:
        console.print("[bold]Considered and rejected[/]")
        for item in plan.considered:
            show_rejected(console, item)
    for note in plan.notes:
        prose(console, "[yellow]note[/] ", escape(note))


def show_outcome(console: Console, outcome: Outcome) -> None:
    """What was installed, how far it is proven, and how to take it back."""
    for identity in outcome.recovered:
        prose(console, "[yellow]note[/] ", f"the unfinished run {escape(identity)} was put back first")
    for item in outcome.items:
        _show_item(console, item)
    console.print(f"Done in {outcome.seconds:.0f} s. Logs: {escape(outcome.log)}", soft_wrap=True)
    if all(item.up_to_date for item in outcome.items):
        console.print("Nothing had to be changed. To install it all the same: --reinstall")
        return
    number = outcome.entry.partition("-")[0]
    console.print(
        f"Take it back with: splatfix revert {number} --python {escape(quoted(outcome.plan.python))}",
        soft_wrap=True,
    )


def show_revert(console: Console, outcome: RevertOutcome) -> None:
    """What was removed and what is back; of a dry run what would be."""
    mark = "[dim]–[/] " if outcome.dry_run else "[green]✓[/] "
    for item in outcome.items:
        prose(console, mark, escape(_restored(item, "would be" if outcome.dry_run else "")))
    prose(console, "", f"[dim]journal entry {escape(outcome.entry)} of {escape(outcome.prefix)}[/]")


def _restored(item: Restored, would: str) -> str:
    if item.source:
        return f"the edits in {item.source} {would or 'are'} taken back"
    if item.removed:
        removed = f"{item.subject} {item.removed} {would} removed".replace("  ", " ")
    else:
        removed = f"{item.subject} was {'not installed yet' if item.incomplete else 'gone already'}"
    if item.restored:
        return f"{removed}; {item.subject} {item.restored} {would or 'is'} back, byte for byte"
    return f"{removed}; there was none before"


def show_journal(console: Console, entries: Sequence[Entry]) -> None:
    """One line for each entry, oldest first."""
    if not entries:
        console.print("splatfix has changed nothing in this environment.")
    for entry in entries:
        subjects = entry.request.get("subjects", "")
        backend = entry.request.get("backend", "")
        line = f"{entry.id}  {entry.status.value:<11}  {backend} {subjects}"
        if forced := entry.request.get("cuda_mismatch"):
            line += f"  forced: {forced}"
        if entry.status is Status.DONE and not entry.changes:
            line += "  was there already"
        why = f"  [dim]{escape(entry.error)}[/]" if entry.error else ""
        paragraph(console, escape(line) + why, first=0, then=4)


def _show_environment(console: Console, action: BuildWheel) -> None:
    for name, value in action.variables.items():
        console.print(f"       [cyan]{escape(name)}[/]={escape(value)}", soft_wrap=True)
    for name in action.unset:
        console.print(f"       [cyan]{escape(name)}[/] [dim]is taken out[/]", soft_wrap=True)
    for edit in action.edits:
        prose(console, f"       [magenta]edit {escape(edit.rule)}[/] ", escape(", ".join(edit.files)))


def _show_item(console: Console, item: InstalledItem) -> None:
    instead = f" (before: {item.before})" if item.before else ""
    if item.up_to_date:
        instead = " (was installed already, byte for byte, and is left as it is)"
    prose(console, "", f"[bold]{escape(item.subject)} {escape(item.version)}[/]{escape(instead)}")
    for rung in item.proof:
        mark = "[green]✓[/]" if rung.reached else "[dim]–[/]"
        prose(console, f"  {mark} {rung.name.value:<10} ", escape(rung.shown_by))
