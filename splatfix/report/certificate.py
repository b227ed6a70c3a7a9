"""A certificate as JSON, for the terminal, as Markdown, as a page, and as GitHub's annotations."""

import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from msgspec import Struct
from rich.console import Console

from splatfix.certify.model import Certificate, Outcome, Verdict
from splatfix.context.model import BinaryMatrix
from splatfix.core.codec import to_json
from splatfix.core.step import Step
from splatfix.model import Facts
from splatfix.model.option import Options
from splatfix.report import view
from splatfix.report.annotations import annotation
from splatfix.report.console import escape, marked, page, prose, section, shorten_home, show_rows, show_todo
from splatfix.report.forms import writes
from splatfix.report.html.scenes import read_scenes
from splatfix.report.marks import Badge, Mark, Table
from splatfix.report.options import show_suggestion
from splatfix.report.templates import fill_in
from splatfix.report.templates import page as html_page

_FITS = {
    True: Badge(Mark.GOOD, "runs"),
    False: Badge(Mark.BAD, "does not run"),
    None: Badge(Mark.UNSURE, "not known"),
}


class CertificateDocument(Struct, frozen=True, kw_only=True):
    """A certificate with the facts it is valid for."""

    certificate: Certificate
    facts: Facts
    folder: str = ""
    """The report folder, with pictures, metrics and logs."""
    page: str = ""
    """The page there; "" where there is none."""
    sha256: str = ""
    """Of its certificate.json; "" as long as that is not written."""
    options: Options | None = None
    """Those of a diagnosis of the facts, where that explains a failed certification."""
    matrix: BinaryMatrix = BinaryMatrix()
    """Every binary with GPU code in the environment against every GPU."""
    next_steps: tuple[Step, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the content of the JSON document, which is that of certificate.json."""
        return {
            **to_json(self.certificate),
            "options": to_json(self.options),
            "facts": to_json(self.facts),
            "page": self.page,
            "next_steps": to_json(self.next_steps),
        }


class StoredDocument(CertificateDocument, frozen=True, kw_only=True):
    """A certificate that was written earlier."""

    file: str
    issued_by: str
    """The splatfix that wrote it."""
    stored: Mapping[str, Any]
    """The content of the file."""

    def to_json(self) -> dict[str, Any]:
        """Return the content as it was stored, with where, by whom, and what is there now."""
        now = {"page": self.page, "next_steps": to_json(self.next_steps)}
        about = {"file": self.file, "issued_by": self.issued_by, "sha256": self.sha256}
        return {**about, **self.stored, **now}


@writes(CertificateDocument)
def show(console: Console, document: CertificateDocument, *, verbose: bool = False) -> None:
    """Print the outcome in a screenful: verdict, levels, and a line per scene; with ``verbose`` also every table."""
    certificate = document.certificate
    title = view.headline(certificate.verdict, certificate.level, certificate.device)
    _show_verdict(console, title, certificate.summary, certificate.reasons, document.page)
    # before anything else is listed: a reservation qualifies the verdict
    for note in certificate.notes:
        marked(console, Mark.RESERVATION, escape(f"{note.scene}: {note.reason}"))
    for scene in certificate.unreadable:
        marked(console, Mark.UNSURE, escape(f"{scene.scene}: {scene.reason}"))
    if document.options is not None:
        show_suggestion(console, document.options, None)  # no "explain": diagnose has --why, certify has not
    if certificate.stack:
        for mend in certificate.stack.mends:
            show_todo(console, mend.remedy, indent=2)
    show_todo(console, document.next_steps, indent=2)
    section(console, "Levels of proof")
    for rung in certificate.proof:
        # what is not needed is neither reached nor missing: no mark
        sign, text = " ", f"{rung.words}: {rung.shown_by}"
        if rung.needed:
            sign, text = view.REACHED[rung.reached].markup, rung.shown_by
        prose(console, f"  {sign} {rung.name.value:<10}  ", escape(text))
    trained = [run for run in certificate.scenes if not run.unreadable]
    if trained or certificate.skipped:
        section(console, "Scenes")
    for run in trained:
        # what could not be judged shows in the numbers behind it
        mark = view.REACHED[run.passed]
        counts = Counter(criterion.outcome for criterion in run.criteria)
        parts = [f"{view.count_met(run.criteria)} criteria met"]
        for outcome in (Outcome.FAILED, Outcome.UNDETERMINED, Outcome.NOT_MEASURED):
            if counts[outcome]:
                parts.append(f"{counts[outcome]} {view.OUTCOMES[outcome].text}")
        if run.record.heldout.psnr is not None:
            parts.append(f"held-out {run.record.heldout.psnr:.2f} dB")
        parts.append(f"{run.seconds:.0f} s")
        prose(console, f"  {mark.markup} {escape(run.scene):<10}  ", ", ".join(parts))
    for reason, names in view.skipped(certificate).items():
        marked(console, Mark.NONE, f"[dim]{escape(names)}: skipped, {escape(reason)}[/]")
    for heading, content in view.tables(certificate).items():
        if verbose or (heading == view.KERNELS and not certificate.scenes):
            section(console, heading)
            show_rows(console, content)


def _show_verdict(console: Console, title: Badge, summary: str, reasons: Sequence[str], report: str) -> None:
    prose(console, "", f"[{title.mark.style}]{title.text}:[/] {escape(summary)}", hang=2)
    for reason in reasons:
        marked(console, Mark.BAD, escape(str(reason)))
    if report:
        prose(console, "  Report: ", escape(report))


class LaneCertificateDocument(Struct, frozen=True):
    """A certificate that was made in a container, whose image may hold another version of splatfix."""

    lane: str
    page: str
    content: Mapping[str, Any]
    """Of its document."""

    def to_json(self) -> Mapping[str, Any]:
        """Return the document as it was made."""
        return self.content


@writes(LaneCertificateDocument)
def show_from_container(console: Console, document: LaneCertificateDocument) -> None:
    """Print the outcome of a certification in a container."""
    # no run level: what the lane was asked for stands in its own report
    content = document.content
    title = view.headline(Verdict(content["verdict"]), None, str(content.get("device")))
    summary = f"(lane {document.lane}) {content.get('summary', '')}"
    _show_verdict(console, title, summary, content.get("reasons") or (), document.page)


@writes(CertificateDocument, "markdown")
def markdown(document: CertificateDocument) -> str:
    """Return the report for people, as Markdown: summary, configuration, results, validation, troubleshooting (with the options
    of a diagnosis, where one explains a failed certification), how to reproduce."""
    certificate = document.certificate
    screen = Markup("")
    if document.options is not None:  # as the terminal lays it out: each command is runnable as it stands
        stream = io.StringIO()
        show_suggestion(page(stream, width=80), document.options, None)
        text = shorten_home(stream.getvalue().rstrip())
        # a fence longer than any in the text: nothing in it can end it
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
        screen = Markup(f"{fence}text\n{text}\n{fence}")  # nosec B704 - inside a fence nothing is markup
    return fill_in("certificate.md", document=document, certificate=certificate, view=view, screen=screen)


@writes(CertificateDocument, "html")
def certificate_page(document: CertificateDocument) -> str:
    """Return a certificate as one HTML file, with the options of a diagnosis where one explains a failed certification."""
    certificate, facts, matrix = document.certificate, document.facts, document.matrix
    means, levels = view.WORDS["verdicts"][certificate.verdict.value], view.WORDS["levels"]
    if certificate.verdict is Verdict.CERTIFIED:
        means = view.WORDS["run_levels"].get(str(certificate.level), means)
    # without a GPU there is no driver and no toolkit that could fit or not
    if certificate.device == "cpu":
        levels = levels | view.WORDS["levels_on_the_cpu"]
    # what of the machine a certificate's own environment does not tell
    named = [
        f"{item.version or 'version not known'} in {item.root}" for item in facts.machine.toolkits.value or ()
    ]
    packages = [f"{item.name}=={item.version}" for item in facts.environment.distributions.value or ()]
    binaries = [(item.path, item.code, *item.verdicts) for item in matrix.binaries]
    return html_page(
        "certificate.html",
        document=document,
        certificate=certificate,
        view=view,
        means=means,
        levels=levels,
        scenes=read_scenes(certificate.scenes, Path(document.folder)),
        matrix=matrix,
        binary_table=Table(("binary", "GPU code in it", *matrix.gpus), binaries),
        fits=_FITS,
        valid_for={**certificate.environment, "CUDA toolkits": ", ".join(named)}.items(),
        # sorted as pip freeze does, so that two pages can be compared
        packages=sorted(packages, key=str.lower),
    )


@writes(CertificateDocument, "github")
def github(document: CertificateDocument) -> str:
    """Return an annotation for the verdict where it is none that certifies, and one for each problem."""
    certificate = document.certificate
    level = {Verdict.NOT_CERTIFIED: "error", Verdict.UNDETERMINED: "warning"}.get(certificate.verdict)
    if level is None:
        return ""
    lines = [annotation(level, certificate.verdict.value, certificate.summary, (certificate.summary,))]
    for advice, problems in view.what_to_do(certificate).items():
        for item in problems:
            measured = f"{item.where}: {item.criterion.measured}"
            message = "\n".join(filter(None, (measured, advice)))
            lines.append(
                annotation(level, item.criterion.code, message, (measured, item.criterion.why, advice))
            )
    return "".join(lines)
