"""Diagnosis for the terminal: the machine in a few lines, then every finding that asks for attention, with its way out."""

from __future__ import annotations

from itertools import groupby

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from splatfix.checks.model import Finding, Remedy, Status
from splatfix.facts.model import Facts, Gpu
from splatfix.report.document import counts

MARKS = {
    Status.PASS: "[green]✓[/]",
    Status.WARN: "[yellow]![/]",
    Status.FAIL: "[bold red]✗[/]",
    Status.UNKNOWN: "[magenta]?[/]",
    Status.SKIP: "[dim]–[/]",
    Status.CRASH: "[bold red]☠[/]",
}
_LOUD = (Status.WARN, Status.FAIL, Status.UNKNOWN, Status.CRASH)


def diagnosis(
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
    console.print(_overview(facts))
    for family, group in groupby(findings, key=lambda finding: families.get(finding.code, "")):
        console.print(f"\n[bold]{escape(family)}[/]")
        for item in group:
            finding(console, item, verbose=verbose)
    numbers = counts(findings)
    words = ", ".join(f"{count} {name}" for name, count in numbers.items() if count)
    console.print(f"\n[bold]{words}[/]")


def finding(console: Console, item: Finding, *, verbose: bool = False) -> None:
    """Print one finding; loud ones with their evidence and remedy."""
    code = f" [dim]{item.code}[/]" if item.status in _LOUD or verbose else ""
    console.print(f"  {MARKS[item.status]} {escape(item.summary)}{code}", soft_wrap=True)
    if item.status in _LOUD or verbose:
        for entry in item.evidence:
            via = f" [dim]({escape(entry.found_via)})[/]" if entry.found_via else ""
            console.print(f"      [dim]{escape(entry.name)}:[/] {escape(entry.value)}{via}", soft_wrap=True)
    if item.status in _LOUD:
        for step in item.remedy:
            console.print(f"      {_remedy(step)}", soft_wrap=True)
        if item.link:
            console.print(f"      [dim]{escape(item.link)}[/]", soft_wrap=True)


def _gpu(gpu: Gpu) -> str:
    if gpu.vendor != "nvidia":
        return gpu.name
    name = ", ".join(gpu.mig_devices) if gpu.mig and gpu.mig_devices else gpu.name
    return f"{name} ({gpu.cc or 'compute capability not known'})"


def _remedy(step: Remedy) -> str:
    return f"[cyan]$ {escape(step.text)}[/]" if step.command else f"[cyan]→[/] {escape(step.text)}"


def _overview(facts: Facts) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    machine, environment = facts.machine, facts.environment
    place = " in WSL2" if machine.wsl else (f" in {machine.container}" if machine.container else "")
    table.add_row("system", escape(f"{machine.distribution or machine.system} {machine.machine}{place}"))
    gpus = machine.gpus.value
    names = "not known" if gpus is None else ", ".join(_gpu(gpu) for gpu in gpus) or "none"
    table.add_row("GPU", escape(names))
    driver = machine.driver.value
    level = f", CUDA {driver.cuda}" if driver and driver.cuda else ""
    table.add_row("driver", escape(f"{driver.version}{level}" if driver else "none"))
    toolkits = ", ".join(f"{item.version or '?'} ({item.root})" for item in machine.toolkits.value or ())
    table.add_row("CUDA toolkits", escape(toolkits or "none"))
    interpreter, torch = environment.interpreter.value, environment.torch.value
    table.add_row(
        "Python", escape(f"{interpreter.version} ({interpreter.executable})" if interpreter else "not known")
    )
    table.add_row("torch", escape(torch.version if torch else environment.torch.error or "not known"))
    extensions = [item for item in environment.extensions.value or () if item.links_torch or item.importable]
    table.add_row(
        "extensions", escape(", ".join(item.distribution or item.path for item in extensions) or "none")
    )
    swaps = [item.name for item in environment.distributions.value or () if item.made_by_splatfix == "swap"]
    if swaps:
        table.add_row("swaps", escape(", ".join(swaps) + " (pure PyTorch, installed by splatfix)"))
    return table
