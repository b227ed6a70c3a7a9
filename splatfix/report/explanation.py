"""The causes of a failed command: for people, as the content of a JSON document, and as lines of JSON for many logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from splatfix.core.step import Step, step_json
from splatfix.core.words import counted
from splatfix.explain.model import SURE, Explanation, FailureCause, KnownClass
from splatfix.report.console import escape, prose, show_step, show_todo, table

_ALSO = 3
"""Causes below the first that are named."""


def causes_json(found: Explanation) -> list[dict[str, Any]]:
    """The causes as JSON, ranked."""
    return [_cause_json(cause) for cause in found.causes]


def document(
    found: Explanation | None,
    *,
    collect: Sequence[Step] = (),
    facts: str = "",
    command_exit_code: int | None = None,
    classes: Sequence[KnownClass] = (),
) -> dict[str, Any]:
    """Content of the document of ``explain``.

    Args:
        found: None where no log was read, or the command that was run succeeded.
        collect: what to collect where nothing is recognised.
        facts: where the facts come from that were used; "" where none were.
        classes: those that ``--list`` or ``--class`` asked for.
    """
    return {
        "recognised": found is not None and found.recognised,
        "causes": causes_json(found) if found else [],
        "first_error": list(found.first_error) if found else [],
        "collect": [step_json(step) for step in collect],
        "facts": facts,
        "lines_read": found.lines_read if found else 0,
        "bytes_read": found.bytes_read if found else 0,
        "command_exit_code": command_exit_code,
        "classes": [_class_json(item) for item in classes],
    }


def show(console: Console, found: Explanation, collect: Sequence[Step]) -> None:
    """The first cause with its lines, its reason and its fix; what else is possible; or what to collect."""
    if not found.recognised:
        prose(
            console,
            "",
            "[bold yellow]Not recognised[/]: no known cause fits this log well enough to name it.",
        )
        _show_lines(console, "The first error that it reports", found.first_error, ())
        for cause in found.causes[:_ALSO]:
            prose(console, "  ", f"possible: {_named(cause)} {escape(cause.why)}")
        show_todo(console, collect, indent=2)
        return
    first = found.causes[0]
    prose(console, "", f"[bold red]{escape(first.name)}[/] {_share(first)}: {escape(first.why)}")
    _show_lines(console, "Shown by", first.lines, first.line_numbers)
    for step in first.fix:
        show_step(console, step, indent=2)
    for cause in found.causes[1 : _ALSO + 1]:
        if cause.consequence_of:
            text = f"a consequence of {cause.consequence_of}: {_named(cause)}"
            prose(console, "  ", f"[dim]{text}[/]")
        elif cause.confidence >= SURE / 2:
            prose(console, "  ", f"also possible: {_named(cause)} {escape(cause.why)}")


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
    for at, line in enumerate(lines):
        head = f"    [dim]{numbers[at]:>6}[/]  " if at < len(numbers) else "    "
        prose(console, head, escape(line.strip()))


def _named(cause: FailureCause) -> str:
    return f"{escape(cause.name)} {_share(cause)}."


def _share(cause: FailureCause) -> str:
    return f"[dim]({100 * cause.confidence:.0f} %)[/]"


def _cause_json(cause: FailureCause) -> dict[str, Any]:
    return {
        "class": cause.name,
        "confidence": cause.confidence,
        "lines": list(cause.lines),
        "line_numbers": list(cause.line_numbers),
        "why": cause.why,
        "fix": [step_json(step) for step in cause.fix],
        "consequence_of": cause.consequence_of,
    }


def _class_json(item: KnownClass) -> Mapping[str, Any]:
    return {
        "class": item.name,
        "definition": item.definition,
        "why": item.why,
        "fix": item.fix,
        "checks": list(item.checks),
        "wordings": item.wordings,
        "sources": list(item.sources),
    }
