"""Temporary folders of killed runs are removed by the next one, and nobody else's are."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from splatfix.core.errors import SplatfixError
from splatfix.install.scratch import (
    OWNER,
    claim,
    copy_source,
    remove,
    scratch_folder,
    sweep,
    temporary_folder,
)


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def test_what_is_copied_and_what_is_not(tmp_path: Path) -> None:
    source = tree(
        tmp_path / "source",
        {
            "setup.py": "",
            ".git/HEAD": "",
            "third_party/glm/.git": "gitdir: elsewhere",
            "third_party/glm/build/cmake.txt": "a build folder that is source",
            "build/lib/old.py": "",
            "dist/old.whl": "",
            "pkg/__init__.py": "",
            "pkg/__pycache__/x.pyc": "",
            "pkg/_C.cpython-311-x86_64-linux-gnu.so": "stale",
            "pkg/libvendor.so": "shipped on purpose",
            "pkg.egg-info/PKG-INFO": "",
        },
    )
    copy_source(source, tmp_path / "copy")
    assert names(tmp_path / "copy") == [
        "pkg/__init__.py",
        "pkg/libvendor.so",
        "setup.py",
        "third_party/glm/build/cmake.txt",
    ]


def test_links(tmp_path: Path) -> None:
    outside = tree(tmp_path / "outside", {"glm.hpp": "glm", "deep/more.hpp": "more"})
    source = tree(tmp_path / "source", {"setup.py": "", "real/a.h": "a"})
    (source / "inside").symlink_to("real")
    (source / "glm").symlink_to(outside)
    (source / "one.hpp").symlink_to(outside / "glm.hpp")
    (source / "up").symlink_to("../outside/deep")
    (source / "dangling").symlink_to("nowhere")
    (source / "loop").symlink_to(source)

    copy = tmp_path / "copy"
    copy_source(source, copy)
    shutil.rmtree(outside)

    assert (copy / "inside").readlink() == Path("real")
    assert (copy / "glm" / "deep" / "more.hpp").read_text() == "more"
    assert (copy / "one.hpp").read_text() == "glm" and not (copy / "one.hpp").is_symlink()
    assert (copy / "up" / "more.hpp").read_text() == "more"
    assert (copy / "dangling").readlink() == Path("nowhere")
    assert (copy / "loop").is_symlink()


def test_the_path_never_contains_arch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = tmp_path / "search-results"
    bad.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(bad))
    with scratch_folder() as scratch:
        assert "arch" not in str(scratch.source)
        assert scratch.wheels.is_dir()
    assert not scratch.root.exists()
    with pytest.raises(SplatfixError) as caught, scratch_folder(bad):
        raise AssertionError("a scratch folder was made where torch would misread it")
    assert caught.value.code == "no-scratch" and "TMPDIR" in caught.value.todo[0].line()


def test_a_path_with_a_blank_is_the_last_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's builder calls the compiler as it stands in CXX, and a compiler cache's script for it lies in there."""
    bad, cache = tmp_path / "my files", tmp_path / "cache"
    bad.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(bad))
    monkeypatch.setenv("SPLATFIX_CACHE", str(cache))
    with scratch_folder() as scratch:
        assert " " not in str(scratch.source)
    with scratch_folder(bad) as scratch:
        assert scratch.root.parent == bad.resolve(), "where there is no other, it serves"


def test_random_letters_that_spell_it_are_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter(["splatfix-xarch01", "splatfix-xyz"])

    def draw(prefix: str, dir: Path) -> str:
        path = dir / next(drawn)
        path.mkdir()
        return str(path)

    monkeypatch.setattr(tempfile, "mkdtemp", draw)
    base = Path("/tmp") if "arch" in str(tmp_path) else tmp_path
    with scratch_folder(base) as scratch:
        assert scratch.root.name == "splatfix-xyz"
    assert list(base.glob("splatfix-xarch01")) == []


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tree(tmp_path / "source", {"setup.py": ""})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(SplatfixError) as caught:
        copy_source(source, tmp_path / "copy")
    assert caught.value.code == "disk-full"


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


def test_folders_of_dead_processes_are_removed(tmp_path: Path) -> None:
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


def test_leftovers_in_our_own_folder_go_first(tmp_path: Path) -> None:
    left, other = abandon(tmp_path / ".making-left"), abandon(tmp_path / ".fetching-left")
    with temporary_folder(".making-", tmp_path) as folder:
        assert folder.parent == tmp_path
        assert not left.exists() and other.is_dir()


@pytest.mark.parametrize("note", ["", OWNER, f"{OWNER}.new"])
def test_an_unclaimed_folder_is_removed_after_a_minute(tmp_path: Path, note: str) -> None:
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
