"""Diagnosis for the terminal: the machine in a few lines, then every finding that asks for attention, with its way out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.markup import escape

from splatfix.checks.model import Finding, Goal, Status
from splatfix.core.codec import to_json
from splatfix.core.step import step_json
from splatfix.facts.model import Facts, Gpu
from splatfix.plan.ways import Ways
from splatfix.report.console import paragraph, prose, show_step
from splatfix.report.options import ways_part

MARKS = {
    Status.PASS: "[green]✓[/]",
    Status.WARN: "[yellow]![/]",
    Status.FAIL: "[bold red]✗[/]",
    Status.UNKNOWN: "[magenta]?[/]",
    Status.SKIP: "[dim]–[/]",
    Status.CRASH: "[bold red]☠[/]",
}
_LOUD = (Status.WARN, Status.FAIL, Status.UNKNOWN, Status.CRASH)


def document(facts: Facts, goal: Goal, findings: tuple[Finding, ...], options: Ways | None) -> dict[str, Any]:
    """The content of ``diagnose``'s JSON document; ``options`` is null where nothing failed."""
    return {
        "summary": counts(findings),
        "goal": to_json(goal),
        "findings": [_finding(item, facts.machine.system == "windows") for item in findings],
        "options": None if options is None else ways_part(options),
        "facts": to_json(facts),
    }


def _finding(item: Finding, windows: bool) -> dict[str, Any]:
    """A finding, its commands for the shell of the machine that was diagnosed."""
    return {**to_json(item), "remedy": [step_json(step, windows=windows) for step in item.remedy]}


def counts(findings: tuple[Finding, ...]) -> dict[str, int]:
    """How many findings have each status, in a fixed order."""
    found = Counter(finding.status for finding in findings)
    return {status.value: found[status] for status in Status}


def show(
    console: Console,
    facts: Facts,
    findings: tuple[Finding, ...],
    families: dict[str, str],
    *,
    verbose: bool = False,
) -> None:
    """Print a diagnosis.

    Args:
        families: family of each finding code, for the headings.
        verbose: also print the evidence of findings that are fine.
    """
    for name, value in _overview(facts):
        prose(console, f"[bold]{name:<13}[/]  ", escape(value))
    for family, group in groupby(findings, key=lambda finding: families.get(finding.code, "")):
        console.print(f"\n[bold]{escape(family)}[/]")
        for item in group:
            finding(console, item, verbose=verbose, windows=facts.machine.system == "windows")
    numbers = counts(findings)
    words = ", ".join(f"{count} {name}" for name, count in numbers.items() if count)
    console.print(f"\n[bold]{words}[/]")


def finding(
    console: Console, item: Finding, *, verbose: bool = False, windows: bool = os.name == "nt"
) -> None:
    """Print one finding; loud ones with their evidence and remedy."""
    code = f" [dim]{item.code}[/]" if item.status in _LOUD or verbose else ""
    prose(console, f"  {MARKS[item.status]} ", f"{escape(item.summary)}{code}")
    if item.status in _LOUD or verbose:
        for entry in item.evidence:
            via = f" [dim]({escape(entry.found_via)})[/]" if entry.found_via else ""
            said = f"[dim]{escape(entry.name)}:[/] {escape(entry.value)}{via}"
            paragraph(console, said, first=6, then=8)
    if item.status in _LOUD:
        for step in item.remedy:
            show_step(console, step, indent=6, windows=windows)
        if item.link:
            console.print(f"      [dim]{escape(item.link)}[/]", soft_wrap=True)


def _gpu(gpu: Gpu) -> str:
    if gpu.vendor != "nvidia":
        return gpu.name
    name = ", ".join(gpu.mig_devices) if gpu.mig and gpu.mig_devices else gpu.name
    return f"{name} ({gpu.cc or 'compute capability not known'})"


def _overview(facts: Facts) -> Iterator[tuple[str, str]]:
    """The machine and the environment in a few words each."""
    machine, environment = facts.machine, facts.environment
    place = " in WSL2" if machine.wsl else (f" in {machine.container}" if machine.container else "")
    yield ("system", f"{machine.distribution or machine.system} {machine.machine}{place}")
    gpus = machine.gpus.value
    names = "not known" if gpus is None else ", ".join(_gpu(gpu) for gpu in gpus) or "none"
    yield ("GPU", names)
    driver = machine.driver.value
    level = f", CUDA {driver.cuda}" if driver and driver.cuda else ""
    yield ("driver", f"{driver.version}{level}" if driver else "none")
    toolkits = ", ".join(f"{item.version or '?'} ({item.root})" for item in machine.toolkits.value or ())
    yield ("CUDA toolkits", toolkits or "none")
    interpreter, torch = environment.interpreter.value, environment.torch.value
    yield ("Python", f"{interpreter.version} ({interpreter.executable})" if interpreter else "not known")
    yield ("torch", torch.version if torch else environment.torch.error or "not known")
    extensions = [item for item in environment.extensions.value or () if item.links_torch or item.importable]
    yield ("extensions", ", ".join(item.distribution or item.path for item in extensions) or "none")
    swaps = [item.name for item in environment.distributions.value or () if item.made_by_splatfix == "swap"]
    if swaps:
        yield ("swaps", ", ".join(swaps) + " (pure PyTorch, installed by splatfix)")


def show_check_page(console: Console, code: str, family: str, title: str, page: str) -> None:
    """Print the page of one check."""
    prose(console, "", f"[bold]{code}[/] " + escape(f"({family}): {title}\n\n{page}"))
