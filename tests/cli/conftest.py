"""The JSON document of a command."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Splatfix

Document = Callable[..., dict[str, Any]]


@pytest.fixture
def document(splatfix: Splatfix) -> Document:
    """Run a command with ``--json``; nothing else may be on standard output."""

    def run(*words: str | Path) -> dict[str, Any]:
        done = splatfix(*words, *(() if "--json" in words else ("--json",)))
        made = json.loads(done.stdout)
        assert isinstance(made, dict) and made["exit_code"] == done.returncode
        return made

    return run
