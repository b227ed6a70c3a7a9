"""A real Docker engine for the tests that need one, and small real wheels for those that do not."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from splatfix.containers.certify import gather_for
from splatfix.containers.engine import Engine, connect
from splatfix.containers.image import LANE_LABEL, Image, Recipe, build_image, own_source
from splatfix.containers.lanes import find_lane
from splatfix.core.errors import SplatfixError
from splatfix.core.resources import user_cache
from splatfix.core.runner import ProcessRunner

SCRIPT = Path(__file__).with_name("engine.sh")
TEST_BASE = "splatfix-test-base:bookworm"


@dataclass(frozen=True)
class TestEngine:
    """An engine that answers, and a base image on it that the cpu lane can start from."""

    __test__ = False
    engine: Engine
    base_image: str


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[TestEngine]:
    """The engine at DOCKER_HOST; with SPLATFIX_DOCKER_LANE=1 a private one, whose absence is then a failure."""
    if os.environ.get("SPLATFIX_DOCKER_LANE") == "1":
        with _engine_folder() as folder:
            try:
                host = _script("start", folder)
                _script("base", folder)
                engine = connect(host)
                yield TestEngine(engine, TEST_BASE)
                _remove_lane_images(engine)
                engine.close()
            finally:
                _script("stop", folder)
        return
    if not os.environ.get("DOCKER_HOST"):
        pytest.skip(
            "no Docker engine: set DOCKER_HOST, or SPLATFIX_DOCKER_LANE=1 to have a private one started"
        )
    try:
        engine = connect()
    except SplatfixError as error:
        pytest.skip(f"DOCKER_HOST is set, but: {error.what}")
    names = {tag for image in engine.client.images.list() for tag in image.tags}
    yield TestEngine(engine, TEST_BASE if TEST_BASE in names else find_lane("cpu").base_image)
    engine.close()


@contextmanager
def _engine_folder() -> Iterator[Path]:
    """A folder for a private engine: the one kept in the cache, or a new one while another run holds that.

    The engine's data is kept because its layers make the next run minutes shorter.
    """
    kept = user_cache() / "containers" / "engine"
    kept.mkdir(parents=True, exist_ok=True)
    with (kept / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # not pytest's folder: a socket's path must be short
            with tempfile.TemporaryDirectory(prefix="splatfix-engine-") as folder:
                yield Path(folder)
        else:
            yield kept


def _remove_lane_images(engine: Engine) -> None:
    """All but the newest: one image for each edit of splatfix would fill the disk in time."""
    images = engine.client.images.list(filters={"label": LANE_LABEL})
    images.sort(key=lambda image: image.attrs["Created"])
    for image in images[:-1]:
        engine.client.images.remove(image.id, force=True)


def _script(action: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", SCRIPT, action, folder], check=False, capture_output=True, text=True, timeout=400
    )
    if done.returncode != 0:
        pytest.fail(f"engine.sh {action}: {done.stderr[-3000:]}", pytrace=False)
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""


@pytest.fixture(scope="session")
def recipe(docker_engine: TestEngine, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """The cpu lane's real recipe, with the splatfix of this checkout."""
    folder = tmp_path_factory.mktemp("own")
    lane = find_lane("cpu")
    wheels = gather_for(lane, docker_engine.engine, ProcessRunner(), print, folder / "packages.log")
    return Recipe(lane, docker_engine.base_image, wheels, own_source())


@pytest.fixture(scope="session")
def lane_image(docker_engine: TestEngine, recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The cpu lane's real image."""
    log = tmp_path_factory.mktemp("image") / "build.log"
    return build_image(docker_engine.engine, recipe, progress=print, log=log)


WheelMaker = Callable[..., Path]


@pytest.fixture
def make_wheel(tmp_path: Path) -> WheelMaker:
    """Writes a real, installable wheel with nothing in it but its metadata."""

    def make(
        name: str, version: str = "1.0", requires: tuple[str, ...] = (), folder: Path | None = None
    ) -> Path:
        folder = folder or tmp_path / "wheels"
        folder.mkdir(parents=True, exist_ok=True)
        wheel = folder / f"{name}-{version}-py3-none-any.whl"
        info = f"{name}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        metadata += "".join(f"Requires-Dist: {line}\n" for line in requires)
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"{info}/METADATA", metadata)
            archive.writestr(
                f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            archive.writestr(f"{info}/RECORD", "")
        return wheel

    return make
