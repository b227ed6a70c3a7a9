"""The trainer as a child: its variables, and the scenes it lists."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from splatfix.certify.scenes import samples_folder
from splatfix.certify.smoke import list_scenes
from splatfix.core.runner import Completed
from tests.plan.machines import refused


class Answer:
    """A runner that answers with one document and keeps the child's variables."""

    def __init__(self, stdout: str) -> None:
        self.stdout = stdout
        self.env: Mapping[str, str] = {}

    def run(self, argv: Any, *, timeout: float, env: Any = None, **rest: Any) -> Completed:
        self.env = dict(env)
        return Completed(tuple(argv), 0, self.stdout, "", 0.0)


def test_only_the_staged_folder_is_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHOME", "/elsewhere")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    answer = Answer('{"scenes": []}')
    assert list_scenes(Path("data"), "python", answer) == {"scenes": []}
    assert "PYTHONHOME" not in answer.env
    assert "splatfix-scratch-" in answer.env["PYTHONPATH"] and "elsewhere" not in answer.env["PYTHONPATH"]


def test_bare_environment_lists_scenes(empty_venv: Path) -> None:
    assert len(list_scenes(samples_folder(), str(empty_venv))["scenes"]) == 6


def test_interpreter_that_fails_is_not_ready() -> None:
    error = refused(list_scenes, Path("data"), "python", Answer("no JSON"))
    assert (error.code, int(error.exit_code)) == ("environment-not-ready", 3)
