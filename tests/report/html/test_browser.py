"""The page in headless Chromium: no error, no sideways scrolling, the keyboard, paper, and the accessibility tree."""

import base64
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from splatfix.app.certify import run_and_report
from splatfix.certify import SUITES, Verdict, criteria
from splatfix.certify.certificate import failures
from splatfix.certify.model import SceneRun
from splatfix.certify.record import TrainingRecord
from splatfix.context.model import BinaryMatrix
from splatfix.facts import gather
from splatfix.report.html import certificate_page, matrix_page
from splatfix.report.merging import Merger
from tests.app.test_merge import BASE
from tests.certify.conftest import RESULT, subject
from tests.report.certificates import varied
from tests.report.html.browser import PROGRAM, Page, browser
from tests.report.html.conftest import Render, png
from tests.report.test_certificate import certificate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        PROGRAM is None or shutil.which("pdfinfo") is None, reason="no Chromium, or no poppler"
    ),
]
A4_WIDTH = 703
"""Pixels of CSS between the margins."""
ASSETS = Path(__file__).resolve().parents[3] / "docs" / "assets"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """One tab for all tests."""
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def file(tmp_path: Path, render: Render) -> Path:
    """The page of one scene."""
    path = tmp_path / "certificate.html"
    path.write_text(render(), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [360, 800, 1400])
@pytest.mark.parametrize("dark", [False, True])
def test_no_error_and_no_sideways_scrolling(chromium: Page, file: Path, width: int, dark: bool) -> None:
    chromium.open(file, width, dark=dark)
    assert chromium.value("document.querySelectorAll('details').forEach(part => part.open = true)") is None
    assert chromium.value("document.documentElement.scrollWidth") == width
    assert chromium.problems() == []


@pytest.mark.parametrize("width", [360, 1400])
def test_the_matrix_has_no_error_and_no_sideways_scrolling(
    chromium: Page, tmp_path: Path, width: int
) -> None:
    merger = Merger()
    for number, document in enumerate(varied(BASE)):
        for copy in range(1 + number % 3):
            merger.add(f"run {number} {copy}/certificate.json", f"run%20{number}/certificate.json", document)
    path = tmp_path / "certificates.html"
    path.write_text(
        matrix_page(merger.merged(), [("x" * 200, "it is a folder")], "certificates.json"), "utf-8"
    )
    for dark in (False, True):
        chromium.open(path, width, dark=dark)
        chromium.value("document.querySelectorAll('details').forEach(part => part.open = true)")
        assert chromium.value("document.documentElement.scrollWidth") == width
        assert chromium.problems() == []
    tree = chromium("Accessibility.getFullAXTree")["nodes"]
    roles = [node["role"]["value"] for node in tree if not node.get("ignored")]
    assert {"table", "rowheader", "columnheader", "link", "navigation", "main"} <= set(roles)


def test_what_the_policy_forbids_is_noticed(chromium: Page, file: Path) -> None:
    file.write_text(
        file.read_text(encoding="utf-8").replace("</main>", "</main><script>1</script>"), encoding="utf-8"
    )
    chromium.open(file)
    assert "Content Security Policy" in "".join(chromium.problems())


def test_keys_move_the_boundary(chromium: Page, file: Path) -> None:
    chromium.open(file)
    chromium.value("document.querySelector('input.cut').focus()")
    for _ in range(3):
        chromium.press("ArrowRight", 39)
    assert chromium.value("document.querySelector('input.cut').value") == "53"
    assert (
        chromium.value("getComputedStyle(document.querySelector('.truth')).clipPath")
        == "inset(0px 0px 0px 53%)"
    )


@pytest.mark.parametrize("half", [32, 300, 1200])
def test_equal_halves_have_no_error(chromium: Page, file: Path, render: Render, half: int) -> None:
    """The difference is made where the page is shown, at sizes that are no multiple of the picture's; at the seam of the
    halves a pixel may be mixed of both."""
    image = pytest.importorskip("PIL.Image")
    noise = png(
        2 * half, 80, lambda x, y: ((x % half) * 7919 % 251, y * 104729 % 241, ((x % half) ^ y) % 256)
    )
    (file.parent / "figurine/renders/000030_view.png").write_bytes(noise)
    file.write_text(render(), encoding="utf-8")
    place = "(r => ({x: r.x, y: r.y + scrollY, width: r.width, height: r.height}))"
    for width in (390, 1000, 1237):
        chromium.open(file, width)
        box = chromium.value(f"{place}(document.querySelector('.panel svg').getBoundingClientRect())")
        chromium.screenshot(picture := file.with_name("error.png"), **box)
        with image.open(picture) as shown:
            inner = shown.convert("RGB").crop((3, 3, shown.width - 3, shown.height - 3))
            assert max(high for _, high in inner.getextrema()) <= 8, width


def test_paper_is_light_and_has_both_pictures(chromium: Page, file: Path) -> None:
    chromium.open(file, 800, dark=True, media="print")
    assert chromium.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert chromium.value("getComputedStyle(document.querySelector('.truth')).clipPath") == "none"
    places = chromium.value(
        "[...document.querySelectorAll('.compare svg')].map(part => part.getBoundingClientRect().x)"
    )
    assert places[1] > places[0]


