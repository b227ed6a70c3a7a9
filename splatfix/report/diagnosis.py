"""A diagnosis: verdict and suggested fix first, then every finding that needs attention, then what is fine."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from msgspec import Struct
from rich.console import Console

from splatfix.context.model import Goal
from splatfix.core.codec import to_json
from splatfix.core.step import Command, Step, commands
from splatfix.core.words import beginning, counted
from splatfix.model import Facts, Finding, Gpu, Status
from splatfix.model.option import Options
from splatfix.report.annotations import annotation
from splatfix.report.console import escape, escape_lines, marked, prose, section, show_todo, table
from splatfix.report.forms import writes
from splatfix.report.marks import Mark
from splatfix.report.options import show_suggestion

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
_LEVELS = {Status.FAIL: "error", Status.CRASH: "error", Status.WARN: "warning", Status.UNKNOWN: "notice"}
"""Of GitHub's annotations; what passed has none."""


class DiagnosisDocument(Struct, frozen=True, kw_only=True):
    """What is wrong with a machine and one environment, and what would make it right."""

    facts: Facts
    findings: tuple[Finding, ...]
    """Of every check that ran, also of those that passed."""
    goal: Goal = Goal()
    options: Options | None = None
    """What would make it right, the least invasive first; None where nothing failed."""
    why: Step | None = None
    """The command that explains all options; None where nothing failed."""
    next_steps: tuple[Step, ...] = ()
    """What to run next where nothing failed."""
    not_examined: str = ""
    """What the verdict does not cover."""
    unused_gpus: Mapping[int, str] = {}
    """Why no program here gets a GPU, by the index of each for which that is so."""

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings that failed."""
        return tuple(item for item in self.findings if item.status is Status.FAIL)

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``diagnose``'s JSON document, commands for the shell of the machine that was diagnosed."""
        windows = self.facts.machine.system == "windows"
        return {
            "summary": counts(self.findings),
            "goal": to_json(self.goal),
            "findings": [finding_json(item, windows=windows) for item in self.findings],
            "options": to_json(self.options),
            "facts": to_json(self.facts),
            "why": to_json(self.why),
            "next_steps": to_json(self.next_steps),
            "not_examined": self.not_examined,
            "unused_gpus": to_json(self.unused_gpus),
        }


def finding_json(item: Finding, *, windows: bool = os.name == "nt") -> dict[str, Any]:
    """Return a finding for a JSON document, its commands for a shell of that system."""
    row = to_json(item)
    # "check", as people select it with --only; in Python "code" is what every finding and error has
    remedy = [Step.to_json(step, windows=windows) for step in item.remedy]
    return {"check": row.pop("code"), **row, "remedy": remedy}


def counts(findings: Sequence[Finding]) -> dict[str, int]:
    """Return how many findings have each status, in a fixed order."""
    number = Counter(finding.status for finding in findings)
    return {status.value: number[status] for status in Status}


@writes(DiagnosisDocument)
def show(console: Console, document: DiagnosisDocument, *, verbose: bool = False) -> None:
    """Print verdict and fix, then what is wrong, then what is fine.

    Args:
        verbose: also list the checks that passed, and every piece of evidence, with full paths.
    """
    facts, findings, options = document.facts, document.findings, document.options
    windows = facts.machine.system == "windows"
    number = Counter(item.status for item in findings)
    failed = number[Status.FAIL] > 0
    problems, unknown = number[Status.FAIL] + number[Status.CRASH], number[Status.UNKNOWN]
    mark, verdict = Mark.GOOD, ["No problems found"]
    # Warnings never change the verdict; what is unknown does, because a check that could not look has found nothing.
    if problems:
        mark, verdict = Mark.BAD, [f"{counted(problems, 'problem')} found"]
    elif unknown:
        mark, verdict = Mark.UNKNOWN, ["No problem found in what could be told"]
    if number[Status.WARN]:
        verdict.append(counted(number[Status.WARN], "warning"))
    if unknown:
        verdict.append(f"{unknown} not determined")
    marked(console, mark, f"[bold]{', '.join(verdict)}[/]", indent=0)
    if document.not_examined:
        marked(console, Mark.NONE, escape(document.not_examined))
    if options is not None and failed:
        below = {item.summary for item in findings}
        show_suggestion(console, options, document.why, windows=windows, told_below=below)
    elif not failed:
        show_todo(console, document.next_steps, indent=2, windows=windows)

    listed = findings
    answered = False
    if not verbose and options is not None and options.advice is not None:
        # codes of what the suggested fix mends without anybody's doing
        mended, answered = options.advice.mended, True
        codes = dict.fromkeys(
            item.code for item in findings if item.code in mended and item.status is not Status.PASS
        )
        listed = tuple(item for item in findings if item.code not in codes)
        if codes:
            heading = "[bold]No problem for splatfix install[/] (other builds meet them; details with -v): "
            console.print()
            prose(console, "", heading + ", ".join(codes), hang=2)
    # a cure is told once: in the suggestion, which answers every failure, or at the first finding of it
    remedies: set[Step | Command] = set()
    short: Callable[[str], str] = str if verbose else environment_paths(facts)
    notes_left_out = failed and not verbose and number[Status.SKIP] > 0  # for who has no problem to solve
    for heading, statuses in _SECTIONS.items():
        group = [item for item in listed if item.status in statuses]
        if statuses == (Status.SKIP,) and notes_left_out:
            continue
        if group:
            section(console, heading)
        for item, *likewise in _gathered(group) if not verbose else ([item] for item in group):
            remedy: Sequence[Step] = item.remedy
            # what a note says can be done need not be
            if (answered and item.status is Status.FAIL) or (item.status is Status.SKIP and not verbose):
                remedy = ()
            elif not verbose:
                remedy = _untold(remedy, remedies)
            remedies |= {*item.remedy, *commands(item.remedy)}
            _show_headline(console, item, short)
            for other in likewise:
                marked(console, MARKS[other.status], escape(short(other.summary)))
            if item.status is not Status.SKIP:
                _show_evidence(console, item, short, brief=not verbose, others=bool(likewise))
            show_todo(console, remedy, indent=6, windows=windows)
            _show_link(console, item)

    passed = [item for item in findings if item.status is Status.PASS]
    quiet = f"{counted(len(passed), 'check')} passed"
    if notes_left_out:
        quiet += f", {counted(number[Status.SKIP], 'note')}"
    if not verbose:
        quiet += "[/] (list them with -v)"
    console.print(f"\n[bold]{quiet}")
    if verbose:
        # checks are registered family by family, so that equal ones are neighbours
        for family, members in groupby(passed, key=lambda item: item.family):
            console.print(f"  [bold]{escape(family)}[/]")
            for item in members:
                _show_headline(console, item, short)
                _show_evidence(console, item, short)
    rows = [(name, short(value)) for name, value in _overview(facts, document.unused_gpus)]
    if failed and not verbose:
        words = "; ".join(f"[bold]{name}[/] {escape(value)}" for name, value in rows)
        prose(console, "  ", words)
        return
    for name, value in rows:
        prose(console, f"  [bold]{name:<13}[/]  ", escape(value))


