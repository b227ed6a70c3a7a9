"""What real projects write, each with the findings that a person would make; and the edits, which mend and are made once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from splatfix.app.project import ProjectRequest, _mended
from splatfix.checks import Status
from splatfix.core.toml import parse_toml
from splatfix.facts import Facts
from splatfix.projects.model import Judgement
from tests.archs import archs
from tests.plan.machines import INTERPRETER, machine

CASES = parse_toml((Path(__file__).parent / "cases.toml").read_text("utf-8"))["case"]
SETUP = """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension
extension = CUDAExtension(name="simple_knn._C", sources=["ext.cu"])
setup(name="simple_knn", ext_modules=[extension], cmdclass={"build_ext": BuildExtension})
"""


def write(folder: Path, case: Mapping[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in case["files"].items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(text.encode())
    if "extension" in case:
        source = folder / case["extension"]
        source.mkdir(parents=True)
        (source / "setup.py").write_text(SETUP, encoding="utf-8")
        (source / "ext.cu").touch()


def facts_of(case: Mapping[str, Any]) -> Facts:
    facts = machine(torch=None, interpreter=INTERPRETER)
    if case.get("system") != "windows":
        return facts
    return dataclasses.replace(
        facts, machine=dataclasses.replace(facts.machine, system="windows", machine="AMD64")
    )


def codes(judged: tuple[Judgement, ...], status: Status) -> list[str]:
    return sorted(item.code for one in judged for item in one.findings if item.status is status)


@pytest.mark.parametrize("case", CASES, ids=[case["what"].replace(" ", "-") for case in CASES])
def test_a_project(case: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, case)
    monkeypatch.setattr("splatfix.app.project._facts", lambda _: facts_of(case))
    request = ProjectRequest(folder=tmp_path, targets=archs(*case["target"].split()))
    mended = _mended(request)
    for status, key in ((Status.FAIL, "fails"), (Status.WARN, "warns"), (Status.UNKNOWN, "unknown")):
        assert codes(mended.judged, status) == sorted(case.get(key, [])), mended.judged
    if "torch" in case:
        assert any(item.torch.startswith(case["torch"]) for item in mended.judged), mended.judged
    for item in mended.judged:
        for finding in item.findings:
            file, _, line = finding.subject.partition(":")
            if finding.status in (Status.FAIL, Status.WARN):
                assert 0 < int(line) <= len((tmp_path / file).read_text("utf-8").splitlines())

    # the edits, and what is left; a second time there is nothing to write
    assert codes(mended.after, Status.FAIL) == sorted(case.get("left", [])), [*mended.after, *mended.changes]
    for change in mended.changes:
        (tmp_path / change.file).write_bytes(change.after.encode())
    for line in case.get("written", ()):
        assert line in "".join(change.after for change in mended.changes), mended.changes
    assert _mended(request).changes == ()
