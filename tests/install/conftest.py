import os
from pathlib import Path

import pytest

from splatfix.install import WheelCache
from splatfix.install.environment import Environment

from .environments import make_environment


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A fresh venv with build tools and without torch."""
    return make_environment(tmp_path / "env")


@pytest.fixture(scope="session")
def shared_wheels(tmp_path_factory: pytest.TempPathFactory) -> WheelCache:
    """One wheel cache for all tests and xdist workers: most are about what comes after the build."""
    base = tmp_path_factory.getbasetemp()
    return WheelCache((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared-wheels")


@pytest.fixture(autouse=True)
def own_cache(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, shared_wheels: WheelCache
) -> Path:
    """No test reads or fills the user's cache; its wheels are the shared ones. Returns the cache folder."""
    cache = tmp_path_factory.mktemp("cache")
    shared_wheels.folder.mkdir(exist_ok=True)
    (cache / "wheels").symlink_to(shared_wheels.folder)
    monkeypatch.setenv("SPLATFIX_CACHE", str(cache))
    return cache


@pytest.fixture
def fresh_wheels(own_cache: Path) -> None:
    """A wheel cache of its own, empty: for tests that count what is compiled."""
    (own_cache / "wheels").unlink()
