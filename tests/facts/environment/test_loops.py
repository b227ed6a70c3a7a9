"""Folders of an environment that lead in circles, or down without end."""

from pathlib import Path

import pytest

from splatfix.facts.environment import extensions
from splatfix.facts.system.live import CachingSystem, System
from tests.hostile.environments import FOLDER_EVILS


@pytest.mark.parametrize(("name", "files"), [("loops", 1), ("crossing", 6)])
def test_each_native_file_is_met_once(name: str, files: int, tmp_path: Path) -> None:
    FOLDER_EVILS[name](tmp_path)
    system = CachingSystem(System())
    assert len(list(extensions._native_files(system, str(tmp_path)))) == files
    assert system.unreadable() == ()


def test_folders_have_a_depth(tmp_path: Path) -> None:
    (tmp_path / "/".join("d" * 30)).mkdir(parents=True)
    system = System()
    assert list(extensions._native_files(system, str(tmp_path))) == []
    assert "more than 20 folders deep" in system.unreadable()[0].reason


def test_folders_have_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "_MOST_FOLDERS", 3)
    for number in range(5):
        (tmp_path / f"f{number}").mkdir()
    system = System()
    assert list(extensions._native_files(system, str(tmp_path))) == []
    assert "more than 3 folders" in system.unreadable()[0].reason
