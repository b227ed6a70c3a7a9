"""Renders plans, installations and the journal: as JSON documents and for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from splatfix.core.codec import to_json
from splatfix.core.step import Step, run
from splatfix.core.words import counted
from splatfix.install.journal import Entry, Status
from splatfix.install.outcome import CachedWheel, Fetched, Kept, Outcome, Restored, RevertOutcome
from splatfix.plan.option import InstallPlan, Options
from splatfix.report.console import escape, paragraph, prose, show_step
from splatfix.report.options import show_notes, show_reasons, show_rejected, show_steps


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
        "options": to_json(options),
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


def cache_document(
    folder: Path, entries: Sequence[CachedWheel], refused: Sequence[str] = ()
) -> dict[str, Any]:
    """The content of ``cache list``'s JSON document; ``refused`` says what is not used, and why."""
    return {"folder": str(folder), "wheels": to_json(tuple(entries)), "refused": list(refused)}


def show_cache(
    console: Console, folder: Path, entries: Sequence[CachedWheel], refused: Sequence[str] = ()
) -> None:
    """One line for each wheel: name, size, what it was built for, with and from, when, and its key."""
    number = counted(len(entries), "wheel") if entries else "No wheels"
    prose(console, "", f"[bold]{number}[/] in {escape(str(folder))}")
    for entry in entries:
        archs = next(
            (v for k, v in entry.identity.items() if "ARCH" in k and k != "CUDA_HOME"), "no GPU code"
        )
        torch = entry.identity.get("torch", "").split(" ")[0] or "none"
        source = f", from {entry.source}" if entry.source else ""
        built = f"{archs}, torch {torch}{source}, {entry.created or 'of unknown age'}, key {entry.key[:8]}"
        prose(console, f"{escape(entry.wheel)}  ", f"{entry.size / 2**20:.1f} MiB  [dim]{escape(built)}[/]")
    show_notes(console, refused)


def show_plan(
    console: Console, plan: InstallPlan, next_step: Step | None = None, *, why: bool = False
) -> None:
    """The plan's title and what to run next, then its steps; with ``why`` the reasons, and what was rejected.

    Args:
        next_step: the command that executes it; None when it is executed right away.
    """
    if not plan.steps:
        prose(
            console,
            "[green]✓[/] ",
            f"[bold]Nothing to install[/] in {escape(plan.prefix)}: {escape(plan.title)}",
        )
        show_reasons(console, plan)
        return
    goal = f" for {', '.join(plan.targets)}" if plan.targets else ""
    backends = {"pure": "pure PyTorch", "nvrtc": "CUDA kernels by NVRTC", "warp": "gswarp by NVIDIA Warp"}
    how = f" ({backends[plan.backend]})" if plan.backend in backends else ""
    what = f"install {', '.join(plan.subjects)}{goal}{how} in {plan.prefix}"
    prose(console, "[bold]Plan:[/] ", f"[bold]{escape(what)}[/]")
    if next_step is not None:
        show_step(console, next_step, indent=2)
        console.print()
    show_steps(console, plan, why=why)
    if why:
        show_reasons(console, plan)
    if why and plan.considered:
        console.print("[bold]Considered and rejected[/]")
        for item in plan.considered:
            show_rejected(console, item)
    show_notes(console, plan.notes)


def show_fetched(console: Console, folder: Path, fetched: Sequence[Fetched]) -> None:
    """Which submodules came from where; nothing where none was empty."""
    for item in fetched:
        newest = "" if item.asked else ", the newest: which one the checkout means is not known"
        said = f"{item.path} from {item.address} at {item.commit[:10]}{newest}"
        prose(console, "[green]✓[/] fetched ", escape(said))
    if not fetched:
        prose(console, "", escape(f"No submodule that is needed is empty in {folder}"))


