"""Which environment is meant when none is named: the activated one, before the one that runs splatfix."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from splatfix import facts
from splatfix.core.errors import SplatfixError
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


@pytest.mark.parametrize("name", ["no/such/python", "."])
def test_a_python_that_is_not_there_is_wrong_usage(tmp_path: Path, name: str) -> None:
    with pytest.raises(SplatfixError) as caught:
        facts.resolve_python(str(tmp_path / name))
    assert (caught.value.code, int(caught.value.exit_code)) == ("no-interpreter", 2)


def test_the_bin_folder_selects_its_interpreter(empty_venv: Path, tmp_path: Path) -> None:
    assert facts.resolve_python(str(empty_venv.parent)) == str(empty_venv)
    with pytest.raises(SplatfixError):
        facts.resolve_python(str(tmp_path))


def test_another_program_is_refused_a_broken_python_is_not(tmp_path: Path) -> None:
    with pytest.raises(SplatfixError) as caught:
        facts.gather("/bin/ls")
    assert (caught.value.code, int(caught.value.exit_code)) == ("no-interpreter", 2)
    assert "/bin/ls is no Python interpreter" in caught.value.what
    dead = tmp_path / "python3"
    dead.write_text("#!/bin/sh\nexit 3\n")
    dead.chmod(0o755)
    answer = facts.gather(str(dead)).environment.interpreter
    assert answer.value is None and "exit code 3" in str(answer.error)
    wrapper = tmp_path / "my-own"
    wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    wrapper.chmod(0o755)
    assert facts.gather(str(wrapper)).environment.interpreter.value is not None


def test_a_venv_folder_stands_for_its_interpreter(empty_venv: Path) -> None:
    assert facts.resolve_python(str(empty_venv.parent.parent)) == str(empty_venv)
