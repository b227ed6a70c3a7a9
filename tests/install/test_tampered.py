"""A journal is data from a disk that others may write: what leads out of the environment is refused, and nothing is touched."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from splatfix.core.errors import SplatfixError
from splatfix.install import revert
from splatfix.install.environment import Environment, environment_lock
from tests.files import contents
from tests.plan.machines import refused

from .environments import Stages, install, write_extension

LOCKS = ("lock", "pip.lock")
Tampering = Callable[[Environment, Path], None]


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder of somebody else's, with a file."""
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / "file.txt").write_text("precious")
    (folder / "blobs").mkdir()
    (folder / "blobs" / "00000").write_text("precious")
    (folder / "backup.json").write_text("precious")
    return folder


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


def link_at(path: str, leads_to: object) -> dict[str, Any]:
    """What a backup would say of a link."""
    return {"path": path, "blob": "", "digest": "", "mode": 0o777, "mtime_ns": 0, "link": str(leads_to)}


def save_too(target: Environment, link: dict[str, Any], path: str = "") -> None:
    """Let the backup restore this link, and then a file at that path."""

    def point(document: dict[str, Any]) -> None:
        saved = next(item for item in document["saved"] if item["blob"])
        document["saved"].append(link)
        if path:
            document["saved"].append({**saved, "path": path})

    edit(backup_file(target), point)


def deleted(target: Environment, victim: Path) -> None:
    will_write(target, str(victim / "file.txt"))


def deleted_by_dots(target: Environment, victim: Path) -> None:
    will_write(target, f"<prefix>/{os.path.relpath(victim / 'file.txt', target.prefix)}")


def emptied(target: Environment, victim: Path) -> None:
    (backup_file(target).parent / "blobs" / "99999").write_bytes(b"")
    digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    saved = {
        "path": str(victim / "file.txt"),
        "blob": "99999",
        "digest": digest,
        "mode": 0o644,
        "mtime_ns": 0,
    }
    edit(backup_file(target), lambda it: it["saved"].append(saved))


def overwritten_by_a_step(target: Environment, victim: Path) -> None:
    """As if ``--in-place`` had edited a checkout."""
    shutil.copytree(backup_file(target).parent, entry_file(target).with_suffix("") / "edits-x")
    step = {"kind": "edit-source", "subject": "x", "backup": "edits-x", "source": str(victim), "done": False}
    edit(entry_file(target), lambda it: it["steps"].append(step))
    backup = entry_file(target).with_suffix("") / "edits-x" / "backup.json"

    def point(document: dict[str, Any]) -> None:
        saved = next(item for item in document["saved"] if item["blob"])
        document.update(saved=[{**saved, "path": "<checkout>/file.txt"}], will_write=[], written=[])
        document.update(folders_before=[], stashes_before=[])

    edit(backup, point)


def linked(target: Environment, victim: Path) -> None:
    """A link first, then a file through it."""
    save_too(target, link_at("<prefix>/lib/x", victim), "<prefix>/lib/x/file.txt")


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


def removed_by_backup(target: Environment, victim: Path) -> None:
    elsewhere = os.path.relpath(victim, entry_file(target).with_suffix(""))

    def point(document: dict[str, Any]) -> None:
        document.update(status="reverted")
        for step in document["steps"]:
            step["backup"] = elsewhere

    other = target.state_folder / "journal" / "0000-x.json"
    shutil.copy(entry_file(target), other)
    edit(other, lambda it: (it.update(id="0000-x"), point(it))[-1])


def entry_is_a_link(target: Environment, victim: Path) -> None:
    folder = entry_file(target).with_suffix("")
    shutil.move(folder, victim / "theirs")
    folder.symlink_to(victim / "theirs")


def copies_are_a_link(target: Environment, victim: Path) -> None:
    blobs = backup_file(target).parent / "blobs"
    shutil.rmtree(blobs)
    blobs.symlink_to(victim / "blobs")


def own_journal(target: Environment, victim: Path) -> None:
    will_write(target, f"<prefix>/.splatfix/journal/{entry_file(target).name}")


def linked_by_another_step(target: Environment, victim: Path) -> None:
    folder = entry_file(target).with_suffix("")
    shutil.copytree(backup_file(target).parent, folder / "backup-zz")
    link = link_at("<prefix>/lib/x", victim)
    edit(folder / "backup-zz" / "backup.json", lambda it: it.update(saved=[link], will_write=[], written=[]))
    file = folder / "backup-tiny_probe" / "backup.json"
    saved = next(item for item in json.loads(file.read_text())["saved"] if item["blob"])
    edit(file, lambda it: it["saved"].append({**saved, "path": "<prefix>/lib/x/file.txt"}))
    step = json.loads(entry_file(target).read_text())["steps"][-2]
    edit(entry_file(target), lambda it: it["steps"].append({**step, "backup": "backup-zz", "done": False}))


