"""Environments without a pip of their own: uv installs there, or the pip beside splatfix, and all comes back."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from splatfix.core.lock import Lock, Locked
from splatfix.facts import gather
from splatfix.facts.environment import probe
from splatfix.facts.system.live import System
from splatfix.install import revert
from splatfix.install.backup import Places, make_backup, note_written, read_backup, restore
from splatfix.install.environment import _LOCKED, Environment, open_environment, pip_install
from splatfix.install.installed import find_installed
from splatfix.install.wheels import open_wheel, write_wheel
from tests.archs import request_for
from tests.files import contents
from tests.plan.machines import make_plan, refused

from .environments import install, make_environment, run_in, snapshot, write_extension
from .test_legacy import MAKERS

UV = shutil.which("uv", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
needs_uv = pytest.mark.skipif(UV is None, reason="uv is not installed here")
NAMES = ("fused-ssim", "diff_gaussian_rasterization", "a.b-C_d")
KINDS = ("pip", pytest.param("uv", marks=needs_uv))


@pytest.fixture
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is found: uv, or only the pip of the Python that runs the tests."""
    programs = [(str(UV), "test")] if request.param == "uv" else []
    monkeypatch.setattr("splatfix.facts.environment.installer._uv_programs", lambda *_: iter(programs))
    return str(request.param)


@pytest.fixture
def bare(kind: str, tmp_path: Path) -> Environment:
    """An environment without pip, in a folder with a space and letters that are not ASCII."""
    made = make_environment(tmp_path / "meine Umgebung é" / ".venv", pip=False)
    return open_environment(made.python)


@pytest.mark.parametrize("kind", KINDS, indirect=True)
def test_built_installed_and_reverted(bare: Environment, kind: str, tmp_path: Path) -> None:
    before = snapshot(bare)
    found = probe.probe(System(), bare.python).installer.value
    assert found == bare.installer and found is not None and (found.kind, bool(found.program)) == (kind, True)
    outcome = install(bare, write_extension(tmp_path / "source"), afresh=True)
    assert run_in(bare, "import tiny_probe; print(tiny_probe.answer())") == "42"
    made = bare.platlib / "tiny_probe-1.0.dist-info" / "INSTALLER"
    assert made.read_text().strip() == kind and outcome.items[0].version == "1.0"
    revert(bare.python)
    assert snapshot(bare) == before


@pytest.mark.parametrize("kind", KINDS, indirect=True)
@pytest.mark.parametrize(("maker", "name"), list(zip(MAKERS, NAMES, strict=True)))
def test_legacy_installs_return(bare: Environment, kind: str, tmp_path: Path, maker: str, name: str) -> None:
    MAKERS[maker](bare, tmp_path / "checkout", name)
    before = snapshot(bare)
    stem = name.replace("-", "_").replace(".", "_")
    path = write_wheel(tmp_path / "wheels", name, "1.0", {f"{stem}/__init__.py": b"old = False\n"}, "")
    folder = tmp_path / "backup"
    backup = make_backup(bare, open_wheel(path), folder)
    pip_install(bare, tmp_path / "pip.log", path)
    note_written(bare, backup)
    if kind == "pip":  # uv leaves eggs, and the programs of them
        assert not (bare.scripts / "old-tool").exists()
        assert [item.version for item in find_installed(bare, name)] == ["1.0"]
    for _ in range(2):
        restore(bare, read_backup(folder, Places(bare)))
        assert snapshot(bare) == before


@pytest.mark.parametrize("kind", ["pip"], indirect=True)
@pytest.mark.parametrize("how", ["hard links", "links"])
def test_a_cache_behind_the_files_stays_as_it_is(bare: Environment, tmp_path: Path, how: str) -> None:
    """uv's link modes: what is installed is the very file in its cache, or a link to it."""
    old = write_wheel(tmp_path / "old", "pkg", "1.0", {"pkg/__init__.py": b"old = True\n"}, "")
    pip_install(bare, tmp_path / "pip.log", old)
    cache = tmp_path / "cache"
    cache.mkdir()
    for number, path in enumerate(filter(Path.is_file, sorted(bare.purelib.glob("pkg*/*")))):
        kept = cache / str(number)
        path.rename(kept)
        os.link(kept, path) if how == "hard links" else path.symlink_to(kept)
    held = contents(cache)
    before = snapshot(bare)
    new = open_wheel(write_wheel(tmp_path / "new", "pkg", "2.0", {"pkg/__init__.py": b"new = True\n"}, ""))
    backup = make_backup(bare, new, tmp_path / "backup")
    pip_install(bare, tmp_path / "pip.log", new.path)
    assert (bare.purelib / "pkg" / "__init__.py").read_bytes() == b"new = True\n"
    restore(bare, backup)
    assert snapshot(bare) == before and len(held) > 2
    assert contents(cache) == held


@pytest.mark.parametrize("kind", ["pip"], indirect=True)
def test_missing_build_tools_are_asked_of_who_installs(bare: Environment, tmp_path: Path) -> None:
    for path in (Path(bare.prefix) / "tools" / "site-packages").glob("setuptools*"):
        path.unlink()
    request = request_for((str(write_extension(tmp_path / "source")),))
    error = refused(make_plan, request, gather(bare.python))
    step, *_ = error.todo
    assert error.code == "build-tools-missing" and step.command is not None
    assert step.command.argv[:6] == (sys.executable, "-m", "pip", "--python", bare.python, "install")


@pytest.mark.skipif(os.name != "posix", reason="exec keeps the lock")
def test_whoever_installs_holds_the_lock(tmp_path: Path) -> None:
    """Killed, splatfix leaves its pip or uv behind: the lock is that program's own."""
    inner, lock = "print(1, flush=True); input()", tmp_path / "lock"
    argv = [sys.executable, "-c", _LOCKED, str(lock), sys.executable, "-c", inner]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"1\n"
        with pytest.raises(Locked):
            Lock(lock, 0.1)
        child.kill()
        child.wait()
        Lock(lock).release()
