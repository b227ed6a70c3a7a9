"""What a person changed after an installation is copied, and said, before a revert replaces or removes it."""

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.core.errors import SplatfixError
from splatfix.core.proof import Rung, RungName
from splatfix.facts import gather
from splatfix.install import EntryStatus, Journal, execute, revert
from splatfix.install.environment import Environment
from tests.archs import request_for
from tests.cli.conftest import Document
from tests.conftest import Splatfix
from tests.plan.machines import make_plan, refused

from .environments import snapshot
from .test_cli import fake_torch
from .test_in_place import edited_in_place, source_with_work

LOADS = Rung(RungName.LOADS, True, "not looked at")
MINE = b"# a day's work\n"


@pytest.fixture
def dropin(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The module of an installed drop-in."""
    fake_torch(environment, "2.11.0+cpu", None)
    # torch is only a folder here
    monkeypatch.setattr(sys.modules["splatfix.install.execute"], "check_import", lambda *_, **__: LOADS)
    facts = gather(environment.python)
    execute(make_plan(request_for(("fused_ssim",), backend="pure"), facts), facts)
    return environment.purelib / "fused_ssim" / "__init__.py"


def test_an_edited_drop_in(
    environment: Environment, dropin: Path, splatfix: Splatfix, document: Document
) -> None:
    dropin.write_bytes(dropin.read_bytes() + MINE)
    edited = dropin.read_bytes()
    (dropin.parent / "mine.py").write_bytes(MINE)
    python = ("--python", environment.python)
    for words in (("--dry-run",), ()):
        (outcome,) = document("revert", *words, *python)["outcomes"]
        (kept,) = outcome["items"][0]["kept"]
        assert kept["path"] == str(dropin)
        assert dropin.is_file() is bool(words) and Path(kept["copy"]).is_file() is not bool(words)
    assert Path(kept["copy"]).read_bytes() == edited and not dropin.exists()
    assert (dropin.parent / "mine.py").read_bytes() == MINE
    assert Path(kept["copy"]).is_relative_to(environment.state_folder / "journal")
    assert kept["copy"] in "".join(splatfix("revert", "--list", *python).stdout.split())


def test_an_undoing_done_again_says_the_same(
    environment: Environment, dropin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropin.write_bytes(MINE)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("splatfix.install.backup._folders", dies)
        revert(environment.python)
    assert not dropin.exists()
    (kept,) = revert(environment.python).items[0].kept
    assert kept.path == str(dropin) and Path(kept.copy).read_bytes() == MINE
    assert Journal(environment.state_folder).entries()[-1].kept == (kept,)


def test_work_in_a_checkout_after_a_kill(environment: Environment, tmp_path: Path) -> None:
    source = source_with_work(tmp_path / "source")
    before = (source / "probe.c").read_bytes()
    edited_in_place(environment, source)
    journal = Journal(environment.state_folder)
    entry = journal.entries()[-1]
    at = next(i for i, step in enumerate(entry.steps) if step.kind == "edit-source")
    steps = (*entry.steps[:at], replace(entry.steps[at], done=False, digest=""))
    journal.save(replace(entry, status=EntryStatus.RUNNING, steps=steps))
    (source / "probe.c").write_bytes(before + MINE)
    (kept,) = revert(environment.python).items[0].kept
    assert (source / "probe.c").read_bytes() == before
    assert kept.path == str(source / "probe.c") and Path(kept.copy).read_bytes() == before + MINE


def test_a_full_disk_keeps_it_where_it_is(
    environment: Environment, dropin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropin.write_bytes(MINE)
    held = snapshot(environment)

    def full(path: Path, data: bytes) -> None:
        raise SplatfixError("cannot-write", f"Cannot write {path}: No space left on device.")

    monkeypatch.setattr("splatfix.install.undo.write_bytes", full)
    assert refused(revert, environment.python).code == "cannot-write" and snapshot(environment) == held
