"""The page "Which torch for my GPU": its answers are the planner's, and a person can use it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from splatfix.cli import app
from splatfix.core.codec import to_json
from tests.report.html.browser import PROGRAM, Page
from tests.report.html.browser import browser as started
from tools import site
from tools.site import Machine, answer, compact, document_of, facts_of, machines, page

EXISTING = [machine for machine in machines() if machine.exists]
# by a step that no choice's length divides, so that all of them come
FEW, FIFTY = EXISTING[::211], EXISTING[5::34][:50]


def planned(machine: Machine, folder: Path) -> dict[str, Any]:
    """The options of ``splatfix install --dry-run --why --facts`` for a machine."""
    facts = folder / "facts.json"
    facts.write_text(json.dumps(to_json(facts_of(machine))), encoding="utf-8")
    shown = CliRunner().invoke(app, ["install", "--dry-run", "--why", "--json", "--facts", str(facts)])
    assert shown.exit_code in (0, 3), shown.output
    options: dict[str, Any] = json.loads(shown.stdout)["options"]
    return options


def test_the_data_behind_the_page_is_what_install_plans(tmp_path: Path) -> None:
    answers = [answer(machine) for machine in FEW]
    data = compact(answers)
    for machine, number in zip(FEW, data["combinations"], strict=True):
        options = planned(machine, tmp_path)
        available, refused, notes, _ = data["answers"][number]
        shown = [data["options"][item] for item in available]
        assert [_words(data, item) for item in shown] == [
            _planned_words(item) for item in options["available"]
        ]
        for item, row in zip(refused, options["rejected"], strict=True):
            assert [data["texts"][text] for text in data["options"][item]] == [
                row["title"],
                row["rejected_because"],
            ]
        assert [data["texts"][text] for text in notes] == options["notes"]
        # of torch's build, the driver's floor, the toolkit and the compiler
        reasons = [
            item
            for option in options["available"]
            if option["kind"] != "drop-in"
            for item in option["reasons"]
        ]
        assert all(item["found_via"] or item["text"].startswith("alternatives: ") for item in reasons)


def _words(data: dict[str, Any], option: list[Any]) -> list[Any]:
    title, _, steps, reasons, unsure = option
    texts = data["texts"]
    pairs = [[(texts[one], texts[other]) for one, other in rows] for rows in (steps, reasons)]
    return [texts[title], *pairs, [texts[item] for item in unsure]]


def _planned_words(option: dict[str, Any]) -> list[Any]:
    steps = [(step["text"], step["command"] or "") for step in option["steps"]]
    reasons = [(reason["text"], reason["found_via"]) for reason in option["reasons"]]
    return [option["title"], steps, reasons, option["unsure"]]


def test_an_old_driver_and_an_old_card_get_what_they_can_run() -> None:
    by_query = {machine.query: machine for machine in EXISTING}
    old_driver = answer(by_query["gpu=sm_89&driver=550&system=ubuntu24&python=3.12"])
    assert "too old for CUDA 13" in old_driver[1][0]
    assert "cu126" in old_driver[0]["available"][0]["steps"][0]["text"]
    old_card = answer(by_query["gpu=sm_61&driver=580&system=ubuntu24&python=3.12"])
    assert "no code for sm_61" in old_card[1][0]
    new = answer(by_query["gpu=sm_120&driver=610&system=ubuntu24&python=3.12"])
    assert new[1] == ("", "") and new[0]["available"]


def test_every_stack_of_the_page_can_be_typed() -> None:
    stacks = site.stack_rows()
    assert len({row["name"] for row in stacks}) == len(stacks) > 15
    for row in stacks:
        assert row["source"] and (
            row["clone"].startswith("git clone --recursive https://") or "==" in row["source"]
        )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_page_of_all_machines_is_not_too_large(tmp_path: Path) -> None:
    site.write(tmp_path / "which-torch.html")
    assert 0 < (tmp_path / "which-torch.html").stat().st_size <= site.MOST_BYTES


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Page]:
    if PROGRAM is None:
        pytest.skip("there is no Chromium here to open the page in")
    with started(tmp_path / "profile") as tab:
        yield tab


@pytest.fixture(scope="module")
def which_torch(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the page with the answers of FIFTY machines."""
    answers = {machine.query: answer(machine) for machine in FIFTY}
    document = document_of([answers.get(machine.query) for machine in machines()])
    path = tmp_path_factory.mktemp("site") / "which-torch.html"
    path.write_text(page(document), encoding="utf-8")
    return path.as_uri()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_page_answers_fifty_machines_as_install_plans_them(
    browser: Page, which_torch: str, tmp_path: Path
) -> None:
    stack = next(row for row in site.stack_rows() if row["key"] == "mip")
    for machine in FIFTY:
        browser.open(f"{which_torch}#{machine.query}&stack=mip")
        commands = browser.value(
            "[...document.querySelectorAll('#answer > ol .command')].map(item => item.textContent)"
        )
        options = planned(machine, tmp_path)["available"]
        python, inside = "python", "venv/bin/python"
        if machine.system["key"] == "windows":
            python, inside = "py -", r"venv\Scripts\python.exe"
        before = [
            f"pipx install git+{site.ADDRESS}",
            stack["clone"],
            f"{python}{machine.python} -m venv venv",
        ]
        expected = before if options else []
        for line in (step["command"] for step in options[0]["steps"] if step["command"]) if options else ():
            line = re.sub("SOURCE|CHECKOUT", stack["source"], line)
            if line.startswith("splatfix install "):  # what an empty environment lacks
                line = line.replace(" --python", " --with-dependencies --python")
            elif line.startswith("splatfix certify ") and "--level" not in line:
                expected.append(f"{inside} -m pip install numpy pillow")
                line = line.replace(" --renderer inria", "")
                line = line.replace("splatfix certify", "splatfix certify --renderer inria")
            expected.append(line)
        if machine.system["key"] == "windows":
            expected = [re.sub(r"'([^'*\s]*)'", r"\1", line).replace("'", '"') for line in expected]
        assert commands == expected, machine.query
        assert {address.partition("#")[0] for address in browser.requests()} <= {which_torch}


@pytest.mark.slow
def test_the_page_without_javascript_is_a_table(browser: Page, tmp_path: Path) -> None:
    answers = [
        answer(machine) if machine.python == "3.12" and machine.system["key"] == "ubuntu24" else None
        for machine in machines()
    ]
    path = tmp_path / "which-torch.html"
    path.write_text(page(document_of(answers)), encoding="utf-8")
    browser("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(path)
    browser("Emulation.setScriptExecutionDisabled", value=False)
    rows = browser.value("document.querySelectorAll('tbody tr').length")
    assert rows == len(site.MACHINES["gpus"])
    assert browser.value(
        "document.querySelector('#choices').hidden && /cu1\\d\\d/.test(document.querySelector('td + td').parentElement.innerText)"
    )
