"""Environments that were copied or moved after an installation, and files that are not splatfix's to touch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from splatfix.core.errors import SplatfixError
from splatfix.core.runner import ProcessRunner
from splatfix.facts import gather
from splatfix.install import Journal, WheelCache, execute, revert
from splatfix.install.environment import Environment, open_environment

from .environments import install, snapshot, write_extension
from .test_cli import splatfix
from .test_in_place import files, planned, source_with_work


def copy_of(target: Environment, folder: Path) -> Environment:
    shutil.copytree(target.prefix, folder, symlinks=True)
    return open_environment(str(folder / "bin" / "python"), ProcessRunner())


def everything(target: Environment) -> dict[str, bytes]:
    """Every file with its content, the journal's too."""
    prefix = target.prefix
    return {
        str(path): path.read_bytes() for path in prefix.rglob("*") if path.is_file() and not path.is_symlink()
    }


def without_locks(target: Environment) -> dict[str, bytes]:
    return {name: content for name, content in everything(target).items() if not name.endswith("lock")}


def change_entry(target: Environment, change: Callable[[dict[str, object]], None]) -> None:
    path = sorted((target.state_folder / "journal").glob("*.json"))[-1]
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def kill_in_the_middle(document: dict[str, object]) -> None:
    """As the journal stands when the process dies after pip and before the end."""
    document["status"] = "running"


def as_version_2(target: Environment) -> None:
    """Paths as splatfix wrote them before version 3: absolute."""
    for path in (target.state_folder / "journal").rglob("*.json"):
        path.write_text(path.read_text().replace("<prefix>", str(target.prefix)))

    def older(document: dict[str, object]) -> None:
        document["schema_version"] = 2
        del document["environment"]

    change_entry(target, older)


@pytest.fixture
def installed(environment: Environment, tmp_path: Path) -> tuple[Environment, dict[str, tuple[int, str]]]:
    """An environment after tiny_probe 1.0 was replaced by 2.0, and what it was before the last."""
    install(environment, write_extension(tmp_path / "one"))
    before = snapshot(environment)
    install(environment, write_extension(tmp_path / "two", version="2.0", answer=7))
    return environment, before


Installed = tuple[Environment, dict[str, tuple[int, str]]]


def test_revert_in_a_copy_restores_the_copy(installed: Installed, tmp_path: Path) -> None:
    original, before = installed
    untouched = everything(original)
    copy = copy_of(original, tmp_path / "copy")
    assert splatfix("revert", "--python", copy.python) == 0
    assert snapshot(copy) == before and everything(original) == untouched
    assert splatfix("revert", "--python", original.python) == 0
    assert snapshot(original) == before


def test_a_killed_installation_is_rolled_back_in_the_copy_alone(installed: Installed, tmp_path: Path) -> None:
    original, before = installed
    change_entry(original, kill_in_the_middle)
    untouched = everything(original)
    copy = copy_of(original, tmp_path / "copy")
    outcome = install(copy, write_extension(tmp_path / "other", name="other_probe"))
    assert len(outcome.recovered) == 1 and everything(original) == untouched
    revert(copy.python)
    assert snapshot(copy) == before


def test_revert_after_a_move_restores_the_new_folder(installed: Installed, tmp_path: Path) -> None:
    original, before = installed
    original.prefix.rename(tmp_path / "moved")
    moved = open_environment(str(tmp_path / "moved" / "bin" / "python"), ProcessRunner())
    assert splatfix("revert", "--python", moved.python) == 0
    assert snapshot(moved) == before and not original.prefix.exists()


def test_a_journal_of_before_is_undone_in_its_own_environment(installed: Installed) -> None:
    original, before = installed
    as_version_2(original)
    revert(original.python)
    assert snapshot(original) == before


@pytest.mark.parametrize("arrived", ["copied", "moved"])
def test_a_journal_of_before_is_refused_elsewhere(installed: Installed, tmp_path: Path, arrived: str) -> None:
    original, _ = installed
    as_version_2(original)
    if arrived == "copied":
        there = copy_of(original, tmp_path / "new")
    else:
        original.prefix.rename(tmp_path / "new")
        there = open_environment(str(tmp_path / "new" / "bin" / "python"), ProcessRunner())
    held = without_locks(there)
    for dry_run in (True, False):
        with pytest.raises(SplatfixError) as caught:
            revert(there.python, dry_run=dry_run)
        assert caught.value.code == "journal-of-another-environment"
    assert without_locks(there) == held
    assert original.prefix.exists() is (arrived == "copied")


