"""Plans and options on the terminal: the one that ``diagnose`` suggests, that of ``install``, and all of them for ``--why``."""

import os
from collections.abc import Collection, Sequence

from rich.console import Console

from splatfix.core.step import Step
from splatfix.core.words import few, grouped
from splatfix.model import Considered
from splatfix.model.option import OptionKind, Options, Plan
from splatfix.model.steps import BuildWheel, InstallStep, PlannedStep
from splatfix.report.console import escape, notes, prose, show_command, show_todo

_WINDOWS = os.name == "nt"


def show_suggestion(
    console: Console,
    options: Options,
    why: Step | None,
    *,
    windows: bool = _WINDOWS,
    told_below: Collection[str] = (),
) -> None:
    """Print the advised option with its steps, what else is needed, and the others by title.

    Args:
        why: the command that explains all of them.
        told_below: summaries of failures that stand in full below: of these the code is enough.
    """
    advice = options.advice
    if advice is None:
        return
    if advice.option is not None:
        prose(console, "[bold]Suggested fix:[/] ", escape(advice.option.title))
        show_steps(console, advice.option, windows=windows)
    for item in advice.also_needed:
        # without an option that cures it, a failure's own remedy is the fix
        head = "Also needed" if advice.option else "Suggested fix"
        text = "" if item.text in told_below else f" {escape(item.text, lines=True)}"
        prose(console, "", f"[bold]{head}[/] for {item.code}:{text}", hang=2)
        show_todo(console, item.steps, indent=2, windows=windows)
    others = [
        item for item in options.available if item.kind is not OptionKind.KEEP and item != advice.option
    ]
    # where what is installed serves, nothing else is needed
    if others and not (advice.option and advice.option.kind is OptionKind.KEEP):
        prose(console, "[dim]Alternatives:[/] ", escape("; ".join(item.title for item in others)))
    if options.available and why and why.command:
        show_command(console, why.command, indent=2, windows=windows)


def show_options(console: Console, options: Options) -> None:
    """Print every available option with its steps, reasons and limits; then those that are not applicable, with why."""
    goal = ", ".join(map(str, options.targets)) or "no GPU named"
    if options.subjects:
        goal += f": {', '.join(options.subjects)}"
    head = "[bold]Options for this machine[/]"
    if not options.available:
        head = "[bold red]✗[/] [bold]No option available[/]"
    prose(console, "", f"{head} ({escape(goal)}), least invasive first")
    for number, option in enumerate(options.available, 1):
        prose(console, f"[bold]{number}.[/] ", f"[bold]{escape(option.title)}[/]")
        show_steps(console, option)
        show_reasons(console, option)
    # one missing toolkit rules out several options: its reason stands once
    reasons = grouped(options.rejected, lambda item: item.rejected_because)
    rejected = [Considered("; ".join(item.title for item in items), why) for why, items in reasons.items()]
    show_rejected(console, "\nNot applicable", rejected)
    notes(console, options.notes)


def show_steps(
    console: Console, option: Plan, *, why: bool = False, together: bool = False, windows: bool = _WINDOWS
) -> None:
    """Print the steps in order, each with its command, and what a build sets and edits.

    Args:
        why: with the reasons of each.
        together: those of one kind in a line; of several builds what they set and edit stands once.
    """
    groups: dict[object, list[Step]] = {}
    for place, step in enumerate(option.steps):
        groups.setdefault(step.kind if together and isinstance(step, InstallStep) else place, []).append(step)
    number = 0
    for steps in groups.values():
        text = steps[0].text
        if len(steps) > 1:
            text = f"{steps[0].kind}: {', '.join(str(getattr(step, 'subject', '')) for step in steps)}"
        # a command without a text belongs to the step before, and is not counted
        if text:
            number += 1
            prose(console, f"  {number}. ", escape(text))
        for step in steps:
            if step.command:
                show_command(console, step.command, indent=5, windows=windows)
        builds = [step for step in steps if isinstance(step, BuildWheel) and step.source]
        # as a shell would take them: people copy them into their own scripts
        lines = [
            f"{escape(name)}[/]={escape(value)}"
            for build in builds
            for name, value in build.variables.items()
        ]
        lines += [f"{escape(name)}[/] [dim]is unset[/]" for build in builds for name in build.unset]
        for line in dict.fromkeys(lines):
            console.print(f"     [cyan]{line}", soft_wrap=True)
        files: dict[str, list[str]] = {}
        for build in builds:
            for edit in build.edits:
                files.setdefault(edit.rule, []).extend(edit.files)
        for rule, edited in files.items():
            prose(console, f"     [magenta]edit {escape(rule)}[/] ", escape(few(list(dict.fromkeys(edited)))))
        for step in steps if why else ():
            for reason in step.reasons if isinstance(step, PlannedStep) else ():
                prose(console, "     [dim]because[/] ", escape(reason.text))


def show_reasons(console: Console, option: Plan) -> None:
    """Print why an option is what it is, what is not known about it, and how far it can be verified here."""
    for reason in option.reasons:
        prose(console, "     [dim]because[/] ", escape(reason.text))
    for text in option.unsure:
        prose(console, "     [magenta]not known:[/] ", escape(text))
    if option.proves:
        prose(console, "     [dim]verifiable here:[/] ", ", ".join(rung.value for rung in option.proves))
    for why, limits in grouped(option.cannot_prove, lambda limit: limit.why).items():
        rungs = ", ".join(limit.rung.value for limit in limits)
        prose(console, "     [dim]not verifiable here:[/] ", f"{rungs} [dim]({escape(why)})[/]")


def show_rejected(console: Console, title: str, rejected: Sequence[Considered]) -> None:
    """Print below a title what is not applicable, each with why; nothing where there is none."""
    if rejected:
        console.print(f"[bold]{title}[/]")
    for item in rejected:
        prose(console, "  ", f"{escape(item.what)}: [dim]{escape(item.why)}[/]", hang=4)
