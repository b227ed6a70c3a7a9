"""What a backup must survive: damage, a disk that refuses, a file of any size."""

import errno
import os
from pathlib import Path

import pytest

from splatfix.install import revert
from splatfix.install.backup import make_backup
from splatfix.install.environment import Environment
from splatfix.install.wheels import open_wheel, write_wheel
from tests.plan.machines import refused

from .environments import Stages, backup_file, entry_file, snapshot


@pytest.mark.parametrize("damage", ["gone", "cut short", "another shape", "rot"])
def test_a_damaged_backup_says_what_to_do_and_changes_nothing(stages: Stages, damage: str) -> None:
    environment = stages.at("two")
    file = backup_file(environment)
    if damage == "rot":
        next((file.parent / "blobs").iterdir()).write_bytes(b"rot")
    elif damage == "gone":
        file.unlink()
    else:
        file.write_text("{" if damage == "cut short" else '{"subject": 1}')
    error = refused(revert, environment.python)
    assert error.code == "backup-damaged" and str(file.parent) in error.what
    assert str(entry_file(environment)) in error.todo[1].line()
    assert snapshot(environment) == stages.files["two"]


def test_a_failed_restore_can_be_done_again(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = stages.at("two")

    def read_only(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", read_only)
        error = refused(revert, environment.python)
    assert error.code == "cannot-restore" and "tiny_probe" in error.what
    revert(environment.python)
    assert snapshot(environment) == stages.files["one"]


def test_a_file_of_any_size_is_not_copied(environment: Environment, tmp_path: Path) -> None:
    new = open_wheel(write_wheel(tmp_path, "pkg", "2.0", {"pkg/__init__.py": b""}, ""))
    target = new.destinations(environment)[0]
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        file.truncate(1 << 40)
    error = refused(make_backup, environment, new, tmp_path / "backup")
    assert error.code == "cannot-back-up" and "larger than 8192 MiB" in error.what