def test_a_copy_leaves_the_checkout_to_the_original(environment: Environment, tmp_path: Path) -> None:
    source = source_with_work(tmp_path / "source")
    before, before_install = files(source), snapshot(environment)
    facts = gather(environment.python)
    execute(planned(environment, source, facts), facts, cache=WheelCache())
    edited = files(source)
    copy = copy_of(environment, tmp_path / "copy")

    (preview,), (done,) = (
        [item for item in revert(copy.python, dry_run=dry_run).items if item.source]
        for dry_run in (True, False)
    )
    assert files(source) == edited and snapshot(copy) == before_install
    assert preview.notes == done.notes and str(environment.prefix) in done.notes[0]
    revert(environment.python)
    assert files(source) == before


def test_the_checkout_comes_back_after_a_move(environment: Environment, tmp_path: Path) -> None:
    source = source_with_work(tmp_path / "source")
    before = files(source)
    facts = gather(environment.python)
    execute(planned(environment, source, facts), facts, cache=WheelCache())
    environment.prefix.rename(tmp_path / "moved")
    revert(str(tmp_path / "moved" / "bin" / "python"))
    assert files(source) == before


def test_a_copy_of_an_environment_that_was_reverted_has_nothing_to_leave(
    environment: Environment, tmp_path: Path
) -> None:
    source = source_with_work(tmp_path / "source")
    before = files(source)
    facts = gather(environment.python)
    execute(planned(environment, source, facts), facts, cache=WheelCache())
    copies = [copy_of(environment, tmp_path / name) for name in ("b", "c")]
    revert(environment.python)
    assert not any(item.notes for item in revert(copies[0].python).items)
    shutil.rmtree(environment.prefix)
    revert(copies[1].python)
    assert files(source) == before


def test_a_checkout_inside_the_environment_is_the_copy_s_own(
    environment: Environment, tmp_path: Path
) -> None:
    source = source_with_work(environment.prefix / "src" / "probe")
    before = files(source)
    facts = gather(environment.python)
    execute(planned(environment, source, facts), facts, cache=WheelCache())
    copy = copy_of(environment, tmp_path / "copy")
    edited = files(source)
    revert(copy.python)
    assert files(copy.prefix / "src" / "probe") == before and files(source) == edited


def test_an_environment_has_the_names_of_its_links_too(installed: Installed, tmp_path: Path) -> None:
    original, before = installed
    as_version_2(original)
    for path in (original.state_folder / "journal").rglob("*.json"):
        path.write_text(path.read_text().replace(str(original.prefix), str(tmp_path / "link")))
    (tmp_path / "link").symlink_to(original.prefix)
    revert(original.python)
    assert snapshot(original) == before


def test_site_packages_on_another_disk(environment: Environment, tmp_path: Path) -> None:
    (environment.prefix / "lib").rename(tmp_path / "disk")
    (environment.prefix / "lib").symlink_to(tmp_path / "disk")
    install(environment, write_extension(tmp_path / "one"))
    assert list((tmp_path / "disk").rglob("tiny_probe/__init__.py"))
    revert(environment.python)
    assert not list(environment.purelib.glob("tiny_probe*"))


def test_folders_that_come_back_are_as_open_as_those_around_them(
    environment: Environment, tmp_path: Path
) -> None:
    install(environment, write_extension(tmp_path / "one"))
    folder = environment.purelib / "tiny_probe"
    mode = environment.purelib.stat().st_mode
    before = os.umask(0o077)
    try:
        install(environment, write_extension(tmp_path / "two", version="2.0", answer=7))
        revert(environment.python)
    finally:
        os.umask(before)
    assert folder.stat().st_mode == mode


# Files that are not splatfix's


