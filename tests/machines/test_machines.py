"""Every simulated machine is diagnosed as an expert would: the golden findings, and facts behind them.

``SPLATFIX_UPDATE_GOLDENS=1 pytest tests/machines`` writes the goldens anew; read them before they are committed.
"""

from pathlib import Path

import pytest

from splatfix.app.diagnose import DiagnoseRequest, diagnose
from splatfix.checks import run_checks
from splatfix.context import Goal, make_context
from splatfix.core.codec import to_json
from splatfix.core.files import dumps, write_json
from splatfix.facts import load
from splatfix.model import Status
from splatfix.report.diagnosis import DiagnosisDocument, show
from tests.files import assert_golden
from tests.machines import HERE, NAMES, facts_of, folder, raw_machines
from tests.screens import on_screen


def test_every_machine_says_where_its_formats_come_from() -> None:
    assert len(NAMES) >= 14
    for name in NAMES:
        about = raw_machines()[name].machine
        assert len(about.source) > 40, name
        assert "\n" not in about.source, name


@pytest.mark.parametrize("name", NAMES)
def test_findings_read_as_the_golden(name: str) -> None:
    facts = facts_of(name)
    found = [
        {
            "code": item.code,
            "status": item.status.value,
            "subject": item.subject,
            "summary": item.summary,
            "remedy": [step.line(windows=facts.machine.system == "windows") for step in item.remedy],
        }
        for item in run_checks(make_context(facts, Goal()))
    ]
    assert_golden(HERE / name / "findings.json", dumps(found))


@pytest.mark.parametrize("name", NAMES)
def test_saved_facts_are_the_same_facts(name: str, tmp_path: Path) -> None:
    facts = facts_of(name)
    write_json(tmp_path / "facts.json", to_json(facts))
    assert load(tmp_path / "facts.json") == facts


@pytest.mark.parametrize("name", NAMES)
def test_the_report_of_it_can_be_read(name: str) -> None:
    facts = facts_of(name)
    document = DiagnosisDocument(facts=facts, findings=tuple(run_checks(make_context(facts, Goal()))))
    text = on_screen(show, document, width=120, verbose=True)
    for gpu in facts.machine.gpus.value or ():
        assert gpu.name.split("/")[0] in text


@pytest.mark.parametrize("name", NAMES)
def test_one_problem_is_told_in_a_screen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A diagnosis of one problem took 41 lines, with its text and its cure twice."""
    monkeypatch.chdir(folder(name).parent)
    result = diagnose(DiagnoseRequest(facts_file=Path(name)))
    others = [item for item in result.findings if item.status is Status.WARN]
    if len(result.problems) == 1 and len(others) < 2:
        assert len(str(result).splitlines()) <= 25


def test_facts_that_no_finding_tells() -> None:
    orin = facts_of("jetson-agx-orin").machine
    assert orin.model == "NVIDIA Jetson AGX Orin Developer Kit"
    assert orin.gpus.found_via == "libcuda", "NVML answers nothing there"
    assert facts_of("t4-container").machine.resources.memory_total == 12 * 2**30
    mac = facts_of("apple-m2-max").machine.resources
    assert (mac.cores, mac.memory_total) == (12, 64 * 2**30)
    windows = facts_of("rtx-4090-windows-vs2022").machine
    assert windows.distribution == "Microsoft Windows 11 Pro 10.0.22631"
    assert (windows.resources.cores, windows.resources.memory_total) == (32, 68484845568)
    (studio,) = windows.compilers.value or ()
    assert studio.found_via == ("vswhere: Visual Studio Community 2022 17.10.1",)
    (packaged,) = facts_of("rtx-2080-ubuntu-package").machine.toolkits.value or ()
    assert packaged.gcc_max == 11
    stale = facts_of("driver-without-reboot").machine.driver.value
    assert stale is not None and (stale.nvml_error, stale.cuda_error) == (18, 803)
    assert stale.cuda == "12.8" and stale.open_module is False
