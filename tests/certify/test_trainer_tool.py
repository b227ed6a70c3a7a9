"""The trainer's tools run with the staged copy alone on their path, and say what their environment lacks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from splatfix.certify.samples import samples_folder
from splatfix.certify.trainer_tool import ask_trainer
from splatfix.core.errors import SplatfixError
from splatfix.core.runner import Completed


class Heard:
    """A runner that keeps what it was asked and answers with one document."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.env: Mapping[str, str] = {}

    def run(self, argv: Any, *, timeout: float, env: Any = None, **rest: Any) -> Completed:
        self.env = dict(env)
        return Completed(tuple(argv), 0, self.answer, "", 0.0)


def test_the_child_gets_what_every_child_of_a_certification_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHOME", "/elsewhere")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    heard = Heard('{"scenes": []}')
    assert ask_trainer("data", ("list",), "python", 5.0, heard) == {"scenes": []}
    assert "PYTHONHOME" not in heard.env
    assert "splatfix-trainer-" in heard.env["PYTHONPATH"] and "elsewhere" not in heard.env["PYTHONPATH"]


def test_a_bare_environment_can_list_scenes(empty_venv: Path) -> None:
    document = ask_trainer("data", (str(samples_folder()), "--json"), str(empty_venv), 60.0)
    assert len(document["scenes"]) == 6


def test_an_interpreter_that_fails_is_not_ready() -> None:
    with pytest.raises(SplatfixError) as caught:
        ask_trainer("data", (), "python", 5.0, Heard("no JSON"))
    assert (caught.value.code, int(caught.value.exit_code)) == ("environment-not-ready", 3)