@pytest.mark.parametrize("row", ["myfolder", "../../../.splatfix/journal/mine.json"])
def test_what_pip_would_remove_and_nobody_could_restore_stops_it(
    environment: Environment, tmp_path: Path, row: str
) -> None:
    install(environment, write_extension(tmp_path / "one"))
    (environment.purelib / "myfolder").mkdir()
    (environment.purelib / "myfolder" / "work.py").write_text("mine = True\n")
    record = next(environment.purelib.glob("tiny_probe-*.dist-info")) / "RECORD"
    record.write_text(f"{record.read_text()}{row},,\n")
    before = snapshot(environment)
    with pytest.raises(SplatfixError) as caught:
        install(environment, write_extension(tmp_path / "two", version="2.0", answer=7))
    assert caught.value.code == "cannot-back-up" and snapshot(environment) == before


def test_files_outside_that_a_record_lists_are_left_alone(environment: Environment, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("mine")
    install(environment, write_extension(tmp_path / "one"))
    record = next(environment.purelib.glob("tiny_probe-*.dist-info")) / "RECORD"
    record.write_text(f"{record.read_text()}{os.path.relpath(outside, environment.purelib)},,\n")

    outcome = install(environment, write_extension(tmp_path / "two", version="2.0", answer=7))
    assert outside.read_text() == "mine" and any(str(outside) in note for note in outcome.notes)
    outside.write_text("changed since")
    undone = revert(environment.python)
    assert outside.read_text() == "changed since"
    assert any(str(outside) in note for item in undone.items for note in item.notes)


def test_nothing_is_written_through_a_link_out_of_the_environment(
    environment: Environment, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (environment.purelib / "tiny_probe").symlink_to(theirs)
    with pytest.raises(SplatfixError) as caught:
        install(environment, write_extension(tmp_path / "one"))
    assert caught.value.code == "cannot-back-up" and not list(theirs.iterdir())


@pytest.mark.parametrize("name", ["~iny_probe", "~ther"])
@pytest.mark.parametrize("killed", [False, True])
def test_a_stash_of_a_later_pip_is_kept(installed: Installed, name: str, killed: bool) -> None:
    original, _ = installed
    if killed:
        change_entry(original, kill_in_the_middle)
    stash = original.purelib / name
    stash.mkdir()
    (stash / "work.py").write_text("theirs = True\n")
    undone = revert(original.python)
    assert (stash / "work.py").read_text() == "theirs = True\n"
    assert any(str(stash) in note for item in undone.items for note in item.notes)


def test_the_stash_of_the_killed_pip_itself_goes(installed: Installed) -> None:
    original, before = installed
    change_entry(original, kill_in_the_middle)
    backup = next((original.state_folder / "journal").glob("0002-*/backup-*/backup.json"))
    document = json.loads(backup.read_text())
    document["written"] = []  # it is filled in when pip has ended
    backup.write_text(json.dumps(document))
    stash = original.purelib / "~iny_probe"
    stash.mkdir()
    blob = next(item for item in document["saved"] if item["path"].endswith("tiny_probe/__init__.py"))
    shutil.copy(backup.parent / "blobs" / blob["blob"], stash / "__init__.py")
    revert(original.python)
    assert snapshot(original) == before


def test_hard_links_keep_their_other_side(installed: Installed, tmp_path: Path) -> None:
    original, before = installed
    (original.purelib / "easy-install.pth").write_text(f"{tmp_path}/somewhere\n")
    held = everything(original)
    subprocess.run(["cp", "-al", original.prefix, tmp_path / "linked"], check=True)
    linked = open_environment(str(tmp_path / "linked" / "bin" / "python"), ProcessRunner())
    install(linked, write_extension(tmp_path / "three", version="3.0", answer=9))
    revert(linked.python)
    revert(linked.python)
    assert everything(original) == held
    added = original.purelib / "easy-install.pth"
    assert snapshot(linked).keys() - before.keys() == {str(added.relative_to(original.prefix))}


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_nothing_is_open_to_more_people_than_the_environment(
    environment: Environment, tmp_path: Path, mode: int
) -> None:
    environment.prefix.chmod(mode)
    before = os.umask(0)
    try:
        held = set(environment.prefix.rglob("*"))
        install(environment, write_extension(tmp_path / "one"))
        install(environment, write_extension(tmp_path / "two", version="2.0", answer=7))
        revert(environment.python)
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    wider = [
        path
        for path in set(environment.prefix.rglob("*")) - held
        if not path.is_symlink() and path.stat().st_mode & 0o777 & ~mode & 0o066
    ]
    assert wider == []
    assert Journal(environment.state_folder).entries()
