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
from tests.tables import data

from .native_files import NEW_ABI, library, needs_gcc, torch_in

TABLE = data(__file__)

GONE = "_ZN3c104goneEv"


def caches(python: Path, **env: str) -> dict[str, JitCache]:
    system = System(env={"PATH": "/usr/bin:/bin", **env})
    found = environment.probe(system, str(python))
    return {item.name: item for item in found.jit_caches.value}


def test_the_folder_is_torchs_own(tmp_path: Path) -> None:
    """torch's `_get_build_directory` and ours, over the variables that decide."""
    torch = pytest.importorskip("torch")
    cpp_extension = pytest.importorskip("torch.utils.cpp_extension")
    grid = [
        {"HOME": str(tmp_path / "home")},
        {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "xdg")},
        {"HOME": str(tmp_path / "home"), "TORCH_EXTENSIONS_DIR": str(tmp_path / "own")},
    ]
    wanted = []
    for env in grid:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME"):
                patch.delenv(name, raising=False)
            for name, value in env.items():
                patch.setenv(name, value)
            wanted.append(cpp_extension._get_build_directory("some_cuda", False))
    found = environment.probe(System(), sys.executable)
    tag = own_tag(platform.python_version(), sys.abiflags, found.torch.value)
    assert tag.endswith("_cpu" if torch.version.cuda is None else f"_cu{torch.version.cuda.replace('.', '')}")
    for env, folder in zip(grid, wanted, strict=True):
        found = cache_root(System(env=env))
        root, named = found
        ours = f"{root}/some_cuda" if named else f"{root}/{tag}/some_cuda"
        assert os.path.realpath(ours) == os.path.realpath(folder)


@needs_gcc
def test_caches_of_several_environments(empty_venv: Path, site_packages: Path, tmp_path: Path) -> None:
    lib = torch_in(site_packages)
    older = torch_in(tmp_path / "older", c10=(NEW_ABI, GONE))
    root = tmp_path / "cache" / "torch_extensions"
    own = f"py{sys.version_info.major}{sys.version_info.minor}{sys.abiflags}_cpu"
    good = library(root / own / "good" / "good.so", (), [NEW_ABI], links=[lib / "libc10.so"])
    stale = library(root / own / "stale" / "stale.so", (), [NEW_ABI, GONE], links=[older / "libc10.so"])
    library(root / "py38_cu117" / "other" / "other.so", (), [GONE], links=[older / "libc10.so"])
    (good.parent / "build.ninja").write_text(TABLE["texts"]["ninja"].format(torch=site_packages / "torch"))
    (stale.parent / "lock").touch()
    os.utime(good, (1_700_000_000, 1_700_000_000))
    found = caches(empty_venv, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert set(found) == {"good", "stale", "other"}
    assert found["good"].current and found["good"].linkage.torch_missing == ()
    assert found["good"].built == "2023-11-14T22:13:20+00:00"
    assert found["good"].torch_folder == str(site_packages / "torch")
    assert found["good"].cuda_home == "/usr/local/cuda-13.0"
    assert found["good"].gencode == (
        "-gencode=arch=compute_90,code=sm_90",
        "-gencode=arch=compute_90,code=compute_90",
    )
    assert found["stale"].linkage.torch_missing == (GONE,)
    assert found["stale"].locked is not None and found["good"].locked is None
    assert not found["other"].current and found["other"].tag == "py38_cu117"


@needs_gcc
def test_a_folder_of_the_users_own(empty_venv: Path, site_packages: Path, tmp_path: Path) -> None:
    lib = torch_in(site_packages)
    library(tmp_path / "own" / "some" / "some.so", (), [NEW_ABI], links=[lib / "libc10.so"])
    found = caches(empty_venv, TORCH_EXTENSIONS_DIR=str(tmp_path / "own"), XDG_CACHE_HOME=str(tmp_path))
    assert found["some"].current and found["some"].tag == ""


def test_odd_folders_are_no_caches(empty_venv: Path, tmp_path: Path) -> None:
    (tmp_path / "torch_extensions" / "py311_cpu" / "empty").mkdir(parents=True)
    (tmp_path / "torch_extensions" / "notes.txt").write_text("")
    damaged = tmp_path / "torch_extensions" / "py311_cpu" / "damaged"
    damaged.mkdir()
    (damaged / "damaged.so").write_bytes(b"\x7fELF" + b"\x02" * 9)
    found = caches(empty_venv, XDG_CACHE_HOME=str(tmp_path))
    assert set(found) == {"damaged"}
    assert found["damaged"].error


def test_without_a_home_there_is_no_cache() -> None:
    assert cache_root(System(env={})) is None


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
