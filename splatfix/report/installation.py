"""Renders plans, installations and the journal: as JSON documents and for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from splatfix.core.codec import to_json
from splatfix.core.proof import RungName
from splatfix.core.step import Step, run
from splatfix.core.words import counted
from splatfix.install.journal import Entry, EntryStatus
from splatfix.install.outcome import (
    CachedWheel,
    FetchedSubmodule,
    InstalledItem,
    InstallOutcome,
    Kept,
    Restored,
    RevertOutcome,
)
from splatfix.model.inquiry import Inquiry
from splatfix.model.option import Options, Plan
from splatfix.report.console import escape, marked, paragraph, prose, show_step, show_todo
from splatfix.report.marks import Mark
from splatfix.report.options import show_notes, show_phases, show_reasons, show_rejected, show_steps


def install_document(
    plan: Plan | None = None,
    options: Options | None = None,
    outcome: InstallOutcome | None = None,
    *,
    inquiries: Sequence[Inquiry] = (),
    dry_run: bool = False,
) -> dict[str, Any]:
    """The content of ``install``'s JSON document; ``plan``, ``options`` and ``inquiries`` are those of a dry run."""
    return {
        "dry_run": dry_run,
        "plan": to_json(plan),
        "options": to_json(options),
        "inquiries": to_json(tuple(inquiries)),
        "outcome": to_json(outcome),
    }


def revert_document(
    outcomes: Sequence[RevertOutcome], journal: Sequence[Entry] | None = None
) -> dict[str, Any]:
    """The content of ``revert``'s JSON document: an outcome for each entry, newest first, or the journal (``--list``)."""
    entries = None if journal is None else tuple(journal)
    return {"outcomes": to_json(tuple(outcomes)), "journal": to_json(entries)}


def show_cache(
    console: Console, folder: Path, entries: Sequence[CachedWheel], refused: Sequence[str], also: str
) -> None:
    """One line for each wheel: name, size, what it was built for, with and from, when, and its key. ``also``: the rest."""
    number = counted(len(entries), "wheel") if entries else "No wheels"
    prose(console, "", f"[bold]{number}[/] in {escape(f'{folder}{also}')}")
    for entry in entries:
        # TORCH_CUDA_ARCH_LIST for most; a stack's setup.py may read a variable of its own
        archs = (value for name, value in entry.identity.items() if "ARCH" in name)
        parts = [
            next(archs, "no GPU code"),
            f"torch {entry.identity.get('torch', '').split(' ')[0] or 'none'}",
        ]
        if entry.source:
            parts.append(f"from {entry.source}")
        parts += [entry.created or "of unknown age", f"key {entry.key[:8]}"]
        text = f"{entry.size / 2**20:.1f} MiB  [dim]{escape(', '.join(parts))}[/]"
        prose(console, f"{escape(entry.wheel)}  ", text)
    show_notes(console, refused)


_BACKENDS = {"pure": "pure PyTorch", "nvrtc": "CUDA kernels by NVRTC"}


def show_plan(
    console: Console,
    plan: Plan,
    next_step: Step | None = None,
    *,
    why: bool = False,
    verbose: bool = False,
) -> None:
    """The plan's title and the command that executes it (None when it is executed right away), then its steps, each by itself
    with ``verbose`` and ``why``; with ``why`` the reasons, and what was rejected."""
    if not plan.steps:  # --backend auto, and what is installed serves already
        headline = f"[bold]Nothing to install[/] in {escape(plan.prefix)}: {escape(plan.title)}"
        marked(console, Mark.GOOD, headline, indent=0)
        show_reasons(console, plan)
        return
    goal = f"install {', '.join(plan.subjects)}"
    if not plan.subjects:  # edits of what is installed
        goal = plan.title
    if plan.targets:
        goal += f" for {', '.join(map(str, plan.targets))}"
    if plan.backend in _BACKENDS:
        goal += f" ({_BACKENDS[plan.backend]})"
    prose(console, "[bold]Plan:[/] ", f"[bold]{escape(f'{goal} in {plan.prefix}')}[/]")
    if next_step is not None:
        show_step(console, next_step, indent=2)
        console.print()
    if not (why or verbose):
        show_phases(console, plan, lines=next_step is not None)
    else:
        show_steps(console, plan, why=why)
    if why:
        show_reasons(console, plan)
        if plan.considered:
            console.print("[bold]Considered and rejected[/]")
        for item in plan.considered:
            show_rejected(console, item)
    show_notes(console, plan.notes)