def pointed_elsewhere(target: Environment, victim: Path) -> None:
    """The link is there already, and leads into the environment until it is restored."""
    (target.prefix / "x").symlink_to("lib")
    save_too(target, link_at("<prefix>/x", victim), "<prefix>/x/file.txt")


def folder_behind_a_link(target: Environment, victim: Path) -> None:
    save_too(target, link_at("<prefix>/lib/x", victim))
    edit(backup_file(target), lambda it: it["folders_before"].append("<prefix>/lib/x/new"))


def copies_of_changes_are_a_link(target: Environment, victim: Path) -> None:
    kept = entry_file(target).with_suffix("") / "kept"
    kept.mkdir()
    (kept / backup_file(target).parent.name).symlink_to(victim)
    (target.purelib / "tiny_probe" / "__init__.py").write_text("changed = True\n")


def link_with_nul(target: Environment, victim: Path) -> None:
    save_too(target, link_at("<prefix>/lib/x", "a\0b"))


def name_that_is_none(target: Environment, victim: Path) -> None:
    will_write(target, "<prefix>/lib/\ud800")


def name_that_is_too_long(target: Environment, victim: Path) -> None:
    will_write(target, f"<prefix>/lib/{'x' * 300}")


def folder_as_a_file(target: Environment, victim: Path) -> None:
    will_write(target, "<prefix>/lib")


TAMPERINGS: list[Tampering] = [
    linked_by_another_step,
    pointed_elsewhere,
    folder_behind_a_link,
    copies_of_changes_are_a_link,
    link_with_nul,
    name_that_is_none,
    name_that_is_too_long,
    folder_as_a_file,
    deleted,
    deleted_by_dots,
    emptied,
    overwritten_by_a_step,
    linked,
    behind_a_link,
    setuid,
    removed_by_id,
    removed_by_backup,
    entry_is_a_link,
    copies_are_a_link,
    own_journal,
]
CODES = {"journal-tampered", "journal-of-another-environment"}


@pytest.mark.parametrize("tampering", TAMPERINGS, ids=lambda it: it.__name__)
def test_tampering_is_refused_and_nothing_is_touched(
    stages: Stages, tmp_path: Path, victim: Path, tampering: Tampering
) -> None:
    environment = stages.at("two")
    tampering(environment, victim)
    held = (contents(tmp_path, LOCKS), contents(environment.prefix, LOCKS))
    for dry_run in (True, False):
        error = refused(revert, environment.python, dry_run=dry_run)
        assert error.code in CODES and error.todo
        assert (contents(tmp_path, LOCKS), contents(environment.prefix, LOCKS)) == held
    edit(entry_file(environment), lambda it: it.update(status="running"))  # as after a kill
    error = refused(install, environment, write_extension(tmp_path / "three", name="other_probe"))
    assert error.code in CODES


@pytest.mark.parametrize("link", ["y/__pycache__", "x.dist-info"])
def test_what_is_looked_for_beside_a_file_is_not_looked_for_behind_a_link(
    stages: Stages, victim: Path, link: str
) -> None:
    environment = stages.at("one")
    (victim / "mod.cpython-311.pyc").write_bytes(b"theirs")
    path = environment.prefix / "lib" / link
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(victim)
    names = {"y/__pycache__": "y/mod.py", "x.dist-info": "x.dist-info/METADATA"}
    will_write(environment, f"<prefix>/lib/{names[link]}")
    held = contents(victim)
    with suppress(SplatfixError):
        revert(environment.python)
    assert contents(victim) == held


@pytest.mark.parametrize("kind", ["fifo", "folder", "link", "link to all of it"])
def test_a_lock_is_a_file_of_its_own(environment: Environment, victim: Path, kind: str) -> None:
    state, lock = environment.state_folder, environment.state_folder / "lock"
    if kind == "link to all of it":
        state.symlink_to(victim)
    else:
        state.mkdir()
    if kind == "fifo":
        os.mkfifo(lock)
    elif kind == "folder":
        lock.mkdir()
    elif kind == "link":
        lock.symlink_to(victim / "file.txt")
    held = contents(victim)
    with pytest.raises(SplatfixError) as caught, environment_lock(state):
        pass
    assert caught.value.code == "journal-tampered" and contents(victim) == held


def test_a_setuid_file_comes_back_without_it(stages: Stages, tmp_path: Path) -> None:
    environment = stages.at("one")
    file = environment.purelib / "tiny_probe" / "__init__.py"
    file.chmod(0o4755)
    install(environment, write_extension(tmp_path / "two", version="2.0", answer=7))
    revert(environment.python)
    assert file.stat().st_mode & 0o7777 == 0o755
