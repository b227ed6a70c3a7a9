"""Commands that are printed for an environment or a checkout with a blank in its path can be run as they are."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from splatfix.install.environment import Environment

from .environments import make_environment, write_extension
from .test_cli import splatfix


@pytest.fixture
def blank(tmp_path: Path) -> Environment:
    return make_environment(tmp_path / "my env")


def printed(text: str, begin: str) -> list[str]:
    """The words, as a shell reads them, of the command that begins so at the end of a line."""
    line = next(line for line in text.splitlines() if begin in line)
    return shlex.split(line[line.index(begin) :])


def test_the_way_back(blank: Environment, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_extension(tmp_path / "my source")
    assert splatfix("install", str(source), "--python", blank.python) == 0
    words = printed(capsys.readouterr().out, "splatfix revert")
    assert words == ["splatfix", "revert", "0001", "--python", blank.python]
    assert splatfix(*words[1:]) == 0


def test_what_is_missing(blank: Environment, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_extension(tmp_path / "source")
    (source / "pyproject.toml").write_text('[build-system]\nrequires = ["pybind11>=2.12"]\n')
    assert splatfix("install", str(source), "--python", blank.python) == 1
    said = capsys.readouterr().err
    assert printed(said, shlex.quote(blank.python) + " -m") == [
        blank.python,
        "-m",
        "pip",
        "install",
        "pybind11>=2.12",
    ]


def test_an_incomplete_checkout(
    blank: Environment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my checkout"
    (folder / "submodules" / "simple-knn").mkdir(parents=True)
    (folder / ".gitmodules").write_text('[submodule "x"]\n\tpath = submodules/simple-knn\n')
    assert splatfix("install", str(folder), "--python", blank.python) == 2
    words = printed(capsys.readouterr().err, "git -C")
    assert words == ["git", "-C", str(folder), "submodule", "update", "--init", "--recursive"]
