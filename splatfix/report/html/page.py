"""The page: verdict and what to do on top, then levels, scenes, kernels, binaries, and what it takes to do it again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from splatfix.certify.model import Certificate, SceneRun
from splatfix.context.model import BinaryMatrix
from splatfix.core.step import Step
from splatfix.core.words import counted
from splatfix.facts.model import Facts
from splatfix.plan.option import Option, Options
from splatfix.plan.steps import BuildWheel
from splatfix.report import comparison
from splatfix.report.html.markup import (
    NOTHING,
    Html,
    badge,
    details,
    element,
    items,
    join,
    note,
    pairs,
    pre,
    step,
    table,
    wide_table,
)
from splatfix.report.html.scenes import criteria, overview, section
from splatfix.report.html.shell import contents, whole_page
from splatfix.report.html.views import read_views
from splatfix.report.marks import Mark
from splatfix.report.tree import ABSENT, Badge, Table, Text
from splatfix.report.view import IMPLEMENTATION, CertificateView, implementation_cells
from splatfix.report.wording import GLOSSARY, statement

_FITS = {
    True: Badge(Mark.GOOD, "runs"),
    False: Badge(Mark.BAD, "does not run"),
    None: Badge(Mark.UNSURE, "not known"),
}


def certificate_page(
    certificate: Certificate, facts: Facts, folder: Path, options: Options | None, matrix: BinaryMatrix
) -> str:
    """A certificate as one HTML file that needs nothing else: pictures, styles and script are in it.

    Args:
        folder: the report folder, which holds pictures, metrics and logs of the scenes.
        options: where a diagnosis explains a failed certification: what to do about it.
    """
    view = CertificateView(certificate)
    parts = [
        ("what-to-do", "What to do", join(_options(options), _advice(view))),
        ("levels", "What was verified: levels of proof", _levels(view)),
        ("diagnosis", "Diagnosis", join(*criteria(certificate.diagnosis))),
        ("scenes", "Scenes", _scenes(view, folder)),
        ("baseline", comparison.TITLE, _baseline(view)),
        ("kernels", "Kernels against float64 references", _kernels(view)),
        ("binaries", "Binaries and GPUs", _matrix(matrix)),
        ("environment", "Environment, and how to repeat it", _environment(certificate, facts)),
        ("words", "Words in this report", pairs(GLOSSARY)),
    ]
    # capitals shout where a colour and a sign say the same
    headline = Badge(view.headline.mark, view.headline.text.capitalize())
    reasons = NOTHING
    if certificate.reasons:
        reasons = items("ul", certificate.reasons, class_="reasons", aria_label="Why it is not certified")
    header = element(
        "header",
        element("p", "splatfix certificate", class_="kicker"),
        element("h1", headline),
        note(view.means),
        element("p", certificate.summary, class_="claim"),
        reasons,
        note(_about(view)),
        contents(parts),
        class_=headline.mark.value,
    )
    return whole_page(
        f"splatfix certificate: {headline.text}", header, parts, "A pass covers only what was run."
    )


def _about(view: CertificateView) -> str:
    issued = view.certificate.issued.replace("T", " ").replace("+00:00", " UTC")
    return f"{view.scope} Issued {issued}, after {view.certificate.seconds:.0f} s."


def _options(options: Options | None) -> Html:
    if options is None or options.advice is None:
        return NOTHING
    advised = options.advice.option
    parts: list[object] = []
    heading = "Suggested fix"
    if advised is not None:
        parts += [element("h3", "Suggested fix: ", advised.title), _steps(advised)]
        below = options.available[options.available.index(advised) + 1 :]
        if below:  # closed at first: a reader with a broken stack wants one way out
            others = (join(element("h4", option.title), _steps(option)) for option in below)
            parts.append(details("Alternatives", *others))
        heading = "Also needed"
    for item in options.advice.also_needed:
        parts += [element("h3", f"{heading} ({item.code})"), element("p", item.text)]
        parts.append(items("ol", map(_step, item.steps)))
    return join(*parts)


def _advice(view: CertificateView) -> Html:
    """What to do about each criterion that failed or stayed open; once for those that share it."""
    parts: list[object] = []
    for todo, troubles in view.troubles.items():
        if todo:
            statements = dict.fromkeys(f"{statement(item.code)} ({item.where})" for item in troubles)
            parts += [element("h3", ", ".join(statements)), element("p", todo)]
    return join(*parts)


def _steps(option: Option) -> Html:
    return items("ol", map(_step, option.steps))


def _step(content: Step) -> Html:
    if not isinstance(content, BuildWheel):
        return step(content)
    settings: list[object] = []
    settings += [element("code", f"{name}={value}") for name, value in content.variables.items()]
    settings += [f"{name} is unset" for name in content.unset]
    settings += [f"edit {edit.rule}" for edit in content.edits]
    return join(step(content), items("ul", settings))


def _levels(view: CertificateView) -> Html:
    rows = []
    for level in view.levels:
        outcome = badge(level.badge)
        if not level.needed:  # it is neither reached nor missing: no sign
            outcome = element("i", level.badge.text, class_="note")
        name = element("b", level.name)
        rows.append(join(name, " ", outcome, note(level.means), element("p", level.evidence)))
    intro = (
        "Lowest first; a claim never reaches above the highest that was verified. Below each name: what it means, and what was "
        "found."
    )
    return join(note(intro), items("ol", rows, class_="levels"))


def _scenes(view: CertificateView, folder: Path) -> Html:
    runs = view.certificate.scenes
    views = read_views(folder, runs)
    parts: list[object] = [overview(view)]
    for number, run in enumerate(runs):
        parts.append(section(run, number, folder, views[number]))
    if view.certificate.skipped:
        skipped = (f"{item.scene}: {item.reason}" for item in view.certificate.skipped)
        parts += [element("h3", "Skipped"), items("ul", skipped)]
    return join(*parts)


def _baseline(view: CertificateView) -> Html:
    baseline = view.baseline
    if baseline is None:
        return NOTHING
    shown = wide_table(comparison.TITLE, baseline.caption, baseline.table)
    return join(shown, items("ul", baseline.remarks, class_="note"))


def _kernels(view: CertificateView) -> Html:
    if not view.kernels:
        return NOTHING
    own_header = ("from splatfix's own",) if view.compared_with_own else ()
    rows: list[Sequence[Text]] = []
    for kernel in view.kernels:
        implementation = kernel.implementation
        if kernel.kind:
            implementation += f" ({kernel.kind})"
        cells: list[Text] = [
            kernel.name,
            implementation,
            kernel.badge,
            kernel.value_error,
            kernel.gradient_error,
        ]
        if view.compared_with_own:
            cells.append(kernel.own_difference)
        rows.append((*cells, kernel.detail or ABSENT))
    headers = ("kernel", "implementation", "result", "value error", "gradient error", *own_header, "detail")
    caption = (
        "A kernel does the heavy work. Each is run on the same input as a slow reference in double precision (float64); errors "
        "are the largest difference, of its values and of its gradient, relative to the largest value of the reference."
    )
    return wide_table("Kernels against float64 references", caption, Table(headers, rows), "wide results")


def _matrix(matrix: BinaryMatrix) -> Html:
    parts = []
    if matrix.binaries:
        rows = []
        for binary in matrix.binaries:
            fits = (join(_FITS[fit.usable], note(fit.reason)) for fit in binary.fits)
            rows.append((binary.path, binary.code, *fits))
        caption = "Read from the files; nothing was loaded for it"
        if not matrix.gpus:
            caption += ". There is no GPU here to judge for"
        content = Table(("binary", "GPU code in it", *matrix.gpus), rows)
        parts.append(wide_table("Binaries and GPUs", caption, content))
    if matrix.unread:
        parts += [element("h3", "Not readable"), items("ul", matrix.unread)]
    return join(*parts)


def _environment(certificate: Certificate, facts: Facts) -> Html:
    rows: list[tuple[str, object]] = list(certificate.environment.items())
    driver = facts.machine.driver.value
    if driver and "driver" not in certificate.environment:
        version = driver.version or "not known"
        if driver.cuda:
            version += f", CUDA {driver.cuda}"
        rows.append(("driver", version))
    toolkits = facts.machine.toolkits.value or ()
    if toolkits:
        named = (f"{item.version or 'version not known'} in {item.root}" for item in toolkits)
        rows.append(("CUDA toolkits", ", ".join(named)))
    return join(
        element("h3", "Repeat it"),
        pre(certificate.repeat.shell(windows=False)),
        element("h3", "Valid for"),
        pairs(rows),
        *(_provenance(run) for run in certificate.scenes if run.result),
        _packages(facts),
    )


def _packages(facts: Facts) -> Html:
    distributions = facts.environment.distributions.value or ()
    if not distributions:
        return NOTHING
    # sorted as pip freeze does, so that two pages can be compared
    lines = sorted((f"{item.name}=={item.version}" for item in distributions), key=str.lower)
    summary = f"All {counted(len(lines), 'package')} of the environment, as a requirements file"
    return details(summary, pre("\n".join(lines)))


def _provenance(run: SceneRun) -> Html:
    """The scene's digest, its settings, and which code ran."""
    record = run.record
    settings = [f"{name} {value}" for name, value in record.settings.items() if value is not None]
    identity = pairs(
        (
            ("scene's SHA-256", element("code", record.scene_sha256 or "not known")),
            ("settings", ", ".join(settings)),
        )
    )
    code = NOTHING
    if record.implementations:
        rows = []
        for part, item in record.implementations.items():
            *cells, digest = implementation_cells(item)
            # a stack's own trainer calls several functions of an extension: by name then
            calls = item.calls_by_name or item.calls or ABSENT
            rows.append((part, *cells, element("code", digest), str(calls)))
        headers = ("part", *IMPLEMENTATION[:-1], "SHA-256 of the file", "calls")
        code = table("Code that ran, recorded from inside the run", Table(headers, rows))
    return details(join(element("b", run.scene), ": settings, and the code that ran"), identity, code)