def show_outcome(console: Console, outcome: Outcome, next_step: Step | None = None) -> None:
    """What was installed and how to undo it, then how far each part is verified."""
    new = [f"{item.subject} {item.version}" for item in outcome.items if not item.up_to_date]
    python = outcome.plan.python
    if new:
        said = f"Installed {', '.join(new)} in {outcome.seconds:.0f} s"
    else:
        said = f"Already up to date: {', '.join(f'{item.subject} {item.version}' for item in outcome.items)}"
    prose(console, "[green]✓[/] ", f"[bold]{escape(said)}[/]")
    if next_step is not None:
        show_step(console, next_step, indent=2)
    if new:
        number = outcome.entry.partition("-")[0]
        show_step(console, run("splatfix", "revert", number, "--python", python, text="Undo with"), indent=2)
    else:
        prose(console, "  ", "To install it anyway, add --reinstall.")
    for identity in outcome.recovered:
        prose(console, "[yellow]Note:[/] ", f"the interrupted run {escape(identity)} was undone first")
    _show_kept(console, outcome.kept)
    show_notes(console, outcome.notes)
    console.print()
    for item in outcome.items:
        instead = f" (before: {item.before})" if item.before else ""
        instead = " (already up to date)" if item.up_to_date else instead
        prose(console, "", f"[bold]{escape(item.subject)} {escape(item.version)}[/]{escape(instead)}")
        for rung in item.proof:
            mark = "[green]✓[/]" if rung.reached else "[dim]–[/]"
            prose(console, f"  {mark} {rung.name.value:<10}  ", escape(rung.shown_by))
    prose(console, "Logs: ", escape(outcome.log))


def show_revert(console: Console, outcome: RevertOutcome) -> None:
    """What was removed and restored; of a dry run what would be."""
    head = "[bold]Would revert" if outcome.dry_run else "[green]✓[/] [bold]Reverted"
    paragraph(console, f"{head} {escape(outcome.entry)}[/] in {escape(outcome.prefix)}", first=0, then=2)
    for item in outcome.items:
        prose(console, "  ", escape(_restored(item, "would be" if outcome.dry_run else "")))
        _show_kept(console, item.kept)


def show_left(console: Console, folder: Path, wheels: Sequence[CachedWheel]) -> None:
    """What stays outside of an environment in which nothing of splatfix is left; nothing where there is none of it."""
    if not wheels:
        return
    size = sum(item.size for item in wheels) / 2**20
    held = f"{counted(len(wheels), 'built wheel')}, {size:.1f} MiB"
    said = f"Kept in {folder}, so that installing again takes seconds: {held}. Remove with"
    show_step(console, run("splatfix", "cache", "clear", text=said), indent=0)


def _show_kept(console: Console, kept: Sequence[Kept]) -> None:
    for item in kept:
        said = f"{item.path} was changed since splatfix wrote it; a copy with those changes: {item.copy}"
        prose(console, "  [yellow]Note:[/] ", escape(said))


def _restored(item: Restored, would: str) -> str:
    if item.source:
        return f"the edits in {item.source} {would or 'were'} undone"
    # two variants of one name often have one version too
    same = bool(item.removed) and item.removed == item.restored
    gone, back = (item.removed_origin, item.restored_origin) if same else ("", "")
    if item.removed:
        removed = f"{item.subject} {item.removed}{_in_brackets(gone)} {would} removed".replace("  ", " ")
    else:
        removed = f"{item.subject} was {'not installed yet' if item.incomplete else 'already gone'}"
    if item.restored:
        back = back or ("not by splatfix" if gone else "")
        return f"{removed}; {item.subject} {item.restored}{_in_brackets(back)} {would or 'was'} restored"
    return f"{removed}; it was not installed before"


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


def show_nothing_to_revert(console: Console, prefix: str) -> None:
    """Nothing that splatfix installed is in the environment."""
    prose(console, "", f"[bold]Nothing to revert[/] in {escape(prefix)}")


def show_journal(console: Console, entries: Sequence[Entry], prefix: str) -> None:
    """How many entries are active and the command that undoes the latest, then a line for each entry, oldest first."""
    active = [entry for entry in entries if entry.active]
    if not active:
        show_nothing_to_revert(console, prefix)
    else:
        number = active[-1].id.partition("-")[0]
        prose(
            console,
            "",
            f"[bold]{len(active)} of {counted(len(entries), 'installation')} active[/] in {escape(prefix)}",
        )
        step = run("splatfix", "revert", number, "--python", prefix, text="Undo the latest with")
        show_step(console, step, indent=2)
    if entries:
        console.print()
    for entry in entries:
        subjects = entry.request.get("subjects", "")
        backend = entry.request.get("backend", "")
        line = f"{entry.id}  {entry.status.value:<11}  {backend} {subjects}"
        if forced := entry.request.get("cuda_mismatch"):
            line += f"  forced: {forced}"
        if entry.status is Status.DONE and not entry.changes:
            line += "  already up to date"
        why = f"  [dim]{escape(entry.error)}[/]" if entry.error else ""
        paragraph(console, escape(line) + why, first=0, then=4)
        _show_kept(console, entry.kept)
