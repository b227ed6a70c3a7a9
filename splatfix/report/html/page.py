"""The page: verdict and what to do on top, then levels, scenes, kernels, binaries, and what it takes to do it again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from splatfix.certify.model import Certificate, KernelCheck, Outcome, Verdict
from splatfix.context.model import BinaryFit, BinaryMatrix
from splatfix.core.step import Step
from splatfix.core.words import counted
from splatfix.facts.model import Facts
from splatfix.plan.option import Option, Options
from splatfix.plan.steps import BuildWheel
from splatfix.report import comparison as baseline
from splatfix.report.certificate import asked_of, own_difference, title_of
from splatfix.report.html.markup import Html, badge, details, element, items, join, pairs, table
from splatfix.report.html.scenes import OUTCOMES, criteria, overview, section
from splatfix.report.html.shell import contents, whole_page
from splatfix.report.html.views import read_views
from splatfix.report.html.words import GLOSSARY, MEANS, MEANS_WITHOUT_TRAINING
from splatfix.report.html.words import title_of as criterion_title
from splatfix.report.troubleshooting import troubles

_VERDICTS = {
    Verdict.CERTIFIED: ("good", "Certified"),
    Verdict.REHEARSED: ("good", "Rehearsed"),
    Verdict.NOT_CERTIFIED: ("bad", "Not certified"),
    Verdict.UNDETERMINED: ("unsure", "Undetermined"),
}
_REACHED = {True: "good", False: "bad", None: "none"}
_COMPARED = {Outcome.MET: "good", Outcome.FAILED: "bad", Outcome.NOT_MEASURED: "none"}
_FITS = {True: ("good", "runs"), False: ("bad", "does not run"), None: ("unsure", "not known")}
_MEANS = {
    "resolved": "A consistent set of versions exists for this GPU, driver, toolkit and torch.",
    "built": "The binaries carry code that this GPU can run.",
    "loads": "Trainer and kernels import in the environment.",
    "rehearsed": "Without a GPU: the stack's own trainer ran on the CPU, drop-ins in place of its CUDA extensions.",
    "computes": "The kernels ran, and forward and gradient agree with float64 references.",
    "trains": "Every scene trained, and every criterion was met.",
    "reproduces": "Speed, memory and quality hold against a stored baseline.",
}
_MEANS_ON_THE_CPU = {
    "resolved": "Python runs and torch is installed: all that a training on the CPU asks for."
}


def certificate_page(
    certificate: Certificate, facts: Facts, folder: Path, options: Options | None, matrix: BinaryMatrix
) -> str:
    """A certificate as one HTML file that needs nothing else: pictures, styles and script are in it.

    Args:
        folder: the report folder, which holds pictures, metrics and logs of the scenes.
        options: where a diagnosis explains a failed certification: what to do about it.
    """
    kind, words = _VERDICTS[certificate.verdict]
    means = MEANS[certificate.verdict]
    if certificate.verdict is Verdict.CERTIFIED and (certificate.level or 0) in MEANS_WITHOUT_TRAINING:
        words = title_of(certificate.verdict, certificate.level)
        means = MEANS_WITHOUT_TRAINING[certificate.level or 0]
    parts = [
        ("what-to-do", "What to do", join((_options(options), _advice(certificate)))),
        ("levels", "What was verified: levels of proof", _levels(certificate)),
        ("diagnosis", "Diagnosis", join(criteria(certificate.diagnosis))),
        ("scenes", "Scenes", _scenes(certificate, folder)),
        ("baseline", baseline.TITLE, _comparison(certificate)),
        ("kernels", "Kernels against float64 references", _kernels(certificate)),
        ("binaries", "Binaries and GPUs", _matrix(matrix)),
        ("environment", "Environment, and how to repeat it", _environment(certificate, facts)),
        ("words", "Words in this report", pairs(GLOSSARY)),
    ]
    header = element(
        "header",
        element("p", "splatfix certificate", class_="kicker"),
        element("h1", badge(kind, words)),
        element("p", means, class_="note"),
        element("p", certificate.summary, class_="claim"),
        items("ul", certificate.reasons, class_="reasons", aria_label="Why it is not certified")
        if certificate.reasons
        else "",
        element("p", _about(certificate), class_="note"),
        contents(parts),
        class_=kind,
    )
    told = "A pass covers only what was run."
    return whole_page(f"splatfix certificate: {words}", header, parts, told)


def _about(certificate: Certificate) -> str:
    where = "the CPU" if certificate.device == "cpu" else certificate.device
    renderer = f", renderer {certificate.renderer}" if certificate.scenes else ""
    return (
        f"{asked_of(certificate)}{renderer}, on {where}. "
        f"Issued {certificate.issued.replace('T', ' ').replace('+00:00', ' UTC')}, after {certificate.seconds:.0f} s."
    )


def _options(options: Options | None) -> Html:
    advice = options.advice if options else None
    if options is None or advice is None:
        return Html("")
    parts: list[object] = []
    if advice.option is not None:
        parts += [element("h3", "Suggested fix: ", advice.option.title), _steps(advice.option)]
        below = options.available[options.available.index(advice.option) + 1 :]
        parts.append(
            details(
                "Alternatives", *(join((element("h4", option.title), _steps(option))) for option in below)
            )
            if below
            else ""
        )
    for item in advice.also_needed:
        also = "Also needed" if advice.option else "Suggested fix"
        parts += [
            element("h3", f"{also} ({item.code})"),
            element("p", item.text),
            items("ol", map(_step, item.steps)),
        ]
    return join(parts)


def _advice(certificate: Certificate) -> Html:
    """What to do about each criterion that failed or stayed open; once for those that share it."""
    parts: list[object] = []
    for todo, found in troubles(certificate).items():
        if todo:
            statements = dict.fromkeys(f"{criterion_title(item.code)} ({item.where})" for item in found)
            parts += [element("h3", ", ".join(statements)), element("p", todo)]
    return join(parts)


def _steps(option: Option) -> Html:
    return items("ol", map(_step, option.steps))


def _step(step: Step) -> Html:
    made: list[object] = [element("span", step.text)]
    if step.command:
        made.append(element("pre", step.command.shell(windows=False), tabindex=0))
    if isinstance(step, BuildWheel):
        made.append(
            items(
                "ul",
                (
                    *(element("code", f"{name}={value}") for name, value in step.variables.items()),
                    *(f"{name} is unset" for name in step.unset),
                    *(f"edit {edit.rule}" for edit in step.edits),
                ),
            )
        )
    return join(made)


def _levels(certificate: Certificate) -> Html:
    means = _MEANS | (_MEANS_ON_THE_CPU if certificate.device == "cpu" else {})
    rungs = (
        join(
            (
                element("b", rung.name.value),
                " ",
                badge(_REACHED[rung.reached], rung.words)
                if rung.needed
                else element("i", rung.words, class_="note"),
                element("p", means[rung.name.value], class_="note"),
                element("p", rung.shown_by),
            )
        )
        for rung in certificate.proof
    )
    said = (
        "Lowest first; a claim never reaches above the highest that was verified. Below each name: what it means, and what was "
        "found."
    )
    return join((element("p", said, class_="note"), items("ol", rungs, class_="levels")))


def _scenes(certificate: Certificate, folder: Path) -> Html:
    runs = certificate.scenes
    views = read_views(folder, runs)
    parts: list[object] = [overview(runs)] if runs else []
    parts += [section(run, number, folder, views[number]) for number, run in enumerate(runs)]
    if certificate.skipped:
        parts += [
            element("h3", "Skipped"),
            items("ul", (f"{item.scene}: {item.reason}" for item in certificate.skipped)),
        ]
    return join(parts)


def _comparison(certificate: Certificate) -> Html:
    found = certificate.comparison
    if found is None or not found.scenes:
        return Html("")
    rows = [
        (*row[:-1], badge(_COMPARED[item.outcome], row[-1]))
        for item, row in zip(found.scenes, baseline.rows(found), strict=True)
    ]
    return join(
        (
            element(
                "div",
                table(baseline.caption(found), baseline.HEADERS, rows),
                class_="wide",
                tabindex=0,
                role="region",
                aria_label=baseline.TITLE,
            ),
            items("ul", baseline.remarks(found), class_="note"),
        )
    )


def _kernels(certificate: Certificate) -> Html:
    if not certificate.kernels:
        return Html("")
    compared = any(item.own_difference is not None for item in certificate.kernels)
    own = ("from splatfix's own",) if compared else ()
    headers = ("kernel", "implementation", "result", "value error", "gradient error", *own, "detail")
    rows = [
        (
            item.name,
            item.implementation + (f" ({item.kind})" if item.kind else ""),
            badge(*_kernel_outcome(item)),
            _error(item.value_error, item.value_allowed),
            _error(item.gradient_error, item.gradient_allowed),
            *((own_difference(item),) if compared else ()),
            item.detail or "–",
        )
        for item in certificate.kernels
    ]
    told = (
        "A kernel does the heavy work. Each is run on the same input as a slow reference in double precision (float64); errors "
        "are the largest difference, of its values and of its gradient, relative to the largest value of the reference."
    )
    return element(
        "div",
        table(told, headers, rows),
        class_="wide results",
        tabindex=0,
        role="region",
        aria_label="Kernels against float64 references",
    )


def _kernel_outcome(item: KernelCheck) -> tuple[str, str]:
    kind, words = OUTCOMES[item.outcome]
    if item.outcome.value == "met":
        return kind, "agrees"
    return kind, words if item.kind or kind != "none" else "not installed"


def _error(found: float | None, allowed: float | None) -> str:
    if not allowed:
        return "–"
    return f"{'none' if found is None else f'{found:.1e}'} (allowed {allowed:.0e})"


def _matrix(matrix: BinaryMatrix) -> Html:
    if not matrix.binaries and not matrix.unread:
        return Html("")
    parts: list[object] = []
    if matrix.binaries:
        rows = [(item.path, item.code, *_cells(item)) for item in matrix.binaries]
        told = "Read from the files; nothing was loaded for it"
        told += "" if matrix.gpus else ". There is no GPU here to judge for"
        parts.append(
            element(
                "div",
                table(told, ("binary", "GPU code in it", *matrix.gpus), rows),
                class_="wide",
                tabindex=0,
                role="region",
                aria_label="Binaries and GPUs",
            )
        )
    if matrix.unread:
        parts += [element("h3", "Not readable"), items("ul", matrix.unread)]
    return join(parts)


def _cells(item: BinaryFit) -> list[Html]:
    return [join((badge(*_FITS[fit.usable]), element("p", fit.reason, class_="note"))) for fit in item.fits]


def _environment(certificate: Certificate, facts: Facts) -> Html:
    installed = sorted(
        (f"{item.name}=={item.version}" for item in facts.environment.distributions.value or ()),
        key=str.lower,
    )
    driver = facts.machine.driver.value
    toolkits = ", ".join(
        f"{item.version or 'version not known'} in {item.root}" for item in facts.machine.toolkits.value or ()
    )
    rows = [*certificate.environment.items()]
    if driver and "driver" not in certificate.environment:
        rows.append(
            ("driver", f"{driver.version or 'not known'}" + (f", CUDA {driver.cuda}" if driver.cuda else ""))
        )
    rows += [("CUDA toolkits", toolkits)] if toolkits else []
    scenes = (_provenance(run.scene, run.result) for run in certificate.scenes if run.result)
    return join(
        (
            element("h3", "Repeat it"),
            element("pre", certificate.repeat.shell(windows=False), tabindex=0),
            element("h3", "Valid for"),
            pairs(rows),
            *scenes,
            details(
                f"All {counted(len(installed), 'package')} of the environment, as a requirements file",
                element("pre", "\n".join(installed), tabindex=0),
            )
            if installed
            else "",
        )
    )


def _provenance(scene: str, result: Mapping[str, Any]) -> Html:
    """The scene's digest, its settings, and which code ran."""
    config, ran = result.get("config"), result.get("implementations")
    settings = (
        ", ".join(f"{name} {value}" for name, value in config.items() if value is not None)
        if isinstance(config, Mapping)
        else ""
    )
    rows = [
        (
            part,
            *(str(engine.get(name) or "–") for name in ("name", "version", "engine", "file")),
            element("code", engine.get("sha256") or "–"),
            engine.get("calls", "–"),
        )
        for part, engine in (ran.items() if isinstance(ran, Mapping) else ())
        if isinstance(engine, Mapping)
    ]
    headers = ("part", "name", "version", "engine", "file", "SHA-256 of the file", "calls")
    return details(
        join((element("b", scene), ": settings, and the code that ran")),
        pairs(
            (
                ("scene's SHA-256", element("code", result.get("scene_sha256") or "not known")),
                ("settings", settings),
            )
        ),
        table("Code that ran, recorded from inside the run", headers, rows) if rows else "",
    )
