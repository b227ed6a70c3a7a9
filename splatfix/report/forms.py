"""A certificate for programs and maintainers: JUnit's XML, Prometheus' text format, and the text of an issue."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from xml.etree import ElementTree  # only written, never parsed  # nosec B405

from splatfix.certify.model import Certificate, Criterion, KernelCheck, Outcome, Verdict
from splatfix.certify.record import TrainingRecord
from splatfix.core.data import dataclass
from splatfix.core.visible import visible
from splatfix.report.console import shorten_home
from splatfix.report.results import gpu_peak
from splatfix.report.view import CertificateView, count_met
from splatfix.report.wording import GAUGES

_SKIPPED = (Outcome.NOT_MEASURED, Outcome.UNDETERMINED)


@dataclass(frozen=True)
class _Case:
    """A test case of JUnit's."""

    name: str
    outcome: Outcome | None
    """None: there was none, because the run ended."""
    measured: str
    means: str = ""


def junit(certificate: Certificate, sha256: str = "") -> str:
    """JUnit's XML, as CI systems read it: a suite for the diagnosis, the kernels, each scene and the levels, a case for each
    criterion.

    What failed is a failure with what it means; what was not measured, or not judged, is skipped. Where the run did not come
    to its end, that is an error, and so is each scene that was not trained. Each suite names the certificate by the SHA-256 of
    its file, where there is one.
    """
    root = ElementTree.Element("testsuites", name="splatfix certify", time=f"{certificate.seconds:.1f}")
    timestamp = certificate.issued.partition("+")[0]  # JUnit's has no offset
    for name, seconds, cases in _suites(CertificateView(certificate)):
        if cases:
            suite = _suite(name, seconds, timestamp, cases)
            if sha256:
                properties = ElementTree.Element("properties")
                suite.insert(0, properties)
                ElementTree.SubElement(properties, "property", name="certificate", value=sha256)
            root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suites(view: CertificateView) -> Iterable[tuple[str, float, Sequence[_Case]]]:
    certificate = view.certificate
    yield "diagnosis", 0.0, list(map(_criterion, certificate.diagnosis))
    yield "kernels", 0.0, list(map(_kernel, certificate.kernels))
    for run in certificate.scenes:
        yield run.scene, run.seconds, list(map(_criterion, run.criteria))
    reached = {True: Outcome.MET, False: Outcome.FAILED, None: Outcome.NOT_MEASURED}
    # a level that was not verified is skipped, as CI systems call it: neither red nor green
    yield "levels", 0.0, [_Case(item.name, reached[item.reached], item.evidence) for item in view.levels]
    if not view.ended:
        code = "unfinished"
        if certificate.interrupted:
            code = "interrupted"
        yield "run", 0.0, [_Case(code, None, certificate.summary)]
    for item in certificate.skipped:
        if item.scene in view.not_reached:
            yield item.scene, 0.0, [_Case("training-finishes", None, item.reason)]


def _suite(name: str, seconds: float, timestamp: str, cases: Sequence[_Case]) -> ElementTree.Element:
    outcomes = [case.outcome for case in cases]
    suite = ElementTree.Element(
        "testsuite",
        name=_xml(name),
        tests=str(len(cases)),
        failures=str(outcomes.count(Outcome.FAILED)),
        errors=str(outcomes.count(None)),
        skipped=str(sum(outcome in _SKIPPED for outcome in outcomes)),
        time=f"{seconds:.1f}",
        timestamp=timestamp,
    )
    for case in cases:
        element = ElementTree.SubElement(
            suite, "testcase", classname=f"splatfix.{_xml(name)}", name=_xml(case.name)
        )
        if case.outcome is Outcome.FAILED:
            ElementTree.SubElement(element, "failure", message=_xml(case.measured)).text = _xml(case.means)
        elif case.outcome is None:
            ElementTree.SubElement(element, "error", message=_xml(case.measured))
        elif case.outcome in _SKIPPED:
            ElementTree.SubElement(element, "skipped", message=_xml(case.means or case.measured))
        else:
            ElementTree.SubElement(element, "system-out").text = _xml(case.measured)
    return suite


def _criterion(item: Criterion) -> _Case:
    return _Case(item.code, item.outcome, f"{item.measured} (required: {item.required})", item.why)


def _kernel(item: KernelCheck) -> _Case:
    errors = {
        "value": item.value_error,
        "gradient": item.gradient_error,
        "value from own": item.own_difference,
        "gradient from own": item.own_gradient_difference,
    }
    measured = ", ".join(f"{name} error {error:.2g}" for name, error in errors.items() if error is not None)
    return _Case(f"{item.name}: {item.implementation or 'none'}", item.outcome, measured, item.detail)


def _xml(text: str) -> str:
    """Without what XML 1.0 cannot hold and no terminal should obey, whatever a log or a name has."""
    return visible(shorten_home(text), keep="\n\t")


Sample = tuple[Mapping[str, str], float | None]
"""Labels and value."""


