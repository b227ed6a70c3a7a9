"""Who is dead: only a process of this machine that is gone; of whom nothing is known, nothing is removed."""

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

import pytest

from splatfix.containers.owner import OWNER_LABEL, is_dead, owner_label

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="start times are read from /proc"
)


def label(**changes: object) -> str:
    return urlencode({**dict(parse_qsl(owner_label()[OWNER_LABEL])), **changes})


def test_a_process_that_is_gone_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert is_dead(label(process=child.pid))
    assert is_dead(label(started="1")), "a later process of the same number"


@pytest.mark.parametrize(
    "text",
    [
        label(),
        label(process=os.getppid(), started=""),
        label(process=0, host="elsewhere"),
        "",
        "{}",
        "host=&process=x&started=1",
        "process=0&started=1",
    ],
    ids=["this process", "its parent", "elsewhere", "empty", "object", "no number", "no place"],
)
def test_anything_else_is_left_alone(text: str) -> None:
    assert not is_dead(text)