@writes(DiagnosisDocument, "github")
def github(document: DiagnosisDocument) -> str:
    """Return an annotation for each finding that needs attention; it names the first place that the finding names."""
    lines = []
    for item in document.findings:
        if item.status in _LEVELS:
            texts = (item.subject, item.summary, *(f"{part.name} {part.value}" for part in item.evidence))
            message = "\n".join([item.summary, *(step.line() for step in item.remedy)])
            lines.append(annotation(_LEVELS[item.status], item.code, message, texts))
    return "".join(lines)


def _gathered(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Group the findings of one check and status for which the same is to be done elsewhere."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for item in findings:
        kinds = tuple(step.command and step.command.argv[:2] for step in item.remedy)
        groups.setdefault((item.code, item.status, kinds), []).append(item)
    return list(groups.values())


def _untold(remedy: Sequence[Step], remedies: set[Step | Command]) -> list[Step]:
    """Return the steps that were not told above; those below a colon belong to it, and are told again."""
    untold, above = list[Step](), ""
    for step in remedy:
        if above.endswith(":") or not remedies & {step, step.command or step}:
            untold.append(step)
        above = step.text
    return untold


def show_finding(console: Console, item: Finding) -> None:
    """Print one finding; one that needs attention with its code, its evidence and what can be done about it."""
    _show_headline(console, item)
    if item.status not in (Status.PASS, Status.SKIP):
        _show_evidence(console, item)
    if item.status is not Status.PASS:
        show_todo(console, item.remedy, indent=6)
    _show_link(console, item)


def _show_headline(console: Console, item: Finding, short: Callable[[str], str] = str) -> None:
    headline = escape(short(item.summary))
    if item.status not in (Status.PASS, Status.SKIP):
        headline += f" [dim]\\[{item.code}][/]"
    marked(console, MARKS[item.status], headline)


def _show_link(console: Console, item: Finding) -> None:
    if item.link and item.status not in (Status.PASS, Status.SKIP):
        console.print(f"      [dim]{escape(item.link)}[/]", soft_wrap=True)


def _show_evidence(
    console: Console,
    item: Finding,
    short: Callable[[str], str] = str,
    *,
    brief: bool = False,
    others: bool = False,
) -> None:
    """Print what a finding stands on; with ``brief`` the first two facts that its summary does not say.

    Args:
        others: further findings stand above, whose evidence is left out.
    """
    shown, more = item.evidence, []
    if brief:
        text = item.summary
        new = [entry for entry in item.evidence if entry.name not in text or entry.value not in text]
        shown = tuple(new[:2])
        if new[2:]:
            more.append(f"{len(new[2:])} more")
    if others:
        more.append("evidence of the others")
    for entry in shown:
        text = f"[dim]{escape(short(entry.name))}:[/] {escape(short(beginning(entry.value)))}"
        via = f" [dim]({escape(short(entry.found_via))})[/]"
        # how it was found out is for -v where it takes a line more
        if entry.found_via and (not brief or len(text) + len(via) < console.width):
            text += via
        if more and entry is shown[-1]:
            text += f" [dim]({', '.join(more)}, with -v)[/]"
        prose(console, "      ", text, hang=8)


def environment_paths(facts: Facts) -> Callable[[str], str]:
    """Return a function that shortens paths in prose: below the environment to its name, below its home folder to ``~``."""
    interpreter = facts.environment.interpreter.value
    if interpreter is None:
        return str
    # The facts may be another machine's, of another system: neither its separator nor its home folder is ours.
    prefix = interpreter.prefix
    folders = re.split(r"[/\\]", prefix)
    name = folders[-1]
    if name.lstrip(".") in ("venv", "env"):  # every project's has this name: the project's tells them apart
        name = re.sub(r".*?([^/\\]+[/\\][^/\\]+)\Z", r"\1", prefix)
    home = re.match(r"(/home/[^/]+|/Users/[^/]+|/root|[A-Za-z]:\\Users\\[^\\]+)(?=[/\\])", prefix)

    def short(text: str) -> str:
        if len(folders) > 2:  # /usr is no environment of anyone's
            text = re.sub(rf"(?<![\w./~-]){re.escape(prefix)}(?=[/\\])", lambda _: name, text)
        if home:
            text = re.sub(rf"(?<![\w./~-]){re.escape(home[1])}(?=[/\\])", "~", text)
        return text

    return short


def _gpus(gpus: Sequence[Gpu], unused: Mapping[int, str]) -> str:
    """Return the names of those that programs get, then the others with why; equal ones are counted."""
    counts: Counter[tuple[str, str]] = Counter()
    for gpu in gpus:
        name = gpu.name
        if gpu.mig and gpu.mig_devices:  # programs get the slices, never the whole card
            name = ", ".join(gpu.mig_devices)
        if gpu.vendor == "nvidia":
            name += f" ({gpu.cc or 'compute capability not known'})"
        counts[unused.get(gpu.index, ""), name] += 1
    names_by_obstacle: dict[str, list[str]] = {"": []}
    for (obstacle, name), count in counts.items():
        names_by_obstacle.setdefault(obstacle, []).append(f"{count} x {name}".removeprefix("1 x "))
    used = ", ".join(names_by_obstacle.pop("")) or "none for programs here"
    return "; ".join([used, *(f"{', '.join(names)}: {why}" for why, names in names_by_obstacle.items())])


def _overview(facts: Facts, unused_gpus: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    """Yield what is there of the machine and the environment, in a few words each, then what is not."""
    machine, environment = facts.machine, facts.environment
    system = f"{machine.distribution or machine.system} {machine.machine}"
    if machine.wsl:
        system += " in WSL2"
    elif machine.container:
        system += f" in {machine.container}"
    yield "system", system
    absent = []
    gpus = machine.gpus.value
    if gpus is None:
        yield "GPU", "not known"
    elif gpus:
        yield "GPU", _gpus(gpus, unused_gpus)
    else:
        absent.append("GPU")
    driver = machine.driver.value
    if driver is None:
        absent.append("driver")
    else:
        yield "driver", f"{driver.version}, CUDA {driver.cuda or 'version not known'}"
    # a toolkit may lack its version.json: its folder still says which it is
    toolkits = ", ".join(f"{item.version or '?'} ({item.root})" for item in machine.toolkits.value or ())
    if toolkits:
        yield "CUDA toolkits", toolkits
    else:
        absent.append("CUDA toolkits")
    if environment.interpreter.absent:
        yield "not here", ", ".join([*absent, "environment"])
        return
    interpreter = environment.interpreter.value
    if interpreter is None:
        yield "Python", "not known"
    else:
        # where nobody named it, why it is this one
        chosen = filter(None, (f"{interpreter.version} ({interpreter.executable})", environment.chosen))
        yield "Python", ", ".join(chosen)
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
    if texts:
        yield "extensions", ", ".join(texts)
    else:
        absent.append("extensions")
    dropins = [item.name for item in distributions if item.made_by_splatfix == "drop-in"]
    if dropins:
        yield "drop-ins", ", ".join(dropins) + " (installed by splatfix)"
    if absent:
        yield "not here", ", ".join(absent)


class CheckRow(Struct, frozen=True, kw_only=True):
    """A row of ``diagnose --list``."""

    code: str
    family: str
    title: str
    page: str


class CheckPage(CheckRow, frozen=True, kw_only=True):
    """``diagnose --explain``."""

    predicts: tuple[str, ...]


class ChecksDocument(Struct, frozen=True):
    """Every check."""

    checks: tuple[CheckRow, ...]


class CheckDocument(Struct, frozen=True):
    """One check."""

    check: CheckPage


@writes(ChecksDocument)
def show_checks(console: Console, document: ChecksDocument) -> None:
    """Print a line for each check."""
    rows = [(check.code, check.family, check.title) for check in document.checks]
    table(console, ("code", "family", "what it looks at"), rows)


@writes(CheckDocument)
def show_check(console: Console, document: CheckDocument) -> None:
    """Print the page of one check."""
    check = document.check
    text = f"({check.family}): {check.title}\n\n{check.page}"
    prose(console, "", f"[bold]{check.code}[/] " + escape_lines(text))
