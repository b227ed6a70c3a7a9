"""The page of a certificate, with the pictures, metrics and logs of the report folder."""

from pathlib import Path

from splatfix.certify.model import Verdict
from splatfix.report import comparison, view
from splatfix.report.certificate import CertificateDocument
from splatfix.report.forms import writes
from splatfix.report.html.page import page
from splatfix.report.html.scenes import read_scenes
from splatfix.report.marks import Badge, Mark, Table
from splatfix.report.wording import GLOSSARY, HELD_OUT, MEANS, MEANS_WITHOUT_TRAINING, SLIDE, title_of

_FITS = {
    True: Badge(Mark.GOOD, "runs"),
    False: Badge(Mark.BAD, "does not run"),
    None: Badge(Mark.UNSURE, "not known"),
}


@writes(CertificateDocument, "html")
def certificate_page(document: CertificateDocument) -> str:
    """Return a certificate as one HTML file, with the options of a diagnosis where one explains a failed certification."""
    certificate, facts, matrix = document.certificate, document.facts, document.matrix
    headline = view.headline(certificate.verdict, certificate.level, certificate.device)
    # without its capitals, which shout where a colour and a sign say the same
    verdict, *rest = headline.text.split(" (", 1)
    means = MEANS[certificate.verdict]
    if certificate.verdict is Verdict.CERTIFIED and certificate.level in MEANS_WITHOUT_TRAINING:
        means = MEANS_WITHOUT_TRAINING[certificate.level]
    # what of the machine a certificate's own environment does not tell
    valid_for = dict(certificate.environment)
    driver = facts.machine.driver.value
    if driver:
        text = f"{driver.version or 'not known'}, CUDA {driver.cuda or 'version not known'}"
        valid_for.setdefault("driver", text)
    toolkits = facts.machine.toolkits.value or ()
    if toolkits:
        named = (f"{item.version or 'version not known'} in {item.root}" for item in toolkits)
        valid_for["CUDA toolkits"] = ", ".join(named)
    packages = [f"{item.name}=={item.version}" for item in facts.environment.distributions.value or ()]
    return page(
        "certificate.html",
        certificate=certificate,
        view=view,
        headline=Badge(headline.mark, " (".join((verdict.capitalize(), *rest))),
        means=means,
        options=document.options,
        todo=view.what_to_do(certificate),
        outcomes=view.OUTCOMES,
        title_of=title_of,
        scenes=read_scenes(certificate.scenes, Path(document.folder)),
        results=view.results(certificate.scenes),
        held_out=HELD_OUT,
        slide=SLIDE,
        baseline=view.baseline(certificate),
        baseline_title=comparison.TITLE,
        kernel_table=view.kernels(certificate),
        code_table=view.code_that_ran(certificate),
        settings_table=view.settings(certificate),
        matrix=matrix,
        binary_table=Table(
            ("binary", "GPU code in it", *matrix.gpus),
            [(item.path, item.code, *item.verdicts) for item in matrix.binaries],
        ),
        fits=_FITS,
        valid_for=valid_for.items(),
        # sorted as pip freeze does, so that two pages can be compared
        packages=sorted(packages, key=str.lower),
        glossary=GLOSSARY,
        sha256=document.sha256,
    )