def show_inquiries(console: Console, inquiries: Sequence[Inquiry]) -> None:
    """Show what each setup.py answered, one line for each kind of thing; nothing where none was asked."""
    if inquiries:
        console.print("[bold]Asked of setup.py[/], nothing was compiled")
    for item in inquiries:
        mark = Mark.GOOD
        if item.unknown:
            mark = Mark.UNKNOWN
        marked(console, mark, escape(f"{item.subject}, in {item.seconds:.1f} s"))
        for line in item.lines:
            prose(console, "      ", escape(line))
    if inquiries:
        console.print()


def show_fetched(console: Console, folder: Path, fetched: Sequence[FetchedSubmodule]) -> None:
    """Which submodules came from where; nothing where none was empty."""
    for item in fetched:
        text = f"{item.path} from {item.address} at {item.commit[:10]}"
        if not item.asked:
            text += ", the newest: which one the checkout means is not known"
        prose(console, f"{Mark.GOOD.markup} fetched ", escape(text))
    if not fetched:
        prose(console, "", escape(f"No submodule that is needed is empty in {folder}"))


def show_outcome(
    console: Console, outcome: InstallOutcome, next_steps: Sequence[Step] = (), *, verbose: bool = False
) -> None:
    """What was installed and how to undo it, then how far it is verified: rung by rung, or each part by itself."""
    new = [item for item in outcome.items if not item.up_to_date]
    names = [f"{item.subject} {item.version}" for item in new]
    # drop-ins have splatfix's own version, all of them
    if len({item.version for item in new}) == 1:
        names = [*(item.subject for item in new[:-1]), names[-1]]
    edited = not outcome.items
    if new:
        headline = f"Installed {', '.join(names)} in {outcome.seconds:.0f} s"
    elif edited:
        headline = f"Edited the installed {', '.join(step.subject for step in outcome.plan.executed)}"
    else:
        current = (f"{item.subject} {item.version}" for item in outcome.items)
        headline = f"Already up to date: {', '.join(current)}"
    marked(console, Mark.GOOD, f"[bold]{escape(headline)}[/]", indent=0)
    show_todo(console, next_steps, indent=2)
    if new or edited:
        show_step(console, _revert_step(outcome.entry, outcome.plan.python, "Undo with"), indent=2)
    else:
        prose(console, "  ", "To install it anyway, add --reinstall.")
    for identity in outcome.recovered:
        prose(console, "[yellow]Note:[/] ", f"the interrupted run {escape(identity)} was undone first")
    _show_kept(console, outcome.kept)
    show_notes(console, outcome.notes)
    console.print()
    if len(outcome.items) > 1 and not verbose:
        _show_ladder(console, outcome.items)
    else:
        for item in outcome.items:
            remark = ""
            if item.up_to_date:
                remark = " (already up to date)"
            elif item.before:
                remark = f" (before: {item.before})"
            prose(console, "", f"[bold]{escape(item.subject)} {escape(item.version)}[/]{escape(remark)}")
            for rung in item.proof:
                # a level that failed has ended the installation: it is not among these
                mark = Mark.GOOD if rung.reached else Mark.NONE
                prose(console, f"  {mark.markup} {rung.name.value:<10}  ", escape(rung.shown_by))
    if verbose:
        prose(console, "Logs: ", escape(outcome.log))


def _show_ladder(console: Console, items: Sequence[InstalledItem]) -> None:
    """Each rung once: what showed it, where that is the same of all; else of how many it was shown."""
    rungs: dict[RungName, dict[str, bool | None]] = {}
    for item in items:
        for rung in item.proof:
            # each part's own name is no difference
            rungs.setdefault(rung.name, {})[f"{item.subject}: {rung.shown_by}"] = rung.reached
    for name, shown in rungs.items():
        texts = dict.fromkeys(text.partition(": ")[2] for text in shown)
        reached = sum(value is True for value in shown.values())
        mark = Mark.GOOD if reached == len(items) else Mark.NONE
        text = next(iter(texts))
        if len(texts) > 1 and reached in (0, len(items)):
            text = f"each of the {len(items)} by itself (how, with -v)"
        elif len(texts) > 1:
            text = f"{reached} of {len(items)} (which, with -v)"
        prose(console, f"  {mark.markup} {name.value:<10}  ", escape(text))


