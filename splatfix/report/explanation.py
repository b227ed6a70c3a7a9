"""The causes of a failed command, for people and as the content of a JSON document."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from rich.console import Console

from splatfix.core.codec import to_json
from splatfix.core.step import Step
from splatfix.core.words import counted
from splatfix.explain.model import Explanation, FailureCause, KnownClass
from splatfix.report.console import escape, prose, show_step, show_todo, table


def document(
    explanation: Explanation | None,
    *,
    collect: Sequence[Step] = (),
    facts: str = "",
    command_exit_code: int | None = None,
    classes: Sequence[KnownClass] = (),
) -> dict[str, Any]:
    """Content of the document of ``explain``; no explanation where no log was read, or the command that was run succeeded.
    ``facts`` says where those come from that were used."""
    if explanation is None:
        explanation = Explanation((), (), 0, 0)
    return {
        "recognised": explanation.recognised,
        "causes": [
            {**_by_class(cause), "fix": [Step.to_json(step) for step in cause.fix]}
            for cause in explanation.causes
        ],
        "first_error": list(explanation.first_error),
        "collect": [Step.to_json(step) for step in collect],
        "facts": facts,
        "lines_read": explanation.lines_read,
        "bytes_read": explanation.bytes_read,
        "command_exit_code": command_exit_code,
        "classes": list(map(_by_class, classes)),
    }


def show(console: Console, explanation: Explanation, collect: Sequence[Step]) -> None:
    """The first cause with its lines, its reason and its fix; what else is possible; what to collect where it is not sure."""
    if not explanation.causes:
        why = "no known cause fits this log well enough to name it"
        headline = f"[bold yellow]Not recognised[/]: {why if explanation.bytes_read else 'the log is empty'}."
        if explanation.success:
            headline = f"[bold green]No failure[/] at the log's end: {escape(explanation.success)}"
        prose(console, "", headline)
        _show_lines(console, "The first error that it reports", explanation.first_error, ())
        show_todo(console, collect, indent=2)
        return
    if not explanation.recognised:
        doubt = "this is the likeliest cause, and the log does not settle it."
        prose(console, "", f"[bold yellow]Not certain[/]: {doubt}")
    first = explanation.causes[0]
    prose(console, "", f"[bold red]{escape(first.name)}[/] {_share(first)}: {escape(first.why)}")
    _show_lines(console, "Shown by", first.lines, first.line_numbers)
    for step in first.fix:
        show_step(console, step, indent=2)
    for cause in explanation.causes[1:4]:
        named = f"{escape(cause.name)} {_share(cause)}."
        if cause.consequence_of:
            prose(console, "  ", f"[dim]a consequence of {cause.consequence_of}: {named}[/]")
        else:
            prose(console, "  ", f"also possible: {named} {escape(cause.why)}")
    show_todo(console, collect, indent=2)


def show_list(console: Console, classes: Sequence[KnownClass]) -> None:
    """Every class with its definition."""
    table(console, ("class", "what happens"), [(item.name, item.definition) for item in classes])
    prose(console, "", "splatfix explain --class NAME shows one.")


def show_class(console: Console, item: KnownClass) -> None:
    """One class: why it happens, what to do, and from where its wordings are known."""
    prose(console, "", f"[bold]{escape(item.name)}[/]: {escape(item.definition)}")
    prose(console, "  ", escape(item.why))
    prose(console, "  ", f"Fix: {escape(item.fix)}")
    if item.checks:
        prose(console, "  ", f"Predicted by: {escape(', '.join(item.checks))}")
    prose(console, "  ", f"Known by {counted(item.wordings, 'wording')}, from:")
    for source in item.sources:
        prose(console, "    ", f"[dim]{escape(source)}[/]")


def _show_lines(console: Console, title: str, lines: Sequence[str], numbers: Sequence[int]) -> None:
    if not lines:
        return
    prose(console, "  ", f"[dim]{title}:[/]")
    # the first lines that report an error come without their numbers
    for line, number in zip_longest(lines, numbers):
        head = "    "
        if number is not None:
            head += f"[dim]{number:>6}[/]  "
        prose(console, head, escape(line.strip()))


def _share(cause: FailureCause) -> str:
    return f"[dim]({100 * cause.confidence:.0f} %)[/]"


def _by_class(item: FailureCause | KnownClass) -> dict[str, Any]:
    row = to_json(item)
    return {"class": row.pop("name"), **row}
