from pathlib import Path

import pytest

from splatfix.install.environment import Environment

from .environments import make_environment


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A fresh venv with build tools and without torch."""
    return make_environment(tmp_path / "env")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or fills the person's own cache."""
    monkeypatch.setenv("SPLATFIX_CACHE", str(tmp_path / "cache"))
