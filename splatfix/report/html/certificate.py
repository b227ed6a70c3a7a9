"""The page of a certificate, with the pictures, metrics and logs of the report folder."""

from pathlib import Path

from splatfix.certify.model import Verdict
from splatfix.report import view
from splatfix.report.certificate import CertificateDocument
from splatfix.report.forms import writes
from splatfix.report.html.scenes import read_scenes
from splatfix.report.marks import Badge, Mark, Table
from splatfix.report.templates import page

_FITS = {
    True: Badge(Mark.GOOD, "runs"),
    False: Badge(Mark.BAD, "does not run"),
    None: Badge(Mark.UNSURE, "not known"),
}


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
    return page(
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
