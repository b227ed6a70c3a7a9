"""Which environment is meant when none is named: the activated one, before the one that runs splatfix."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from splatfix.facts import resolve_python


def folder_with_python(folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text("#!/bin/sh\n")
    return folder


def test_without_anything_it_is_the_one_that_runs_splatfix(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    assert resolve_python(None) == sys.executable


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_the_activated_environment_comes_first(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDA_DEFAULT_ENV", "gs")
    monkeypatch.setenv(variable, str(folder_with_python(tmp_path / "env")))
    assert resolve_python(None) == str(tmp_path / "env" / "bin" / "python")
    assert resolve_python(sys.executable) == sys.executable, "what is named counts before it"


def test_condas_base_and_a_folder_that_is_gone_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDA_PREFIX", str(folder_with_python(tmp_path / "conda")))
    monkeypatch.setenv("CONDA_DEFAULT_ENV", "base")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "gone"))
    assert resolve_python(None) == sys.executable
