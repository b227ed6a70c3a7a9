"""What is installed already, byte for byte, is not installed again; whatever differs is."""

from __future__ import annotations

from pathlib import Path

import pytest

from splatfix.core.errors import SplatfixError
from splatfix.facts import gather
from splatfix.install import Journal, Outcome, WheelCache, execute, revert
from splatfix.install.target import Target
from splatfix.plan import Request, make_plan

from .environments import run_in, snapshot, write_extension
from .test_cli import splatfix


def install(target: Target, *sources: Path, reinstall: bool = False) -> Outcome:
    facts = gather(target.python)
    plan = make_plan(Request(tuple(map(str, sources))), facts)
    return execute(plan, facts, cache=WheelCache(), reinstall=reinstall)


def test_the_same_again_changes_nothing(
    environment: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_extension(tmp_path / "one")
    before = snapshot(environment)
    assert splatfix("install", str(source), "--python", environment.python) == 0
    held = snapshot(environment)
    capsys.readouterr()

    assert splatfix("install", str(source), "--python", environment.python) == 0

    said = capsys.readouterr().out
    assert "tiny_probe 1.0 (was installed already, byte for byte, and is left as it is)" in said
    assert "✓ loads" in said and "Take it back" not in said and "--reinstall" in said
    assert snapshot(environment) == held
    first, second = Journal(environment.own_folder).entries()
    assert first.stands and not second.stands
    assert splatfix("revert", "--list", "--python", environment.python) == 0
    assert "was there already" in capsys.readouterr().out.splitlines()[1]
    with pytest.raises(SplatfixError) as caught:
        revert(environment.python, second.id)
    assert "changed nothing" in caught.value.what

    again = install(environment, source, reinstall=True)
    assert not again.items[0].already and Journal(environment.own_folder).entries()[-1].stands
    revert(environment.python)
    assert snapshot(environment) == held
    assert revert(environment.python).entry == first.id and snapshot(environment) == before


def test_what_was_changed_or_lost_since_is_installed_again(environment: Target, tmp_path: Path) -> None:
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
        assert not item.already and module.read_text() == text and native.is_file()
    assert install(environment, source).items[0].already


def test_another_version_or_source_is_no_same(environment: Target, tmp_path: Path) -> None:
    install(environment, write_extension(tmp_path / "one"))
    (item,) = install(environment, write_extension(tmp_path / "other", answer=7)).items
    assert not item.already and run_in(environment, "import tiny_probe; print(tiny_probe.answer())") == "7"


def test_of_two_only_the_new_one_is_installed_and_taken_back(environment: Target, tmp_path: Path) -> None:
    one, other = write_extension(tmp_path / "one"), write_extension(tmp_path / "other", name="other_probe")
    install(environment, one)
    held = snapshot(environment)
    outcome = install(environment, one, other)
    assert [item.already for item in outcome.items] == [True, False]
    assert [item.subject for item in revert(environment.python).items] == ["other_probe"]
    assert snapshot(environment) == held
