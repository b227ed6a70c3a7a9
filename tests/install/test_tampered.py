"""A journal is data from a disk that others may write: what leads out of the environment is refused, and nothing is touched."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from splatfix.core.errors import SplatfixError
from splatfix.install import revert
from splatfix.install.environment import Environment, environment_lock
from tests.files import contents, put
from tests.plan.machines import refused

from .environments import Stages, install, write_extension

LOCKS = ("lock", "pip.lock")
Tampering = Callable[[Environment, Path], None]


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder of somebody else's, with a file."""
    return put(tmp_path / "victim", dict.fromkeys(("file.txt", "blobs/00000", "backup.json"), "precious"))


def entry_file(target: Environment) -> Path:
    return sorted((target.state_folder / "journal").glob("*.json"))[-1]


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def backup_file(target: Environment) -> Path:
    (path,) = entry_file(target).with_suffix("").glob("backup-*/backup.json")
    return path


def will_write(target: Environment, path: str) -> None:
    edit(backup_file(target), lambda it: it["will_write"].append(path))


def deleted_by_dots(target: Environment, victim: Path) -> None:
    will_write(target, f"<prefix>/{os.path.relpath(victim / 'file.txt', target.prefix)}")


def overwritten_by_a_step(target: Environment, victim: Path) -> None:
    """As if ``--in-place`` had edited a checkout."""
    shutil.copytree(backup_file(target).parent, entry_file(target).with_suffix("") / "edits-x")
    step = {"kind": "edit-source", "subject": "x", "backup": "edits-x", "source": str(victim), "done": False}
    edit(entry_file(target), lambda it: it["steps"].append(step))
    backup = entry_file(target).with_suffix("") / "edits-x" / "backup.json"

    def point(document: dict[str, Any]) -> None:
        saved = next(item for item in document["saved"] if item["blob"])
        written = [{"path": "<checkout>/file.txt", "digest": saved["digest"]}]
        document.update(saved=[saved | written[0]], will_write=[], written=written, seal="0" * 64)
        document.update(folders_before=[], stashes_before=[])

    edit(backup, point)


def linked(target: Environment, victim: Path) -> None:
    """A link first, then a file through it."""

    def point(document: dict[str, Any]) -> None:
        file = next(item for item in document["saved"] if item["blob"])
        link = {"path": "<prefix>/lib/x", "blob": "", "digest": "", "mode": 0o777, "mtime_ns": 0}
        document["saved"] += [link | {"link": str(victim)}, {**file, "path": "<prefix>/lib/x/file.txt"}]

    edit(backup_file(target), point)


def behind_a_link(target: Environment, victim: Path) -> None:
    (target.prefix / "lib" / "x").symlink_to(victim)
    will_write(target, "<prefix>/lib/x/file.txt")


def setuid(target: Environment, victim: Path) -> None:
    edit(backup_file(target), lambda it: it["saved"][0].update(mode=0o4755))


def removed_by_id(target: Environment, victim: Path) -> None:
    """An entry that is over has its backups removed: by an id, here, that leads elsewhere."""
    document = json.loads(entry_file(target).read_text())
    elsewhere = os.path.relpath(victim.parent, target.state_folder / "journal")
    document.update(id=elsewhere, status="reverted")
    document["steps"][-1].update(backup="victim")
    (target.state_folder / "journal" / "0000-x.json").write_text(json.dumps(document))


def entry_is_a_link(target: Environment, victim: Path) -> None:
    folder = entry_file(target).with_suffix("")
    shutil.move(folder, victim / "theirs")
    folder.symlink_to(victim / "theirs")


def own_journal(target: Environment, victim: Path) -> None:
    will_write(target, f"<prefix>/.splatfix/journal/{entry_file(target).name}")


TAMPERINGS: list[Tampering] = [
    deleted_by_dots,
    overwritten_by_a_step,
    linked,
    behind_a_link,
    setuid,
    removed_by_id,
    entry_is_a_link,
    own_journal,
]


@pytest.mark.parametrize("tampering", TAMPERINGS, ids=lambda it: it.__name__)
def test_tampering_is_refused_and_nothing_is_touched(
    stages: Stages, tmp_path: Path, victim: Path, tampering: Tampering
) -> None:
    environment = stages.at("two")
    tampering(environment, victim)
    held = (contents(tmp_path, LOCKS), contents(environment.prefix, LOCKS))
    for dry_run in (True, False):
        error = refused(revert, environment.python, dry_run=dry_run)
        assert error.code == "journal-tampered" and error.todo
        assert (contents(tmp_path, LOCKS), contents(environment.prefix, LOCKS)) == held
    edit(entry_file(environment), lambda it: it.update(status="running"))  # as after a kill
    error = refused(install, environment, write_extension(tmp_path / "three", name="other_probe"))
    assert error.code == "journal-tampered"


@pytest.mark.parametrize("kind", ["fifo", "link", "link to all of it"])
def test_a_lock_is_a_file_of_its_own(environment: Environment, victim: Path, kind: str) -> None:
    state, lock = environment.state_folder, environment.state_folder / "lock"
    if kind == "link to all of it":
        state.symlink_to(victim)
    else:
        state.mkdir()
    if kind == "fifo":
        os.mkfifo(lock)
    elif kind == "link":
        lock.symlink_to(victim / "file.txt")
    held = contents(victim)
    with pytest.raises(SplatfixError) as caught, environment_lock(state):
        pass
    assert caught.value.code == "journal-tampered" and contents(victim) == held
