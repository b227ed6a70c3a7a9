"""A full disk, for real: an environment on a small file system of its own, filled to every degree."""

import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from splatfix.core.errors import SplatfixError
from splatfix.core.runner import Runner
from splatfix.install import WheelCache, revert
from splatfix.install.environment import Environment
from splatfix.install.wheels import write_wheel
from tests.conftest import Survived

from .environments import install, make_environment, pip, snapshot, write_extension

KIB = 1024
# cannot-restore: there was not even room to put things back; it says to make room and revert, which is what happens here
_HONEST = ("cannot-write", "pip-failed", "cannot-write-environment", "cannot-restore")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """6 MiB of memory as a file system; needs the right to mount."""
    place = tmp_path / "disk"
    place.mkdir()
    runner = Runner()
    argv = ["mount", "-t", "tmpfs", "-o", "size=6m,nr_inodes=0", "tmpfs", str(place)]
    if sys.platform != "linux" or not runner.run(argv, timeout=20.0).ok:
        pytest.skip("this account may not mount a file system")
    yield place
    done = runner.run(["umount", str(place)], timeout=20.0)
    assert done.ok, done.stderr


def fill(place: Path, leave: int) -> Path:
    """A file that leaves this many bytes."""
    ballast = place / "ballast"
    status = os.statvfs(place)
    free = status.f_bavail * status.f_frsize
    ballast.write_bytes(b"\0" * max(0, free - leave))
    return ballast


def undo(target: Environment) -> None:
    """What could not be put back for lack of room is put back by the next run, or by revert."""
    try:
        revert(target.python)
    except SplatfixError as nothing:
        assert nothing.code == "nothing-to-revert", nothing.what


@pytest.mark.slow
def test_a_build_on_a_disk_that_fills_up(small_disk: Path, tmp_path: Path, survived: Survived) -> None:
    """Log, wheel, backup, journal and pip each run out of room in their turn."""
    target: Environment = make_environment(small_disk / "env", pip=True)
    # the wheel is some 300 KiB that cannot be compressed
    noise = ",".join(str(byte) for byte in random.Random(1).randbytes(300 * KIB))
    source = write_extension(tmp_path / "source", extra=f"const unsigned char noise[] = {{{noise}}};")
    old = write_wheel(small_disk / "wheels", "tiny_probe", "0.9", {"tiny_probe/old.py": b"old = True\n"}, "")
    assert pip(target, "install", "--no-deps", "--no-index", "--no-compile", str(old)).ok
    before = snapshot(target)
    cache = WheelCache(tmp_path / "wheels")  # on the other disk: compiled until a wheel is there, then taken
    codes: list[str] = []
    degrees = (0, 8, 24, 64, 200, 400, 600, 700, 800, 900, 1000, 3000)
    for leave in degrees:
        ballast = fill(small_disk, leave * KIB)
        try:
            install(target, source, cache=cache)
        except SplatfixError as error:
            codes.append(error.code)
            assert error.code in _HONEST, f"{leave} KiB free: {error.code}: {error.what}"
            assert "space" in error.what, error.what
        ballast.unlink()
        undo(target)
        assert snapshot(target) == before, f"{leave} KiB free"
        shutil.rmtree(target.state_folder, ignore_errors=True)
    assert 4 < len(codes) < len(degrees) and "pip-failed" in codes, codes
    survived("builds on a full disk", len(codes))
