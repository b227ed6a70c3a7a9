"""Temporary folders go with their process, or with the next one; nobody else's do."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from splatfix.core import scratch
from splatfix.core.scratch import PREFIX, ScratchFolder, sweep, temporary_folder
from tests.conftest import ROOT
from tests.tables import data

pytestmark = pytest.mark.skipif(os.name != "posix", reason="folders are locked on POSIX only")

KILLED: str = data(__file__)["texts"]["killed"]


def test_a_folder_ends_with_its_block(tmp_path: Path) -> None:
    with temporary_folder(base=tmp_path) as folder:
        (folder / "file").write_text("")
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == []


def test_a_folder_outlives_no_kill(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", KILLED, tmp_path]
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with process, temporary_folder(base=tmp_path) as other:
        assert process.stdout
        try:
            folder = Path(process.stdout.readline().strip())
            assert folder != other and sweep([tmp_path]) == () and (folder / "half.o").is_file()
        finally:
            process.kill()
        process.wait()
        assert sweep([tmp_path, tmp_path / "nowhere"]) == (folder,)
        assert [path.name for path in tmp_path.iterdir()] == [other.name]


def test_only_our_own_are_removed(tmp_path: Path) -> None:
    named = [tmp_path / name for name in ("splatfix-report", "splatfix", ".making-it")]
    for folder in (*named, tmp_path / "elsewhere"):
        folder.mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / f"{PREFIX}file").write_text("")
    (tmp_path / f"{PREFIX}0123").mkdir()
    assert sweep([tmp_path]) == (tmp_path / f"{PREFIX}0123",)
    assert len(list(tmp_path.iterdir())) == 6


def test_what_a_kill_left_goes_before_a_new_one(tmp_path: Path) -> None:
    left, other = tmp_path / ".making-left", tmp_path / ".fetching-left"
    left.mkdir()
    other.mkdir()
    with temporary_folder(".making-", tmp_path) as folder:
        assert folder.parent == tmp_path and not left.exists() and other.is_dir()


def test_what_cannot_be_removed_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ScratchFolder(tmp_path, PREFIX)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        folder.remove()
        assert folder.path.is_dir() and sweep([tmp_path]) == ()
    assert sweep([tmp_path]) == (folder.path,)


def test_a_sweep_before_the_lock_takes_only_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process finds the folder in the moment between its making and its lock."""
    locked, swept = scratch._lock, []

    def swept_first(folder: Path) -> int | None:
        monkeypatch.setattr(scratch, "_lock", locked)
        swept.extend(sweep([tmp_path]))
        return locked(folder)

    monkeypatch.setattr(scratch, "_lock", swept_first)
    folder = ScratchFolder(tmp_path, PREFIX, f"{PREFIX}wanted")
    assert len(swept) == 1 and folder.path.is_dir() and sweep([tmp_path]) == ()
    folder.remove()


def test_a_file_system_without_locks_is_not_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(9, "Bad file descriptor")))
    folder = ScratchFolder(tmp_path, PREFIX)
    assert sweep([tmp_path]) == () and folder.path.is_dir()
    folder.remove()
    assert not folder.path.exists()
