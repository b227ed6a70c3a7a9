"""What ``install``, ``revert`` and ``cache`` have to say: plans, installations, the journal, and the wheels that were built."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from rich.console import Console

from splatfix.core.step import Step
from splatfix.core.words import counted
from splatfix.install.journal import Entry
from splatfix.install.outcome import (
    CachedWheel,
    FetchedSubmodule,
    InstallOutcome,
    Kept,
    Restored,
    RevertOutcome,
)
from splatfix.model.inquiry import Inquiry
from splatfix.model.option import Options, Plan
from splatfix.model.steps import WITHOUT_COMPILER
from splatfix.report.console import escape, marked, notes, prose, show_rows, show_todo
from splatfix.report.forms import writes
from splatfix.report.marks import ABSENT, Mark, Table
from splatfix.report.options import show_options, show_reasons, show_rejected, show_steps


class InstallDocument(Struct, frozen=True, kw_only=True):
    """An installation, or what one would do."""

    dry_run: bool = False
    plan: Plan | None = None
    """Of a dry run; None where no sources were named or they cannot be installed as they are."""
    options: Options | None = None
    """All options of the machine, ranked; None where only the plan was asked for."""
    inquiries: tuple[Inquiry, ...] = ()
    """What each setup.py answered, where it was asked."""
    outcome: InstallOutcome | None = None
    """None of a dry run, and where what is installed serves already."""
    next_steps: tuple[Step, ...] = ()
    """The command that executes the plan; after an installation what to run next, and what undoes it."""


@writes(InstallDocument, command="install")
def show_install(console: Console, document: InstallDocument, *, verbose: bool = False) -> None:
    """Print what was installed, or the plan; where all options were asked for, these with their reasons."""
    if document.outcome:
        _show_outcome(console, document.outcome, document.next_steps, verbose=verbose)
    if document.plan:
        show_plan(
            console, document.plan, document.next_steps, why=document.options is not None, verbose=verbose
        )
    if document.options is None:
        return
    if document.plan:
        console.print()
    for item in document.inquiries:
        mark = Mark.UNKNOWN if item.unknown else Mark.GOOD
        marked(
            console, mark, escape(f"setup.py of {item.subject} was asked, in {item.seconds:.1f} s"), indent=0
        )
        for line in item.lines:
            prose(console, "      ", escape(line))
    show_options(console, document.options)


def show_plan(
    console: Console, plan: Plan, next_steps: Sequence[Step] = (), *, why: bool = False, verbose: bool = False
) -> None:
    """Print the plan's title and the command that executes it, then its steps.

    Args:
        next_steps: () where it is executed right away.
        why: each step by itself with its reasons, and what was rejected.
        verbose: each step by itself.
    """
    if not plan.steps:  # --backend auto, and what is installed serves already
        headline = f"[bold]Nothing to install[/] in {escape(plan.prefix)}: {escape(plan.title)}"
        marked(console, Mark.GOOD, headline, indent=0)
        show_reasons(console, plan)
        return
    # without subjects what is installed is edited
    goal = plan.title
    if plan.subjects:
        goal = f"install {', '.join(plan.subjects)}"
    if plan.targets:
        goal += f" for {', '.join(map(str, plan.targets))}"
    if plan.backend in WITHOUT_COMPILER:
        goal += f" ({WITHOUT_COMPILER[plan.backend]})"
    prose(console, "[bold]Plan:[/] ", f"[bold]{escape(f'{goal} in {plan.prefix}')}[/]")
    if next_steps:
        show_todo(console, next_steps, indent=2)
        console.print()
    show_steps(console, plan, why=why, together=not (why or verbose))
    if why:
        show_reasons(console, plan)
        show_rejected(console, "Considered and rejected", plan.considered)
    notes(console, plan.notes)


def show_fetched(console: Console, folder: Path, fetched: Sequence[FetchedSubmodule]) -> None:
    """Print which submodules came from where."""
    for item in fetched:
        text = f"{item.path} from {item.address} at {item.commit[:10]}"
        if not item.asked:
            text += ", the newest: which one the checkout means is not known"
        prose(console, f"{Mark.GOOD.markup} fetched ", escape(text))
    if not fetched:
        prose(console, "", escape(f"No submodule that is needed is empty in {folder}"))


def _show_outcome(
    console: Console, outcome: InstallOutcome, next_steps: Sequence[Step], *, verbose: bool
) -> None:
    """Print what was installed and how to undo it, then how far each part is verified; of several in a line each."""
    new = [f"{item.subject} {item.version}" for item in outcome.items if not item.up_to_date]
    headline = f"Installed {', '.join(new)} in {outcome.seconds:.0f} s"
    if not outcome.items:
        headline = f"Edited the installed {', '.join(step.subject for step in outcome.plan.executed)}"
    elif not new:
        headline = "Already up to date (to install it anyway, add --reinstall)"
    marked(console, Mark.GOOD, f"[bold]{escape(headline)}[/]", indent=0)
    show_todo(console, next_steps, indent=2)
    notes(console, [f"the interrupted run {identity} was undone first" for identity in outcome.recovered])
    _show_kept(console, outcome.kept)
    notes(console, outcome.notes)
    console.print()
    if verbose:
        prose(console, "Logs: ", escape(outcome.log))
    for item in outcome.items:
        text = f"[bold]{escape(item.subject)} {escape(item.version)}[/]"
        if item.up_to_date:
            text += " (already up to date)"
        elif item.before:
            text += f" (before: {escape(item.before)})"
        if len(outcome.items) > 1 and not verbose:
            levels = ", ".join(rung.name.value for rung in item.proof if rung.reached)
            prose(console, "", f"{text}: {levels} (how, with -v)")
            continue
        prose(console, "", text)
        for rung in item.proof:
            # a level that failed has ended the installation: it is not among these
            mark = Mark.GOOD if rung.reached else Mark.NONE
            prose(console, f"  {mark.markup} {rung.name.value:<10}  ", escape(rung.shown_by))


class RevertDocument(Struct, frozen=True, kw_only=True):
    """What ``revert`` undid, or the journal (``--list``)."""

    environment: str
    """As it was named, else its interpreter."""
    outcomes: tuple[RevertOutcome, ...] = ()
    """One for each entry, newest first."""
    journal: tuple[Entry, ...] | None = None
    """The oldest first; None where something was to be undone."""
    next_steps: tuple[Step, ...] = ()
    """What undoes the latest, carries out a dry run, or removes what is left outside of the environment."""


@writes(RevertDocument, command="revert")
def show_revert(console: Console, document: RevertDocument) -> None:
    """Print the entries of the journal, or what was removed and restored; of a dry run what would be."""
    entries = document.journal or ()
    if not document.outcomes:
        active = sum(entry.active for entry in entries)
        where = escape(document.environment)
        prose(console, "", f"[bold]Installations to revert: {active} of {len(entries)}[/] in {where}")
    for outcome in document.outcomes:
        head = f"{Mark.GOOD.markup} [bold]Reverted"
        if outcome.dry_run:
            head = "[bold]Would revert"
        prose(console, "", f"{head} {escape(outcome.entry)}[/] in {escape(outcome.prefix)}", hang=2)
        for item in outcome.items:
            if not (item.source and item.notes):  # else it was left alone
                prose(console, "  ", escape(_restored(item)))
            _show_kept(console, item.kept)
            notes(console, item.notes, indent=2)
        notes(console, outcome.notes, indent=2)
    show_todo(console, document.next_steps, indent=2)
    rows = []
    for entry in entries:
        # a forced mismatch of CUDA versions is remembered: it may be why something crashes months later
        asked = [str(entry.request.get(name) or ABSENT) for name in ("backend", "subjects", "cuda_mismatch")]
        rows.append((entry.id, entry.status.value, *asked, entry.error or ABSENT))
    show_rows(console, Table(("entry", "state", "backend", "installed", "forced", "error"), rows))
    _show_kept(console, [kept for entry in entries for kept in entry.kept])


def _show_kept(console: Console, kept: Sequence[Kept]) -> None:
    for item in kept:
        text = f"{item.path} was changed since splatfix wrote it; a copy with those changes: {item.copy}"
        notes(console, [text], indent=2)


def _restored(item: Restored) -> str:
    """Return what becomes of one distribution or checkout: ``dgr 1.0 (built from /a) -> 0.9``."""
    if item.source:
        return f"{item.source}: edits undone"
    old, new = item.removed or "gone already", item.restored or "not installed, as before"
    # two variants of a rasterizer often have one name and one version: only where they come from tells them apart
    if item.removed and item.removed == item.restored:
        old += f" ({item.removed_origin or 'origin not known'})"
        new += f" ({item.restored_origin or 'not by splatfix'})"
    return f"{item.subject}: {old} → {new}"


class CacheDocument(Struct, frozen=True, kw_only=True):
    """What is cached: the wheels that installations have built, and what else is kept to be made or fetched once."""

    folder: str
    """With the wheels."""
    wheels: tuple[CachedWheel, ...]
    refused: tuple[str, ...]
    """What lies there and is no wheel of splatfix's."""
    others: tuple[str, ...]
    """Toolkits, sources and kernels."""
    others_bytes: int


