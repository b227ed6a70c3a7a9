"""The page in headless Chromium: no error, the keyboard, and the parts of a matrix in the accessibility tree."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from splatfix.report.merging import merge, merged_page
from tests.app.test_merge import BASE, summary
from tests.report.certificates import varied
from tests.report.html.browser import PROGRAM, Page, browser
from tests.report.html.conftest import Render

pytestmark = [pytest.mark.slow, pytest.mark.skipif(PROGRAM is None, reason="no Chromium")]


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


def test_no_error(chromium: Page, file: Path) -> None:
    chromium.open(file, 800)
    assert chromium.problems() == []


def test_the_matrix_has_no_error_and_its_parts_are_found(chromium: Page, tmp_path: Path) -> None:
    summaries = []
    for number, document in enumerate(varied(BASE)):
        summaries += [summary(f"run {number} {copy}", document) for copy in range(1 + number % 3)]
    path = tmp_path / "certificates.html"
    path.write_text(merged_page(merge(summaries)), "utf-8")
    chromium.open(path, 800)
    assert chromium.problems() == []
    tree = chromium("Accessibility.getFullAXTree")["nodes"]
    roles = [node["role"]["value"] for node in tree if not node.get("ignored")]
    assert {"table", "rowheader", "columnheader", "link", "navigation", "main"} <= set(roles)


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
