"""Shows what a checkout's trainer would run on: its script, the drop-ins, what has none, and what was read where."""

from collections.abc import Mapping

from msgspec import Struct
from rich.console import Console

from splatfix.core.errors import Exit
from splatfix.core.words import few
from splatfix.model.option import Native
from splatfix.report.console import escape, marked, prose, section
from splatfix.report.marks import Mark

WITHOUT: Mapping[str, str] = {
    "tinycudann": "it runs on CUDA alone; a trainer that has another encoding is told to use that",
    "torch_scatter": "a rehearsal brings a stand-in for it",
}
"""Compiled modules that are beside the point on a CPU."""


class ServedModule(Struct, frozen=True):
    """A module that a drop-in takes the place of."""

    module: str
    dropin: str
    returns: str
    """What comes back, in order, where its face was declared."""
    read: tuple[tuple[str, str], ...]
    """What was read, and where."""
    assumed: str
    """What of its face could not be read, and is taken for the usual; "" for nothing."""


class BesideThePoint(Struct, frozen=True):
    """A module that is missing, and that a rehearsal does without."""

    module: str
    reason: str


class DryRun(Struct, frozen=True):
    """What a rehearsal would run on."""

    checkout: str
    stack: str
    script: str
    scripts: tuple[str, ...]
    """Those that a rehearsal runs: the trainer, and ``render.py`` and ``metrics.py`` where they are."""
    reached_by: str
    """Where a computed import may reach all of the checkout; "" for nowhere, so that only what the script reaches counts."""
    dropins: tuple[ServedModule, ...]
    refused: tuple[Native, ...]
    also_needed: tuple[str, ...]
    """Modules of others that are missing in the environment."""
    other_scripts: tuple[str, ...]
    """Scripts of the checkout that train too."""
    beside_the_point: tuple[BesideThePoint, ...]


_MARKS: Mapping[Exit, tuple[Mark, str]] = {
    Exit.OK: (Mark.GOOD, "would run on these drop-ins"),
    Exit.FAILURE: (Mark.BAD, "would not run: nothing replaces what it calls"),
    Exit.UNDETERMINED: (Mark.UNKNOWN, "it cannot be told what it would run on"),
}


def show(console: Console, dry_run: DryRun, exit_code: int, *, why: bool, is_refused: bool = False) -> None:
    """On the terminal; ``is_refused``: whatever it would run on, the run does not pass for what follows."""
    mark, verdict = Mark.BAD, "would not pass, for what is said below"
    if not is_refused:
        mark, verdict = _MARKS[Exit(exit_code)]
    marked(console, mark, escape(f"{dry_run.stack}, {dry_run.script}: {verdict}."), indent=0)
    for item in dry_run.dropins:
        returns = f": {item.returns}" if item.returns else ""
        marked(console, Mark.GOOD, escape(f"{item.dropin}{returns}"))
        if item.assumed:
            prose(console, "      ", escape(item.assumed))
        for subject, location in item.read if why else ():
            prose(console, "      ", escape(f"{subject}: {location}"))
    for refused in dry_run.refused:
        mark = Mark.UNKNOWN if refused.undetermined else Mark.BAD
        marked(console, mark, escape(f"{refused.module}: {refused.reason or 'it has no drop-in'}"))
    if dry_run.other_scripts:
        prose(console, "  ", escape(f"--script takes another that trains: {few(dry_run.other_scripts)}"))
    if why:
        section(console, "What counts")
        reached = f"what is reached from {', '.join(dry_run.scripts)}"
        if dry_run.reached_by:
            reached = f"all of the checkout, for {dry_run.reached_by} imports by a computed name"
        prose(console, "  ", escape(reached))
    if dry_run.also_needed:
        section(console, "Also needed")
        prose(console, "  ", escape(few(dry_run.also_needed, most=20)))
    for beside in dry_run.beside_the_point:
        prose(console, "  ", escape(f"not needed: {beside.module}; {beside.reason}"))
