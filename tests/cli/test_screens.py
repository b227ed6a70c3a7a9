"""Whole screens at 80 columns, as a reader sees them: the verdict and the next command come first.

``SPLATFIX_UPDATE_GOLDENS=1 pytest tests/cli/test_screens.py`` regenerates them; read them before they are committed.
"""

from pathlib import Path

import pytest

from tests.conftest import Splatfix
from tests.files import assert_golden
from tests.machines import folder

HERE = Path(__file__).parent / "screens"
SCREENS = {
    "diagnose-a-problem": ("diagnose", "--facts", "rtx-3090-and-5090"),
    "diagnose-healthy": ("diagnose", "--facts", "h200"),
    "install-why": ("install", "--dry-run", "--why", "--facts", "gtx-1080-ti-dropped"),
    "wrong-usage": ("install", "--dry-run", "--why", "--facts", "h200", "--jobs", "2"),
    "certify-wrong-usage": ("certify", "--extension", "simple-knn"),
    "diagnose-explain": ("diagnose", "--explain", "no-kernel-image"),
}


@pytest.mark.parametrize("name", SCREENS)
def test_screens(name: str, splatfix: Splatfix) -> None:
    words = SCREENS[name]
    at = words.index("--facts") + 1 if "--facts" in words else 0
    done = splatfix(*words, cwd=folder(words[at]).parent if at else None, columns=80)
    assert_golden(HERE / f"{name}.txt", done.stdout + done.stderr)
