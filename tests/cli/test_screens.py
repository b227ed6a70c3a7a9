"""Whole screens at 80 columns, as a reader sees them: the verdict and the next command come first.

``SPLATFIX_UPDATE_GOLDENS=1 pytest tests/cli/test_screens.py`` regenerates them; read them before they are committed.
"""

from pathlib import Path

import pytest

from tests.conftest import Splatfix
from tests.files import assert_golden
from tests.machines import folder
from tests.tables import data

HERE = Path(__file__).parent / "screens"
SCREENS = data(__file__)["screens"]


@pytest.mark.parametrize("name", SCREENS)
def test_screens(name: str, splatfix: Splatfix) -> None:
    words = SCREENS[name]
    at = words.index("--facts") + 1 if "--facts" in words else 0
    done = splatfix(*words, cwd=folder(words[at]).parent if at else None, columns=80)
    assert_golden(HERE / f"{name}.txt", done.stdout + done.stderr)
