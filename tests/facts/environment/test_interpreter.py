"""Which environment is meant when none is named: the activated one, before the one that runs splatfix."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from splatfix import facts
from splatfix.checks import run_checks
from splatfix.context import Goal, make_context
from splatfix.core.errors import Exit
from splatfix.facts import choose_python
from splatfix.model import Status
from tests.files import put
from tests.plan.machines import refused
from tests.tables import data

TABLE = data(__file__)
Script = Callable[[Path, str], Path]


def folder_with_python(folder: Path, **marks: str) -> Path:
    """An environment's folder, with these files beside its interpreter."""
    return put(folder, {"bin/python": "#!/bin/sh\n", **marks})


VENV = {"pyvenv.cfg": ""}


@pytest.fixture(autouse=True)
def nothing_activated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "UV_PROJECT_ENVIRONMENT"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where splatfix's own packages are; there is no torch."""
    folder = tmp_path / "own"
    folder.mkdir()
    monkeypatch.setattr("sys.path", [str(folder)])
    return folder


def test_splatfixs_own_is_meant_only_where_it_has_torch(own: Path) -> None:
    assert choose_python(None).python == ""
    error = refused(choose_python(None).interpreter)
    assert (error.code, error.exit_code) == ("no-environment", Exit.USAGE)
    put(own, {"torch/__init__.py": ""})
    choice = choose_python(None)
    assert choice.python == choice.interpreter() == sys.executable and "splatfix's own" in choice.why


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_an_activated_one_is_first(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder_with_python(tmp_path / "work" / ".venv", **VENV)
    monkeypatch.setenv("CONDA_DEFAULT_ENV", "gs")
    monkeypatch.setenv(variable, str(folder_with_python(tmp_path / "env")))
    choice = choose_python(None)
    assert choice.python == str(tmp_path / "env" / "bin" / "python") and variable in choice.why
    assert choose_python(sys.executable).interpreter() == sys.executable, "what is named counts before it"


def test_base_and_gone_are_passed_over(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDA_PREFIX", str(folder_with_python(tmp_path / "conda")))
    monkeypatch.setenv("CONDA_DEFAULT_ENV", "base")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "gone"))
    assert choose_python(None).python == ""


@pytest.mark.parametrize(("name", "mark"), TABLE["the-projects-environment-is-found-from-below"])
def test_the_projects_environment_is_found_from_below(
    name: str, mark: str, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = put(tmp_path / "work", {"pyproject.toml": "", "submodules/knn/setup.py": ""})
    environment = folder_with_python(project / name)
    monkeypatch.chdir(project / "submodules" / "knn")
    assert choose_python(None).python == "", "a folder of that name that is no environment"
    put(environment, {mark if mark == "pyvenv.cfg" else f"{mark}/x": ""})
    choice = choose_python(None)
    assert (choice.python, choice.why) == (str(environment / "bin" / "python"), f"found in {project}")


def test_an_environment_that_git_tracks_is_a_strangers(own: Path, tmp_path: Path) -> None:
    folder_with_python(tmp_path / "work" / ".venv", **VENV)
    subprocess.run(["git", "init", "-q"], check=True)
    assert choose_python(None).python
    subprocess.run(["git", "add", "-f", "."], check=True)
    assert choose_python(None).python == ""


def test_nothing_above_the_project(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder_with_python(tmp_path / "work" / ".venv", **VENV)
    (tmp_path / "work" / "clone" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work" / "clone")
    assert choose_python(None).python == ""


def test_without_an_environment_the_machine_is_judged(own: Path) -> None:
    choice = choose_python(None)
    known = facts.gather(choice.python, chosen=choice.why)
    findings = run_checks(make_context(known, Goal()))
    assert known.environment.interpreter.absent and known.machine.system
    judged = {item.code for item in findings if item.status is Status.UNKNOWN}
    assert "interpreter-broken" in judged and not judged & {"torch-missing", "no-kernel-image"}
    assert not {item.family for item in findings if item.status is Status.FAIL} & {"torch", "environment"}


def test_another_program_is_refused_a_broken_python_is_not(tmp_path: Path, script: Script) -> None:
    program, folder = refused(facts.gather, "/bin/ls"), refused(choose_python, str(tmp_path))
    for error in (program, folder, refused(choose_python, str(tmp_path / "no/such/python"))):
        assert (error.code, error.exit_code) == ("no-interpreter", Exit.USAGE)
    assert "/bin/ls is no Python interpreter" in program.what
    answer = facts.gather(str(script(tmp_path / "python3", "#!/bin/sh\nexit 3\n"))).environment.interpreter
    assert answer.value is None and "exit code 3" in str(answer.error)
    wrapper = script(tmp_path / "my-own", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    assert facts.gather(str(wrapper)).environment.interpreter.value is not None


def test_a_venv_and_its_bin_folder_stand_for_its_interpreter(empty_venv: Path) -> None:
    for folder in empty_venv.parents[:2]:
        assert choose_python(str(folder)).interpreter() == str(empty_venv)
