"""The command line in the process of the tests: a screen of a given width, and JSON documents."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from splatfix.app.result import deliver_error
from splatfix.cli import app
from splatfix.cli.process import command_name
from splatfix.core.errors import SplatfixError
from splatfix.report import console

Screen = Callable[..., str]
Document = Callable[..., dict[str, Any]]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Screen:
    """What a command prints on a terminal so wide: ``screen("diagnose", "--facts", path, columns=80)``."""

    def run(*words: str | Path, columns: int | None = 80) -> str:
        monkeypatch.delenv("COLUMNS", raising=False)
        if columns is not None:
            monkeypatch.setenv("COLUMNS", str(columns))
        console.out.cache_clear()
        console.err.cache_clear()
        try:
            return _run(*map(str, words))
        finally:
            console.out.cache_clear()
            console.err.cache_clear()

    def _run(*words: str) -> str:
        done = CliRunner().invoke(app, list(words))
        if isinstance(done.exception, SplatfixError):
            capsys.readouterr()
            deliver_error(done.exception, command_name(list(words)), as_json="--json" in words)
            told = capsys.readouterr()
            return done.output + told.out + told.err
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.output

    return run


@pytest.fixture
def document(screen: Screen) -> Document:
    """The JSON document of a command."""

    def run(*words: str | Path) -> dict[str, Any]:
        made = json.loads(screen(*words, "--json", columns=None))
        assert isinstance(made, dict)
        return made

    return run
