"""The JSON document of a command, and what it shows on a terminal of 80 columns."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Splatfix


@pytest.fixture
def document(splatfix: Splatfix) -> Callable[..., dict[str, Any]]:
    """Run a command with ``--json``; nothing else may be on standard output."""

    def run(*words: str | Path) -> dict[str, Any]:
        done = splatfix(*words, *(() if "--json" in words else ("--json",)))
        made = json.loads(done.stdout)
        assert isinstance(made, dict) and made["exit_code"] == done.returncode
        return made

    return run


@pytest.fixture
def screen(splatfix: Splatfix) -> Callable[..., str]:
    """What a command shows on a terminal: standard output, then standard error."""

    def run(*words: str | Path, columns: int = 80) -> str:
        done = splatfix(*words, columns=columns)
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    return run
