"""The page in headless Chromium: no error, no sideways scrolling, the keyboard, paper, and the accessibility tree."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from splatfix.app.certify import run_and_report
from splatfix.certify import SUITES
from splatfix.facts import gather
from splatfix.report.html import matrix_page
from splatfix.report.merging import Merger
from tests.app.test_merge import BASE
from tests.certify.conftest import subject
from tests.report.certificates import varied
from tests.report.html.browser import PROGRAM, Page, browser
from tests.report.html.conftest import Render, png

pytestmark = [pytest.mark.slow, pytest.mark.skipif(PROGRAM is None, reason="no Chromium")]
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


def test_everything_is_open_on_paper(chromium: Page, file: Path) -> None:
    chromium.open(file)
    chromium.value("dispatchEvent(new Event('beforeprint'))")
    assert chromium.value("document.querySelectorAll('details:not([open])').length") == 0
    chromium.value("dispatchEvent(new Event('afterprint'))")
    assert chromium.value("document.querySelectorAll('details:not([open])').length") > 0


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
    if os.environ.get("SPLATFIX_UPDATE_ASSETS"):
        report.write_text(report.read_text(encoding="utf-8").replace(sys.prefix, "~/.venv"), encoding="utf-8")
        take_picture(chromium, report, ASSETS / "certificate.png")


def take_picture(page: Page, report: Path, picture: Path) -> None:
    """The README's picture of a report: the verdict, the levels, and the first scene with one of its views and its curves."""
    page.open(report, 1100)
    page.value("document.querySelectorAll('.view:nth-of-type(n+2)').forEach(part => part.remove())")
    end = page.value("document.querySelector('.charts').getBoundingClientRect().bottom + scrollY + 6")
    page.screenshot(picture, x=0, y=0, width=1100, height=end)