def prometheus(certificate: Certificate) -> str:
    """Prometheus' text format, for node_exporter's textfile collector: the verdict, levels, kernels, each criterion, and what was
    measured. What each means stands in ``wording.toml``."""
    # absent and not zero where undetermined: an alert on zero shall mean a failure
    verdict = {Verdict.CERTIFIED: 1.0, Verdict.NOT_CERTIFIED: 0.0}.get(certificate.verdict)
    gauges: dict[str, list[Sample]] = {
        "certified": [({}, verdict)],
        "certificate_verdict": _states("verdict", Verdict, certificate.verdict),
        "certificate_finished": [({}, float(CertificateView(certificate).ended))],
    }
    issued = datetime.fromisoformat(certificate.issued).timestamp()
    gauges["certificate_timestamp_seconds"] = [({}, issued)]
    criteria = [("", item) for item in certificate.diagnosis]
    for run in certificate.scenes:
        criteria += [(run.scene, item) for item in run.criteria]
    gauges["criterion_met"] = [
        ({"scene": scene, "criterion": item.code}, _MET.get(item.outcome)) for scene, item in criteria
    ]
    reached = {True: 1.0, False: 0.0, None: None}
    gauges["proof_level_reached"] = [
        ({"proof_level": rung.name.value}, reached[rung.reached]) for rung in certificate.proof
    ]
    for name, of_kernel in _OF_KERNELS.items():
        gauges[name] = [
            ({"kernel": item.name, "implementation": item.implementation}, of_kernel(item))
            for item in certificate.kernels
        ]
    for name, measure in _MEASURES.items():
        gauges[name] = [({"scene": run.scene}, measure(run.record)) for run in certificate.scenes]
    # every sample carries what was asked for: a dashboard must not draw two suites as one line
    about = {"suite": certificate.suite, "renderer": certificate.renderer, "device": certificate.device}
    if certificate.level is not None:
        about["level"] = str(certificate.level)
    lines = [line for name, samples in gauges.items() for line in gauge(name, samples, about)]
    return "\n".join(lines) + "\n"


_MET = {Outcome.MET: 1.0, Outcome.FAILED: 0.0}
_OF_KERNELS: Mapping[str, Callable[[KernelCheck], float | None]] = {
    "kernel_agrees": lambda check: _MET.get(check.outcome),
    "kernel_value_error_ratio": lambda check: check.value_error,
    "kernel_value_error_allowed_ratio": lambda check: check.value_allowed or None,
    "kernel_gradient_error_ratio": lambda check: check.gradient_error,
    "kernel_gradient_error_allowed_ratio": lambda check: check.gradient_allowed,
}
_MEASURES: Mapping[str, Callable[[TrainingRecord], float | None]] = {
    "heldout_psnr_decibels": lambda record: record.heldout.psnr,
    "heldout_ssim_ratio": lambda record: record.heldout.ssim,
    "iterations_per_second": lambda record: record.iterations_per_second,
    "gaussians": lambda record: record.gaussians.final,
    "resident_peak_bytes": lambda record: record.memory.rss,
    "gpu_peak_bytes": gpu_peak,
}
"""Names carry their unit, as Prometheus' naming rules ask; a ratio has none."""


def _states(label: str, states: Iterable[Enum], current: Enum) -> list[Sample]:
    """1 for the state that it has, 0 for the others."""
    return [({label: state.value}, float(state is current)) for state in states]


def gauge(name: str, samples: Iterable[Sample], about: Mapping[str, str]) -> list[str]:
    """A gauge's lines; a sample without a value is left out, as Prometheus has no null. Of two with the same labels, for which it
    would refuse all, the lower stays: of outcomes the failure."""
    known: dict[str, float] = {}
    for labels, value in samples:
        if value is not None:
            pairs = [f'{key}="{_label(text)}"' for key, text in {**about, **labels}.items()]
            sample = f"splatfix_{name}{{{','.join(pairs)}}}"
            known[sample] = min(float(value), known.get(sample, float(value)))
    if not known:
        return []
    head = [f"# HELP splatfix_{name} {GAUGES[name]}", f"# TYPE splatfix_{name} gauge"]
    return head + [f"{sample} {value!r}" for sample, value in known.items()]


def _label(text: str) -> str:
    return (
        visible(shorten_home(text), keep="\n").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    )


def issue(certificate: Certificate) -> str:
    """What a maintainer wants in a report of a defect, as Markdown; the home folder is left out of paths.

    Unlike the report it is not escaped: people read and edit it before they file it.
    """
    view = CertificateView(certificate)
    failures = [f"- {reason}" for reason in certificate.reasons]
    if not view.ended:
        how = "it was killed, or still runs"
        if certificate.interrupted:
            how = "it was interrupted"
        if view.not_reached:
            how += f"; not trained to its end: {', '.join(view.not_reached)}"
        failures.append(f"- Not finished: {how}.")
    lines = [f"**splatfix certify: {view.headline.text}.** {certificate.summary}", ""]
    lines += ["### What failed", "", *(failures or ["Nothing."]), ""]
    lines += ["### Environment", ""]
    lines += [f"- {name}: {value}" for name, value in certificate.environment.items()]
    lines += ["", "### Levels of proof", ""]
    lines += [f"- {level.name}: {level.badge.text} ({level.evidence})" for level in view.levels]
    lines.append("")
    if certificate.scenes:
        lines += ["### Scenes", ""]
        lines += [f"- {run.scene}: {count_met(run.criteria)} criteria met" for run in certificate.scenes]
        lines.append("")
    lines += ["### To repeat it", "", f"    {certificate.repeat.shell(windows=False)}", ""]
    return shorten_home("\n".join(map(visible, lines)))
