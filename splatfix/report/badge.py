"""A small picture (SVG) of a certificate for a README: verdict, target and date."""

from unicodedata import east_asian_width

from splatfix.certify.model import Certificate
from splatfix.report.marks import Mark
from splatfix.report.templates import fill_in
from splatfix.report.view import CertificateView

_COLOURS = {Mark.GOOD: "#176f33", Mark.BAD: "#b3231f", Mark.UNSURE: "#855300"}
"""White letters on them have a contrast of 4.5 and more (WCAG 2)."""
_LETTER = 6.6
"""Pixels of a letter of 11 px, on average; each text is fitted to its room, as nobody knows the font it will have."""
_MOST_TARGET = 40


def badge(certificate: Certificate) -> str:
    """The badge. It needs no font, script or network, and its title says the same to who does not see it."""
    view = CertificateView(certificate)
    target = "CPU"
    if certificate.device != "cpu":
        # certify writes the device behind the name of the GPU
        name = certificate.environment.get("GPU", certificate.device)
        target = name.removesuffix(f" ({certificate.device})")[:_MOST_TARGET]
    verdict = view.headline.text.removesuffix(" (CPU)").lower()
    text = f"{verdict} · {target} · {certificate.issued[:10]}"
    return fill_in(
        "badge.svg",
        text=text,
        title=f"splatfix: {text}",
        left=_width("splatfix"),
        right=_width(text),
        colour=_COLOURS[view.headline.mark],
    )


def _width(text: str) -> int:
    wide = sum(east_asian_width(letter) in "WF" for letter in text)
    return round(_LETTER * (len(text) + wide)) + 12
