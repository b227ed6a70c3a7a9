"""A certificate as Markdown, for a repository, an issue or the page of a CI run."""

import io
import re

from markupsafe import Markup

from splatfix.certify.model import Certificate, Criterion
from splatfix.model.option import Options
from splatfix.report import comparison
from splatfix.report.console import page, shorten_home
from splatfix.report.options import show_suggestion
from splatfix.report.templates import fill_in
from splatfix.report.view import OUTCOMES, CertificateView, count_met


def markdown(certificate: Certificate, options: Options | None = None, sha256: str = "") -> str:
    """The report for people, as Markdown: summary, configuration, results, validation, troubleshooting (with the
    options of a diagnosis, where one explains a failed certification), how to reproduce."""
    view = CertificateView(certificate)
    criteria: list[Criterion] = []  # not those of the diagnosis: "27 of 27" is about training
    for run in certificate.scenes:
        criteria.extend(run.criteria)
    skipped = [f"{', '.join(names)}: {reason}" for reason, names in view.skipped.items()]
    digests = [(run.scene, run.record.scene_sha256) for run in certificate.scenes]
    screen = Markup("")
    if options is not None:  # as the terminal lays it out: each command is runnable as it stands
        stream = io.StringIO()
        show_suggestion(page(stream, width=80), options, None)
        text = shorten_home(stream.getvalue().rstrip())
        # a fence longer than any in the text: nothing in it can end it
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
        screen = Markup(f"{fence}text\n{text}\n{fence}")  # nosec B704 - inside a fence nothing is markup
    return fill_in(
        "certificate.md",
        certificate=certificate,
        sha256=sha256,
        view=view,
        criteria=criteria,
        count_met=count_met,
        outcomes=OUTCOMES,
        remarks=(
            ("Why it is not certified", certificate.reasons),
            ("Reservations", view.reservations),
            ("Scenes that cannot be read", view.unreadable),
            ("Skipped scenes", skipped),
        ),
        baseline_title=comparison.TITLE,
        # scenes share their criteria: each threshold's source once
        sources={criterion.code: criterion.source for criterion in criteria if criterion.source},
        screen=screen,
        digests=[row for row in digests if row[1]],
    )
