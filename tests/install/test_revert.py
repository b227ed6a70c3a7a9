"""``splatfix revert --all`` and ``--dry-run``: what is said is then done, and a refusal is told with the rest."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path

import pytest

from splatfix.core.errors import SplatfixError
from splatfix.install import EntryStatus, Journal, RevertOutcome, revert, revert_all
from splatfix.install.environment import Environment

from .environments import install, snapshot, write_extension
from .test_cli import splatfix


def pip_uninstall(target: Environment, name: str) -> None:
    argv = [target.python, "-m", "pip", "--no-input", "uninstall", "-q", "-y", name]
    subprocess.run(argv, check=True, capture_output=True)


def told(outcomes: tuple[RevertOutcome, ...]) -> list[tuple[str, str, str]]:
    return [(item.subject, item.removed, item.restored) for one in outcomes for item in one.items]


@pytest.fixture
def three(environment: Environment, tmp_path: Path) -> dict[str, tuple[int, str]]:
    """The environment as it was before tiny_probe 1.0, then 2.0, then another were installed."""
    before = snapshot(environment)
    install(environment, write_extension(tmp_path / "one"))
    install(environment, write_extension(tmp_path / "two", version="2.0", answer=7))
    install(environment, write_extension(tmp_path / "other", name="other_probe"))
    return before


EVERYTHING = [("other_probe", "1.0", ""), ("tiny_probe", "2.0", "1.0"), ("tiny_probe", "1.0", "")]


def test_the_preview_of_all_is_what_is_then_done(
    environment: Environment, three: dict[str, tuple[int, str]]
) -> None:
    held = snapshot(environment)
    journal = Journal(environment.state_folder).entries()

    preview = revert_all(environment.python, dry_run=True)

    assert told(preview) == EVERYTHING and all(one.dry_run for one in preview)
    assert snapshot(environment) == held and Journal(environment.state_folder).entries() == journal
    (one,) = told((revert(environment.python, dry_run=True),))
    assert one == EVERYTHING[0] and snapshot(environment) == held

    done = revert_all(environment.python)

    assert told(done) == EVERYTHING and not any(one.dry_run for one in done)
    assert snapshot(environment) == three
    assert {entry.status for entry in Journal(environment.state_folder).entries()} == {EntryStatus.REVERTED}
    for words in ((), ("--dry-run",)):
        assert splatfix("revert", "--all", *words, "--python", environment.python) == 0, "all is undone"


def test_two_of_one_version_are_told_apart(environment: Environment, tmp_path: Path) -> None:
    # no other test builds these: a wheel from the cache was built from the folder that it names
    one, two = (write_extension(tmp_path / name, answer=at) for name, at in (("one", 701), ("two", 702)))
    install(environment, one)
    install(environment, two)
    for dry_run in (True, False):
        newer, older = (outcome.items[0] for outcome in revert_all(environment.python, dry_run=dry_run))
        assert newer.removed == newer.restored == "1.0"
        assert newer.removed_origin == f"built from {two}" and newer.restored_origin == f"built from {one}"
        assert older.removed_origin == f"built from {one}" and older.restored_origin == ""


def test_nothing_large_is_left(environment: Environment, three: dict[str, tuple[int, str]]) -> None:
    journal = Journal(environment.state_folder)
    assert list(journal.folder.rglob("blobs")), "what was replaced is kept as long as it can come back"
    revert(environment.python)
    assert list(journal.folder.rglob("blobs")), "others are still active"
    revert_all(environment.python)
    assert not list(journal.folder.rglob("blobs")) and list(journal.folder.rglob("*.log"))
    kept = sum(path.stat().st_size for path in environment.state_folder.rglob("*") if path.is_file())
    assert kept < 1 << 20


def test_yes_is_taken(
    environment: Environment, three: dict[str, tuple[int, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert splatfix("revert", "--all", "--yes", "--python", environment.python) == 0
    assert snapshot(environment) == three
    said = capsys.readouterr().out
    assert said.count("Reverted") == 3


def test_it_stops_at_what_cannot_be_taken_back(
    environment: Environment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(environment, write_extension(tmp_path / "one"))
    install(environment, write_extension(tmp_path / "other", name="other_probe"))
    install(environment, write_extension(tmp_path / "third", name="third_probe"))
    record = environment.platlib / "other_probe-1.0.dist-info" / "RECORD"
    record.write_text(record.read_text() + "other_probe/more.py,,\n")
    entries = [entry.id for entry in Journal(environment.state_folder).entries()]
    held = snapshot(environment)

    with pytest.raises(SplatfixError) as caught:
        revert_all(environment.python, dry_run=True)
    assert caught.value.details["left"] == entries[1::-1] and snapshot(environment) == held

    assert splatfix("revert", "--all", "--python", environment.python) == 1
    said = capsys.readouterr()
    assert "third_probe 1.0 removed" in said.out and "other_probe" not in said.out
    assert entries[1] in said.err and "(changed-since)" in said.err
    assert all(entry in said.err for entry in entries)
    assert [entry.active for entry in Journal(environment.state_folder).entries()] == [True, True, False]


def test_preview_sees_a_version_replaced_by_hand(environment: Environment, tmp_path: Path) -> None:
    """Between the two installations somebody changed the first: the backup of the second holds that, not ours."""
    install(environment, write_extension(tmp_path / "one"))
    record = environment.platlib / "tiny_probe-1.0.dist-info" / "RECORD"
    record.write_text(record.read_text() + "tiny_probe/more.py,,\n")
    install(environment, write_extension(tmp_path / "two", version="2.0"))
    problems = []
    for dry_run in (True, False):
        with pytest.raises(SplatfixError) as caught:
            revert_all(environment.python, dry_run=dry_run)
        problems.append(caught.value)
    assert problems[0].what == problems[1].what and problems[0].details == problems[1].details
    assert "version 1.0 is there now" in problems[0].what


def test_what_a_dead_run_left_is_in_the_preview_too(environment: Environment, tmp_path: Path) -> None:
    before = snapshot(environment)
    install(environment, write_extension(tmp_path / "one"))
    install(environment, write_extension(tmp_path / "other", name="other_probe"))
    journal = Journal(environment.state_folder)
    entry = journal.entries()[-1]
    journal.save(dataclasses.replace(entry, status=EntryStatus.RUNNING, ended="", steps=entry.steps[:3]))
    expected = [("other_probe", "1.0", ""), ("tiny_probe", "1.0", "")]
    assert told(revert_all(environment.python, dry_run=True)) == expected
    assert journal.find(entry.id).status is EntryStatus.RUNNING
    assert told(revert_all(environment.python)) == expected
    assert snapshot(environment) == before


def test_what_pip_removed_by_hand_was_gone_already(
    environment: Environment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(environment, write_extension(tmp_path / "one"))
    pip_uninstall(environment, "tiny_probe")
    for words in (["--dry-run"], []):
        assert splatfix("revert", *words, "--python", environment.python) == 0
        said = capsys.readouterr().out
        assert "tiny_probe was already gone; it was not installed before" in said and " removed;" not in said


def test_as_typed(
    environment: Environment, three: dict[str, tuple[int, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    python = ("--python", environment.python)
    assert splatfix("revert", "--all", "--dry-run", *python) == 0
    said = capsys.readouterr().out
    assert "tiny_probe 2.0 would be removed; tiny_probe 1.0 would be restored" in said
    assert said.count("Nothing was changed") == 1 and "$ splatfix revert --all --python" in said
    for words, code in ((("0001", "--all"), "one-or-all"), (("--list", "--all"), "list-alone")):
        assert splatfix("revert", *words, *python) == 2
        assert f"({code})" in capsys.readouterr().err
    assert splatfix("revert", "--dry-run", "--json", *python) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["command"] == "revert" and document["outcomes"][0]["dry_run"] is True
    assert splatfix("revert", "--all", "--json", *python) == 0
    document = json.loads(capsys.readouterr().out)
    assert [one["items"][0]["removed"] for one in document["outcomes"]] == ["1.0", "2.0", "1.0"]
    assert snapshot(environment) == three
