"""torch's cache of extensions compiled at first use: found where torch itself would look, read without being loaded."""

import os
import platform
import sys
from pathlib import Path

import pytest

from splatfix.facts import System
from splatfix.facts.environment import probe as environment
from splatfix.facts.environment.extensions import cache_root, own_tag
from splatfix.model import JitCache
from tests.files import put
from tests.tables import data

from .native_files import NEW_ABI, library, needs_gcc, torch_in

TABLE = data(__file__)

GONE = "_ZN3c104goneEv"


def caches(python: Path, **env: str) -> dict[str, JitCache]:
    system = System(env={"PATH": "/usr/bin:/bin", **env})
    found = environment.probe(system, str(python))
    return {item.name: item for item in found.jit_caches.value}


def test_the_folder_is_torchs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's `_get_build_directory` and ours, over the variables that decide."""
    torch = pytest.importorskip("torch")
    cpp_extension = pytest.importorskip("torch.utils.cpp_extension")
    found = environment.probe(System(), sys.executable)
    tag = own_tag(platform.python_version(), sys.abiflags, found.torch.value)
    assert tag.endswith("_cpu" if torch.version.cuda is None else f"_cu{torch.version.cuda.replace('.', '')}")
    for variable in ("HOME", "XDG_CACHE_HOME", "TORCH_EXTENSIONS_DIR"):
        env = {"HOME": str(tmp_path / "home"), variable: str(tmp_path / variable)}
        with monkeypatch.context() as patch:
            for name in ("TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME"):
                patch.delenv(name, raising=False)
            for name, value in env.items():
                patch.setenv(name, value)
            folder = cpp_extension._get_build_directory("some_cuda", False)
        root, named = cache_root(System(env=env))
        ours = f"{root}/some_cuda" if named else f"{root}/{tag}/some_cuda"
        assert os.path.realpath(ours) == os.path.realpath(folder)


@needs_gcc
def test_caches_of_several_environments(empty_venv: Path, site_packages: Path, tmp_path: Path) -> None:
    lib, older = torch_in(site_packages), torch_in(tmp_path / "older", c10=(NEW_ABI, GONE))
    root = tmp_path / "cache" / "torch_extensions"
    own = f"py{sys.version_info.major}{sys.version_info.minor}{sys.abiflags}_cpu"
    good = library(root / own / "good" / "good.so", (), [NEW_ABI], links=[lib / "libc10.so"])
    stale = library(root / own / "stale" / "stale.so", (), [NEW_ABI, GONE], links=[older / "libc10.so"])
    library(root / "py38_cu117" / "other" / "other.so", (), [GONE], links=[older / "libc10.so"])
    put(good.parent, {"build.ninja": TABLE["texts"]["ninja"].format(torch=site_packages / "torch")})
    (stale.parent / "lock").touch()
    os.utime(good, (1_700_000_000, 1_700_000_000))
    found = caches(empty_venv, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert set(found) == {"good", "stale", "other"}
    current = found["good"]
    assert current.current and current.linkage.torch_missing == () and current.locked is None
    assert (current.built, current.cuda_home) == ("2023-11-14T22:13:20+00:00", "/usr/local/cuda-13.0")
    assert current.torch_folder == str(site_packages / "torch")
    assert current.gencode == TABLE["gencode"]
    assert found["stale"].linkage.torch_missing == (GONE,) and found["stale"].locked is not None
    assert not found["other"].current and found["other"].tag == "py38_cu117"


@needs_gcc
def test_a_folder_of_the_users_own(empty_venv: Path, site_packages: Path, tmp_path: Path) -> None:
    lib = torch_in(site_packages)
    library(tmp_path / "own" / "some" / "some.so", (), [NEW_ABI], links=[lib / "libc10.so"])
    found = caches(empty_venv, TORCH_EXTENSIONS_DIR=str(tmp_path / "own"), XDG_CACHE_HOME=str(tmp_path))
    assert found["some"].current and found["some"].tag == ""


def test_odd_folders_are_no_caches(empty_venv: Path, tmp_path: Path) -> None:
    (tmp_path / "torch_extensions" / "py311_cpu" / "empty").mkdir(parents=True)
    damaged = b"\x7fELF" + b"\x02" * 9
    put(tmp_path / "torch_extensions", {"notes.txt": "", "py311_cpu/damaged/damaged.so": damaged})
    found = caches(empty_venv, XDG_CACHE_HOME=str(tmp_path))
    assert set(found) == {"damaged"} and found["damaged"].error
    assert cache_root(System(env={})) is None, "without a home there is none"


@needs_gcc
@pytest.mark.parametrize(
    ("init", "exports", "optional"), TABLE["a-library-that-importing-its-package-does-not-load"]
)
def test_a_library_that_importing_its_package_does_not_load(
    empty_venv: Path, site_packages: Path, init: str | None, exports: tuple[str, ...], optional: bool
) -> None:
    lib = torch_in(site_packages)
    library(site_packages / "some" / "cpu" / "some_ops.so", exports, [NEW_ABI], links=[lib / "libc10.so"])
    if init is not None:
        (site_packages / "some" / "__init__.py").write_text(init)
    found = environment.probe(System(env={"PATH": "/usr/bin:/bin"}), str(empty_venv))
    (item,) = (one for one in found.extensions.value if one.path.startswith("some/"))
    assert item.links_torch and item.optional is optional
    assert item.python_module is bool(exports)
