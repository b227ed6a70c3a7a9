"""Renders a diagnosis: verdict and suggested fix first, then every finding that needs attention, then what is fine."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console

from splatfix.checks.model import Finding, Status
from splatfix.context.model import Goal
from splatfix.core.codec import to_json
from splatfix.core.step import Step, step_json
from splatfix.core.words import beginning, counted
from splatfix.facts.model import Facts
from splatfix.facts.model.machine import Gpu
from splatfix.plan.option import Options
from splatfix.report.console import escape, escape_lines, paragraph, prose, show_step, show_todo
from splatfix.report.options import show_suggestion

MARKS = {
    Status.PASS: "[green]✓[/]",
    Status.WARN: "[yellow]![/]",
    Status.FAIL: "[bold red]✗[/]",
    Status.UNKNOWN: "[magenta]?[/]",
    Status.SKIP: "[dim]–[/]",
    Status.CRASH: "[bold red]☠[/]",
}
_SECTIONS = {
    "Problems": (Status.FAIL, Status.CRASH),
    "Warnings": (Status.WARN,),
    "Not determined": (Status.UNKNOWN,),
    "Notes": (Status.SKIP,),
}


def document(
    facts: Facts, goal: Goal, findings: tuple[Finding, ...], options: Options | None
) -> dict[str, Any]:
    """The content of ``diagnose``'s JSON document; ``options`` is null where nothing failed."""
    return {
        "summary": counts(findings),
        "goal": to_json(goal),
        "findings": [_finding(item, facts.machine.system == "windows") for item in findings],
        "options": to_json(options),
        "facts": to_json(facts),
    }


def _finding(item: Finding, windows: bool) -> dict[str, Any]:
    """A finding, its commands for the shell of the machine that was diagnosed."""
    row = to_json(item)
    remedy = [step_json(step, windows=windows) for step in item.remedy]
    return {"check": row.pop("code"), **row, "remedy": remedy}


def counts(findings: tuple[Finding, ...]) -> dict[str, int]:
    """How many findings have each status, in a fixed order."""
    found = Counter(finding.status for finding in findings)
    return {status.value: found[status] for status in Status}


def show(
    console: Console,
    facts: Facts,
    findings: tuple[Finding, ...],
    *,
    options: Options | None = None,
    why: Step | None = None,
    aside: Mapping[int, str] | None = None,
    next_step: Step | None = None,
    verbose: bool = False,
) -> None:
    """Print a diagnosis: verdict and fix, then what is wrong, then what is fine.

    Args:
        options: those that answer the failures; ``why`` is the command that explains all of them.
        aside: why no program here gets a GPU, by the index of each for which that is so.
        next_step: the command to run next where nothing failed.
        verbose: also list the checks that passed, and every piece of evidence, with full paths.
    """
    windows = facts.machine.system == "windows"
    short = str if verbose else environment_paths(facts)
    _show_verdict(console, findings)
    if options is not None:
        show_suggestion(console, options, why, windows=windows)
    elif next_step is not None:
        show_step(console, next_step, indent=2, windows=windows)
    advice = options.advice if options else None
    above = {item.steps for item in advice.also_needed if item.steps} if advice else set()
    for heading, statuses in _SECTIONS.items():
        group = [item for item in findings if item.status in statuses]
        if group:
            console.print(f"\n[bold]{heading}[/]")
        for item in group:
            show_finding(console, item, short=short, windows=windows, told=item.remedy in above)
    passed = [item for item in findings if item.status is Status.PASS]
    listed = "" if verbose or not passed else " (list them with -v)"
    console.print(f"\n[bold]{counted(len(passed), 'check')} passed[/]{listed}")
    if verbose:
        for family, members in groupby(passed, key=lambda item: item.family):
            console.print(f"  [bold]{escape(family)}[/]")
            for item in members:
                show_finding(console, item, short=short, windows=windows, evidence=True)
    for name, value in _overview(facts, aside or {}):
        prose(console, f"  [bold]{name:<13}[/]  ", escape(short(value)))


def _show_verdict(console: Console, findings: tuple[Finding, ...]) -> None:
    found = Counter(item.status for item in findings)
    failed = found[Status.FAIL] + found[Status.CRASH]
    unknown = found[Status.UNKNOWN]
    rest = [counted(found[Status.WARN], "warning")] if found[Status.WARN] else []
    if failed:
        mark, word = MARKS[Status.FAIL], f"{counted(failed, 'problem')} found"
        rest += [f"{unknown} not determined"] if unknown else []
    elif unknown:
        mark, word = MARKS[Status.UNKNOWN], f"No problem found, but {counted(unknown, 'check')} undetermined"
    else:
        mark, word = MARKS[Status.PASS], "No problems found"
    prose(console, f"{mark} ", f"[bold]{', '.join([word, *rest])}[/]")


