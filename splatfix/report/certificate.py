"""A certificate as JSON and for the terminal; as Markdown it is in :mod:`splatfix.report.field_report`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from splatfix.certify.model import Certificate, Comparison, KernelCheck, Outcome, SceneRun, Verdict
from splatfix.core.codec import to_json
from splatfix.core.step import Step
from splatfix.facts.model import Facts
from splatfix.plan.option import Options
from splatfix.report import comparison as baseline
from splatfix.report.console import escape, paragraph, prose, show_step
from splatfix.report.options import show_suggestion

_MARKS = {
    Outcome.MET: "[green]✓[/]",
    Outcome.FAILED: "[bold red]✗[/]",
    Outcome.NOT_MEASURED: "[dim]–[/]",
    Outcome.UNDETERMINED: "[bold yellow]?[/]",
}
RUNG_MARKS = {True: "[green]✓[/]", False: "[bold red]✗[/]", None: "[dim]–[/]"}
_TITLES = {
    Verdict.CERTIFIED: "CERTIFIED",
    Verdict.REHEARSED: "REHEARSED",
    Verdict.NOT_CERTIFIED: "NOT CERTIFIED",
    Verdict.UNDETERMINED: "UNDETERMINED",
}
_COLORS = {
    Verdict.CERTIFIED: "green",
    Verdict.REHEARSED: "green",
    Verdict.NOT_CERTIFIED: "bold red",
    Verdict.UNDETERMINED: "bold yellow",
}


_WITHOUT_TRAINING = {1: "Diagnosis passed (run level 1)", 2: "Kernels verified (run level 2)"}
"""What is certified only when scenes are trained."""


def title_of(verdict: Verdict, level: int | None) -> str:
    """The headline of a certificate, by what its run level includes: CERTIFIED is only said of what was trained."""
    passed = _WITHOUT_TRAINING.get(level or 0) if verdict is Verdict.CERTIFIED else None
    return passed or _TITLES[verdict]


def document(certificate: Certificate, facts: Facts, options: Options | None = None) -> dict[str, Any]:
    """The content of ``certify``'s JSON document, with the facts it is valid for.

    Args:
        options: where a diagnosis of these facts explains a failed certification: what to do about it.
    """
    return {**to_json(certificate), "options": to_json(options), "facts": to_json(facts)}


def show(
    console: Console,
    certificate: Certificate,
    report: Path,
    next_step: Step | None = None,
    options: Options | None = None,
    *,
    verbose: bool = False,
) -> None:
    """The outcome in a screenful: verdict, levels, and a line per scene; the report has every criterion.

    Args:
        report: where the Markdown report is.
        options: see :func:`document`.
        verbose: every check, every criterion of every scene, and the table of the baseline too.
    """
    title = title_of(certificate.verdict, certificate.level)
    _show_verdict(console, certificate.verdict, title, certificate.summary, certificate.reasons, report)
    for note in certificate.notes:
        prose(console, "  [bold yellow]![/] ", f"{escape(note.scene)}: {escape(note.reason)}")
    for scene in certificate.unreadable:
        prose(console, "  [bold yellow]?[/] ", f"{escape(scene.scene)}: {escape(scene.reason)}")
    if options is not None:
        show_suggestion(console, options, None)
    for mend in certificate.stack.mends if certificate.stack else ():
        for step in mend.remedy:
            show_step(console, step, indent=2)
    if next_step is not None:
        show_step(console, next_step, indent=2)
    console.print("\n[bold]Levels of proof[/]")
    for rung in certificate.proof:
        mark = RUNG_MARKS[rung.reached] if rung.needed else " "
        said = rung.shown_by if rung.needed else f"{rung.words}: {rung.shown_by}"
        prose(console, f"  {mark} {rung.name.value:<10}  ", escape(said))
    if verbose and certificate.diagnosis:
        console.print("\n[bold]Diagnosis[/]")
        for item in certificate.diagnosis:
            prose(console, f"  {_MARKS[item.outcome]} ", f"{item.code}: {escape(item.measured)}")
    trained = [run for run in certificate.scenes if not run.unreadable]
    if trained or certificate.skipped:
        console.print("\n[bold]Scenes[/]")
    for run in trained:
        met = sum(item.outcome is Outcome.MET for item in run.criteria)
        psnr = run.result.get("heldout", {}).get("psnr")
        quality = f", held-out {psnr:.2f} dB" if psnr is not None else ""
        summary = f"{met} of {len(run.criteria)} criteria met{_open(run)}{quality}, {run.seconds:.0f} s"
        mark = RUNG_MARKS[run.passed]
        prose(console, f"  {mark} {escape(run.scene):<10}  ", summary)
        for item in run.criteria if verbose else ():
            said = f"{escape(item.code)}: {escape(item.measured)} [dim](required: {escape(item.required)})[/]"
            if item.outcome is Outcome.UNDETERMINED:
                said += f" {escape(item.why)}"
            prose(console, f"      {_MARKS[item.outcome]} ", said)
    for reason, names in skipped_by_reason(certificate).items():
        prose(console, "  [dim]–[/] ", f"[dim]{escape(', '.join(names))}: skipped, {escape(reason)}[/]")
    if verbose and certificate.comparison is not None:
        _show_comparison(console, certificate.comparison)


def _show_comparison(console: Console, found: Comparison) -> None:
    """The table of the baseline, a line for each scene."""
    console.print(f"\n[bold]{baseline.TITLE}[/]")
    prose(console, "  ", escape(baseline.caption(found)))
    for item, row in zip(found.scenes, baseline.rows(found), strict=True):
        told = [f"{name} {cell}" for name, cell in zip(baseline.HEADERS[1:-1], row[1:-1], strict=True)]
        said = f"{row[-1]}: " + ", ".join(words for words in told if not words.endswith("–"))
        prose(console, f"  {_MARKS[item.outcome]} {escape(item.scene):<10}  ", escape(said))
    for remark in baseline.remarks(found):
        prose(console, "  ", f"[dim]{escape(remark)}[/]")


def show_from_container(console: Console, content: Mapping[str, Any], lane: str, report: Path) -> None:
    """The outcome of a certification in a container, by its JSON document."""
    summary, reasons = content.get("summary", ""), content.get("reasons", ())
    told = [str(reason) for reason in reasons] if isinstance(reasons, list) else []
    verdict = Verdict(content["verdict"])
    _show_verdict(console, verdict, title_of(verdict, None), f"(lane {lane}) {summary}", told, report)


def _show_verdict(
    console: Console, verdict: Verdict, title: str, summary: str, reasons: Iterable[str], report: Path
) -> None:
    paragraph(console, f"[{_COLORS[verdict]}]{title}:[/] {escape(summary)}", first=0, then=2)
    for reason in reasons:
        prose(console, "  [bold red]✗[/] ", escape(reason))
    prose(console, "  Report: ", escape(str(report)))


def _open(run: SceneRun) -> str:
    count = {outcome: sum(item.outcome is outcome for item in run.criteria) for outcome in Outcome}
    failed, open_ = count[Outcome.FAILED], count[Outcome.NOT_MEASURED] + count[Outcome.UNDETERMINED]
    return (f", {failed} failed" if failed else "") + (f", {open_} not judged" if open_ else "")


def asked_of(certificate: Certificate) -> str:
    """The run level and the suite, as far as there are: ``Run level 4, suite data``."""
    level = "" if certificate.level is None else f"run level {certificate.level}"
    suite = f"suite {certificate.suite}" if certificate.suite else ""
    words = ", ".join(filter(None, (level, suite)))
    return words[:1].upper() + words[1:]


def skipped_by_reason(certificate: Certificate) -> dict[str, list[str]]:
    """The skipped scenes by reason: mostly one reason holds for all of them."""
    names: dict[str, list[str]] = {}
    for item in certificate.skipped:
        names.setdefault(item.reason, []).append(item.scene)
    return names


def kernels_document(kernels: Sequence[KernelCheck], device: str) -> dict[str, Any]:
    """The content of ``verify``'s JSON document."""
    return {"device": device, "kernels": to_json(tuple(kernels))}


