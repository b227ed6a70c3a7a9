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
