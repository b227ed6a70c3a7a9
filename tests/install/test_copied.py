"""Environments that were copied or moved after an installation, and files that are not splatfix's to touch."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from splatfix.install import revert
from splatfix.install.environment import Environment, open_environment
from tests.files import contents, edit_json, put
from tests.plan.machines import refused

from .environments import Stages, entry_file, install, snapshot, write_extension
from .test_in_place import edited_in_place, source_with_work


def copy_of(target: Environment, folder: Path) -> Environment:
    shutil.copytree(target.prefix, folder, symlinks=True)
    return open_environment(str(folder / "bin" / "python"))


def moved(target: Environment, folder: Path) -> Environment:
    target.prefix.rename(folder)
    return open_environment(str(folder / "bin" / "python"))


def killed_in_the_middle(target: Environment) -> None:
    """As the journal stands when the process dies after pip and before the end."""
    edit_json(entry_file(target), lambda it: it.update(status="running"))


@pytest.mark.parametrize("arrive", [copy_of, moved])
def test_revert_restores_the_environment_it_is_asked_of(
    stages: Stages, tmp_path: Path, arrive: Callable[[Environment, Path], Environment]
) -> None:
    original = stages.at("two")
    held = contents(original.prefix)
    there = arrive(original, tmp_path / "there")
    revert(there.python)
    assert snapshot(there) == stages.files["one"]
    assert contents(original.prefix) == (held if arrive is copy_of else {})


def test_a_killed_installation_is_rolled_back_in_the_copy_alone(stages: Stages, tmp_path: Path) -> None:
    original = stages.at("two")
    killed_in_the_middle(original)
    untouched = contents(original.prefix)
    copy = copy_of(original, tmp_path / "copy")
    outcome = install(copy, write_extension(tmp_path / "other", name="other_probe"))
    assert len(outcome.recovered) == 1 and contents(original.prefix) == untouched
    revert(copy.python)
    assert snapshot(copy) == stages.files["one"]


def test_a_copy_leaves_the_checkout_to_the_original(stages: Stages, tmp_path: Path) -> None:
    environment, source = stages.at("blank"), source_with_work(tmp_path / "source")
    before = contents(source)
    edited_in_place(environment, source)
    edited = contents(source)
    copies = [copy_of(environment, tmp_path / name) for name in ("a", "b", "c")]

    (preview,), (done,) = (
        [item for item in revert(copies[0].python, dry_run=dry_run).items if item.source]
        for dry_run in (True, False)
    )
    assert contents(source) == edited and snapshot(copies[0]) == stages.files["blank"]
    assert preview.notes == done.notes and str(environment.prefix) in done.notes[0]
    revert(environment.python)
    assert contents(source) == before
    # where the original was reverted, or is gone, there is nobody to leave it to
    assert not any(item.notes for item in revert(copies[1].python).items)
    shutil.rmtree(environment.prefix)
    revert(copies[2].python)
    assert contents(source) == before


def test_a_checkout_inside_the_environment_is_the_copy_s_own(stages: Stages, tmp_path: Path) -> None:
    """And one outside comes back after a move."""
    environment = stages.at("blank")
    inside = source_with_work(environment.prefix / "src" / "probe")
    before = contents(inside)
    edited_in_place(environment, inside)
    edited = contents(inside)
    copy = copy_of(environment, tmp_path / "copy")
    revert(copy.python)
    assert contents(copy.prefix / "src" / "probe") == before and contents(inside) == edited
    outside = source_with_work(tmp_path / "source")
    edited_in_place(copy, outside)
    revert(moved(copy, tmp_path / "moved").python)
    assert contents(outside) == before


def test_site_packages_on_another_disk(environment: Environment, tmp_path: Path) -> None:
    (environment.prefix / "lib").rename(tmp_path / "disk")
    (environment.prefix / "lib").symlink_to(tmp_path / "disk")
    install(environment, write_extension(tmp_path / "one"))
    assert list((tmp_path / "disk").rglob("tiny_probe/__init__.py"))
    revert(environment.python)
    assert not list(environment.purelib.glob("tiny_probe*"))


def test_what_comes_back_is_as_open_as_what_is_around_it(stages: Stages, tmp_path: Path) -> None:
    """Whatever umask the second installation ran under; and a file that was setuid is so no more."""
    environment = stages.at("one")
    mode = environment.purelib.stat().st_mode
    file = environment.purelib / "tiny_probe" / "__init__.py"
    file.chmod(0o4755)
    before = os.umask(0o077)
    try:
        install(environment, write_extension(tmp_path / "two", version="2.0", answer=7))
        revert(environment.python)
    finally:
        os.umask(before)
    assert file.parent.stat().st_mode == mode and file.stat().st_mode & 0o7777 == 0o755


# Files that are not splatfix's


def listed(target: Environment, row: str) -> None:
    """Add a file to what RECORD says of tiny_probe."""
    with next(target.purelib.glob("tiny_probe-*.dist-info/RECORD")).open("a") as record:
        record.write(f"{row},,\n")


@pytest.mark.parametrize("row", ["myfolder", "../../../.splatfix/journal/mine.json"])
def test_what_cannot_be_backed_up_stops_it(stages: Stages, tmp_path: Path, row: str) -> None:
    environment = stages.at("one")
    put(environment.purelib, {"myfolder/work.py": "mine = True\n"})
    listed(environment, row)
    before = snapshot(environment)
    later = write_extension(tmp_path / "two", version="2.0", answer=7)
    assert refused(install, environment, later).code == "cannot-back-up" and snapshot(environment) == before


def test_files_outside_that_a_record_lists_are_left_alone(stages: Stages, tmp_path: Path) -> None:
    environment, outside = stages.at("one"), tmp_path / "outside.txt"
    outside.write_text("mine")
    listed(environment, os.path.relpath(outside, environment.purelib))

    outcome = install(environment, write_extension(tmp_path / "two", version="2.0", answer=7))
    assert outside.read_text() == "mine" and any(str(outside) in note for note in outcome.notes)
    outside.write_text("changed since")
    undone = revert(environment.python)
    assert outside.read_text() == "changed since"
    assert any(str(outside) in note for item in undone.items for note in item.notes)


def test_links_out_of_the_environment_are_refused(environment: Environment, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (environment.purelib / "tiny_probe").symlink_to(theirs)
    assert refused(install, environment, write_extension(tmp_path / "one")).code == "cannot-back-up"
    assert not list(theirs.iterdir())


def test_a_link_that_came_since_is_not_followed(stages: Stages, tmp_path: Path) -> None:
    """Nothing at all is restored then."""
    environment, victim = stages.at("two"), tmp_path / "victim"
    (environment.purelib / "tiny_probe").rename(victim)
    (environment.purelib / "tiny_probe").symlink_to(victim)
    held = (contents(victim), contents(environment.prefix, ("lock", "pip.lock")))
    for dry_run in (True, False):
        error = refused(revert, environment.python, dry_run=dry_run)
        assert error.code == "journal-tampered" and error.todo
        assert (contents(victim), contents(environment.prefix, ("lock", "pip.lock"))) == held
    killed_in_the_middle(environment)
    later = write_extension(tmp_path / "three", name="other_probe")
    assert refused(install, environment, later).code == "journal-tampered"


@pytest.mark.parametrize(("name", "killed"), [("~iny_probe", False), ("~ther", True), ("~-ny_probe", True)])
def test_a_stash_of_a_later_pip_is_kept(stages: Stages, tmp_path: Path, name: str, killed: bool) -> None:
    """By its name it is of another, or nothing of it is in the backup."""
    original = stages.at("two")
    if killed:
        killed_in_the_middle(original)
    stash = original.purelib / name
    if name == "~-ny_probe":  # nothing but a link, of which pip makes none
        stash.mkdir()
        (stash / "data").symlink_to(tmp_path)
    else:
        put(stash, {"work.py": "theirs = True\n"})
    held = contents(stash)
    undone = revert(original.python)
    assert contents(stash) == held != {}
    assert any(str(stash) in note for item in undone.items for note in item.notes)


@pytest.mark.parametrize("mode", [0o700, pytest.param(0o755, marks=pytest.mark.slow)])
def test_modes_are_those_of_the_environment(with_pip: Environment, tmp_path: Path, mode: int) -> None:
    """Nothing is open to more people."""
    with_pip.prefix.chmod(mode)
    before = os.umask(0)
    try:
        held = set(with_pip.prefix.rglob("*"))
        install(with_pip, write_extension(tmp_path / "one"))
        install(with_pip, write_extension(tmp_path / "two", version="2.0", answer=7))
        revert(with_pip.python)
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    made = [path for path in set(with_pip.prefix.rglob("*")) - held if not path.is_symlink()]
    assert made and [path for path in made if path.stat().st_mode & 0o777 & ~mode & 0o066] == []
