"""What is installed already, byte for byte, is not installed again; whatever differs is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from splatfix.core.errors import SplatfixError
from splatfix.install import Journal, revert
from splatfix.install.environment import Environment

from .environments import install, run_in, snapshot, write_extension
from .test_cli import splatfix


def test_the_same_again_changes_nothing(
    environment: Environment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_extension(tmp_path / "one")
    before = snapshot(environment)
    assert splatfix("install", str(source), "--python", environment.python) == 0
    held = snapshot(environment)
    capsys.readouterr()

    assert splatfix("install", str(source), "--python", environment.python, "--json") == 0

    (item,) = json.loads(capsys.readouterr().out)["outcome"]["items"]
    assert item["up_to_date"] and item["version"] == item["before"] == "1.0"
    assert ("loads", True) in [(rung["name"], rung["reached"]) for rung in item["proof"]]
    assert snapshot(environment) == held
    first, second = Journal(environment.state_folder).entries()
    assert first.active and not second.active
    with pytest.raises(SplatfixError) as caught:
        revert(environment.python, second.id)
    assert caught.value.code == "nothing-to-revert"

    again = install(environment, source, reinstall=True)
    assert not again.items[0].up_to_date and Journal(environment.state_folder).entries()[-1].active
    revert(environment.python)
    assert snapshot(environment) == held
    assert revert(environment.python).entry == first.id and snapshot(environment) == before


def test_what_was_changed_or_lost_since_is_installed_again(environment: Environment, tmp_path: Path) -> None:
    source = write_extension(tmp_path / "one")
    install(environment, source)
    package = environment.platlib / "tiny_probe"
    module = package / "__init__.py"
    text = module.read_text()
    (native,) = package.glob("_C*.so")
    for spoil in (
        lambda: module.write_text(text + "# mine\n"),
        native.unlink,
        (environment.platlib / "tiny_probe-1.0.dist-info" / "METADATA").unlink,
    ):
        spoil()
        (item,) = install(environment, source).items
        assert not item.up_to_date and module.read_text() == text and native.is_file()
    assert install(environment, source).items[0].up_to_date


def test_another_version_or_source_is_no_same(environment: Environment, tmp_path: Path) -> None:
    install(environment, write_extension(tmp_path / "one"))
    (item,) = install(environment, write_extension(tmp_path / "other", answer=7)).items
    assert not item.up_to_date and run_in(environment, "import tiny_probe; print(tiny_probe.answer())") == "7"


def test_of_two_only_the_new_one_is_installed_and_taken_back(
    environment: Environment, tmp_path: Path
) -> None:
    one, other = write_extension(tmp_path / "one"), write_extension(tmp_path / "other", name="other_probe")
    install(environment, one)
    held = snapshot(environment)
    outcome = install(environment, one, other)
    assert [item.up_to_date for item in outcome.items] == [True, False]
    assert [item.subject for item in revert(environment.python).items] == ["other_probe"]
    assert snapshot(environment) == held
