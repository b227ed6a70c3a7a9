"""What a person changed after an installation is copied, and said, before a revert replaces or removes it."""

from pathlib import Path
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from splatfix.core.errors import SplatfixError
from splatfix.install import EntryStatus, Journal, revert
from splatfix.install.environment import Environment
from tests.cli.conftest import Document
from tests.conftest import Splatfix
from tests.plan.machines import refused

from .environments import Stages, snapshot
from .test_in_place import edited_in_place, source_with_work

MINE = b"# a day's work\n"


@pytest.fixture
def installed(stages: Stages) -> Environment:
    """With one package, whose module was edited since."""
    environment = stages.at("one")
    module_of(environment).write_bytes(MINE)
    return environment


def module_of(environment: Environment) -> Path:
    return environment.purelib / "tiny_probe" / "__init__.py"


def test_an_edited_module(installed: Environment, splatfix: Splatfix, document: Document) -> None:
    module = module_of(installed)
    (module.parent / "mine.py").write_bytes(MINE)
    python = ("--python", installed.python)
    for words in (("--dry-run",), ()):
        (outcome,) = document("revert", *words, *python)["outcomes"]
        (kept,) = outcome["items"][0]["kept"]
        assert kept["path"] == str(module)
        assert module.is_file() is bool(words) and Path(kept["copy"]).is_file() is not bool(words)
    assert Path(kept["copy"]).read_bytes() == MINE and not module.exists()
    assert (module.parent / "mine.py").read_bytes() == MINE
    assert Path(kept["copy"]).is_relative_to(installed.state_folder / "journal")
    assert kept["copy"] in "".join(splatfix("revert", "--list", *python).stdout.split())


def test_an_undoing_done_again_says_the_same(installed: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("splatfix.install.backup._folders", Mock(side_effect=KeyboardInterrupt))
        revert(installed.python)
    assert not module_of(installed).exists()
    (kept,) = revert(installed.python).items[0].kept
    assert kept.path == str(module_of(installed)) and Path(kept.copy).read_bytes() == MINE
    assert Journal(installed.state_folder).entries()[-1].kept == (kept,)


def test_work_in_a_checkout_after_a_kill(environment: Environment, tmp_path: Path) -> None:
    source = source_with_work(tmp_path / "source")
    before = (source / "probe.c").read_bytes()
    edited_in_place(environment, source)
    journal = Journal(environment.state_folder)
    entry = journal.note(journal.entries()[-1], "edit-source", "tiny_probe", done=False)
    journal.save(replace(entry, status=EntryStatus.RUNNING))
    (source / "probe.c").write_bytes(before + MINE)
    (kept,) = revert(environment.python).items[-1].kept
    assert (source / "probe.c").read_bytes() == before
    assert kept.path == str(source / "probe.c") and Path(kept.copy).read_bytes() == before + MINE


def test_a_full_disk_keeps_it_where_it_is(installed: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    held, full = snapshot(installed), SplatfixError("cannot-write", "No space left on device.")
    monkeypatch.setattr("splatfix.install.undo.write_bytes", Mock(side_effect=full))
    assert refused(revert, installed.python).code == "cannot-write" and snapshot(installed) == held
