"""Temporary folders of killed runs are removed by the next one, and nobody else's are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from splatfix.install.scratch import OWNER, claim, remove, scratch_folder, sweep, temporary_folder

ROOT = Path(__file__).parents[2]

# makes a scratch folder with something in it, says where, and waits to be killed
KILLED = """
import sys, time
from pathlib import Path
from splatfix.install.scratch import scratch_folder
with scratch_folder(Path(sys.argv[1]), source="/some/source") as made:
    made.source.mkdir()
    (made.source / "half.o").write_text("half")
    print(made.root, flush=True)
    time.sleep(60)
"""


def start(base: Path) -> tuple[subprocess.Popen[str], Path]:
    argv = [sys.executable, "-c", KILLED, str(base)]
    child = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    return child, Path(child.stdout.readline().strip())


def test_what_a_killed_run_left_goes_and_what_a_living_one_has_stays(tmp_path: Path) -> None:
    child, folder = start(tmp_path)
    try:
        assert sweep([tmp_path]) == () and (folder / "source" / "half.o").is_file()
        with scratch_folder(tmp_path, source="/some/source") as other:
            assert other.root != folder, "two runs shared one scratch folder"
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert sweep([tmp_path, tmp_path / "nowhere"]) == (folder,)
        assert not folder.exists()
    finally:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def test_the_same_source_gets_the_same_path(tmp_path: Path) -> None:
    with scratch_folder(tmp_path, source="/a") as first:
        pass
    with scratch_folder(tmp_path, source="/a") as again, scratch_folder(tmp_path, source="/b") as other:
        assert again.root == first.root != other.root
    assert list(tmp_path.iterdir()) == []


def dead_process() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def abandon(folder: Path, **changes: object) -> Path:
    folder.mkdir()
    claim(folder)
    said = json.loads((folder / OWNER).read_text())
    (folder / OWNER).write_text(json.dumps({**said, "pid": dead_process(), **changes}))
    (folder / "left").mkdir()
    return folder


def test_folders_that_are_not_ours_to_remove(tmp_path: Path) -> None:
    unmarked = tmp_path / "splatfix-unmarked"
    unmarked.mkdir()
    damaged = tmp_path / "splatfix-damaged"
    damaged.mkdir()
    (damaged / OWNER).write_text("{")
    elsewhere = abandon(tmp_path / "splatfix-elsewhere", place="another machine")
    kept = {unmarked, damaged, elsewhere}
    (tmp_path / "splatfix-link").symlink_to(abandon(tmp_path / "other-name"))
    gone = abandon(tmp_path / "splatfix-gone")
    assert sweep([tmp_path]) == (gone,)
    assert kept <= set(tmp_path.iterdir()) and (tmp_path / "other-name" / "left").is_dir()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="process start times are read from /proc")
def test_a_later_process_of_the_same_number_is_not_the_owner(tmp_path: Path) -> None:
    folder = abandon(tmp_path / "splatfix-reused", pid=os.getpid(), started="1")
    assert sweep([tmp_path]) == (folder,)


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="working folders are read from /proc")
def test_a_compiler_that_outlived_its_run_is_waited_for(tmp_path: Path) -> None:
    folder = abandon(tmp_path / "splatfix-busy")
    compiler = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], cwd=folder / "left")
    try:
        assert sweep([tmp_path]) == ()
    finally:
        compiler.kill()
        compiler.wait()
    assert sweep([tmp_path]) == (folder,)


def test_what_cannot_be_removed_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = abandon(tmp_path / "splatfix-stuck")
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda *_, **__: None)
        remove(folder)
    assert (folder / OWNER).is_file() and (folder / "left").is_dir()
    assert sweep([tmp_path]) == (folder,) and not folder.exists()


def test_a_temporary_folder_ends_with_its_block() -> None:
    with temporary_folder("splatfix-test-") as folder:
        (folder / "file").write_text("")
        assert (folder / OWNER).is_file()
    assert not folder.exists()


def test_in_a_folder_of_our_own_what_killed_runs_left_goes_first(tmp_path: Path) -> None:
    left, other = abandon(tmp_path / ".making-left"), abandon(tmp_path / ".fetching-left")
    with temporary_folder(".making-", tmp_path) as folder:
        assert folder.parent == tmp_path
        assert not left.exists() and other.is_dir()


@pytest.mark.parametrize("note", ["", OWNER, f"{OWNER}.new"])
def test_a_folder_with_nothing_but_half_a_note_goes_after_a_while(tmp_path: Path, note: str) -> None:
    """What a kill between making a folder and noting its owner leaves; one that was just made may get its note yet."""
    old, new, full = (tmp_path / f"splatfix-{name}" for name in ("old", "new", "full"))
    for folder in (old, new, full):
        folder.mkdir()
        if note:
            (folder / note).write_text("")
    (full / "theirs").write_text("")
    for folder in (old, full):
        os.utime(folder, (0, 0))
    assert sweep([tmp_path]) == (old,)
    assert not old.exists() and new.is_dir() and full.is_dir()


def test_a_note_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        claim(tmp_path)
    assert not (tmp_path / OWNER).exists()
    monkeypatch.undo()
    claim(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == [OWNER]
