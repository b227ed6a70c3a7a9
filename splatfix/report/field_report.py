"""A certificate as Markdown: the report that is filed, read by people and kept in a repository."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from splatfix.certify.model import Certificate, Outcome, SceneRun
from splatfix.core.visible import visible
from splatfix.core.words import counted
from splatfix.plan.option import Options
from splatfix.report import comparison as baseline
from splatfix.report.certificate import asked_of, kernel_error, own_difference, skipped_by_reason, title_of
from splatfix.report.console import page
from splatfix.report.options import show_suggestion
from splatfix.report.results import HEADERS, legend, part, row
from splatfix.report.troubleshooting import troubles

_WORDS = {
    Outcome.MET: "met",
    Outcome.FAILED: "FAILED",
    Outcome.NOT_MEASURED: "not measured",
    Outcome.UNDETERMINED: "undetermined",
}
# A criterion without a verdict may well have a measurement beside it.
_PASSED = {True: "passed", False: "FAILED", None: "undetermined"}
_VERDICTS = {**_WORDS, Outcome.NOT_MEASURED: "not judged"}


def markdown(certificate: Certificate, options: Options | None = None) -> str:
    """The report for people, as Markdown: summary, configuration, results, validation, troubleshooting, how to reproduce.

    Args:
        options: where a diagnosis of the same facts explains a failed certification: what to do about it.
    """
    parts = (
        _summary(certificate),
        _configuration(certificate),
        _results(certificate),
        _validation(certificate),
        _troubleshooting(certificate, options),
        _reproduce(certificate),
    )
    return "\n".join(line for part in parts for line in part) + "\n"


def _table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    return [
        f"| {' | '.join(headers)} |",
        f"|{'---|' * len(headers)}",
        *(f"| {' | '.join(cell(str(item)) for item in row)} |" for row in rows),
        "",
    ]


def _list(title: str, lines: Iterable[str]) -> list[str]:
    """A section of a list; nothing without lines."""
    found = [f"- {cell(line)}" for line in lines]
    return [f"### {title}", "", *found, ""] if found else []


def _summary(certificate: Certificate) -> list[str]:
    where = "the CPU" if certificate.device == "cpu" else certificate.device
    judged = [item.outcome for run in certificate.scenes for item in run.criteria]
    renderer = f", renderer {certificate.renderer}" if certificate.scenes else ""
    said = (
        f"{asked_of(certificate)}{renderer}, on {where}. "
        f"Issued {certificate.issued}, after {certificate.seconds:.0f} s."
    )
    if judged:
        said += f" {judged.count(Outcome.MET)} of {len(judged)} criteria met."
    return [
        f"# splatfix certificate: {title_of(certificate.verdict, certificate.level)}",
        "",
        "## Summary",
        "",
        cell(certificate.summary),
        "",
        cell(said),
        "",
        *_list("Why it is not certified", certificate.reasons),
        *_list("Reservations", (f"{item.scene}: {item.reason}" for item in certificate.notes)),
        *_list(
            "Scenes that cannot be read", (f"{item.scene}: {item.reason}" for item in certificate.unreadable)
        ),
        *_list(
            "Skipped scenes",
            (f"{', '.join(names)}: {reason}" for reason, names in skipped_by_reason(certificate).items()),
        ),
    ]


def _configuration(certificate: Certificate) -> list[str]:
    lines = ["## Configuration", "", *_table(("part", "version"), certificate.environment.items())]
    runs = [run for run in certificate.scenes if part(run.result, "config")]
    names = list(dict.fromkeys(name for run in runs for name in part(run.result, "config")))
    values = {name: [(run.scene, part(run.result, "config").get(name)) for run in runs] for name in names}
    settings = [
        (name, _by_scene(found))
        for name, found in values.items()
        if any(value is not None for _, value in found)
    ]
    if settings:
        lines += ["### Settings", "", *_table(("setting", "value"), settings)]
    if code := _code_that_ran(certificate.scenes):
        lines += ["### Code that ran, recorded from inside the run", ""]
        lines += _table(("part", "name", "version", "engine", "file", "SHA-256", "scenes"), code)
    if certificate.sources:
        lines += [
            f"The trainer and its kernels are {counted(len(certificate.sources), 'source file')}, whose digests are in "
            "certificate.json.",
            "",
        ]
    return lines


def _by_scene(values: Sequence[tuple[str, object]]) -> str:
    """One value where it is the same in every scene, otherwise each scene's."""
    words = {scene: "–" if value is None else str(value) for scene, value in values}
    if len(set(words.values())) == 1:
        return next(iter(words.values()))
    return ", ".join(f"{scene} {value}" for scene, value in words.items())


def _code_that_ran(runs: Sequence[SceneRun]) -> list[tuple[str, ...]]:
    """A row for each part and file: which scenes it ran in."""
    found: dict[tuple[str, ...], list[str]] = {}
    for run in runs:
        for name, engine in part(run.result, "implementations").items():
            if isinstance(engine, Mapping):
                keys = ("name", "version", "engine", "file", "sha256")
                key = (name, *(str(engine.get(item) or "–") for item in keys))
                found.setdefault(key, []).append(run.scene)
    every = [run.scene for run in runs if part(run.result, "implementations")]
    return [(*key, "all" if names == every else ", ".join(names)) for key, names in found.items()]


