"""Renders options: the one suggested by ``diagnose``, the plan of ``install``, and all of them for ``--why``."""

import os
from collections.abc import Collection, Iterator, Sequence

from rich.console import Console

from splatfix.core.step import Step
from splatfix.core.words import few
from splatfix.model import Considered
from splatfix.model.option import OptionKind, Options, Plan
from splatfix.model.steps import BuildWheel, InstallWheel, MakeDropin, PlannedStep
from splatfix.report.console import escape, escape_lines, paragraph, prose, show_command, show_todo

_WINDOWS = os.name == "nt"


def show_suggestion(
    console: Console,
    options: Options,
    why: Step | None,
    *,
    windows: bool = _WINDOWS,
    told_below: Collection[str] = (),
) -> None:
    """The advised option with its steps, what else is needed (by its code where its summary is ``told_below`` in full), and
    the others by title with the command that explains."""
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
        head = "Also needed"
        if advice.option is None and number == 0:
            head = "Suggested fix"
        text = "" if item.text in told_below else f" {escape_lines(item.text)}"
        paragraph(console, f"[bold]{head}[/] for {item.code}:{text}", first=0, then=2)
        show_todo(console, item.steps, indent=2, windows=windows)
    # where what is installed serves, nothing else is needed
    if others and not (advice.option and advice.option.kind is OptionKind.KEEP):
        label = "Alternatives" if advice.option else "Options here"
        prose(console, f"[dim]{label}:[/] ", escape("; ".join(item.title for item in others)))
    if options.available and why and why.command:
        show_command(console, why.command, indent=2, windows=windows)


def show_options(console: Console, options: Options) -> None:
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
        show_steps(console, option)
        show_reasons(console, option)
    if options.rejected:
        console.print("\n[bold]Not applicable[/]")
    # one missing toolkit rules out several options: its reason stands once
    titles_by_reason: dict[str, list[str]] = {}
    for rejected in options.rejected:
        titles_by_reason.setdefault(rejected.rejected_because, []).append(rejected.title)
    for reason, titles in titles_by_reason.items():
        show_rejected(console, Considered("; ".join(titles), reason))
    show_notes(console, options.notes)


def show_steps(console: Console, option: Plan, *, why: bool = False, windows: bool = _WINDOWS) -> None:
    """The steps in order, each with its command; what a build sets and edits, and with ``why`` the reasons of each."""
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


def show_phases(console: Console, option: Plan, *, lines: bool = True) -> None:
    """The steps, those of one kind together; what all builds set stands once, with ``lines`` each on a line of its own."""
    by_kind: dict[str, list[Step]] = {}
    for step in option.steps:
        kind = step.text
        if isinstance(step, PlannedStep) and step.kind in _TOGETHER:
            kind = step.kind
        by_kind.setdefault(kind, []).append(step)
    for number, steps in enumerate(by_kind.values(), 1):
        prose(console, f"  {number}. ", escape(_phase(steps, option.subjects)))
        builds = [step for step in steps if isinstance(step, BuildWheel)]
        if builds and not lines:
            # whatever builds set, in one paragraph, and the names of their edits
            settings = dict.fromkeys(
                f"{name}={value}" for build in builds for name, value in build.variables.items()
            )
            paragraph(console, escape(" ".join(settings)), first=5, then=5)
            edits = dict.fromkeys(edit.rule for build in builds for edit in build.edits)
            if edits:
                prose(console, "     [magenta]edits[/] ", escape(f"{', '.join(edits)} (files, with -v)"))
        elif len(builds) == 1:
            _show_build(console, builds[0])
        elif builds:
            # each variable once, with whose it is where not all have it; each edit once, with the files of all
            subjects_by_setting: dict[str, list[str]] = {}
            files_by_rule: dict[str, list[str]] = {}
            for build in builds:
                for setting in _settings(build):
                    subjects_by_setting.setdefault(setting, []).append(build.subject)
                for edit in build.edits:
                    files = (f"{build.subject}/{name}" for name in edit.files)
                    files_by_rule.setdefault(edit.rule, []).extend(files)
            for setting, subjects in subjects_by_setting.items():
                whose = "" if len(subjects) == len(builds) else f"{escape(few(subjects))}: "
                console.print(f"     {whose}{setting}", soft_wrap=True)
            for rule, edited in files_by_rule.items():
                prose(console, f"     [magenta]edit {escape(rule)}[/] ", escape(few(edited, most=2)))


_TOGETHER = {"build-wheel", "make-drop-in", "verify-wheel", "install-wheel", "check-import"}


def _phase(steps: Sequence[Step], every: Sequence[str]) -> str:
    """What steps of one kind do, with their names where they are not those of all."""
    first = steps[0]
    if len(steps) == 1:
        return first.text
    subjects = [getattr(step, "subject", "") for step in steps]
    names = ", ".join(subjects)
    if subjects == list(every):
        names = "each of them"
    if isinstance(first, MakeDropin):
        dropins = [step for step in steps if isinstance(step, MakeDropin) and step.variant]
        variants = [f"{step.subject} as {step.variant}" for step in dropins]
        if not variants:
            return "make the drop-ins"
        return f"make the drop-ins, {', '.join(variants)}"
    if isinstance(first, BuildWheel):
        return f"build {names} from a scratch copy"
    if isinstance(first, InstallWheel):
        text = f"install {names}"
        replaced = [step for step in steps if isinstance(step, InstallWheel) and step.replaces]
        if replaced:
            text += f" ({len(replaced)} in place of another version, which is backed up)"
        return text
    return first.text.replace(subjects[0], names, 1)


def show_reasons(console: Console, option: Plan) -> None:
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


def show_rejected(console: Console, item: Considered) -> None:
    """What is not applicable, and why; the reason hangs under it."""
    paragraph(console, f"{escape(item.what)}: [dim]{escape(item.why)}[/]", first=2, then=4)


def show_notes(console: Console, notes: Sequence[str], indent: int = 0) -> None:
    """What the user should know although it stops nothing."""
    for note in notes:
        prose(console, f"{' ' * indent}[yellow]Note:[/] ", escape(note))


def _show_build(console: Console, step: BuildWheel) -> None:
    for setting in _settings(step):
        console.print(f"     {setting}", soft_wrap=True)
    for edit in step.edits:
        prose(console, f"     [magenta]edit {escape(edit.rule)}[/] ", escape(few(edit.files)))


def _settings(step: BuildWheel) -> Iterator[str]:
    """Its variables as a shell would take them: people copy them into their own scripts."""
    for name, value in step.variables.items():
        yield f"[cyan]{escape(name)}[/]={escape(value)}"
    for name in step.unset:
        yield f"[cyan]{escape(name)}[/] [dim]is unset[/]"
