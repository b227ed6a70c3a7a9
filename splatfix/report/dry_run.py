"""Shows what a checkout's trainer would run on: its script, the drop-ins, what has none, and what was read where."""

from collections.abc import Mapping

from msgspec import Struct
from rich.console import Console

from splatfix.core.words import few
from splatfix.model.option import Native
from splatfix.report.console import escape, marked, pairs, prose
from splatfix.report.forms import writes
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
    would_run: bool | None
    """False also where what must be mended first keeps the run from passing; None where it cannot be told."""


_VERDICTS: Mapping[bool | None, tuple[Mark, str]] = {
    True: (Mark.GOOD, "would run on these drop-ins"),
    False: (Mark.BAD, "would not pass, for what is said below"),
    None: (Mark.UNKNOWN, "it cannot be told what it would run on"),
}


@writes(DryRun)
def show(console: Console, document: DryRun, *, verbose: bool = False) -> None:
    """Print what would take the place of what; with ``verbose`` also what was read where, and what counts."""
    mark, verdict = _VERDICTS[document.would_run]
    marked(console, mark, escape(f"{document.stack}, {document.script}: {verdict}."), indent=0)
    for item in document.dropins:
        marked(console, Mark.GOOD, escape(": ".join(filter(None, (item.dropin, item.returns)))))
        read = [f"{subject}: {location}" for subject, location in item.read] if verbose else []
        for text in filter(None, (item.assumed, *read)):
            prose(console, "      ", escape(text))
    for refused in document.refused:
        mark = Mark.UNKNOWN if refused.undetermined else Mark.BAD
        marked(console, mark, escape(f"{refused.module}: {refused.reason or 'it has no drop-in'}"))
    reached = f"what is reached from {', '.join(document.scripts)}"
    if document.reached_by:
        reached = f"all of the checkout, for {document.reached_by} imports by a computed name"
    told = [
        ("other scripts", few([f"--script {script}" for script in document.other_scripts])),
        ("what counts", reached if verbose else ""),
        ("also needed", few(document.also_needed, most=20)),
    ]
    told += [("not needed", f"{item.module}; {item.reason}") for item in document.beside_the_point]
    pairs(console, told)
