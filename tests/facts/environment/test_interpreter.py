"""Which environment is meant when none is named: the activated one, before the one that runs splatfix."""

import subprocess
import sys
from pathlib import Path

import pytest

from splatfix import facts
from splatfix.checks import run_checks
from splatfix.context import Goal, make_context
from splatfix.core.errors import SplatfixError
from splatfix.facts import choose_python
from splatfix.model import Status
from tests.tables import data

TABLE = data(__file__)


def folder_with_python(folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text("#!/bin/sh\n")
    return folder


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
    with pytest.raises(SplatfixError) as caught:
        choose_python(None).interpreter()
    assert (caught.value.code, int(caught.value.exit_code)) == ("no-environment", 2)
    (own / "torch").mkdir()
    (own / "torch" / "__init__.py").touch()
    choice = choose_python(None)
    assert (
        choice.python == choose_python(None).interpreter() == sys.executable
        and "splatfix's own" in choice.why
    )


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_an_activated_one_is_first(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder_with_python(tmp_path / "work" / ".venv") / "pyvenv.cfg").touch()
    monkeypatch.setenv("CONDA_DEFAULT_ENV", "gs")
    monkeypatch.setenv(variable, str(folder_with_python(tmp_path / "env")))
    choice = choose_python(None)
    assert (choice.python, variable in choice.why) == (str(tmp_path / "env" / "bin" / "python"), True)
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
    project = tmp_path / "work"
    environment = folder_with_python(project / name)
    (project / "pyproject.toml").touch()
    (project / "submodules" / "knn").mkdir(parents=True)
    monkeypatch.chdir(project / "submodules" / "knn")
    assert choose_python(None).python == "", "a folder of that name that is no environment"
    (environment / mark).mkdir()
    if mark == "pyvenv.cfg":
        (environment / mark).rmdir()
        (environment / mark).touch()
    choice = choose_python(None)
    assert (choice.python, choice.why) == (str(environment / "bin" / "python"), f"found in {project}")


def test_an_environment_that_git_tracks_is_a_strangers(own: Path, tmp_path: Path) -> None:
    project = tmp_path / "work"
    (folder_with_python(project / ".venv") / "pyvenv.cfg").touch()
    git = ["git", "-C", str(project)]
    subprocess.run([*git, "init", "-q"], check=True)
    assert choose_python(None).python
    subprocess.run([*git, "add", "-f", "."], check=True)
    assert choose_python(None).python == ""


def test_nothing_above_the_project(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder_with_python(tmp_path / "work" / ".venv") / "pyvenv.cfg").touch()
    (tmp_path / "work" / "clone" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work" / "clone")
    assert choose_python(None).python == ""


def test_without_an_environment_the_machine_is_judged(own: Path) -> None:
    choice = choose_python(None)
    known = facts.gather(choice.python, chosen=choice.why)
    findings = run_checks(make_context(known, Goal()))
    assert known.environment.interpreter.absent and known.machine.system
    judged = {item.code for item in findings if item.status is Status.UNKNOWN}
    assert "interpreter-broken" in judged
    assert not judged & {"torch-missing", "no-kernel-image"}
    assert not [
        item for item in findings if item.family in ("torch", "environment") and item.status is Status.FAIL
    ]


@pytest.mark.parametrize("name", ["no/such/python", "."])
def test_a_python_that_is_not_there_is_wrong_usage(tmp_path: Path, name: str) -> None:
    with pytest.raises(SplatfixError) as caught:
        choose_python(str(tmp_path / name)).interpreter()
    assert (caught.value.code, int(caught.value.exit_code)) == ("no-interpreter", 2)


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


def test_a_venv_and_its_bin_folder_stand_for_its_interpreter(empty_venv: Path) -> None:
    for folder in empty_venv.parents[:2]:
        assert choose_python(str(folder)).interpreter() == str(empty_venv)