def _revert_step(entry: str, python: str, text: str) -> Step:
    """The command that undoes a journal entry: its number is enough, the id's date and name are for people."""
    return run("splatfix", "revert", entry.partition("-")[0], "--python", python, text=text)


def show_revert(console: Console, outcome: RevertOutcome) -> None:
    """What was removed and restored; of a dry run what would be."""
    head = f"{Mark.GOOD.markup} [bold]Reverted"
    if outcome.dry_run:
        head = "[bold]Would revert"
    paragraph(console, f"{head} {escape(outcome.entry)}[/] in {escape(outcome.prefix)}", first=0, then=2)
    for item in outcome.items:
        left_alone = item.source and item.notes
        if not left_alone:
            prose(console, "  ", escape(_restored(item, dry_run=outcome.dry_run)))
        _show_kept(console, item.kept)
        show_notes(console, item.notes, indent=2)
    show_notes(console, outcome.notes, indent=2)


def show_left(console: Console, folder: Path, wheels: Sequence[CachedWheel]) -> None:
    """What stays outside of an environment in which nothing of splatfix is left; nothing where there is none of it."""
    # who removes splatfix wants his disk back, and would not guess where a gigabyte of wheels lies
    if not wheels:
        return
    size = sum(item.size for item in wheels) / 2**20
    amount = f"{counted(len(wheels), 'built wheel')}, {size:.1f} MiB"
    text = f"Kept in {folder}, so that installing again takes seconds: {amount}. Remove with"
    show_step(console, run("splatfix", "cache", "clear", text=text), indent=0)


def _show_kept(console: Console, kept: Sequence[Kept]) -> None:
    for item in kept:
        text = f"{item.path} was changed since splatfix wrote it; a copy with those changes: {item.copy}"
        prose(console, "  [yellow]Note:[/] ", escape(text))


def _restored(item: Restored, *, dry_run: bool) -> str:
    would_be = "would be " if dry_run else ""
    if item.source:
        return f"the edits in {item.source} {would_be or 'were '}undone"
    old, new = f"{item.subject} {item.removed}", f"{item.subject} {item.restored}"
    # Two variants of a rasterizer often have one name and one version: only where they come from tells them apart.
    if item.removed and item.removed == item.restored:
        if item.removed_origin:
            old += f" ({item.removed_origin})"
        if item.restored_origin:
            new += f" ({item.restored_origin})"
        elif item.removed_origin:
            new += " (not by splatfix)"
    if item.removed:
        removed = f"{old} {would_be}removed"
    elif item.incomplete:
        removed = f"{item.subject} was not installed yet"
    else:
        removed = f"{item.subject} was already gone"
    if item.restored:
        return f"{removed}; {new} {would_be or 'was '}restored"
    return f"{removed}; it was not installed before"


def show_nothing_to_revert(console: Console, prefix: str) -> None:
    """Nothing that splatfix installed is in the environment."""
    prose(console, "", f"[bold]Nothing to revert[/] in {escape(prefix)}")


def show_journal(console: Console, entries: Sequence[Entry], prefix: str, python: str) -> None:
    """How many entries are active and the command that undoes the latest, then a line for each entry, oldest first."""
    active = [entry for entry in entries if entry.active]
    if not active:
        show_nothing_to_revert(console, prefix)
    else:
        total = counted(len(entries), "installation")
        prose(console, "", f"[bold]{len(active)} of {total} active[/] in {escape(prefix)}")
        show_step(console, _revert_step(active[-1].id, python, "Undo the latest with"), indent=2)
    if entries:
        console.print()
    for entry in entries:
        subjects = entry.request.get("subjects", "")
        backend = entry.request.get("backend", "")
        line = f"{entry.id}  {entry.status.value:<11}  {backend} {subjects}"
        # a forced mismatch of CUDA versions is remembered: it may be why something crashes months later
        mismatch = entry.request.get("cuda_mismatch")
        if mismatch:
            line += f"  forced: {mismatch}"
        if entry.status is EntryStatus.DONE and not entry.changes:
            line += "  already up to date"
        text = escape(line)
        if entry.error:
            text += f"  [dim]{escape(entry.error)}[/]"
        paragraph(console, text, first=0, then=4)
        _show_kept(console, entry.kept)