@writes(CacheDocument, command="cache list")
def show_cache(console: Console, document: CacheDocument) -> None:
    """Print a line for each wheel: name, size, what it was built for, with and from, when, and its key; then the rest."""
    number = counted(len(document.wheels), "wheel")
    others = f"toolkits, sources and kernels {document.others_bytes / 2**20:.1f} MiB"
    prose(console, "", f"[bold]{number}[/] in {escape(document.folder)}; {others}")
    rows = []
    for wheel in document.wheels:
        # TORCH_CUDA_ARCH_LIST for most; a stack's setup.py may read a variable of its own
        archs = [value for name, value in wheel.identity.items() if "ARCH" in name]
        torch = wheel.identity.get("torch", "").split(" ")[0]
        size = f"{wheel.size / 2**20:.1f} MiB"
        cells = (size, ", ".join(archs[:1]), torch, wheel.source, wheel.created, wheel.key[:8])
        rows.append((wheel.wheel, *(cell or ABSENT for cell in cells)))
    show_rows(console, Table(("wheel", "size", "for", "torch", "from", "made", "key"), rows))
    notes(console, document.refused)


class ClearedDocument(Struct, frozen=True, kw_only=True):
    """What was removed from the cache."""

    folder: str
    removed: int
    """Wheels."""
    others: tuple[str, ...]
    others_bytes: int


@writes(ClearedDocument, command="cache clear")
def show_cleared(console: Console, document: ClearedDocument) -> None:
    """Print how much was removed."""
    text = f"Removed {counted(document.removed, 'wheel')} from {document.folder}"
    if document.others:
        text += f", and {document.others_bytes / 2**20:.1f} MiB of toolkits, sources and kernels"
    prose(console, "", escape(text))
