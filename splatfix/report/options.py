"""Renders options: the one suggested by ``diagnose``, the plan of ``install``, and all of them for ``--why``."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rich.console import Console

from splatfix.context.model import Rejected
from splatfix.core.step import Step
from splatfix.core.words import few
from splatfix.plan.option import Option, OptionKind, Options
from splatfix.plan.steps import BuildWheel, PlannedStep
from splatfix.report.console import escape, escape_lines, paragraph, prose, show_command, show_step, show_todo

_WINDOWS = os.name == "nt"


def alternatives(options: Options) -> tuple[Option, ...]:
    """The options that would do as well as the advised one.

    Those above it in the ranking would leave the failures as they are, and where what is installed serves, nothing else is
    needed.
    """
    if options.advice is None or options.advice.option is None:
        return ()
    advised = options.advice.option
    if advised.kind is OptionKind.KEEP:
        return ()
    return options.available[options.available.index(advised) + 1 :]


def show_suggestion(
    console: Console, options: Options, why: Step | None, *, windows: bool = _WINDOWS
) -> None:
    """The advised option with its steps, the alternatives by title, what else is needed, and the command that explains."""
    advice = options.advice
    if advice is None:
        return
    if advice.option is not None:
        prose(console, "[bold]Suggested fix:[/] ", escape(advice.option.title))
        show_steps(console, advice.option, windows=windows)
        others = alternatives(options)
        if others:
            titles = "; ".join(item.title for item in others)
            prose(console, "  [dim]Alternatives:[/] ", escape(titles))
    for number, item in enumerate(advice.also_needed):
        # without an option that cures it, the first failure's own remedy is the fix
        if advice.option is None and number == 0:
            prose(console, f"[bold]Suggested fix[/] for {item.code}: ", escape_lines(item.text))
        else:
            prose(console, "[bold]Also needed:[/] ", f"{escape(item.text)} [dim]\\[{item.code}][/]")
        show_todo(console, item.steps, indent=2, windows=windows)
    if options.available and why:
        show_step(console, why, indent=2, windows=windows)


def show_options(console: Console, options: Options, *, windows: bool = _WINDOWS) -> None:
    """Every available option with its steps, reasons and limits; then those that are not applicable, with why."""
    goal = ", ".join(map(str, options.targets)) or "no GPU named"
    if options.subjects:
        goal += f": {', '.join(options.subjects)}"
    if options.available:
        prose(console, "", f"[bold]Options for this machine[/] ({escape(goal)}), least invasive first")
    else:
        headline = f"[bold red]✗[/] [bold]No option available[/] ({escape(goal)}); reasons below"
        prose(console, "", headline)
    for number, option in enumerate(options.available, 1):
        prose(console, f"[bold]{number}.[/] ", f"[bold]{escape(option.title)}[/]")
        show_steps(console, option, windows=windows)
        show_reasons(console, option)
    if options.rejected:
        console.print("\n[bold]Not applicable[/]")
    # one missing toolkit rules out several options: its reason stands once
    titles_by_reason: dict[str, list[str]] = {}
    for option in options.rejected:
        titles_by_reason.setdefault(option.rejected_because, []).append(option.title)
    for reason, titles in titles_by_reason.items():
        show_rejected(console, Rejected("; ".join(titles), reason))
    show_notes(console, options.notes)


def show_steps(console: Console, option: Option, *, why: bool = False, windows: bool = _WINDOWS) -> None:
    """The steps in order, each with its command on a line of its own; what a build sets and edits, and with ``why``
    the reasons of each."""
    number = 0
    for step in option.steps:
        # a command without a text belongs to the step before, and is not counted
        if step.text:
            number += 1
            prose(console, f"  {number}. ", escape(step.text))
        if step.command:
            show_command(console, step.command, indent=5, windows=windows)
        if isinstance(step, BuildWheel):
            _show_build(console, step)
        if why and isinstance(step, PlannedStep):
            for reason in step.reasons:
                prose(console, "     [dim]because[/] ", escape(reason.text))


def show_reasons(console: Console, option: Option) -> None:
    """Why an option is what it is, what is not known about it, and how far it can be verified here."""
    for reason in option.reasons:
        prose(console, "     [dim]because[/] ", escape(reason.text))
    for text in option.unsure:
        prose(console, "     [magenta]not known:[/] ", escape(text))
    if option.proves:
        prose(console, "     [dim]verifiable here:[/] ", ", ".join(rung.value for rung in option.proves))
    rungs_by_limit: dict[str, list[str]] = {}
    for limit in option.cannot_prove:
        rungs_by_limit.setdefault(limit.why, []).append(limit.rung.value)
    for limitation, rungs in rungs_by_limit.items():
        text = f"{', '.join(rungs)} [dim]({escape(limitation)})[/]"
        prose(console, "     [dim]not verifiable here:[/] ", text)


def show_rejected(console: Console, item: Rejected) -> None:
    """What is not applicable, and why; the reason hangs under it."""
    paragraph(console, f"{escape(item.what)}: [dim]{escape(item.why)}[/]", first=2, then=4)


def show_notes(console: Console, notes: Sequence[str]) -> None:
    """What the user should know although it stops nothing."""
    for note in notes:
        prose(console, "[yellow]Note:[/] ", escape(note))


def _show_build(console: Console, step: BuildWheel) -> None:
    # shown as a shell would take them: people copy them into their own scripts
    for name, value in step.variables.items():
        console.print(f"     [cyan]{escape(name)}[/]={escape(value)}", soft_wrap=True)
    for name in step.unset:
        console.print(f"     [cyan]{escape(name)}[/] [dim]is unset[/]", soft_wrap=True)
    for edit in step.edits:
        prose(console, f"     [magenta]edit {escape(edit.rule)}[/] ", escape(few(edit.files)))
