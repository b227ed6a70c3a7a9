"""The causes of a failed command."""

from collections.abc import Sequence

from msgspec import Struct
from rich.console import Console

from splatfix.core.step import Step
from splatfix.explain.model import FailureCause, KnownClass
from splatfix.report.console import err, escape, prose, show_todo, table
from splatfix.report.forms import writes


class ExplanationDocument(Struct, frozen=True, kw_only=True):
    """Why something failed, or (``--class``) which failures are known."""

    recognised: bool = False
    """Some cause is sure enough to be named as the cause."""
    causes: tuple[FailureCause, ...] = ()
    """Ranked, the likeliest first."""
    first_error: tuple[str, ...] = ()
    """The first lines of the log that report an error, known or not."""
    success: str = ""
    """The line with which it ends, where that says that all went well."""
    collect: tuple[Step, ...] = ()
    """What to give where no cause is sure."""
    facts: str = ""
    """Where the facts come from that were used."""
    lines_read: int = 0
    bytes_read: int = 0
    command_exit_code: int | None = None
    """Of the command that was run; None where a log was read."""
    classes: tuple[KnownClass, ...] = ()


@writes(ExplanationDocument, command="explain")
def show(console: Console, document: ExplanationDocument) -> None:
    """Print the first cause with its lines, its reason and its fix; what else is possible; what to collect where it is not sure;
    or the known classes."""
    if document.classes:
        _show_classes(console, document.classes)
        return
    if document.command_exit_code == 0:
        return
    if document.command_exit_code is not None:  # standard output is the command's own
        console = err()
    lines: list[tuple[str, str]] = []
    if not document.causes:
        headline = "[bold yellow]Not recognised[/]: no known cause fits this log well enough to name it."
        if document.success:
            headline = f"[bold green]No failure[/] at the log's end: {escape(document.success)}"
        elif not document.bytes_read:
            headline = "[bold yellow]Not recognised[/]: the log is empty."
        prose(console, "", headline)
        lines = [("", line) for line in document.first_error]
    elif not document.recognised:
        doubt = "this is the likeliest cause, and the log does not settle it."
        prose(console, "", f"[bold yellow]Not certain[/]: {doubt}")
    for cause in document.causes[:1]:
        prose(console, "", f"[bold red]{escape(cause.name)}[/] ({cause.confidence:.0%}): {escape(cause.why)}")
        lines = [(str(number), line) for number, line in zip(cause.line_numbers, cause.lines, strict=True)]
    for number, line in lines:
        prose(console, f"    [dim]{number:>6}[/]  ", escape(line.strip()))
    for cause in document.causes[:1]:
        show_todo(console, cause.fix, indent=2)
    for cause in document.causes[1:4]:
        named = f"{escape(cause.name)} ({cause.confidence:.0%})."
        if cause.consequence_of:
            prose(console, "  ", f"[dim]a consequence of {cause.consequence_of}: {named}[/]")
        else:
            prose(console, "  ", f"also possible: {named} {escape(cause.why)}")
    show_todo(console, document.collect, indent=2)


def _show_classes(console: Console, classes: Sequence[KnownClass]) -> None:
    """Print each class with its definition; of one alone why it happens, what to do, and from where its wordings are known."""
    if len(classes) > 1:
        table(console, ("class", "what happens"), [(item.name, item.definition) for item in classes])
        prose(console, "", "splatfix explain --class NAME shows one.")
        return
    (item,) = classes
    prose(console, "", f"[bold]{escape(item.name)}[/]: {escape(item.definition)}")
    prose(console, "  ", escape(item.why))
    prose(console, "  Fix: ", escape(item.fix))
    if item.checks:
        prose(console, "  Predicted by: ", escape(", ".join(item.checks)))
    prose(console, "  ", f"Wordings known: {item.wordings}, from:")
    for source in item.sources:
        prose(console, "    ", f"[dim]{escape(source)}[/]")
