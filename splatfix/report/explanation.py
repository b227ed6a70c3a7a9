"""The causes of a failed command."""

from collections.abc import Sequence

from msgspec import Struct
from rich.console import Console

from splatfix.core.step import Step
from splatfix.explain.model import Certainty, Failure, FailureCause, KnownClass
from splatfix.report.console import err, escape, prose, show_todo, table
from splatfix.report.forms import writes


class ExplanationDocument(Struct, frozen=True, kw_only=True):
    """Why something failed, or (``--class``) which failures are known."""

    certainty: Certainty = Certainty.UNKNOWN
    """Of the first cause."""
    failure: Failure = Failure()
    """What failed, and where: told also where no cause is known."""
    causes: tuple[FailureCause, ...] = ()
    """Ranked, the likeliest first."""
    success: str = ""
    """The line with which it ends, where that says that all went well."""
    collect: tuple[Step, ...] = ()
    """What to give or to run where no cause is named."""
    facts: str = ""
    """Where the facts come from that were used."""
    lines_read: int = 0
    bytes_read: int = 0
    command_exit_code: int | None = None
    """Of the command that was run; None where a log was read."""
    classes: tuple[KnownClass, ...] = ()


# A step of Failure, as a sentence has it.
_STEPS = {
    "resolve": "finding versions",
    "fetch": "downloading",
    "metadata": "reading setup.py",
    "configure": "configuring",
    "compile": "compiling",
    "link": "linking",
    "import": "importing",
    "container": "starting a container",
    "start": "starting",
    "data": "preparing or reading the data",
    "training": "training",
    "evaluation": "evaluation",
    "run": "running",
}
_NAMES = {
    "cuda": "CUDA",
    "torch": "PyTorch",
    "python": "Python",
    "cmake": "CMake",
    "cl": "MSVC",
    "link": "MSVC's linker",
}
_NAMES |= {
    "program": "the program itself",
    "system": "the operating system",
    "docker": "Docker",
    "colmap": "COLMAP",
}
_NAMES |= {"optix": "OptiX", "browser": "the browser", "git": "Git", "npm": "npm", "shell": "the shell"}


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
    elif not document.bytes_read:
        prose(console, "", "[bold yellow]Nothing to read[/]: the log is empty.")
    else:
        _show_failure(console, document.failure)
    likely = document.certainty is Certainty.LIKELY
    if not document.causes and document.bytes_read and not document.success:
        prose(console, "", "[bold yellow]Cause not known[/]: no known cause fits this log.")
    for cause in document.causes[: 3 if likely else 1]:
        if cause.consequence_of:
            continue
        said = "[bold yellow]Likely[/]" if likely else "[bold red]Cause[/]"
        prose(console, "", f"{said}: [bold]{escape(cause.name)}[/]. {escape(cause.why)}")
        for number, line in zip(cause.line_numbers, cause.lines, strict=True):
            if line.strip() not in map(str.strip, document.failure.error):
                prose(console, f"    [dim]{number:>6}[/]  ", escape(line.strip()))
        show_todo(console, cause.fix, indent=2)
        if cause.settle:
            prose(console, "  ", "To tell whether it is this:")
            show_todo(console, cause.settle, indent=2)
    for cause in document.causes[1:4]:
        if cause.consequence_of:
            prose(console, "  ", f"[dim]a consequence of {cause.consequence_of}: {escape(cause.name)}.[/]")
    if document.collect:
        prose(console, "", "To find out:")
    show_todo(console, document.collect, indent=2)


def _show_failure(console: Console, failure: Failure) -> None:
    """Print the step with its package and place, who reports it, the lines, the calls, and the versions that were seen."""
    what = " ".join(filter(None, (_STEPS.get(failure.step, ""), failure.package)))
    if failure.iteration is not None:
        what += f" at iteration {failure.iteration}"
    where = f"{', ' if what else ''}in {failure.file}" if failure.file else ""
    reporter = _NAMES.get(failure.speaker, failure.speaker)
    if failure.speaker:
        said = (
            f" (reported by {reporter}, which does not say why)"
            if failure.hidden
            else f" (reported by {reporter})"
        )
        prose(console, "", f"[bold]Failed[/]: {escape(what + where) or 'a command'}{escape(said)}")
    else:
        while_what = f" while {what}" if what else ""
        prose(console, "", f"[bold]No error[/] is reported in this log; it ends{escape(while_what)} with:")
    for number, line in enumerate(failure.error, failure.line_number):
        prose(
            console,
            f"    [dim]{number if number == failure.line_number else '':>6}[/]  ",
            escape(line.strip()),
        )
    for frame in [frame for frame in failure.frames if frame.package not in ("python", "torch")][-3:]:
        place = f"{frame.file}:{frame.line}".removesuffix(":0")
        package = f" ({frame.package})" if frame.package else ""
        prose(
            console, "            ", f"[dim]in {escape(frame.function)}, {escape(place)}{escape(package)}[/]"
        )
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
    prose(console, "  ", escape(item.why))
    prose(console, "  Fix: ", escape(item.fix))
    if item.checks:
        prose(console, "  Predicted by: ", escape(", ".join(item.checks)))
    prose(console, "  ", f"Wordings known: {item.wordings}, from:")
    for source in item.sources:
        prose(console, "    ", f"[dim]{escape(source)}[/]")