def show_finding(
    console: Console,
    item: Finding,
    *,
    short: Callable[[str], str] = str,
    windows: bool = os.name == "nt",
    evidence: bool = False,
    told: bool = False,
) -> None:
    """Print one finding; one that needs attention with its code, evidence and remedy.

    Args:
        short: shortens the paths in prose.
        evidence: print the evidence whatever the status.
        told: what to do about it was said before.
    """
    loud = item.status not in (Status.PASS, Status.SKIP)
    code = f" [dim]\\[{item.code}][/]" if loud else ""
    prose(console, f"  {MARKS[item.status]} ", f"{escape(short(item.summary))}{code}")
    for entry in item.evidence if loud or evidence else ():
        via = f" [dim]({escape(short(entry.found_via))})[/]" if entry.found_via else ""
        said = f"[dim]{escape(short(entry.name))}:[/] {escape(short(beginning(entry.value)))}{via}"
        paragraph(console, said, first=6, then=8)
    if loud:
        show_todo(console, () if told else item.remedy, indent=6, windows=windows)
        if item.link:
            console.print(f"      [dim]{escape(item.link)}[/]", soft_wrap=True)


def environment_paths(facts: Facts) -> Callable[[str], str]:
    """A function that shortens paths in prose: below the environment to its name, below its home folder to ``~``."""
    interpreter = facts.environment.interpreter.value
    if interpreter is None:
        return str
    prefix = interpreter.prefix
    folders = re.split(r"[/\\]", prefix)
    common = folders[-1].lstrip(".") in ("venv", "env")
    name = ("\\" if "\\" in prefix else "/").join(folders[-2:]) if common else folders[-1]
    home = re.match(r"(/home/[^/]+|/Users/[^/]+|/root|[A-Za-z]:\\Users\\[^\\]+)(?=[/\\])", prefix)

    def short(text: str) -> str:
        if len(folders) > 2:
            text = re.sub(rf"(?<![\w./~-]){re.escape(prefix)}(?=[/\\])", lambda _: name, text)
        if home:
            text = re.sub(rf"(?<![\w./~-]){re.escape(home[1])}(?=[/\\])", "~", text)
        return text

    return short


def _gpu(gpu: Gpu) -> str:
    if gpu.vendor != "nvidia":
        return gpu.name
    name = ", ".join(gpu.mig_devices) if gpu.mig and gpu.mig_devices else gpu.name
    return f"{name} ({gpu.cc or 'compute capability not known'})"


def _gpus(gpus: Sequence[Gpu], aside: Mapping[int, str]) -> str:
    """Those that programs get, then the others with why; equal ones are counted."""
    rows = Counter((aside.get(gpu.index, ""), _gpu(gpu)) for gpu in gpus)
    words = {row: f"{count} x {row[1]}" if count > 1 else row[1] for row, count in rows.items()}
    used = ", ".join(text for (why, _), text in words.items() if not why)
    others = [
        f"{', '.join(text for (why, _), text in words.items() if why == one)}: {one}"
        for one in dict.fromkeys(why for why, _ in rows if why)
    ]
    return "; ".join(filter(None, [used or ("none for programs here" if others else "none"), *others]))


def _overview(facts: Facts, aside: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    """The machine and the environment in a few words each."""
    machine, environment = facts.machine, facts.environment
    place = " in WSL2" if machine.wsl else (f" in {machine.container}" if machine.container else "")
    yield ("system", f"{machine.distribution or machine.system} {machine.machine}{place}")
    gpus = machine.gpus.value
    yield ("GPU", "not known" if gpus is None else _gpus(gpus, aside))
    driver = machine.driver.value
    level = f", CUDA {driver.cuda}" if driver and driver.cuda else ""
    yield ("driver", f"{driver.version}{level}" if driver else "none")
    toolkits = ", ".join(f"{item.version or '?'} ({item.root})" for item in machine.toolkits.value or ())
    yield ("CUDA toolkits", toolkits or "none")
    if environment.interpreter.absent:
        yield ("environment", "none")
        return
    interpreter, torch = environment.interpreter.value, environment.torch.value
    why = f", {environment.chosen}" if environment.chosen else ""
    yield ("Python", f"{interpreter.version} ({interpreter.executable}){why}" if interpreter else "not known")
    yield (
        "torch",
        torch.version
        if torch
        else "not installed"
        if environment.torch_installed.value is False
        else environment.torch.error or "not known",
    )
    extensions = [item for item in environment.extensions.value or () if item.links_torch or item.importable]
    owners = dict.fromkeys(item.distribution or item.path for item in extensions)
    yield ("extensions", ", ".join(owners) or "none")
    dropins = [
        item.name for item in environment.distributions.value or () if item.made_by_splatfix == "drop-in"
    ]
    if dropins:
        yield ("drop-ins", ", ".join(dropins) + " (installed by splatfix)")


def show_check_page(console: Console, code: str, family: str, title: str, page: str) -> None:
    """Print the page of one check."""
    prose(console, "", f"[bold]{code}[/] " + escape_lines(f"({family}): {title}\n\n{page}"))
