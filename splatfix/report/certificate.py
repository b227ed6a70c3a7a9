"""A certificate as JSON, as Markdown, and for the terminal: the same content three times."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from splatfix.certify.model import Certificate, KernelCheck, Outcome, SceneRun, Verdict
from splatfix.core.codec import to_json
from splatfix.core.proof import Rung
from splatfix.facts.model import Facts
from splatfix.report.console import paragraph, prose

_MARKS = {
    Outcome.MET: "[green]✓[/]",
    Outcome.FAILED: "[bold red]✗[/]",
    Outcome.NOT_MEASURED: "[dim]–[/]",
}
_WORDS = {Outcome.MET: "met", Outcome.FAILED: "FAILED", Outcome.NOT_MEASURED: "not measured"}
# A criterion without a verdict may well have a measurement beside it.
_VERDICTS = {**_WORDS, Outcome.NOT_MEASURED: "not judged"}

_TITLES = {
    Verdict.CERTIFIED: "CERTIFIED",
    Verdict.NOT_CERTIFIED: "NOT CERTIFIED",
    Verdict.UNDETERMINED: "UNDETERMINED",
}
_COLORS = {
    Verdict.CERTIFIED: "green",
    Verdict.NOT_CERTIFIED: "bold red",
    Verdict.UNDETERMINED: "bold yellow",
}


def document(certificate: Certificate, facts: Facts) -> dict[str, Any]:
    """The content of ``certify``'s JSON document, with the facts it is valid for."""
    return {**to_json(certificate), "facts": to_json(facts)}


def markdown(certificate: Certificate) -> str:
    """The report for people, as Markdown."""
    lines = [
        f"# splatfix certificate: {_TITLES[certificate.verdict]}",
        "",
        certificate.summary,
        "",
    ]
    if certificate.reasons:
        lines += [
            "## Why it is not certified",
            "",
            *(f"- {_cell(reason)}" for reason in certificate.reasons),
            "",
        ]
    if certificate.unreadable:
        lines += ["## Scenes that cannot be read", ""]
        lines += [f"- {item.scene}: {_cell(item.reason)}" for item in certificate.unreadable]
        lines += [""]
    lines += ["## What was verified", "", "| level | verified | evidence |", "|---|---|---|"]
    lines += [
        f"| {rung.name.value} | {_reached(rung)} | {_cell(rung.shown_by)} |" for rung in certificate.proof
    ]
    lines += [
        "",
        "## Kernels against float64 references",
        "",
        "| kernel | implementation | value error | gradient error | outcome |",
        "|---|---|---|---|---|",
    ]
    for item in certificate.kernels:
        value, gradient = (
            _error(item.value_error, item.value_allowed),
            _error(item.gradient_error, item.gradient_allowed),
        )
        outcome = _cell(_kernel_words(item))
        lines.append(f"| {item.name} | {item.implementation} | {value} | {gradient} | {outcome} |")
    for run in certificate.scenes:
        lines += [
            "",
            f"## Scene: {run.scene} ({run.seconds:.0f} s)",
            "",
            *_trained_as(run),
            "| criterion | outcome | measured | required |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {item.code} | {_VERDICTS[item.outcome]} | {_cell(item.measured)} | {_cell(item.required)} |"
            for item in run.criteria
        ]
        if run.images:
            lines += ["", "Held-out views, rendering on the left, ground truth on the right:", ""]
            lines += [f"![{run.scene}]({_target(path)})" for path in run.images]
        if run.log:
            lines += ["", f"Log: [{run.log}]({_target(run.log)})"]
    if certificate.skipped:
        lines += ["", "## Skipped scenes", ""]
        lines += [f"- {', '.join(names)}: {reason}" for reason, names in _skipped(certificate).items()]
    lines += ["", "## Valid for", "", "| part | version |", "|---|---|"]
    lines += [f"| {_cell(name)} | {_cell(value)} |" for name, value in certificate.environment.items()]
    lines += [
        "",
        f"Suite `{certificate.suite}`, issued {certificate.issued}, {certificate.seconds:.0f} s.",
        "",
    ]
    return "\n".join(lines)


