"""Renders a diagnosis: verdict and suggested fix first, then every finding that needs attention, then what is fine."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Console

from splatfix.core.step import Command, Step, commands, say
from splatfix.core.words import beginning, counted
from splatfix.model import Facts, Finding, Gpu, Status
from splatfix.report.console import escape, escape_lines, marked, paragraph, prose, section, show_todo
from splatfix.report.marks import Mark

if TYPE_CHECKING:
    from splatfix.model.option import Options

MARKS = {
    Status.PASS: Mark.GOOD,
    Status.WARN: Mark.WARNING,
    Status.FAIL: Mark.BAD,
    Status.UNKNOWN: Mark.UNKNOWN,
    Status.SKIP: Mark.NONE,
    Status.CRASH: Mark.CRASH,
}
_SECTIONS = {
    "Problems": (Status.FAIL, Status.CRASH),
    "Warnings": (Status.WARN,),
    "Not determined": (Status.UNKNOWN,),
    "Notes": (Status.SKIP,),
}


def show(
    console: Console,
    facts: Facts,
    findings: tuple[Finding, ...],
    *,
    options: Options | None = None,
    why: Step | None = None,
    aside: Mapping[int, str] | None = None,
    next_steps: Sequence[Step] = (),
    note: str = "",
    verbose: bool = False,
) -> None:
    """Print a diagnosis: verdict and fix, then what is wrong, then what is fine.

    Args:
        options: those that answer the failures; ``why`` is the command that explains all of them.
        aside: why no program here gets a GPU, by the index of each for which that is so.
        note: what the verdict does not cover.
        verbose: also list the checks that passed, and every piece of evidence, with full paths.
    """
    windows = facts.machine.system == "windows"
    short: Callable[[str], str] = str
    if not verbose:
        short = environment_paths(facts)
    _show_verdict(console, findings)
    if note:
        marked(console, Mark.NONE, escape(note))
    failed = any(item.status is Status.FAIL for item in findings)
    if options is not None and failed:
        # of no use where nothing failed, and a tenth of the time of a diagnosis: it knows all of plan
        from splatfix.report.options import show_suggestion

        show_suggestion(
            console, options, why, windows=windows, told_below={item.summary for item in findings}
        )
    elif not failed:
        show_todo(console, next_steps, indent=2, windows=windows)

    # codes of what the suggested fix mends without anybody's doing
    mended = options.advice.mended if options and options.advice else ()
    codes = dict.fromkeys(
        item.code for item in findings if item.code in mended and item.status is not Status.PASS
    )
    if codes and not verbose:
        heading = "[bold]No problem for splatfix install[/] (other builds meet them; details with -v): "
        console.print()
        paragraph(console, heading + ", ".join(codes), first=0, then=2)
    # a cure is told once: in the suggestion, which answers every failure, or at the first finding of it; below a colon again
    told: set[Step | Command] = set()
    answered = options is not None and options.advice is not None and not verbose
    left_out = 0
    for heading, statuses in _SECTIONS.items():
        group = [item for item in findings if item.status in statuses]
        if not verbose:
            group = [item for item in group if item.code not in codes]
        # notes are for who has no problem to solve
        if statuses == (Status.SKIP,) and failed and not verbose:
            left_out = len(group)
            continue
        if group:
            section(console, heading)
        for item, likewise in _gathered(group, together=not verbose):
            remedy = item.remedy
            # what a note says can be done need not be
            if (answered and item.status is Status.FAIL) or (item.status is Status.SKIP and not verbose):
                remedy = ()
            elif not verbose:
                pairs = zip(remedy, (say(""), *remedy), strict=False)
                remedy = tuple(
                    own for own, up in pairs if up.text[-1:] == ":" or not told & {own, own.command or own}
                )
            told |= {*item.remedy, *commands(item.remedy)}
            show_finding(
                console,
                item,
                short=short,
                windows=windows,
                remedy=remedy,
                likewise=likewise,
                most=None if verbose else 2,
            )

    passed = [item for item in findings if item.status is Status.PASS]
    parts = [f"{counted(len(passed), 'check')} passed"]
    if left_out:
        parts.append(counted(left_out, "note"))
    hint = ""
    if (passed or left_out) and not verbose:
        hint = " (list them with -v)"
    console.print(f"\n[bold]{', '.join(parts)}[/]{hint}")
    if verbose:
        # checks are registered family by family, so that equal ones are neighbours
        for family, members in groupby(passed, key=lambda item: item.family):
            console.print(f"  [bold]{escape(family)}[/]")
            for item in members:
                show_finding(console, item, short=short, windows=windows, evidence=True)
    overview = list(_overview(facts, aside or {}))
    nothing = ", ".join(name for name, value in overview if value == "none")
    in_line = failed and not verbose
    overview.append(("no" if in_line else "none", nothing))
    rows = [(name, short(value)) for name, value in overview if value not in ("", "none")]
    if in_line:
        words = "; ".join(f"[bold]{name}[/] {escape(value)}" for name, value in rows)
        paragraph(console, words, first=2, then=2)
        return
    for name, value in rows:
        prose(console, f"  [bold]{name:<13}[/]  ", escape(value))


def _gathered(findings: Sequence[Finding], *, together: bool) -> list[tuple[Finding, tuple[Finding, ...]]]:
    """The findings, each with those of the same check and status for which the same is to be done elsewhere."""
    if not together:
        return [(item, ()) for item in findings]
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for item in findings:
        kinds = tuple(step.command and step.command.argv[:2] for step in item.remedy)
        groups.setdefault((item.code, item.status, kinds), []).append(item)
    return [(first, tuple(others)) for first, *others in groups.values()]


def _show_verdict(console: Console, findings: tuple[Finding, ...]) -> None:
    number = Counter(item.status for item in findings)
    failed = number[Status.FAIL] + number[Status.CRASH]
    unknown = number[Status.UNKNOWN]
    # Warnings never change the verdict; what is unknown does, because a check that could not look has found nothing.
    if failed:
        mark, parts = Mark.BAD, [f"{counted(failed, 'problem')} found"]
    elif unknown:
        mark, parts = Mark.UNKNOWN, [f"No problem found, but {counted(unknown, 'check')} undetermined"]
    else:
        mark, parts = Mark.GOOD, ["No problems found"]
    if number[Status.WARN]:
        parts.append(counted(number[Status.WARN], "warning"))
    if failed and unknown:
        parts.append(f"{unknown} not determined")
    marked(console, mark, f"[bold]{', '.join(parts)}[/]", indent=0)


def show_finding(
    console: Console,
    item: Finding,
    *,
    short: Callable[[str], str] = str,
    windows: bool = os.name == "nt",
    evidence: bool = False,
    remedy: Sequence[Step] | None = None,
    likewise: Sequence[Finding] = (),
    most: int | None = None,
) -> None:
    """Print one finding; one that needs attention with its code and evidence, and what can be done about it (None: all of it).
    Of others ``likewise`` only the summary is printed, and so many pieces of evidence at ``most``."""
    needs_attention = item.status not in (Status.PASS, Status.SKIP)
    headline = escape(short(item.summary))
    if needs_attention:
        headline += f" [dim]\\[{item.code}][/]"
    marked(console, MARKS[item.status], headline)
    for other in likewise:
        marked(console, MARKS[other.status], escape(short(other.summary)))
    if needs_attention or evidence:
        new = item.evidence
        if most is not None:
            said = item.summary
            new = tuple(entry for entry in new if entry.name not in said or entry.value not in said)
        hidden = 0
        if most is not None:
            hidden = len(new[most:])
        more = [f"{hidden} more" if hidden else "", "evidence of the others" if likewise else ""]
        for number, entry in enumerate(new[:most], 1):
            text = f"[dim]{escape(short(entry.name))}:[/] {escape(short(beginning(entry.value)))}"
            via = f" [dim]({escape(short(entry.found_via))})[/]" if entry.found_via else ""
            # how it was found out is for -v where it takes a line more
            if most is None or len(text) + len(via) < console.width:
                text += via
            if number == len(new[:most]) and any(more):
                text += f" [dim]({', '.join(filter(None, more))}, with -v)[/]"
            paragraph(console, text, first=6, then=8)
    if item.status is not Status.PASS:
        show_todo(console, item.remedy if remedy is None else remedy, indent=6, windows=windows)
    if item.link and needs_attention:
        console.print(f"      [dim]{escape(item.link)}[/]", soft_wrap=True)


def environment_paths(facts: Facts) -> Callable[[str], str]:
    """A function that shortens paths in prose: below the environment to its name, below its home folder to ``~``."""
    interpreter = facts.environment.interpreter.value
    if interpreter is None:
        return str
    # The facts may be another machine's, of another system: neither its separator nor its home folder is ours.
    prefix = interpreter.prefix
    separator = "\\" if "\\" in prefix else "/"
    folders = re.split(r"[/\\]", prefix)
    name = folders[-1]
    if name.lstrip(".") in ("venv", "env"):  # every project's has this name: the project's tells them apart
        name = separator.join(folders[-2:])
    home = re.match(r"(/home/[^/]+|/Users/[^/]+|/root|[A-Za-z]:\\Users\\[^\\]+)(?=[/\\])", prefix)

    def short(text: str) -> str:
        if len(folders) > 2:  # /usr is no environment of anyone's
            text = re.sub(rf"(?<![\w./~-]){re.escape(prefix)}(?=[/\\])", lambda _: name, text)
        if home:
            text = re.sub(rf"(?<![\w./~-]){re.escape(home[1])}(?=[/\\])", "~", text)
        return text

    return short


def _gpus(gpus: Sequence[Gpu], aside: Mapping[int, str]) -> str:
    """Those that programs get, then the others with why; equal ones are counted."""
    counts: Counter[tuple[str, str]] = Counter()
    for gpu in gpus:
        name = gpu.name
        if gpu.mig and gpu.mig_devices:  # programs get the slices, never the whole card
            name = ", ".join(gpu.mig_devices)
        if gpu.vendor == "nvidia":
            name += f" ({gpu.cc or 'compute capability not known'})"
        counts[aside.get(gpu.index, ""), name] += 1
    names_by_obstacle: dict[str, list[str]] = {}
    for (obstacle, name), count in counts.items():
        if count > 1:
            name = f"{count} x {name}"
        names_by_obstacle.setdefault(obstacle, []).append(name)
    used = ", ".join(names_by_obstacle.pop("", []))
    others = [f"{', '.join(names)}: {obstacle}" for obstacle, names in names_by_obstacle.items()]
    if not used:
        used = "none for programs here" if others else "none"
    return "; ".join([used, *others])


def _overview(facts: Facts, aside: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    """The machine and the environment in a few words each."""
    machine = facts.machine
    system = f"{machine.distribution or machine.system} {machine.machine}"
    if machine.wsl:
        system += " in WSL2"
    elif machine.container:
        system += f" in {machine.container}"
    yield "system", system
    gpus = machine.gpus.value
    if gpus is None:
        yield "GPU", "not known"
    else:
        yield "GPU", _gpus(gpus, aside)
    driver = machine.driver.value
    if driver is None:
        yield "driver", "none"
    elif driver.cuda:
        yield "driver", f"{driver.version}, CUDA {driver.cuda}"
    else:
        yield "driver", str(driver.version)
    # a toolkit may lack its version.json: its folder still says which it is
    toolkits = ", ".join(f"{item.version or '?'} ({item.root})" for item in machine.toolkits.value or ())
    yield "CUDA toolkits", toolkits or "none"
    yield from _environment_overview(facts)


def _environment_overview(facts: Facts) -> Iterator[tuple[str, str]]:
    environment = facts.environment
    if environment.interpreter.absent:
        yield "environment", "none"
        return
    interpreter = environment.interpreter.value
    if interpreter is None:
        yield "Python", "not known"
    else:
        text = f"{interpreter.version} ({interpreter.executable})"
        if environment.chosen:  # nobody named it: why it is this one
            text += f", {environment.chosen}"
        yield "Python", text
    if environment.torch.value:
        yield "torch", environment.torch.value.version
    elif environment.torch_installed.value is False:  # not installed is a fact; unreadable is an error
        yield "torch", "not installed"
    else:
        yield "torch", environment.torch.error or "not known"
    # a plain library that lies in a package (libcudart) is no extension, unless it is one of torch's own kind
    extensions = [item for item in environment.extensions.value or () if item.links_torch or item.importable]
    owners = dict.fromkeys(item.distribution or item.path for item in extensions)
    distributions = environment.distributions.value or ()
    versions = {item.name: item.version for item in distributions}
    texts = [f"{name} {versions.get(name, '')}".rstrip() for name in owners]
    if "gsplat" in versions and "gsplat" not in owners:
        texts.append(f"gsplat {versions['gsplat']} (without compiled code of its own)")
    yield "extensions", ", ".join(texts) or "none"
    dropins = [item.name for item in distributions if item.made_by_splatfix == "drop-in"]
    if dropins:
        yield "drop-ins", ", ".join(dropins) + " (installed by splatfix)"


def show_check_page(console: Console, code: str, family: str, title: str, page: str) -> None:
    """Print the page of one check."""
    prose(console, "", f"[bold]{code}[/] " + escape_lines(f"({family}): {title}\n\n{page}"))
