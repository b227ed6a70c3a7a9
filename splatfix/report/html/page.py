"""The pages: one certificate, and the matrix of many. Each is one HTML file that needs no network and no library, readable on a
phone, on paper and by a screen reader."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from markupsafe import Markup

import splatfix
from splatfix.certify.model import Certificate
from splatfix.context.model import BinaryMatrix
from splatfix.model import Facts
from splatfix.model.option import Options
from splatfix.report import comparison
from splatfix.report.html.scenes import read_scenes
from splatfix.report.marks import Badge, Mark, Table
from splatfix.report.merged import NO_CERTIFICATE
from splatfix.report.merging import Listed, Merged
from splatfix.report.templates import fill_in
from splatfix.report.view import OUTCOMES, VERDICTS, CertificateView
from splatfix.report.wording import GLOSSARY, HELD_OUT, SLIDE, statement, title_of

_FITS = {
    True: Badge(Mark.GOOD, "runs"),
    False: Badge(Mark.BAD, "does not run"),
    None: Badge(Mark.UNSURE, "not known"),
}
MOST_LINKS = 20
"""Of one cell or group; the JSON document has all."""


def certificate_page(
    certificate: Certificate,
    facts: Facts,
    folder: Path,
    options: Options | None,
    matrix: BinaryMatrix,
    sha256: str = "",
) -> str:
    """A certificate as one HTML file, with the pictures, metrics and logs of the report folder, and the options of a diagnosis
    where one explains a failed certification."""
    view = CertificateView(certificate)
    distributions = facts.environment.distributions.value or ()
    packages = [f"{item.name}=={item.version}" for item in distributions]
    # what of the machine a certificate's own environment does not tell
    valid_for = list(certificate.environment.items())
    driver = facts.machine.driver.value
    if driver and "driver" not in certificate.environment:
        version = driver.version or "not known"
        if driver.cuda:
            version += f", CUDA {driver.cuda}"
        valid_for.append(("driver", version))
    toolkits = facts.machine.toolkits.value or ()
    if toolkits:
        named = (f"{item.version or 'version not known'} in {item.root}" for item in toolkits)
        valid_for.append(("CUDA toolkits", ", ".join(named)))
    return page(
        "certificate.html",
        certificate=certificate,
        view=view,
        options=options,
        advice=list(_advice(view)),
        outcomes=OUTCOMES,
        title_of=title_of,
        scenes=read_scenes(certificate.scenes, folder),
        held_out=HELD_OUT,
        slide=SLIDE,
        baseline_title=comparison.TITLE,
        matrix=matrix,
        binary_table=Table(
            ("binary", "GPU code in it", *matrix.gpus),
            [(item.path, item.code, *item.verdicts) for item in matrix.binaries],
        ),
        fits=_FITS,
        valid_for=valid_for,
        # sorted as pip freeze does, so that two pages can be compared
        packages=sorted(packages, key=str.lower),
        glossary=GLOSSARY,
        sha256=sha256,
    )


def matrix_page(
    merged: Merged, unreadable: Sequence[tuple[str, str]], data: str, refused: Sequence[tuple[str, str]] = ()
) -> str:
    """Merged certificates as one HTML file; ``data`` is the JSON document beside it, as a relative URL."""
    order = list(VERDICTS)

    def failed_first(entries: Sequence[Listed]) -> Sequence[Listed]:
        return sorted(entries, key=lambda item: order.index(item.verdict))[:MOST_LINKS]

    return page(
        "certificates.html",
        refused=refused,
        no_certificate=NO_CERTIFICATE,
        merged=merged,
        verdicts=VERDICTS,
        failed_first=failed_first,
        most_links=MOST_LINKS,
        unreadable=unreadable,
        data=data,
    )


def page(template: str, **values: Any) -> str:
    """A template filled in as one HTML file, with style and script."""
    script = _own("viewer.js")
    return fill_in(
        template,
        version=splatfix.__version__,
        style=_own("style.css"),
        script=script,
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        **values,
    )


@cache
def _own(name: str) -> Markup:
    return Markup(Path(__file__).with_name(name).read_text(encoding="utf-8"))  # nosec B704 - a file of ours


def _advice(view: CertificateView) -> Iterable[tuple[str, Sequence[str]]]:
    """What to do, and about which criteria, each once."""
    for todo, troubles in view.troubles.items():
        if todo:
            places: dict[str, list[str]] = {}
            for item in troubles:
                places.setdefault(statement(item.code), []).append(item.where)
            names: dict[tuple[str, ...], list[str]] = {}
            for name, where in places.items():
                names.setdefault(tuple(where), []).append(name)
            yield todo, [f"{', '.join(its)} ({', '.join(where)})" for where, its in names.items()]
