"""The causes of a failed command."""

from collections.abc import Sequence

from rich.console import Console

from splatfix.core.toml import table_beside
from splatfix.explain.model import Certainty, Explanation, Failure, KnownClass
from splatfix.report.console import err, escape, pairs, prose, show_todo, table
from splatfix.report.forms import writes


class ExplanationDocument(Explanation, frozen=True, kw_only=True):
    """Why something failed, or (``--class``) which failures are known."""

    facts: str = ""
    """Where the facts come from that were used."""
    command_exit_code: int | None = None
    """Of the command that was run; None where a log was read."""
    classes: tuple[KnownClass, ...] = ()


_WORDS = table_beside(__file__)


@writes(ExplanationDocument, command="explain")
def show(console: Console, document: ExplanationDocument) -> None:
    """Print what failed and where; the cause with its reason and fix, or the likely ones with what would tell; what to collect
    where none is named; or the known classes."""
    if document.classes:
        _show_classes(console, document.classes)
        return
    if document.command_exit_code == 0:
        return
    if document.command_exit_code is not None:  # standard output is the command's own
        console = err()
    if document.success:
        prose(console, "", f"[bold green]No failure[/] at the log's end: {escape(document.success)}")
        return
    if not document.bytes_read:
        prose(console, "", "[bold yellow]Nothing to read[/]: the log is empty.")
        return
    _show_failure(console, document.failure)
    if not document.causes:
        prose(console, "", "[bold yellow]Cause not known[/]: no known cause fits this log.")
    likely = document.certainty is Certainty.LIKELY
    said = "[bold yellow]Likely[/]" if likely else "[bold red]Cause[/]"
    for cause in [cause for cause in document.causes if not cause.consequence_of][: 3 if likely else 1]:
        prose(console, "", f"{said}: [bold]{escape(cause.name)}[/]. {escape(cause.why)}")
        for number, line in zip(cause.line_numbers, cause.lines, strict=True):
            if line.strip() not in map(str.strip, document.failure.error):
                prose(console, f"    [dim]{number:>6}[/]  ", escape(line.strip()))
        show_todo(console, cause.fix, indent=2)
        if cause.settle:
            prose(console, "  ", "To tell whether it is this:")
            show_todo(console, cause.settle, indent=4)
    for cause in [cause for cause in document.causes if cause.consequence_of]:
        prose(console, "  ", f"[dim]a consequence of {cause.consequence_of}: {escape(cause.name)}.[/]")
    told = [step.command for cause in document.causes for step in (*cause.fix, *cause.settle)]
    if collect := [step for step in document.collect if step.command is None or step.command not in told]:
        prose(console, "", "To find out:")
        show_todo(console, collect, indent=2)


def _show_failure(console: Console, failure: Failure) -> None:
    """Print the step with its package and place, who reports it, the lines, the calls, and the versions that were seen."""
    what = f"{_WORDS['steps'].get(failure.step, '')} {failure.package}".strip().removesuffix(" of")
    if failure.iteration is not None:
        what += f" at iteration {failure.iteration}"
    place = ", in ".join(filter(None, (what, failure.file)))
    if failure.speaker:
        reporter = _WORDS["speakers"].get(failure.speaker, failure.speaker)
        hidden = ", which does not say why" if failure.hidden else ""
        said = f"{place or 'a command'} (reported by {reporter}{hidden})"
        prose(console, "", f"[bold]Failed[/]: {escape(said)}")
    else:
        end = f"while {place}:" if place else "with:"
        prose(console, "", f"[bold]No error[/] is reported in this log. It ends {escape(end)}")
    for number, line in enumerate(failure.error):
        prose(console, f"    [dim]{'' if number else failure.line_number:>6}[/]  ", escape(line.strip()))
    for frame in [
        frame for frame in failure.frames if frame.package not in ("python", "torch", "setuptools")
    ][-3:]:
        where = escape(f"in {frame.function or '?'}, {frame.file}:{frame.line}")
        prose(console, " " * 12, f"[dim]{where}{escape(frame.package and f' ({frame.package})')}[/]")
    if failure.versions:
        seen = ", ".join(f"{name} {version}" for name, version in failure.versions.items())
        prose(console, "  ", f"[dim]Seen in it: {escape(seen)}[/]")


def _show_classes(console: Console, classes: Sequence[KnownClass]) -> None:
    """Print each class with its definition; of one alone why it happens, what to do, and from where its wordings are known."""
    if len(classes) > 1:
        table(console, ("class", "what happens"), [(item.name, item.definition) for item in classes])
        prose(console, "", "splatfix explain --class NAME shows one.")
        return
    (item,) = classes
    prose(console, "", f"[bold]{escape(item.name)}[/]: {escape(item.definition)}")
    shown = {"why": item.why, "fix": item.fix, "predicted by": ", ".join(item.checks)}
    shown |= {"heard from": ", ".join(item.speakers), "known from": "; ".join(item.sources)}
    pairs(console, shown.items())
