"""Shows what a checkout's trainer would run on: its script, the drop-ins, and what has none."""

from collections.abc import Mapping

from msgspec import Struct
from rich.console import Console

from splatfix.core.words import few
from splatfix.model.option import Replacement
from splatfix.report.console import escape, marked, prose
from splatfix.report.forms import writes
from splatfix.report.marks import Mark


class DryRun(Struct, frozen=True, kw_only=True):
    """What a rehearsal would run on."""

    would_run: bool | None
    """False also where what must be mended first keeps the run from passing; None where it cannot be told."""
    stack: str
    script: str
    replacement: Replacement
    missing: tuple[str, ...]
    """Modules of others that it imports and the environment lacks."""


_VERDICTS: Mapping[bool | None, tuple[Mark, str]] = {
    True: (Mark.GOOD, "would run"),
    False: (Mark.BAD, "would not pass"),
    None: (Mark.UNKNOWN, "it cannot be told whether it would run"),
}


@writes(DryRun, command="certify dry-run")
def show(console: Console, document: DryRun, *, verbose: bool = False) -> None:
    """Print what would take the place of what; with ``verbose`` also what was read where."""
    mark, verdict = _VERDICTS[document.would_run]
    marked(console, mark, escape(f"{document.stack}, {document.script}: {verdict}."), indent=0)
    if document.replacement.dropins:
        prose(console, "  ", "On a CPU these stand in for its CUDA extensions:")
    for item in document.replacement.dropins:
        face = item.declared
        marked(console, Mark.GOOD, escape(f"{item.name}: {face.words}" if face else item.name))
        if face and face.assumed:
            prose(console, "      ", escape(face.assumed))
        for subject, location in face.read if face and verbose else ():
            prose(console, "      ", escape(f"{subject}: {location}"))
    for native in document.replacement.native:
        stops = document.would_run is False and not native.undetermined
        marked(console, Mark.BAD if stops else Mark.UNKNOWN, escape(native.text))
    if document.missing:
        prose(console, "  ", escape(f"Not installed: {few(document.missing)}"))