def show(console: Console, certificate: Certificate, report: Path) -> None:
    """The outcome in a screenful: summary, levels and every criterion.

    Args:
        report: where the Markdown report is.
    """
    verdict = certificate.verdict
    title = f"[{_COLORS[verdict]}]{_TITLES[verdict]}:[/]"
    paragraph(console, f"{title} {escape(certificate.summary)}", first=0, then=2)
    for reason in certificate.reasons:
        prose(console, "  [bold red]✗[/] ", escape(reason))
    for scene in certificate.unreadable:
        prose(console, "  [bold yellow]?[/] ", f"{escape(scene.scene)}: {escape(scene.reason)}")
    console.print("\n[bold]proof[/]")
    for rung in certificate.proof:
        mark = {True: "[green]✓[/]", False: "[bold red]✗[/]", None: "[dim]–[/]"}[rung.reached]
        prose(console, f"  {mark} {rung.name.value:<10} ", escape(rung.shown_by))
    for run in certificate.scenes:
        if run.unreadable:
            continue  # said above
        met = sum(item.outcome is Outcome.MET for item in run.criteria)
        summary = f"{met} of {len(run.criteria)} criteria met{_open(run)}, {run.seconds:.0f} s"
        console.print()
        prose(console, f"[bold]{escape(run.scene)}[/] ", summary)
        for item in run.criteria:
            said = f"{item.code}: {escape(item.measured)} [dim]({escape(item.required)})[/]"
            prose(console, f"  {_MARKS[item.outcome]} ", said)
    for reason, names in _skipped(certificate).items():
        console.print()
        prose(console, "[dim]–[/] ", f"[dim]skipped, {escape(reason)}: {escape(', '.join(names))}[/]")
    console.print(f"\nreport: {report}", markup=False, soft_wrap=True)


def show_from_container(console: Console, content: Mapping[str, Any], lane: str, report: Path) -> None:
    """The outcome of a certification in a container, by its JSON document."""
    title = _TITLES[Verdict(content["verdict"])]
    prose(console, "", escape(f"{title} in lane {lane}: {content['summary']}"))
    for reason in content.get("reasons", ()):
        prose(console, "  ✗ ", escape(str(reason)))
    console.print(f"report: {report}", markup=False, soft_wrap=True)


def _open(run: SceneRun) -> str:
    count = sum(item.outcome is Outcome.NOT_MEASURED for item in run.criteria)
    return f", {count} not judged" if count else ""


def _skipped(certificate: Certificate) -> dict[str, list[str]]:
    """The skipped scenes by reason: mostly one reason holds for all of them."""
    names: dict[str, list[str]] = {}
    for item in certificate.skipped:
        names.setdefault(item.reason, []).append(item.scene)
    return names


def _trained_as(run: SceneRun) -> list[str]:
    """How long and how large the scene trained, and what its files lacked; nothing for a run that left no result."""
    result = run.result
    if "gaussians" not in result:
        return []
    width, height = result["resolution"]
    counts, speed = result["gaussians"], result["iterations_per_second"]
    words = (
        f"{result['iterations']} iterations at {width}x{height}, strategy {result['config']['strategy']}, "
    )
    words += f"{counts['initial']} to {counts['final']} Gaussians"
    words += f", {speed:.2f} iterations per second" if speed else ""
    return [_cell(". ".join([words, *result.get("notes", ())])) + ".", ""]


def kernels_document(kernels: tuple[KernelCheck, ...], device: str) -> dict[str, Any]:
    """The content of ``verify``'s JSON document."""
    return {"device": device, "kernels": to_json(kernels)}


def show_kernels(console: Console, kernels: tuple[KernelCheck, ...], device: str, idle_gpu: str = "") -> None:
    """Every implementation of every kernel, side by side, with its errors against float64, and what was not run."""
    where = "the CPU" if device == "cpu" else device
    prose(console, "", f"[dim]on {where}, against float64 references[/]")
    for item in kernels:
        errors = f"value {_error(item.value_error, item.value_allowed)}"
        if item.gradient_allowed:
            errors += f", gradient {_error(item.gradient_error, item.gradient_allowed)}"
        words = item.detail if item.value_error is None else ", ".join(filter(None, (errors, item.detail)))
        which = f"{item.name:<10} {item.implementation:<28} {item.kind or '–':<7}"
        prose(console, f"{_MARKS[item.outcome]} {escape(which)} ", escape(words))
    unseen = ", ".join(item.implementation for item in kernels if item.native_not_run)
    if unseen:
        prose(console, "", f"Not run: {escape(unseen)}. CUDA extensions need a GPU to verify.")
    if idle_gpu:
        prose(console, "", escape(idle_gpu))


def _reached(rung: Rung) -> str:
    return {True: "yes", False: "NO", None: "not verified"}[rung.reached]


def _error(found: float | None, allowed: float | None) -> str:
    if not allowed:
        return "–"
    return f"{'none' if found is None else f'{found:.1e}'} (allowed {allowed:.0e})"


def _kernel_words(item: KernelCheck) -> str:
    return _WORDS[item.outcome] + (f": {item.detail}" if item.detail else "")


def _target(path: str) -> str:
    """A path as the target of a Markdown link; a space would end it."""
    return f"<{path}>" if any(sign in path for sign in " ()") else path


def _cell(text: str) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")
