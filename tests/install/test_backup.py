"""What a backup must survive: files nobody owns, links, modes, a kill in the middle, a development install."""

import errno
import os
import shutil
import zipfile
from pathlib import Path

import pytest

from splatfix.install.backup import Places, make_backup, note_written, read_backup, restore
from splatfix.install.environment import Environment, pip_install
from splatfix.install.journal import Journal
from splatfix.install.undo import Undoer
from splatfix.install.wheels import WheelFile, open_wheel, write_wheel
from tests.files import put
from tests.plan.machines import refused

from .environments import snapshot


def wheel(folder: Path, version: str, files: dict[str, bytes] | None = None) -> WheelFile:
    content = files or {
        "pkg/__init__.py": f"version = {version!r}\n".encode(),
        "pkg/inner/mod.py": b"x = 1\n",
    }
    return open_wheel(write_wheel(folder, "pkg", version, content, ""))


def put_back(target: Environment, folder: Path) -> None:
    restore(target, read_backup(folder, Places(target)))


def pip_put(item: WheelFile, target: Environment, tmp_path: Path) -> None:
    pip_install(target, tmp_path / "pip.log", item.path)


def test_the_longest_names_there_are(environment: Environment, tmp_path: Path) -> None:
    """The temporary file, and bytecode, beside such a name cannot be called after the whole of it."""
    names = [f"pkg/{'n' * (255 - len(suffix))}{suffix}" for suffix in (".json", ".py")]

    def unpack(version: str) -> None:  # as pip does, in no time
        item = wheel(tmp_path / version, version, dict.fromkeys(names, version.encode()))
        backup = make_backup(environment, item, tmp_path / "backup")
        with zipfile.ZipFile(item.path) as archive:
            archive.extractall(environment.purelib)
        note_written(environment, backup)

    unpack("1.0")
    before = snapshot(environment)
    shutil.rmtree(tmp_path / "backup")
    unpack("2.0")
    for _ in range(2):
        assert snapshot(environment) != before
        put_back(environment, tmp_path / "backup")
        assert snapshot(environment) == before
        (environment.purelib / names[0]).write_text("changed since")
    backup = read_backup(tmp_path / "backup", Places(environment))
    (kept,) = Undoer(environment, Journal(tmp_path))._later_changes(backup)
    put(Path(kept.copy).parent, {Path(kept.copy).name: ""})


@pytest.mark.parametrize("damage", ["gone", "cut short", "another shape", "rot"])
def test_a_damaged_backup_says_what_to_do_and_changes_nothing(
    environment: Environment, tmp_path: Path, damage: str
) -> None:
    pip_put(wheel(tmp_path / "a", "1.0"), environment, tmp_path)
    folder = tmp_path / "journal" / "0003-x" / "backup-x"
    make_backup(environment, wheel(tmp_path / "b", "2.0"), folder)
    installed = snapshot(environment)
    if damage == "rot":
        next((folder / "blobs").iterdir()).write_bytes(b"rot")
    elif damage == "gone":
        (folder / "backup.json").unlink()
    else:
        (folder / "backup.json").write_text("{" if damage == "cut short" else '{"subject": 1}')
    error = refused(read_backup, folder, Places(environment))
    assert error.code == "backup-damaged" and str(folder) in error.what
    assert str(tmp_path / "journal" / "0003-x.json") in error.todo[1].line()
    assert snapshot(environment) == installed


def test_what_the_disk_refuses_is_said_and_can_be_done_again(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(environment)
    new = wheel(tmp_path / "b", "2.0")
    backup = make_backup(environment, new, tmp_path / "backup")
    pip_put(new, environment, tmp_path)

    def read_only(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", read_only)
        error = refused(restore, environment, backup)
    assert error.code == "cannot-restore" and "pkg" in error.what
    restore(environment, backup)
    assert snapshot(environment) == before


def test_a_file_of_any_size_is_not_copied(environment: Environment, tmp_path: Path) -> None:
    new = wheel(tmp_path, "2.0")
    target = new.destinations(environment)[0]
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        file.truncate(1 << 40)
    error = refused(make_backup, environment, new, tmp_path / "backup")
    assert error.code == "cannot-back-up" and "larger than 8192 MiB" in error.what
