"""A certificate as Markdown: the report that is filed, read by people and kept in a repository."""

from __future__ import annotations

import io
import re
from urllib.parse import quote

from splatfix.certify.model import Certificate, KernelCheck, Outcome, SceneRun
from splatfix.core.proof import Rung
from splatfix.core.visible import visible
from splatfix.core.words import counted
from splatfix.plan.option import Options
from splatfix.report import comparison as baseline
from splatfix.report.certificate import TITLES, kernel_error, skipped_by_reason
from splatfix.report.console import page
from splatfix.report.options import show_suggestion

_WORDS = {
    Outcome.MET: "met",
    Outcome.FAILED: "FAILED",
    Outcome.NOT_MEASURED: "not measured",
    Outcome.UNDETERMINED: "undetermined",
}
# A criterion without a verdict may well have a measurement beside it.
_VERDICTS = {**_WORDS, Outcome.NOT_MEASURED: "not judged"}


def markdown(certificate: Certificate, options: Options | None = None) -> str:
    """The report for people, as Markdown."""
    lines = [
        f"# splatfix certificate: {TITLES[certificate.verdict]}",
        "",
        cell(certificate.summary),
        "",
    ]
    if certificate.reasons:
        lines += [
            "## Why it is not certified",
            "",
            *(f"- {cell(reason)}" for reason in certificate.reasons),
            "",
        ]
    if options is not None:
        text = io.StringIO()
        show_suggestion(page(text, width=80), options, None)
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text.getvalue())), default=0))
        lines += ["## What to do", "", f"{fence}text", text.getvalue().rstrip(), fence, ""]
    if certificate.notes:
        lines += ["## Reservations", ""]
        lines += [f"- {cell(item.scene)}: {cell(item.reason)}" for item in certificate.notes]
        lines += [""]
    if certificate.unreadable:
        lines += ["## Scenes that cannot be read", ""]
        lines += [f"- {cell(item.scene)}: {cell(item.reason)}" for item in certificate.unreadable]
        lines += [""]
    lines += ["## What was verified", "", "| level | verified | evidence |", "|---|---|---|"]
    lines += [
        f"| {rung.name.value} | {_reached(rung)} | {cell(rung.shown_by)} |" for rung in certificate.proof
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
            kernel_error(item.value_error, item.value_allowed),
            kernel_error(item.gradient_error, item.gradient_allowed),
        )
        outcome = cell(_kernel_words(item))
        lines.append(
            f"| {cell(item.name)} | {cell(item.implementation)} | {value} | {gradient} | {outcome} |"
        )
    lines += _compared(certificate)
    for run in certificate.scenes:
        lines += [
            "",
            f"## Scene: {cell(run.scene)} ({run.seconds:.0f} s)",
            "",
            *_trained_as(run),
            "| criterion | outcome | measured | required | source |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| {item.code} | {_VERDICTS[item.outcome]} | {cell(item.measured)} | {cell(item.required)} "
            f"| {cell(item.source)} |"
            for item in run.criteria
        ]
        if run.images:
            lines += ["", "Held-out views, rendering on the left, ground truth on the right:", ""]
            lines += [f"![{cell(run.scene)}]({_target(path)})" for path in run.images]
        if run.log:
            lines += ["", f"Log: [{cell(run.log)}]({_target(run.log)})"]
    if certificate.skipped:
        lines += ["", "## Skipped scenes", ""]
        lines += [
            f"- {cell(', '.join(names))}: {cell(reason)}"
            for reason, names in skipped_by_reason(certificate).items()
        ]
    lines += ["", "## Valid for", "", "| part | version |", "|---|---|"]
    lines += [f"| {cell(name)} | {cell(value)} |" for name, value in certificate.environment.items()]
    lines += ["", "## How to repeat it", "", f"    {certificate.repeat.shell(windows=False)}", ""]
    lines += [
        f"- {cell(run.scene)}: SHA-256 {run.result['scene_sha256']}"
        for run in certificate.scenes
        if "scene_sha256" in run.result
    ]
    lines += [
        "",
        f"Suite {cell(certificate.suite)}, issued {certificate.issued}, {certificate.seconds:.0f} s.",
        "",
    ]
    return "\n".join(lines)


def _trained_as(run: SceneRun) -> list[str]:
    """How long and how large the scene trained, and what its files lacked; nothing for a run that left no result."""
    result = run.result
    if "gaussians" not in result:
        return []
    width, height = result["resolution"]
    counts, speed = result["gaussians"], result["iterations_per_second"]
    words = f"{counted(result['iterations'], 'iteration')} at {width}x{height}, strategy {result['config']['strategy']}, "
    words += f"{counts['initial']} to {counted(counts['final'], 'Gaussian')}"
    words += f", {speed:.2f} iterations per second" if speed else ""
    quality = result["heldout"]
    lpips = quality.get("lpips")
    measured = f"Held-out PSNR {quality['psnr']:.2f} dB, SSIM {quality['ssim']:.4f}, LPIPS "
    measured += quality.get("lpips_note", "not measured") if lpips is None else f"{lpips:.4f}"
    return [f"{cell(words)}, seed {result['config']['seed']}. {cell(measured)}.", ""]


def _compared(certificate: Certificate) -> list[str]:
    """The table of the baseline, and why what is not judged is not; nothing without one."""
    found = certificate.comparison
    if found is None or not found.scenes:
        return []
    return [
        "",
        f"## {baseline.TITLE}",
        "",
        cell(baseline.caption(found)),
        "",
        f"| {' | '.join(baseline.HEADERS)} |",
        f"|{'---|' * len(baseline.HEADERS)}",
        *(f"| {' | '.join(map(cell, row))} |" for row in baseline.rows(found)),
        "",
        *(f"- {cell(remark)}" for remark in baseline.remarks(found)),
    ]


def _reached(rung: Rung) -> str:
    return {True: "yes", False: "NO", None: "not verified"}[rung.reached]


def _kernel_words(item: KernelCheck) -> str:
    return _WORDS[item.outcome] + (f": {item.detail}" if item.detail else "")


def _target(path: str) -> str:
    """A relative path as the target of a Markdown link: nothing in it ends the link or is a scheme."""
    return quote(path, errors="surrogateescape")


def cell(text: str) -> str:
    """Text for a line or a table's cell of Markdown: it shows as it is, whatever it holds."""
    return re.sub(
        r"\\(?=[!-/:-@\[-`{-~]|$)|[`*<\[\]|]", r"\\\g<0>", visible(str(text), keep="\n").replace("\n", " ")
    )
