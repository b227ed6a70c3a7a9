"""``splatfix revert --all`` and ``--dry-run``: what is said is then done, and a refusal is told with the rest."""

import json
from pathlib import Path

from splatfix.install import Journal, revert, revert_all
from splatfix.install.environment import Environment
from splatfix.install.wheels import MANIFEST
from tests.cli.conftest import Document
from tests.conftest import Splatfix
from tests.plan.machines import refused

from .environments import Stages, install, pip, snapshot, write_extension


def add_to_record(target: Environment, name: str) -> None:
    """Somebody else has changed the installation since."""
    record = target.platlib / f"{name}-1.0.dist-info" / "RECORD"
    record.write_text(f"{record.read_text()}{name}/more.py,,\n")


def test_two_of_one_version_are_told_apart(stages: Stages, tmp_path: Path) -> None:
    environment = stages.at("one")
    manifest = environment.purelib / "tiny_probe-1.0.dist-info" / MANIFEST
    one = json.loads(manifest.read_text())["source"]
    # no other test builds this: a wheel from the cache was built from the folder that it names
    two = write_extension(tmp_path / "two", answer=702)
    install(environment, two)
    for dry_run in (True, False):
        newer, older = (outcome.items[0] for outcome in revert_all(environment.python, dry_run=dry_run))
        assert newer.removed == newer.restored == "1.0"
        assert newer.removed_origin == f"built from {two}" and newer.restored_origin == f"built from {one}"
        assert older.removed_origin == f"built from {one}" and older.restored_origin == ""


def test_it_stops_at_what_cannot_be_taken_back(stages: Stages, tmp_path: Path, splatfix: Splatfix) -> None:
    environment = stages.at("three")
    install(environment, write_extension(tmp_path / "third", name="third_probe"))
    add_to_record(environment, "other_probe")
    entries = [entry.id for entry in Journal(environment.state_folder).entries()]
    held = snapshot(environment)

    error = refused(revert_all, environment.python, dry_run=True)
    assert error.details["left"] == entries[2::-1] and snapshot(environment) == held

    said = splatfix("revert", "--all", "--python", environment.python)
    assert said.returncode == 1
    assert f"Undone: {entries[3]}\n" in said.stderr and not said.stdout
    assert "(changed-since)" in said.stderr and all(entry in said.stderr for entry in entries)
    active = [entry.active for entry in Journal(environment.state_folder).entries()]
    assert active == [True, True, True, False]


def test_preview_sees_a_version_replaced_by_hand(stages: Stages, tmp_path: Path) -> None:
    """Between the two installations somebody changed the first: the backup of the second holds that, not ours."""
    environment = stages.at("one")
    add_to_record(environment, "tiny_probe")
    install(environment, write_extension(tmp_path / "two", version="2.0"))
    preview = refused(revert_all, environment.python, dry_run=True)
    done = refused(revert_all, environment.python)
    assert preview.what == done.what and preview.details == done.details
    assert "version 1.0 is there now" in preview.what


def test_what_pip_removed_by_hand_was_gone_already(stages: Stages, splatfix: Splatfix) -> None:
    environment = stages.at("one")
    assert pip(environment, "uninstall", "-y", "tiny_probe").ok
    for words in (["--dry-run"], []):
        said = splatfix("revert", *words, "--python", environment.python).stdout
        assert "tiny_probe: gone already → not installed, as before" in said
    assert snapshot(environment) == stages.files["blank"]
    assert refused(revert, environment.python).code == "nothing-to-revert"


def test_as_typed(stages: Stages, splatfix: Splatfix, document: Document) -> None:
    environment = stages.at("three")
    python = ("--python", environment.python)
    said = splatfix("revert", "--all", "--dry-run", *python).stdout
    assert "tiny_probe: 2.0 → 1.0" in said and "Would revert" in said
    assert said.count("Nothing was changed") == 1 and "$ splatfix revert --all --python" in said
    for words, code in ((("0001", "--all"), "one-or-all"), (("--list", "--all"), "list-alone")):
        refusal = splatfix("revert", *words, *python)
        assert refusal.returncode == 2 and f"({code})" in refusal.stderr
    assert document("revert", "--dry-run", *python)["outcomes"][0]["dry_run"] is True
    done = document("revert", "--all", "--yes", *python)
    assert [one["items"][0]["removed"] for one in done["outcomes"]] == ["1.0", "2.0", "1.0"]
    assert snapshot(environment) == stages.files["blank"]
    for words in ((), ("--dry-run",)):
        assert splatfix("revert", "--all", *words, *python).returncode == 0, "all is undone"
    assert list((environment.state_folder / "journal").rglob("*.log"))
