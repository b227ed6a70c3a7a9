"""The composite action, run step by step in a clean folder as GitHub's runner would: its expressions, its files, its exit codes.

``act`` was not to be had, so this is no run of GitHub's own runner. ``uses`` steps are looked at and not run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from splatfix.model import Finding, Status
from splatfix.report.diagnosis import DiagnosisDocument, github
from tests.conftest import ROOT
from tests.machines import facts_of

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
ACTION: Mapping[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
TINY = ROOT / "tests" / "certify" / "tiny_stack"


class Run(Struct, frozen=True):
    """What a run of the steps left."""

    code: int
    log: str
    summary: str
    outputs: Mapping[str, str]

    @property
    def annotations(self) -> list[str]:
        return [line for line in self.log.splitlines() if re.match(r"::(error|warning|notice)", line)]


def run_action(workspace: Path, temp: Path, **inputs: str) -> Run:
    """Each ``run`` step by bash as the runner calls it, until one fails; ``python`` is the one that runs this."""
    given = {name: row["default"] for name, row in ACTION["inputs"].items()}
    given |= {name.replace("_", "-"): value for name, value in inputs.items()}
    values = {"github.action_path": str(ROOT), "runner.temp": str(temp), "runner.os": "Linux"}
    values |= {f"inputs.{name}": value for name, value in given.items()}
    files = {name: temp / name for name in ("GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    for file in files.values():
        file.write_text("")
    log, code = "", 0
    for step in ACTION["runs"]["steps"]:
        if "uses" in step:
            continue
        paths = [*reversed(files["GITHUB_PATH"].read_text().splitlines()), str(Path(sys.executable).parent)]
        variables = {
            "PATH": os.pathsep.join((*paths, os.environ["PATH"])),
            "HOME": os.environ["HOME"],
            "LANG": "C.UTF-8",
        }
        variables |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        variables |= {name: str(file) for name, file in files.items()}
        variables |= {name: substituted(str(text), values) for name, text in step.get("env", {}).items()}
        assert "${{" not in step["run"], "an input that becomes a word of the script can run anything"
        script = temp / "step.sh"
        script.write_text(step["run"])
        argv = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        done = subprocess.run(
            argv, cwd=workspace, env=variables, capture_output=True, text=True, timeout=550, check=False
        )
        log, code = log + done.stdout + done.stderr, done.returncode
        if code:
            break
    outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
    return Run(code, log, files["GITHUB_STEP_SUMMARY"].read_text(), outputs)


def substituted(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\$\{\{\s*([\w.-]+)\s*\}\}", lambda match: values[match[1]], text)


def test_it_is_an_action_that_github_takes() -> None:
    assert {"name", "description", "inputs", "outputs", "runs"} == set(ACTION)
    assert ACTION["runs"]["using"] == "composite"
    ids = [step.get("id") for step in ACTION["runs"]["steps"]]
    for step in ACTION["runs"]["steps"]:
        assert ("uses" in step) != ("run" in step) and ("run" not in step or step["shell"] == "bash")
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), "tags can be moved"
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    assert "GITHUB_PATH" not in text, "the stack's own python would not be the first any more"
    for kind, name in re.findall(r"\$\{\{ (inputs|steps)\.([\w-]+)", text):
        assert name in (ACTION["inputs"] if kind == "inputs" else ids), name
    page = (ROOT / "docs" / "action.md").read_text(encoding="utf-8")
    for name in ACTION["inputs"]:
        assert f"| `{name}` |" in page


def of_findings(*findings: Finding) -> str:
    return github(DiagnosisDocument(facts=facts_of("h200"), findings=findings))


def test_annotations_are_escaped_and_name_a_place() -> None:
    finding = Finding(Status.FAIL, "line one\nof 100%", "scene/a.py:12", code="a:b,c", family="checkout")
    told = "::error file=scene/a.py,line=12,title=a%3Ab%2Cc::line one%0Aof 100%25\n"
    assert of_findings(finding) == told
    placed = Finding(Status.WARN, "train.py line 7: old", "", code="c", family="checkout")
    assert of_findings(placed) == "::warning file=train.py,line=7,title=c::train.py line 7: old\n"
    assert of_findings(Finding(Status.PASS, "fine", code="c")) == ""


@pytest.mark.slow
def test_a_stack_that_trains_and_one_that_does_not(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    temp = tmp_path / "temp"
    temp.mkdir()
    for folder in (whole, broken):
        shutil.copytree(TINY, folder)
    trainer = broken / "train.py"
    trainer.write_text(trainer.read_text().replace("    gaussians.train()\n", "    gaussians.trian()\n", 1))

    good = run_action(whole, temp)
    assert (good.code, good.outputs["exit-code"]) == (0, "0"), good.log
    assert not [line for line in good.annotations if line.startswith("::error")], good.log
    assert "REHEARSED" in good.summary.upper() and (whole / "splatfix-report" / "certificate.json").is_file()

    for inputs in ({"stack": "nowhere", "fail_on": "never"}, {"fail_on": "sometimes"}):
        wrong = run_action(whole, temp, **inputs)
        assert wrong.code == 2 and "::error title=" in wrong.log, wrong.log

    bad = run_action(broken, temp)
    assert (bad.code, bad.outputs["exit-code"]) == (1, "1"), bad.log
    errors = "\n".join(line for line in bad.annotations if line.startswith("::error"))
    line = trainer.read_text().splitlines().index("    gaussians.trian()") + 1
    assert f"::error file=train.py,line={line}," in errors, errors
    assert "trian" in bad.summary