def show_kernels(
    console: Console,
    kernels: Sequence[KernelCheck],
    device: str,
    idle_gpu: str = "",
    next_step: Step | None = None,
) -> None:
    """The verdict, then every implementation with its errors against float64, then what was not run."""
    where = "the CPU" if device == "cpu" else device
    failed = [item for item in kernels if item.outcome is Outcome.FAILED]
    ran = [item for item in kernels if item.outcome is Outcome.MET]
    not_run = [item.implementation for item in kernels if item.native_not_measured]
    if failed:
        names = ", ".join(item.implementation or item.name for item in failed)
        said = f"[bold red]✗[/] [bold]Wrong results on {where}: {escape(names)}[/]"
    elif not ran:
        said = f"[magenta]?[/] [bold]No kernel could be verified on {where}[/]"
    elif not_run:
        why = (
            "CUDA extensions need a GPU to verify"
            if device == "cpu"
            else "Not all extensions could be measured"
        )
        said = f"[magenta]?[/] [bold]{why}[/]"
    else:
        said = f"[green]✓[/] [bold]All kernels match their float64 references on {where}[/]"
    paragraph(console, said, first=0, then=2)
    if next_step is not None:
        show_step(console, next_step, indent=2)
    console.print()
    for item in kernels:
        if item.kind or item.outcome is Outcome.FAILED:
            kind = f" [dim]({item.kind})[/]" if item.kind else ""
            prose(
                console, f"{_MARKS[item.outcome]} {item.name:<10}  ", f"{escape(item.implementation)}{kind}"
            )
            prose(console, " " * 14, f"[dim]{escape(_measured(item))}[/]")
    absent = ", ".join(
        item.implementation for item in kernels if not item.kind and item.outcome is not Outcome.FAILED
    )
    if absent:
        prose(console, "[dim]Not installed:[/] ", f"[dim]{escape(absent)}[/]")
    if not_run:
        prose(console, "Not measured: ", escape(", ".join(not_run)))
    if idle_gpu:
        prose(console, "", escape(idle_gpu))


def _measured(item: KernelCheck) -> str:
    if item.value_error is None:
        return item.detail
    errors = [f"value error {kernel_error(item.value_error, item.value_allowed)}"]
    if item.gradient_allowed:
        errors.append(f"gradient error {kernel_error(item.gradient_error, item.gradient_allowed)}")
    if item.own_difference is not None:
        errors.append(f"from splatfix's own {own_difference(item)}")
    return ", ".join(filter(None, (*errors, item.detail)))


def own_difference(item: KernelCheck) -> str:
    """How far a kernel is from splatfix's own on the same input: value, then gradient where there is one."""
    found = (item.own_difference, item.own_gradient_difference)
    return ", ".join(f"{value:.1e}" for value in found if value is not None) or "–"


def kernel_error(found: float | None, allowed: float | None) -> str:
    """An error and the one that is allowed, both relative; – where none is allowed, because it was not compared."""
    if not allowed:
        return "–"
    return f"{'none' if found is None else f'{found:.1e}'} (allowed {allowed:.0e})"
