"""A certificate for programs and maintainers: JUnit's XML, Prometheus' text format, and the text of an issue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree  # only written, never parsed  # nosec B405

from splatfix.certify.model import NOT_REACHED, Certificate, Criterion, KernelCheck, Outcome, Verdict
from splatfix.core.proof import Rung
from splatfix.core.visible import visible
from splatfix.report import appendix
from splatfix.report.certificate import title_of

_SKIPPED = (Outcome.NOT_MEASURED, Outcome.UNDETERMINED)


def junit(certificate: Certificate) -> str:
    """JUnit's XML, as CI systems read it: a suite for the diagnosis, the kernels, each scene and the levels, a case for each
    criterion.

    What failed is a failure with what it means; what was not measured, or not judged, is skipped. Where the run did not come
    to its end, that is an error, and so is each scene that was not trained.
    """
    root = ElementTree.Element("testsuites", name="splatfix certify", time=f"{certificate.seconds:.1f}")
    suites = [
        ("diagnosis", 0.0, [_judged(item) for item in certificate.diagnosis]),
        ("kernels", 0.0, [_kernel(item) for item in certificate.kernels]),
        *((run.scene, run.seconds, [_judged(item) for item in run.criteria]) for run in certificate.scenes),
        ("levels", 0.0, [_level(item) for item in certificate.proof]),
        *_not_done(certificate),
    ]
    for name, seconds, cases in suites:
        if not cases:
            continue
        outcomes = [outcome for _, outcome, _, _ in cases]
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=_xml(name),
            tests=str(len(cases)),
            failures=str(outcomes.count(Outcome.FAILED)),
            errors=str(outcomes.count(None)),
            skipped=str(sum(outcome in _SKIPPED for outcome in outcomes)),
            time=f"{seconds:.1f}",
            timestamp=certificate.issued.partition("+")[0],
        )
        for code, outcome, measured, why in cases:
            case = ElementTree.SubElement(
                suite, "testcase", classname=f"splatfix.{_xml(name)}", name=_xml(code)
            )
            if outcome is Outcome.FAILED:
                ElementTree.SubElement(case, "failure", message=_xml(measured)).text = _xml(why)
            elif outcome is None:
                ElementTree.SubElement(case, "error", message=_xml(measured))
            elif outcome in _SKIPPED:
                ElementTree.SubElement(case, "skipped", message=_xml(why or measured))
            else:
                ElementTree.SubElement(case, "system-out").text = _xml(measured)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


_Case = tuple[str, Outcome | None, str, str]
"""Name, outcome (None: there was none, because the run ended), what was found, what that means."""


def _not_done(certificate: Certificate) -> Iterable[tuple[str, float, list[_Case]]]:
    """The end that the run did not come to, and the scenes that were not trained."""
    if certificate.interrupted or certificate.unfinished:
        code = "interrupted" if certificate.interrupted else "unfinished"
        yield "run", 0.0, [(code, None, certificate.summary, "")]
    for item in certificate.skipped:
        if item.reason == NOT_REACHED:
            yield item.scene, 0.0, [("training-finishes", None, item.reason, "")]


def _level(rung: Rung) -> _Case:
    outcome = {True: Outcome.MET, False: Outcome.FAILED, None: Outcome.NOT_MEASURED}[rung.reached]
    return rung.name.value, outcome, rung.shown_by, ""


def _judged(item: Criterion) -> _Case:
    return item.code, item.outcome, f"{item.measured} (required: {item.required})", item.why


def _kernel(item: KernelCheck) -> _Case:
    errors = [
        f"{name} error {error:.2g}"
        for name, error in (
            ("value", item.value_error),
            ("gradient", item.gradient_error),
            ("value from own", item.own_difference),
            ("gradient from own", item.own_gradient_difference),
        )
        if error is not None
    ]
    return f"{item.name}: {item.implementation or 'none'}", item.outcome, ", ".join(errors), item.detail


def _xml(text: str) -> str:
    """Without what XML 1.0 cannot hold and no terminal should obey, whatever a log or a name has."""
    return visible(text, keep="\n\t")


def prometheus(certificate: Certificate) -> str:
    """Prometheus' text format, for node_exporter's textfile collector: the verdict, each criterion, and what was measured."""
    lines: list[str] = []

    def metric(name: str, about: str, samples: Iterable[tuple[Mapping[str, str], float | None]]) -> None:
        known = [(labels, value) for labels, value in samples if value is not None]
        if known:
            lines.extend([f"# HELP splatfix_{name} {about}", f"# TYPE splatfix_{name} gauge"])
        for labels, value in known:
            inside = ",".join(f'{key}="{_label(text)}"' for key, text in labels.items())
            lines.append(f"splatfix_{name}{{{inside}}} {value!r}")

    about = {"suite": certificate.suite, "renderer": certificate.renderer, "device": certificate.device}
    if certificate.level is not None:
        about["level"] = str(certificate.level)
    met = {Outcome.MET: 1.0, Outcome.FAILED: 0.0}
    verdict = {Verdict.CERTIFIED: 1.0, Verdict.NOT_CERTIFIED: 0.0}
    metric(
        "certified",
        "1 certified, 0 not; absent where undetermined.",
        [(about, verdict.get(certificate.verdict))],
    )
    metric(
        "certificate_verdict",
        "1 for the verdict that it has, 0 for the others.",
        [({**about, "verdict": item.value}, float(item is certificate.verdict)) for item in Verdict],
    )
    finished = not (certificate.interrupted or certificate.unfinished)
    metric(
        "certificate_finished",
        "1 the run came to its end, 0 it was interrupted or killed, or still runs.",
        [(about, float(finished))],
    )
    issued = datetime.fromisoformat(certificate.issued).timestamp()
    metric("certificate_timestamp_seconds", "When it was issued.", [(about, issued)])
    metric(
        "criterion_met",
        "1 met, 0 failed; absent where it was not judged.",
        [
            ({**about, "scene": scene, "criterion": item.code}, met.get(item.outcome))
            for scene, criteria in (
                ("", certificate.diagnosis),
                *((run.scene, run.criteria) for run in certificate.scenes),
            )
            for item in criteria
        ],
    )
    for name, text, path in (
        ("heldout_psnr_decibels", "Held-out PSNR.", ("heldout", "psnr")),
        ("heldout_ssim_ratio", "Held-out SSIM.", ("heldout", "ssim")),
        ("iterations_per_second", "Speed of training.", ("iterations_per_second",)),
        ("gaussians", "Gaussians at the end.", ("gaussians", "final")),
        ("resident_peak_bytes", "Highest resident memory of the trainer.", ("memory", "rss")),
        (
            "gpu_peak_bytes",
            "Highest GPU memory allocated in training.",
            ("memory", "cuda", "train", "allocated"),
        ),
    ):
        metric(
            name,
            text,
            [({**about, "scene": run.scene}, _number(run.result, path)) for run in certificate.scenes],
        )
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    return visible(text, keep="\n").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(result: object, path: Iterable[str]) -> float | None:
    for key in path:
        result = result.get(key) if isinstance(result, Mapping) else None
    return float(result) if isinstance(result, (int, float)) else None


def issue(certificate: Certificate) -> str:
    """What a maintainer wants in a report of a defect, as Markdown; the home folder is left out of paths."""
    ended = []
    if certificate.interrupted or certificate.unfinished:
        missing = [item.scene for item in certificate.skipped if item.reason == NOT_REACHED]
        untrained = f"; not trained to its end: {', '.join(missing)}" if missing else ""
        how = "it was interrupted" if certificate.interrupted else "it was killed, or still runs"
        ended = [f"- Not finished: {how}{untrained}."]
    lines = [
        f"**splatfix certify: {title_of(certificate.verdict, certificate.level)}.** {certificate.summary}",
        "",
        "### What failed",
        "",
        *([f"- {reason}" for reason in certificate.reasons] or ([] if ended else ["Nothing."])),
        *ended,
        "",
        "### Environment",
        "",
        *(f"- {name}: {value}" for name, value in certificate.environment.items()),
        "",
        "### Levels of proof",
        "",
        *(f"- {rung.name.value}: {rung.words} ({rung.shown_by})" for rung in certificate.proof),
        "",
        *(["### Scenes", ""] if certificate.scenes else []),
    ]
    for run in certificate.scenes:
        met = sum(item.outcome is Outcome.MET for item in run.criteria)
        lines.append(f"- {run.scene}: {met} of {len(run.criteria)} criteria met")
    lines += [""] if certificate.scenes else []
    lines += ["### To repeat it", "", f"    {certificate.repeat.shell(windows=False)}", ""]
    return _without_home("\n".join(map(visible, lines)))


def _without_home(text: str) -> str:
    home = str(Path.home())
    return text if home in ("/", "") else text.replace(home, "~")


FORMS: Mapping[str, Callable[[Certificate], str]] = {
    "junit": junit,
    "prometheus": prometheus,
    "issue": issue,
    "appendix": appendix.markdown,
}
