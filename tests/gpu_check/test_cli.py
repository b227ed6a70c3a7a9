"""What is asked before the first step: usage, packages, a GPU; each answered in one line."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from splatfix.core.runner import Completed
from splatfix.core.toml import parse_toml

from . import needs
from .cli import main
from .context import Context, changes

ROOT = Path(__file__).resolve().parents[2]
Script = Callable[[Path, str], Path]


@pytest.fixture(autouse=True)
def _no_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPU_SOURCES", raising=False)


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    said = capsys.readouterr()
    (line,) = (said.out + said.err).splitlines()
    return line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--sources", "nowhere"), "no folder"),
        (("--sources", "."), "holds none of"),
        (("--only", "facts,dance"), "no step is called dance"),
    ],
)
def test_wrong_usage(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert said in one_line(capsys)
    assert not list(tmp_path.iterdir())


def test_missing_packages_are_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(needs, "NEEDED", ("torch", "no-such-thing", "nor-this"))
    assert main(["--out", str(tmp_path / "out")]) == 3
    line = one_line(capsys)
    assert "lacks no-such-thing, nor-this" in line and "--dest DIR no-such-thing nor-this" in line
    assert not (tmp_path / "out").exists()


def test_what_is_needed_is_what_splatfix_declares() -> None:
    project = parse_toml((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [*project["dependencies"], *project["optional-dependencies"]["certify"]]
    names = {re.match(r"[\w-]+", text)[0] for text in declared}  # type: ignore[index]
    # fastjsonschema is imported for a --knowledge file only, tomli before Python 3.11
    assert names - {"fastjsonschema", "tomli"} <= set(needs.NEEDED)


@pytest.mark.parametrize(
    ("torch", "said"),
    [
        ('{"torch": "2.13.0+cpu", "cuda": null, "available": false, "gpus": []}', "built without CUDA"),
        ('{"torch": "2.11.0", "cuda": "13.0", "available": false, "gpus": []}', "sees no GPU"),
        ("Traceback", "cannot be asked"),
    ],
)
def test_without_a_usable_gpu_nothing_is_run(
    torch: str,
    said: str,
    script: Script,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    python = script(tmp_path / "python", f"#!/bin/sh\necho '{torch}'\n")
    monkeypatch.setattr(sys, "executable", str(python))
    assert main(["--out", str(tmp_path / "out")]) == 3
    assert said in one_line(capsys)
    assert not (tmp_path / "out").exists()


def test_carried_wheels_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    with zipfile.ZipFile(tmp_path / "carried_thing-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("carried_thing.py", "")
        wheel.writestr("carried_thing-1.0.dist-info/METADATA", "Name: carried-thing\nVersion: 1.0\n")
    assert needs.missing(["carried-thing"]) == ["carried-thing"]
    assert needs.unpack_wheels(tmp_path, tmp_path / "site") == str(tmp_path / "site")
    assert needs.missing(["carried-thing"]) == []
    assert importlib.metadata.version("carried-thing") == "1.0"
    assert needs.unpack_wheels(None, tmp_path / "other") == ""


def test_sources_are_known_by_their_folders(tmp_path: Path) -> None:
    for name in ("gsplat", "inria-v1", "notes"):
        (tmp_path / name).mkdir()
    known, others = needs.sources_in(tmp_path)
    assert list(known) == ["gsplat", "inria-v1"] and others == ["notes"]


@pytest.mark.parametrize("option", ["--out", "--work"])
def test_a_folder_that_takes_no_files_is_wrong_usage(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from . import cli

    (tmp_path / "file").touch()
    monkeypatch.setattr(cli, "_stand_in", lambda work: ({}, {}))
    assert main(["--rehearse", option, str(tmp_path / "file" / "folder")]) == 2
    assert "nothing can be written to" in capsys.readouterr().err


def test_a_context_goes_to_the_child_and_back(tmp_path: Path) -> None:
    context = Context(str(tmp_path), "out", {"gsplat": "/x"}, "site", True)
    context.save(tmp_path / "context.json")
    assert Context.load(tmp_path / "context.json") == context


def test_changes_name_what_differs() -> None:
    assert changes({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "9", "d": "4"}) == ["b", "c", "d"]


@pytest.mark.parametrize(
    ("told", "driver"),
    [({"driver": "580.95.05"}, "580.95.05"), ({"error": "Not Found"}, "unknown (Not Found)")],
)
def test_the_driver_is_named(told: dict[str, str], driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = '{"torch": "2.11.0", "cuda": "13.0", "gpus": [{"name": "H200", "cc": "9.0"}]}'
    monkeypatch.setattr(needs.ProcessRunner, "run", lambda *_, **__: Completed((), 0, answer, "", 1.0, ""))
    monkeypatch.setattr(needs.nvml, "ask", lambda: told)
    about, why = needs.machine()
    assert about["driver"] == driver and why == ""
