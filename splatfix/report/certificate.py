"""A certificate as JSON and for the terminal; as Markdown it is in :mod:`splatfix.report.markdown`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from splatfix.certify.model import Certificate, KernelCheck, Outcome, Verdict
from splatfix.core.codec import to_json
from splatfix.core.step import Step
from splatfix.model import Facts
from splatfix.model.option import Options
from splatfix.report.comparison import show_baseline
from splatfix.report.console import escape, marked, paragraph, prose, section, show_step
from splatfix.report.marks import ABSENT, Badge, Mark
from splatfix.report.options import show_suggestion
from splatfix.report.view import OUTCOMES, CertificateView, count_met, errors_of, headline


def document(certificate: Certificate, facts: Facts, options: Options | None = None) -> dict[str, Any]:
    """The content of ``certify``'s JSON document, with the facts it is valid for, and the options of a diagnosis of them
    where that explains a failed certification."""
    return {**to_json(certificate), "options": to_json(options), "facts": to_json(facts)}


def show(
    console: Console,
    certificate: Certificate,
    report: Path | None,
    next_step: Step | None = None,
    options: Options | None = None,
    *,
    verbose: bool = False,
) -> None:
    """The outcome in a screenful: verdict, levels, and a line per scene; ``report``, the page, has every criterion, and so has
    this with ``verbose``, with every check and the table of the baseline."""
    view = CertificateView(certificate)
    _show_verdict(console, view.headline, certificate.summary, certificate.reasons, report)
    # before anything else is listed: a reservation qualifies the verdict
    for reservation in view.reservations:
        marked(console, Mark.RESERVATION, escape(reservation))
    for scene in view.unreadable:
        marked(console, Mark.UNSURE, escape(scene))
    if options is not None:
        show_suggestion(console, options, None)  # no "explain": diagnose has --why, certify has not
    if certificate.stack:
        for mend in certificate.stack.mends:
            for step in mend.remedy:
                show_step(console, step, indent=2)
    if next_step is not None:
        show_step(console, next_step, indent=2)
    section(console, "Levels of proof")
    for rung, badge, _ in view.levels:
        if rung.needed:
            text = f"{badge.mark.markup} {rung.name.value:<10}  "
            prose(console, f"  {text}", escape(rung.shown_by))
        else:  # neither reached nor missing: no mark
            prose(console, f"    {rung.name.value:<10}  ", escape(f"{badge.text}: {rung.shown_by}"))
    if verbose and certificate.diagnosis:
        section(console, "Diagnosis")
        for check in certificate.diagnosis:
            marked(console, OUTCOMES[check.outcome].mark, f"{check.code}: {escape(check.measured)}")
    if verbose or not certificate.scenes:
        section(console, "Kernels")
        for kernel in certificate.kernels:
            _show_kernel(console, kernel)
    _show_scenes(console, view, verbose=verbose)
    if verbose and view.baseline:
        show_baseline(console, view.baseline)


def _show_scenes(console: Console, view: CertificateView, *, verbose: bool) -> None:
    trained = [run for run in view.certificate.scenes if not run.unreadable]
    if trained or view.skipped:
        section(console, "Scenes")
    for run in trained:
        # what could not be judged shows in the numbers behind it
        mark = {True: Mark.GOOD, False: Mark.BAD, None: Mark.NONE}[run.passed]
        counts = Counter(criterion.outcome for criterion in run.criteria)
        not_judged = counts[Outcome.NOT_MEASURED] + counts[Outcome.UNDETERMINED]
        parts = [f"{count_met(run.criteria)} criteria met"]
        if counts[Outcome.FAILED]:
            parts.append(f"{counts[Outcome.FAILED]} failed")
        if not_judged:
            parts.append(f"{not_judged} not judged")
        if run.record.heldout.psnr is not None:
            parts.append(f"held-out {run.record.heldout.psnr:.2f} dB")
        parts.append(f"{run.seconds:.0f} s")
        prose(console, f"  {mark.markup} {escape(run.scene):<10}  ", ", ".join(parts))
        if verbose:
            for criterion in run.criteria:
                required = f"[dim](required: {escape(criterion.required)})[/]"
                text = f"{escape(criterion.code)}: {escape(criterion.measured)} {required}"
                if criterion.outcome is Outcome.UNDETERMINED:
                    text += f" {escape(criterion.why)}"
                marked(console, OUTCOMES[criterion.outcome].mark, text, indent=6)
    for reason, names in view.skipped.items():
        marked(console, Mark.NONE, f"[dim]{escape(', '.join(names))}: skipped, {escape(reason)}[/]")


def show_from_container(console: Console, content: Mapping[str, Any], lane: str, report: Path) -> None:
    """The outcome of a certification in a container, by its JSON document."""
    # the image may hold another version of splatfix; no run level: what the lane was asked for stands in its own report
    title = headline(Verdict(content["verdict"]), None, str(content.get("device")))
    summary = f"(lane {lane}) {content.get('summary', '')}"
    _show_verdict(console, title, summary, content.get("reasons") or (), report)


def _show_verdict(
    console: Console, title: Badge, summary: str, reasons: Sequence[str], report: Path | None
) -> None:
    paragraph(console, f"[{title.mark.style}]{title.text}:[/] {escape(summary)}", first=0, then=2)
    for reason in reasons:
        marked(console, Mark.BAD, escape(str(reason)))
    if report is not None:
        prose(console, "  Report: ", escape(str(report)))


def _show_kernel(console: Console, kernel: KernelCheck) -> None:
    label = f"{OUTCOMES[kernel.outcome].mark.markup} {kernel.name:<10}  "
    text = escape(kernel.implementation)
    if kernel.kind:
        text += f" [dim]({kernel.kind})[/]"
    prose(console, label, text)
    parts = []
    value, gradient = errors_of(kernel)
    if value != ABSENT:
        parts.append(f"value error {value}")
        if gradient != ABSENT:
            parts.append(f"gradient error {gradient}")
    if kernel.detail:
        parts.append(kernel.detail)
    prose(console, " " * 14, f"[dim]{escape(', '.join(parts))}[/]")
