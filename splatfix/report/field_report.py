"""A certificate as Markdown: the report that is filed, read by people and kept in a repository."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from splatfix.certify.model import Certificate, Criterion, SceneRun
from splatfix.core.words import counted
from splatfix.plan.option import Options
from splatfix.report import comparison
from splatfix.report.console import page
from splatfix.report.markdown import link_target, render
from splatfix.report.options import show_suggestion
from splatfix.report.tree import (
    Block,
    Code,
    Inline,
    Items,
    Link,
    Paragraph,
    Pictures,
    Screen,
    Section,
    Strong,
    Table,
    Text,
    section_if,
)
from splatfix.report.view import OUTCOMES, CertificateView, Trouble, count_met

_Blocks = Sequence[Block | Section]


def markdown(certificate: Certificate, options: Options | None = None) -> str:
    """The report for people, as Markdown: summary, configuration, results, validation, troubleshooting, how to reproduce.

    Args:
        options: where a diagnosis of the same facts explains a failed certification: what to do about it.
    """
    view = CertificateView(certificate)
    # the order of a field report in engineering: what happened, where, what was found, how it was checked, what to do
    sections = (
        Section("Summary", _summary(view)),
        Section("Configuration", _configuration(view)),
        *section_if("Results by scene", _results(view)),
        Section("Technical validation", list(_validation(view))),
        Section("Troubleshooting", list(_troubleshooting(view, options))),
        Section("How to reproduce", _reproduce(certificate)),
    )
    return render(Section(f"splatfix certificate: {view.headline.text}", sections))


def _summary(view: CertificateView) -> _Blocks:
    certificate = view.certificate
    text = f"{view.scope} Issued {certificate.issued}, after {certificate.seconds:.0f} s."
    # not those of the diagnosis: "27 of 27" is about training
    criteria = [criterion for run in certificate.scenes for criterion in run.criteria]
    if criteria:
        text += f" {count_met(criteria)} criteria met."
    skipped = [f"{', '.join(names)}: {reason}" for reason, names in view.skipped.items()]
    return (
        Paragraph(certificate.summary),
        Paragraph(text),
        *_list("Why it is not certified", certificate.reasons),
        *_list("Reservations", view.reservations),
        *_list("Scenes that cannot be read", view.unreadable),
        *_list("Skipped scenes", skipped),
    )


def _list(title: str, lines: Sequence[str]) -> Sequence[Section]:
    return section_if(title, (Items(lines),) if lines else ())


def _configuration(view: CertificateView) -> _Blocks:
    certificate = view.certificate
    blocks: list[Block | Section] = [Table(("part", "version"), list(certificate.environment.items()))]
    if view.settings:
        blocks.append(Section("Settings", (view.settings,)))
    if view.code_that_ran:
        blocks.append(Section("Code that ran, recorded from inside the run", (view.code_that_ran,)))
    if certificate.sources:
        files = counted(len(certificate.sources), "source file")
        text = f"The trainer and its kernels are {files}, whose digests are in certificate.json."
        blocks.append(Paragraph(text))
    return blocks


def _results(view: CertificateView) -> _Blocks:
    if view.results is None:
        return ()
    blocks: list[Block | Section] = [view.results, Paragraph(view.legend)]
    baseline = view.baseline
    if baseline:
        parts: list[Block] = [Paragraph(baseline.caption), baseline.table]
        parts.append(Items(baseline.remarks))
        blocks.append(Section(comparison.TITLE, parts))
    for run in view.certificate.scenes:
        blocks.extend(_pictures(run))
    return blocks


def _pictures(run: SceneRun) -> Iterator[Block]:
    """A line that leads to the log, and the held-out views."""
    text: list[Inline] = [run.scene]
    if run.log:
        text += [": ", Link("log", link_target(run.log))]
    if run.images:
        text.append("; held-out views, rendering on the left, ground truth on the right:")
    if run.log or run.images:
        yield Paragraph(text)
    if run.images:
        yield Pictures(run.scene, [link_target(path) for path in run.images])


def _validation(view: CertificateView) -> Iterator[Section]:
    certificate = view.certificate
    levels = [(level.name, level.badge.text, level.evidence) for level in view.levels]
    yield Section("Levels of proof", (Table(("level", "outcome", "evidence"), levels),))
    if certificate.diagnosis:
        rows: list[Sequence[Text]] = []
        for check in certificate.diagnosis:
            rows.append((check.code, check.required, OUTCOMES[check.outcome], check.measured))
        yield Section("Diagnosis", (Table(("check", "asks for", "outcome", "found"), rows),))
    if certificate.kernels:
        yield Section("Kernels against float64 references", (_kernels(view),))
    for run in certificate.scenes:
        yield Section(f"Criteria: {run.scene}", (_criteria(run.criteria),))
    # scenes share their criteria: each threshold's source once
    sources: dict[str, str] = {}
    for run in certificate.scenes:
        sources |= {criterion.code: criterion.source for criterion in run.criteria if criterion.source}
    if sources:
        table = Table(("criterion", "source"), list(sources.items()))
        yield Section("Where the thresholds come from", (table,))


def _criteria(criteria: Sequence[Criterion]) -> Table:
    rows: list[Sequence[Text]] = []
    for criterion in criteria:
        badge = OUTCOMES[criterion.outcome]
        rows.append((criterion.code, badge, criterion.measured, criterion.required))
    return Table(("criterion", "outcome", "measured", "required"), rows)


def _kernels(view: CertificateView) -> Table:
    own_header = ("from splatfix's own",) if view.compared_with_own else ()
    headers = ("kernel", "implementation", "value error", "gradient error", *own_header, "outcome")
    rows = []
    for kernel in view.kernels:
        cells = [kernel.name, kernel.implementation, kernel.value_error, kernel.gradient_error]
        if view.compared_with_own:
            cells.append(kernel.own_difference)
        outcome = kernel.badge.plain or kernel.badge.text
        if kernel.detail:
            outcome += f": {kernel.detail}"
        rows.append((*cells, outcome))
    return Table(headers, rows)


def _troubleshooting(view: CertificateView, options: Options | None) -> Iterator[Block]:
    """Each thing that went wrong or stayed open: what it means, and what to do."""
    if not view.ended:
        yield Paragraph("The run did not come to its end: start it again with the command below.")
    elif not view.troubles and options is None:
        yield Paragraph("Nothing went wrong.")
    for todo, troubles in view.troubles.items():
        yield Items([_trouble(trouble) for trouble in troubles])
        if todo:
            yield Paragraph(f"  What to do: {todo}")
    if options is not None:
        # steps and commands as the terminal lays them out: each command is runnable as it stands
        text = io.StringIO()
        show_suggestion(page(text, width=80), options, None)
        yield Screen(text.getvalue().rstrip())


def _trouble(trouble: Trouble) -> Text:
    outcome = OUTCOMES[trouble.outcome].text
    return (Strong(f"{trouble.where}: {trouble.code}"), f" {outcome}: {trouble.means}")


def _reproduce(certificate: Certificate) -> _Blocks:
    blocks: list[Block] = [Code(certificate.repeat.shell(windows=False))]
    digests = []
    for run in certificate.scenes:
        if run.record.scene_sha256:
            digests.append((run.scene, run.record.scene_sha256))
    if digests:
        blocks.append(Table(("scene", "SHA-256 of its files"), digests))
    return blocks
