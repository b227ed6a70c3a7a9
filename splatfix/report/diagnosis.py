"""A diagnosis: verdict and suggested fix first, then every finding that needs attention, then what is fine."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console

from splatfix.context.model import Goal
from splatfix.core.codec import to_json
from splatfix.core.step import Step
from splatfix.core.words import beginning, counted
from splatfix.model import Facts, Finding, Status
from splatfix.model.option import Options
from splatfix.report.annotations import annotation
from splatfix.report.console import escape, marked, pairs, prose, section, show_todo, table
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
            **{name: to_json(getattr(self, name)) for name in self.__struct_fields__},
            "findings": [finding_json(item, windows=windows) for item in self.findings],
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
        verbose: also list the checks that passed, notes beside failures, and every piece of evidence.
    """
    facts, findings, options = document.facts, document.findings, document.options
    windows = facts.machine.system == "windows"
    number = Counter(item.status for item in findings)
    failed = number[Status.FAIL] > 0
    problems, unknown = number[Status.FAIL] + number[Status.CRASH], number[Status.UNKNOWN]
    mark, verdict = Mark.GOOD, ["No problems found"]
    if not findings:
        mark, verdict = Mark.UNKNOWN, ["Nothing was judged: nothing to look at here"]
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

    advice = options.advice if options and not verbose else None
    if advice is not None:
        # what the suggested fix mends without anybody's doing
        codes = [
            item.code for item in findings if item.code in advice.mended and item.status is not Status.PASS
        ]
        findings = tuple(item for item in findings if item.code not in codes)
        if codes:
            heading = "[bold]No problem for splatfix install[/] (other builds meet them; details with -v): "
            console.print()
            prose(console, "", heading + ", ".join(dict.fromkeys(codes)), hang=2)
    told = set[Step | str]()
    for heading, statuses in _SECTIONS.items():
        group = [item for item in findings if item.status in statuses]
        if not group or (heading == "Notes" and failed and not verbose):  # for who has no problem to solve
            continue
        section(console, heading)
        for item in group:
            shown = item
            if not verbose:
                shown = replace(item, evidence=item.evidence[:2])
                # a cure is told once: in the suggestion, which answers every failure, or at the first finding of it
                in_suggestion = advice is not None and item.status is Status.FAIL
                if in_suggestion or item.status is Status.SKIP or told.issuperset(item.remedy):
                    shown = replace(shown, remedy=())
                if item.code in told:
                    shown = replace(shown, evidence=(), link="")
            told |= {item.code, *item.remedy}
            show_finding(console, shown, verbose=verbose, windows=windows)

    passed = [item for item in document.findings if item.status is Status.PASS]
    console.print(
        f"\n[bold]{counted(len(passed), 'check')} passed[/]{'' if verbose else ' (list them with -v)'}"
    )
    for item in passed if verbose else ():
        show_finding(console, item, verbose=verbose, windows=windows)
    rows = _overview(facts, document.unused_gpus)
    if failed and not verbose:
        prose(console, "  ", "; ".join(f"[bold]{name}[/] {escape(value)}" for name, value in rows))
        return
    pairs(console, rows)


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


def show_finding(
    console: Console, item: Finding, *, verbose: bool = True, windows: bool = os.name == "nt"
) -> None:
    """Print one finding; one that needs attention with its code, its evidence and what can be done about it; with ``verbose``
    how each fact was found out."""
    quiet = item.status in (Status.PASS, Status.SKIP)
    code = "" if quiet else f" [dim]\\[{item.code}][/]"
    marked(console, MARKS[item.status], escape(item.summary) + code)
    for entry in item.evidence if item.status is not Status.SKIP else ():
        text = f"[dim]{escape(entry.name)}:[/] {escape(beginning(entry.value))}"
        if entry.found_via and verbose:
            text += f" [dim]({escape(entry.found_via)})[/]"
        prose(console, "      ", text, hang=8)
    show_todo(console, item.remedy, indent=6, windows=windows)
    if item.link and not quiet:
        console.print(f"      [dim]{escape(item.link)}[/]", soft_wrap=True)


def _overview(facts: Facts, unused_gpus: Mapping[int, str]) -> list[tuple[str, str]]:
    """Return what is there of the machine and the environment, in a few words each."""
    machine, environment = facts.machine, facts.environment
    place = "WSL2" if machine.wsl else machine.container
    system = f"{machine.distribution or machine.system} {machine.machine}"
    cards: Counter[str] = Counter()
    for gpu in sorted(machine.gpus.value or (), key=lambda gpu: gpu.index in unused_gpus):
        # of a card in slices programs get these, never the whole card
        name = ", ".join(gpu.mig_devices if gpu.mig else ()) or gpu.name
        if gpu.vendor == "nvidia":
            name += f" ({gpu.cc or 'compute capability not known'})"
        if why := unused_gpus.get(gpu.index):
            name += f": {why}"
        cards[name] += 1
    driver, interpreter, torch = machine.driver.value, environment.interpreter.value, environment.torch.value
    python = [f"{interpreter.version} ({interpreter.executable})"] if interpreter else []
    if environment.chosen:  # where nobody named it, why it is this one
        python.append(environment.chosen)
    # a toolkit may lack its version.json: its folder still says which it is
    toolkits = [f"{item.version or '?'} ({item.root})" for item in machine.toolkits.value or ()]
    # a plain library that lies in a package (libcudart) is no extension, unless it is one of torch's own kind
    extensions = [item for item in environment.extensions.value or () if item.links_torch or item.importable]
    distributions = environment.distributions.value or ()
    versions = {item.name: item.version for item in distributions}
    owners = dict.fromkeys(item.distribution or item.path for item in extensions)
    if "gsplat" in versions:  # also without compiled code of its own
        owners["gsplat"] = None
    named = [f"{name} {versions.get(name, '')}".rstrip() for name in owners]
    named += [f"{item.name} (drop-in)" for item in distributions if item.made_by_splatfix == "drop-in"]
    rows = {
        "system": " in ".join(filter(None, (system, place))),
        "GPU": ", ".join(f"{count} x {name}".removeprefix("1 x ") for name, count in cards.items()),
        "driver": driver and f"{driver.version}, CUDA {driver.cuda or 'version not known'}",
        "CUDA toolkits": ", ".join(toolkits),
        "Python": ", ".join(python),
        "torch": torch and torch.version,
        "extensions": ", ".join(named),
    }
    absent = [name for name, text in rows.items() if not text]
    return [(name, text) for name, text in {**rows, "not found": ", ".join(absent)}.items() if text]


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


@writes(ChecksDocument, command="diagnose list")
def show_checks(console: Console, document: ChecksDocument) -> None:
    """Print a line for each check."""
    rows = [(check.code, check.family, check.title) for check in document.checks]
    table(console, ("code", "family", "what it looks at"), rows)


@writes(CheckDocument, command="diagnose explain")
def show_check(console: Console, document: CheckDocument) -> None:
    """Print the page of one check."""
    check = document.check
    text = f"({check.family}): {check.title}\n\n{check.page}"
    prose(console, "", f"[bold]{check.code}[/] " + escape(text, lines=True))
