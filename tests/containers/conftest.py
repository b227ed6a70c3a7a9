"""A real Docker engine for the tests that need one."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from splatfix.containers.certify import ContainerRequest, recipe_for
from splatfix.containers.engine import Engine, connect
from splatfix.containers.image import LANE_LABEL, Image, ImageRecipe, build_image
from splatfix.containers.run import sweep
from splatfix.core.errors import SplatfixError
from splatfix.core.resources import user_cache
from splatfix.knowledge.lanes import find_lane

SCRIPT = Path(__file__).with_name("engine.sh")
BASE_IMAGE = find_lane("cpu").base_image

# two lanes with a CUDA torch take 7 GB of layers while they are built, and their downloads and contexts some more
ROOM_BYTES = 16 * 2**30


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[Engine]:
    """The engine at DOCKER_HOST; with SPLATFIX_DOCKER_LANE=1 a private one, whose absence is then a failure."""
    if os.environ.get("SPLATFIX_DOCKER_LANE") == "1":
        with _engine_folder() as folder:
            try:
                host = engine_script("start", folder)
                engine_script("base", folder)
                engine = connect({"DOCKER_HOST": host})
                sweep(engine)  # what a run that was ended left there
                if shutil.disk_usage(folder).free < ROOM_BYTES:
                    engine.client.images.prune(filters={"dangling": True})
                with pytest.MonkeyPatch.context() as patched:
                    patched.setenv("DOCKER_HOST", host)
                    yield engine
                # All but the newest: one image for each edit of splatfix would fill the disk in time. What else a build left
                # is its cache, and goes after a week.
                engine.client.images.prune(filters={"dangling": True, "until": "168h"})
                images = engine.client.images.list(filters={"label": LANE_LABEL})
                images.sort(key=lambda image: image.attrs["Created"])
                for image in images[:-1]:
                    engine.client.images.remove(image.id, force=True)
                engine.client.close()
            finally:
                engine_script("stop", folder)
        return
    if not os.environ.get("DOCKER_HOST"):
        pytest.skip(
            "no Docker engine: set DOCKER_HOST, or SPLATFIX_DOCKER_LANE=1 to have a private one started"
        )
    try:
        engine = connect()
    except SplatfixError as error:
        pytest.skip(f"DOCKER_HOST is set, but: {error.what}")
    yield engine
    engine.client.close()


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


@pytest.fixture
def doomed_engine(docker_engine: Engine) -> Iterator[tuple[Path, Engine]]:
    """An engine to be filled or killed, on a small disk in memory, and its folder."""
    if os.environ.get("SPLATFIX_DOCKER_LANE") != "1" and (os.geteuid() != 0 or not shutil.which("dockerd")):
        pytest.skip("no engine can be started here")
    with tempfile.TemporaryDirectory(prefix="splatfix-doomed-") as name:
        folder = Path(name)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600m", "splatfix-test", folder], check=True)
        try:
            host = engine_script("start", folder)
            engine_script("base", folder)
            engine = connect({"DOCKER_HOST": host})
            yield folder, engine
            engine.client.close()
        finally:
            engine_script("stop", folder)
            subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture(scope="session")
def podman_engine() -> Iterator[Engine]:
    """Rootless Podman, as a user of its own, with SPLATFIX_DOCKER_LANE=1 where Podman is installed."""
    missing = [name for name in ("podman", "newuidmap") if not shutil.which(name)]
    if os.environ.get("SPLATFIX_DOCKER_LANE") != "1" or os.geteuid() != 0 or missing:
        why = f"not installed: {', '.join(missing)}" if missing else "needs SPLATFIX_DOCKER_LANE=1 and root"
        pytest.skip(f"NOT RUN ON PODMAN: {why}")
    with tempfile.TemporaryDirectory(prefix="splatfix-podman-") as name:
        folder = Path(name)
        try:
            engine = connect({"DOCKER_HOST": engine_script("podman", folder)})
            engine_script("base", folder)
            yield engine
            engine.client.close()
        finally:
            engine_script("unpodman", folder)


def engine_script(action: str, folder: Path) -> str:
    """What ``engine.sh`` says last: of ``start`` the engine's address."""
    done = subprocess.run(
        ["bash", SCRIPT, action, folder], check=False, capture_output=True, text=True, timeout=600
    )
    if done.returncode != 0:
        pytest.fail(f"engine.sh {action}: {done.stderr[-3000:]}", pytrace=False)
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""


@pytest.fixture(scope="session")
def recipe(docker_engine: Engine) -> ImageRecipe:
    """The cpu lane's real recipe, with the splatfix of this checkout."""
    return recipe_for(find_lane("cpu"), ContainerRequest(lanes=("cpu",)))


@pytest.fixture(scope="session")
def lane_image(docker_engine: Engine, recipe: ImageRecipe, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The cpu lane's real image."""
    log = tmp_path_factory.mktemp("image") / "build.log"
    return build_image(docker_engine, recipe, progress=print, log=log)
