"""The Python API: the same results as the commands, as objects that show themselves."""

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import splatfix
from tests.machines import folder
from tests.report.html.outline import Outline

LOG = "RuntimeError: CUDA error: no kernel image is available for execution on the device"


@pytest.fixture
def machine() -> Path:
    return folder("rtx-3090-and-5090")


def test_a_diagnosis_has_its_findings_as_objects_and_shows_itself(machine: Path) -> None:
    """It prints what the command prints, and a notebook shows the same text."""
    diagnosis = splatfix.diagnose(facts=machine)
    codes = {problem.code for problem in diagnosis.problems}
    assert "no-kernel-image" in codes and diagnosis.exit_code == 1
    assert diagnosis.options is not None and diagnosis.options.available
    failed = {row["check"] for row in diagnosis.document()["findings"] if row["status"] == "fail"}
    assert failed == codes
    command = [sys.executable, "-m", "splatfix", "diagnose", "--facts", str(machine)]
    said = subprocess.run(command, capture_output=True, text=True, env={"COLUMNS": "100", "PATH": ""}).stdout
    assert str(diagnosis).split() == said.split() == Outline(diagnosis._repr_html_()).text.split()


def test_plan_and_explain_are_functions_whatever_was_imported(machine: Path) -> None:
    """Both are packages too, which importing anything of them binds to the name."""
    import splatfix.explain
    import splatfix.plan

    planned = splatfix.plan(targets=["sm_120"], facts=machine)
    assert planned.options is not None and planned.options.available
    explained = splatfix.explain(LOG)
    assert explained.causes[0].name == "no-kernel-image"


def test_a_log_may_be_a_file(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text(LOG)
    assert splatfix.explain(log).causes == splatfix.explain(LOG).causes
    with pytest.raises(splatfix.SplatfixError, match="cannot be read"):
        splatfix.explain(tmp_path / "gone.log")


@pytest.mark.parametrize("log", ["", " \n", "build.log"])
def test_what_is_no_log_is_refused(log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Least of all read from standard input, which a notebook or a server has for itself."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build.log").write_text(LOG)
    with pytest.raises(splatfix.SplatfixError) as refused:
        splatfix.explain(log)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    "call", [splatfix.explain, splatfix.report, lambda given: splatfix.diagnose(repo=given, python="python")]
)
def test_what_is_no_path_is_said(call: Any) -> None:
    for given in (3, b"log", ["log"], float("nan")):
        with pytest.raises(splatfix.SplatfixError, match="is no path") as refused:
            call(given)
        again = pickle.loads(pickle.dumps(refused.value))
        assert again.to_json() == refused.value.to_json() and "pathlib.Path" in again.todo[0].line()


def test_one_target_may_be_a_text(machine: Path) -> None:
    by_text, by_list = (
        splatfix.diagnose(facts=machine, targets=targets) for targets in ("sm_120", ["sm_120"])
    )
    assert by_text.document()["goal"]["targets"] == by_list.document()["goal"]["targets"] == ["sm_120"]
    assert repr(by_text) == "<splatfix diagnose, exit code 1; print() shows it>"
    assert pickle.loads(pickle.dumps(by_text)).document() == by_text.document()
    with pytest.raises(splatfix.SplatfixError) as refused:
        splatfix.diagnose(targets=["sm_1"])
    assert refused.value.code == "unknown-arch"


def test_importing_splatfix_imports_no_room() -> None:
    script = "import sys, splatfix; print([name for name in sys.modules if name.startswith('splatfix.')])"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert json.loads(said.replace("'", '"')) == []