def _results(certificate: Certificate) -> list[str]:
    runs = certificate.scenes
    if not runs:
        return []
    rows = [(run.scene, "not readable" if run.unreadable else _PASSED[run.passed], *row(run)) for run in runs]
    return [
        "## Results by scene",
        "",
        *_table(("scene", "result", *HEADERS), rows),
        cell(legend(runs)),
        "",
        *_compared(certificate),
        *(line for run in runs for line in _pictures(run)),
    ]


def _pictures(run: SceneRun) -> list[str]:
    log = [f"{cell(run.scene)}: [log]({_target(run.log)})"] if run.log else []
    if not run.images:
        return [*log, ""] if log else []
    return [
        "; ".join(
            [*(log or [cell(run.scene)]), "held-out views, rendering on the left, ground truth on the right:"]
        ),
        "",
        *(f"![{cell(run.scene)}]({_target(path)})" for path in run.images),
        "",
    ]


def _validation(certificate: Certificate) -> list[str]:
    lines = ["## Technical validation", "", "### Levels of proof", ""]
    lines += _table(
        ("level", "outcome", "evidence"),
        ((rung.name.value, rung.words, rung.shown_by) for rung in certificate.proof),
    )
    if certificate.diagnosis:
        lines += ["### Diagnosis", ""]
        lines += _table(
            ("check", "asks for", "outcome", "found"),
            (
                (item.code, item.required, _VERDICTS[item.outcome], item.measured)
                for item in certificate.diagnosis
            ),
        )
    if certificate.kernels:
        compared = any(item.own_difference is not None for item in certificate.kernels)
        own = ("from splatfix's own",) if compared else ()
        lines += ["### Kernels against float64 references", ""]
        lines += _table(
            ("kernel", "implementation", "value error", "gradient error", *own, "outcome"),
            (
                (
                    item.name,
                    item.implementation,
                    kernel_error(item.value_error, item.value_allowed),
                    kernel_error(item.gradient_error, item.gradient_allowed),
                    *((own_difference(item),) if compared else ()),
                    _WORDS[item.outcome] + (f": {item.detail}" if item.detail else ""),
                )
                for item in certificate.kernels
            ),
        )
    for run in certificate.scenes:
        lines += [f"### Criteria: {cell(run.scene)}", ""]
        lines += _table(
            ("criterion", "outcome", "measured", "required"),
            ((item.code, _VERDICTS[item.outcome], item.measured, item.required) for item in run.criteria),
        )
    sources = {item.code: item.source for run in certificate.scenes for item in run.criteria if item.source}
    if sources:
        lines += ["### Where the thresholds come from", "", *_table(("criterion", "source"), sources.items())]
    return lines


def _troubleshooting(certificate: Certificate, options: Options | None) -> list[str]:
    """Each thing that went wrong or stayed open: what it means, and what to do."""
    found = troubles(certificate)
    lines = ["## Troubleshooting", ""]
    if certificate.interrupted or certificate.unfinished:
        lines += ["The run did not come to its end: start it again with the command below.", ""]
    elif not found and options is None:
        lines += ["Nothing went wrong.", ""]
    for todo, items in found.items():
        lines += [
            f"- **{cell(f'{item.where}: {item.code}')}** {_VERDICTS[item.outcome].lower()}: {cell(item.means)}"
            for item in items
        ]
        lines += ["", f"  What to do: {cell(todo)}", ""] if todo else [""]
    if options is not None:
        text = io.StringIO()
        show_suggestion(page(text, width=80), options, None)
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text.getvalue())), default=0))
        lines += [f"{fence}text", text.getvalue().rstrip(), fence, ""]
    return lines


def _reproduce(certificate: Certificate) -> list[str]:
    digests = [
        (run.scene, run.result["scene_sha256"]) for run in certificate.scenes if "scene_sha256" in run.result
    ]
    lines = ["## How to reproduce", "", f"    {certificate.repeat.shell(windows=False)}", ""]
    return [*lines, *(_table(("scene", "SHA-256 of its files"), digests) if digests else ())][:-1]


def _compared(certificate: Certificate) -> list[str]:
    """The table of the baseline, and why what is not judged is not; nothing without one."""
    found = certificate.comparison
    if found is None or not found.scenes:
        return []
    return [
        f"### {baseline.TITLE}",
        "",
        cell(baseline.caption(found)),
        "",
        *_table(baseline.HEADERS, baseline.rows(found)),
        *(f"- {cell(remark)}" for remark in baseline.remarks(found)),
        "",
    ]


def _target(path: str) -> str:
    """A relative path as the target of a Markdown link: nothing in it ends the link or is a scheme."""
    return quote(path, errors="surrogateescape")


def cell(text: str) -> str:
    """Text for a line or a table's cell of Markdown: it shows as it is, whatever it holds."""
    return re.sub(
        r"\\(?=[!-/:-@\[-`{-~]|$)|[`*<\[\]|]", r"\\\g<0>", visible(str(text), keep="\n").replace("\n", " ")
    )
