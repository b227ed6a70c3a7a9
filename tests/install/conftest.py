import os
from pathlib import Path

import pytest

from splatfix.install import WheelCache
from splatfix.install.environment import Environment
from tests.cli.conftest import document

from .environments import Stages, install, machine_facts, make_environment, write_extension

__all__ = ["document"]


@pytest.fixture
def environment(tmp_path: Path, request: pytest.FixtureRequest) -> Environment:
    """A fresh venv with build tools and without torch; with pip where the file says ``PIP_INSIDE``."""
    return make_environment(tmp_path / "env", pip=hasattr(request.module, "PIP_INSIDE"))


@pytest.fixture
def with_pip(tmp_path: Path) -> Environment:
    """One that has pip too."""
    return make_environment(tmp_path / "env", pip=True)


@pytest.fixture(autouse=True)
def one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine around the environments is asked once for each process: its programs take a quarter of a second."""
    known = machine_facts()
    monkeypatch.setattr("splatfix.facts.machine.probe.probe", lambda *_: known)


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


@pytest.fixture(scope="session")
def stages(tmp_path_factory: pytest.TempPathFactory, shared_wheels: WheelCache) -> Stages:
    """``blank``, then tiny_probe 1.0 installed (``one``), then 2.0 over it (``two``), then other_probe 1.0 (``three``)."""
    folder = tmp_path_factory.mktemp("stages")
    made = Stages(folder)
    made.keep("blank")
    install(made.environment, write_extension(folder / "1"), cache=shared_wheels)
    made.keep("one")
    install(made.environment, write_extension(folder / "2", version="2.0", answer=7), cache=shared_wheels)
    made.keep("two")
    install(made.environment, write_extension(folder / "3", name="other_probe"), cache=shared_wheels)
    made.keep("three")
    return made
