"""The native lane: a Python with a CUDA build of torch, named by SPLATFIX_NATIVE_PYTHON, and nvcc."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from splatfix.core.runner import Runner
from splatfix.install.environment import Environment, open_environment


def absent(what: str) -> NoReturn:
    """Skip; but where the lane is said to be set up, what is absent is a failure."""
    if os.environ.get("SPLATFIX_NATIVE_LANE") == "1":
        pytest.fail(f"the native lane is not complete: {what}")
    pytest.skip(what)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compile here and now: a wheel kept from an earlier run would prove nothing about this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPLATFIX_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def cuda_site() -> Path:
    """site-packages of the lane's own environment, which is only ever read."""
    named = os.environ.get("SPLATFIX_NATIVE_PYTHON")
    if not named or not Path(named).exists():
        absent("SPLATFIX_NATIVE_PYTHON names no Python with a CUDA build of torch")
    target = open_environment(named, Runner())
    if not (target.purelib / "torch" / "lib" / "libtorch_cuda.so").exists():
        absent(f"{named} has no CUDA build of torch")
    return target.purelib


@pytest.fixture(scope="module")
def native(cuda_site: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A venv of our own that sees the lane's packages, so that nothing is installed into the lane itself."""
    folder = tmp_path_factory.mktemp("native") / "env"
    done = Runner().run(
        [os.environ["SPLATFIX_NATIVE_PYTHON"], "-m", "venv", "--without-pip", folder], timeout=120
    )
    assert done.ok, done.why()
    target = open_environment(str(folder / "bin" / "python"), Runner())
    (target.purelib / "lane.pth").write_text(f"{cuda_site}\n")
    return target


@pytest.fixture(scope="session")
def cuobjdump(cuda_site: Path) -> Path:
    """NVIDIA's own reader of fat binaries: the toolkit's, or the one that comes with triton."""
    beside = cuda_site / "triton" / "backends" / "nvidia" / "bin" / "cuobjdump"
    result = shutil.which("cuobjdump") or (str(beside) if beside.exists() else None)
    if result is None:
        absent("there is no cuobjdump")
    return Path(result)
