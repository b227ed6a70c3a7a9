"""Renders options: as a JSON document, whole for ``install --dry-run --why``, and in a few lines for ``diagnose``."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape

from splatfix.context.model import Rejected
from splatfix.core.codec import to_json
from splatfix.core.step import Step
from splatfix.plan.option import Option, OptionKind, Options
from splatfix.report.console import paragraph, prose, show_step


def options_part(options: Options) -> dict[str, Any]:
    """What the documents of ``install --dry-run --why`` and ``diagnose`` hold under ``options``."""
    made: dict[str, Any] = to_json(options)
    for row, option in zip(made["available"], options.available, strict=True):
        row["manual"] = option.manual
    return made


def show_options(console: Console, options: Options) -> None:
    """Every option with its steps, reasons and what it proves; then those that are not applicable, with why."""
    goal = ", ".join(options.targets) or "no GPU named"
    what = f": {', '.join(options.subjects)}" if options.subjects else ""
    prose(console, "", f"[bold]Options[/] for this machine ({escape(goal + what)}), least invasive first")
    if not options.available:
        console.print("  No option available; reasons below")
    for number, option in enumerate(options.available, 1):
        prose(console, f"  [bold]{number}.[/] ", f"[bold]{escape(option.title)}[/]")
        _show_option(console, option)
    if options.rejected:
        console.print("[bold]Not applicable[/]")
    by_reason: dict[str, list[str]] = {}
    for option in options.rejected:
        by_reason.setdefault(option.rejected_because, []).append(option.title)
    for why, titles in by_reason.items():
        show_rejected(console, Rejected("; ".join(titles), why))
    for note in options.notes:
        prose(console, "[yellow]note[/] ", escape(note))


def show_suggestion(console: Console, options: Options, why: Step | None, *, windows: bool = False) -> None:
    """The advised option with its steps, the alternatives by title, what else is needed, and the command that explains."""
    advice = options.advice
    if advice is None:
        return
    if advice.option is not None:
        prose(console, "[bold]Suggested fix:[/] ", escape(advice.option.title))
        for step in advice.option.steps:
            show_step(console, step, indent=5, windows=windows)
        # an option above it would leave the failures as they are; where what is here serves, none below it is needed
        below = options.available[options.available.index(advice.option) + 1 :]
        others = () if advice.option.kind is OptionKind.KEEP else below
        if others:
            prose(console, "  [dim]Alternatives:[/] ", escape("; ".join(item.title for item in others)))
    for number, item in enumerate(advice.also_needed):
        opening = "Also needed" if advice.option is not None or number else "Suggested fix"
        prose(console, f"[bold]{opening}:[/] ", escape(f"{item.code}: {item.text}"))
        for step in item.steps:
            show_step(console, step, indent=5, windows=windows)
    if options.available and why:
        show_step(console, why, indent=2, windows=windows)


def show_rejected(console: Console, item: Rejected) -> None:
    """What is not applicable, and why; the reason stands in under it."""
    paragraph(console, f"{escape(item.what)}: [dim]{escape(item.why)}[/]", first=2, then=4)


def _show_option(console: Console, option: Option) -> None:
    for step in option.steps:
        show_step(console, step, indent=5)
    for reason in option.reasons:
        prose(console, "       [dim]because[/] ", escape(reason.text))
    for text in option.unsure:
        prose(console, "       [magenta]not known[/] ", escape(text))
    proves = ", ".join(rung.value for rung in option.proves)
    prose(console, "       [dim]verifiable here:[/] ", proves)
    for why in dict.fromkeys(limit.why for limit in option.cannot_prove):
        rungs = ", ".join(limit.rung.value for limit in option.cannot_prove if limit.why == why)
        prose(console, "       [dim]not verifiable here:[/] ", f"{rungs} [dim]({escape(why)})[/]")