def test_a_screen_reader_finds_all_parts(chromium: Page, file: Path) -> None:
    chromium.open(file, 360)  # cells stand below each other here
    nodes = chromium("Accessibility.getFullAXTree")["nodes"]
    said = {
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node["ignored"]
    }
    roles = {role for role, _ in said}
    assert {
        "main",
        "navigation",
        "heading",
        "table",
        "row",
        "cell",
        "rowheader",
        "slider",
        "DisclosureTriangle",
    } <= roles
    unnamed = [role for role, name in said if role in ("image", "slider", "link", "heading") and not name]
    assert not unnamed
    assert any(
        role == "image" and name.startswith("Loss by iteration. loss: 1 at iteration 1")
        for role, name in said
    )
    assert any(role == "slider" and "ground truth" in name for role, name in said)


def test_a_real_run(chromium: Page, tmp_path: Path) -> None:
    """The quick suite, trained here. With SPLATFIX_UPDATE_ASSETS set, the README's picture is made of it."""
    pytest.importorskip("torch")
    report = tmp_path / "report/certificate.html"
    run_and_report(subject(SUITES["quick"], report.parent), gather(sys.executable))
    for width in (1200, 390):
        chromium.open(report, width)
        assert chromium.value("document.documentElement.scrollWidth") == width
        assert chromium.problems() == []
    assert chromium.value("document.querySelectorAll('.view').length") == 9
    assert_fit_for_paper(chromium, report)
    if os.environ.get("SPLATFIX_UPDATE_ASSETS"):
        report.write_text(report.read_text(encoding="utf-8").replace(sys.prefix, "~/.venv"), encoding="utf-8")
        take_picture(chromium, report, ASSETS / "certificate.png")


def test_a_failed_run_on_paper(chromium: Page, tmp_path: Path) -> None:
    """Every criterion of three scenes failed, and each with a long reason."""
    report = tmp_path / "certificate.html"
    result, facts = {**RESULT, "heldout": {}, "gradients": {}, "train_loss": {}}, gather(sys.executable)
    judged = criteria.judge(TrainingRecord.of(result), "gsplat")
    runs = tuple(SceneRun(name, judged, 12.0, result) for name in ("courtyard", "study", "figurine"))
    failed = certificate(verdict=Verdict.NOT_CERTIFIED, scenes=runs, reasons=failures((), runs, ()))
    report.write_text(certificate_page(failed, facts, tmp_path, None, BinaryMatrix()), "utf-8")
    assert_fit_for_paper(chromium, report)


def test_the_standard_suite_on_paper(chromium: Page, tmp_path: Path, scene: SceneRun, render: Render) -> None:
    judged = criteria.judge(TrainingRecord.of(RESULT), "torch")
    six = (replace(scene, criteria=judged, images=3 * scene.images),) * 6
    report = tmp_path / "certificate.html"
    report.write_text(render(scenes=six), "utf-8")
    assert_fit_for_paper(chromium, report)


SMALLEST = """
Math.min(...[...document.querySelectorAll('th, td, caption')].map(
  part => parseFloat(getComputedStyle(part).fontSize))) * 72 / 96"""
CUT = """
[...document.querySelectorAll('h1, h2, h3, h4, p, li, b, th, td, dd, summary')].flatMap(part =>
  [...part.childNodes].filter(node => node.nodeType === 3).flatMap(node =>
    [...node.data.matchAll(/[^\\s\\/-]+/g)].filter(word => word[0].length < 40).filter(word => {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      return new Set([...range.getClientRects()].map(box => Math.round(box.y))).size > 1;
    }).map(word => word[0])))"""


def assert_fit_for_paper(page: Page, report: Path) -> None:
    """At most eight sheets of A4, none of them nearly empty, no log, tables in letters of 9 pt, and no word cut in two."""
    page.open(report, A4_WIDTH, media="print")
    data = page("Page.printToPDF", preferCSSPageSize=True)["data"]
    pdf = report.with_suffix(".pdf")
    pdf.write_bytes(base64.b64decode(data))
    told = subprocess.run(["pdfinfo", pdf], capture_output=True, text=True, check=True).stdout
    (sheets,) = map(int, re.findall(r"Pages: +(\d+)", told))
    assert sheets <= 8 and "(A4)" in told
    for sheet in range(1, sheets + 1):
        argv = ["pdftotext", "-f", str(sheet), "-l", str(sheet), pdf, "-"]
        text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        assert len(text.split()) >= 60, (sheet, text)
        assert '"event"' not in text and '{"' not in text
    closed = "document.querySelectorAll('details:not([open])').length"
    before = page.value(closed)
    page.value("dispatchEvent(new Event('beforeprint'))")
    assert page.value(closed) == 0 and page.value(SMALLEST) >= 9
    assert page.value(CUT) == []
    page.value("dispatchEvent(new Event('afterprint'))")
    assert page.value(closed) == before > 0


def take_picture(page: Page, report: Path, picture: Path) -> None:
    """The README's picture of a report: the verdict, the levels, and the first scene with one of its views and its curves."""
    page.open(report, 1100)
    page.value("document.querySelectorAll('.view:nth-of-type(n+2)').forEach(part => part.remove())")
    end = page.value("document.querySelector('.charts').getBoundingClientRect().bottom + scrollY + 6")
    page.screenshot(picture, x=0, y=0, width=1100, height=end)
