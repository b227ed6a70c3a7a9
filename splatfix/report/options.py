"""Plans and options on the terminal: the one that ``diagnose`` suggests, that of ``install``, and all of them for ``--why``."""

import os
from collections.abc import Collection, Mapping, Sequence

from rich.console import Console

from splatfix.core.step import Step
from splatfix.core.words import few
from splatfix.model import Considered
from splatfix.model.option import OptionKind, Options, Plan
from splatfix.model.steps import BuildWheel, PlannedStep
from splatfix.report.console import escape, escape_lines, notes, prose, show_command, show_todo

_WINDOWS = os.name == "nt"
_TOGETHER: Mapping[str, str] = {
    "build-wheel": "build from scratch copies",
    "make-drop-in": "make the drop-ins",
    "verify-wheel": "verify GPU code, tags and symbols",
    "install-wheel": "install, with a backup of what it replaces",
    "check-import": "import in a child of the target interpreter",
}
"""Kinds of steps of which several are told as one."""


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
    others = [item for item in options.available if item.kind is not OptionKind.KEEP]
    if advice.option is not None:
        prose(console, "[bold]Suggested fix:[/] ", escape(advice.option.title))
        show_steps(console, advice.option, windows=windows)
        others = [item for item in others if item != advice.option]
    for number, item in enumerate(advice.also_needed):
        # without an option that cures it, the first failure's own remedy is the fix
        head = "[bold]Also needed[/]"
        if advice.option is None and number == 0:
            head = "[bold]Suggested fix[/]"
        head += f" for {item.code}:"
        if item.text not in told_below:
            head += f" {escape_lines(item.text)}"
        prose(console, "", head, hang=2)
        show_todo(console, item.steps, indent=2, windows=windows)
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
    if options.available:
        prose(console, "", f"[bold]Options for this machine[/] ({escape(goal)}), least invasive first")
    else:
        headline = f"[bold red]✗[/] [bold]No option available[/] ({escape(goal)}); reasons below"
        prose(console, "", headline)
    for number, option in enumerate(options.available, 1):
        prose(console, f"[bold]{number}.[/] ", f"[bold]{escape(option.title)}[/]")
        show_steps(console, option)
        show_reasons(console, option)
    # one missing toolkit rules out several options: its reason stands once
    titles_by_reason: dict[str, list[str]] = {}
    for item in options.rejected:
        titles_by_reason.setdefault(item.rejected_because, []).append(item.title)
    rejected = [Considered("; ".join(titles), reason) for reason, titles in titles_by_reason.items()]
    show_rejected(console, "\nNot applicable", rejected)
    notes(console, options.notes)


def show_steps(console: Console, option: Plan, *, why: bool = False, windows: bool = _WINDOWS) -> None:
    """Print the steps in order, each with its command; what a build sets and edits, and with ``why`` the reasons of each."""
    number = 0
    for step in option.steps:
        # a command without a text belongs to the step before, and is not counted
        if step.text:
            number += 1
            prose(console, f"  {number}. ", escape(step.text))
        if step.command:
            show_command(console, step.command, indent=5, windows=windows)
        if isinstance(step, BuildWheel) and step.source:
            _show_build(console, step)
        if why and isinstance(step, PlannedStep):
            for reason in step.reasons:
                prose(console, "     [dim]because[/] ", escape(reason.text))


def show_phases(console: Console, option: Plan) -> None:
    """Print the steps, those of one kind together; of several builds what they set and edit stands once."""
    by_kind: dict[str, list[Step]] = {}
    for step in option.steps:
        key = step.kind if step.kind in _TOGETHER else step.text
        by_kind.setdefault(key, []).append(step)
    for number, (kind, steps) in enumerate(by_kind.items(), 1):
        text = steps[0].text
        if len(steps) > 1 and kind in _TOGETHER:
            text = f"{_TOGETHER[kind]}: {', '.join(_named(step) for step in steps)}"
        prose(console, f"  {number}. ", escape(text))
        builds = [step for step in steps if isinstance(step, BuildWheel)]
        if len(builds) == 1:
            _show_build(console, builds[0])
        elif builds:
            every = (f"{name}={value}" for build in builds for name, value in build.variables.items())
            prose(console, "     ", escape(" ".join(dict.fromkeys(every))))
            edits = dict.fromkeys(edit.rule for build in builds for edit in build.edits)
            if edits:
                prose(console, "     [magenta]edits[/] ", escape(f"{', '.join(edits)} (files, with -v)"))


def _named(step: Step) -> str:
    """Return what a step is about: ``simple_knn``, ``diff_gaussian_rasterization as mip``, ``gsplat in place of 1.4.0``."""
    name = str(getattr(step, "subject", ""))
    if variant := getattr(step, "variant", ""):
        name += f" as {variant}"
    if replaces := getattr(step, "replaces", ""):
        name += f" in place of {replaces}"
    return name


def show_reasons(console: Console, option: Plan) -> None:
    """Print why an option is what it is, what is not known about it, and how far it can be verified here."""
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


def show_rejected(console: Console, title: str, rejected: Sequence[Considered]) -> None:
    """Print below a title what is not applicable, each with why; nothing where there is none."""
    if rejected:
        console.print(f"[bold]{title}[/]")
    for item in rejected:
        prose(console, "  ", f"{escape(item.what)}: [dim]{escape(item.why)}[/]", hang=4)


def _show_build(console: Console, step: BuildWheel) -> None:
    # as a shell would take them: people copy them into their own scripts
    for name, value in step.variables.items():
        console.print(f"     [cyan]{escape(name)}[/]={escape(value)}", soft_wrap=True)
    for name in step.unset:
        console.print(f"     [cyan]{escape(name)}[/] [dim]is unset[/]", soft_wrap=True)
    for edit in step.edits:
        prose(console, f"     [magenta]edit {escape(edit.rule)}[/] ", escape(few(edit.files)))
