"""Locks where the file system has them, and where it has none."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from splatfix.core.lock import Lock, Locked
from tests.tables import data

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Windows has its locks on every file system")

HOLDS: str = data(__file__)["texts"]["holds"]


@pytest.fixture(params=["ENOLCK", "EOPNOTSUPP", "EPERM"])
def without_flock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    import fcntl

    number: int = getattr(errno, request.param)
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(number, "refused")))
    return number


def test_a_file_stands_for_a_lock_that_is_not_to_be_had(without_flock: int, tmp_path: Path) -> None:
    path, root = tmp_path / "lock", Path(__file__).parents[2]
    argv = [sys.executable, "-c", HOLDS, str(path), str(without_flock)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=root) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(Locked) as caught:
            Lock(path, 0.2)
        holder.kill()
        assert (
            caught.value.tell(tmp_path)
            == f"Another splatfix (process {holder.pid}) has the lock of {tmp_path}."
        )
    lock = Lock(path)
    assert lock.notes and sorted(item.name for item in tmp_path.iterdir()) == ["lock", "lock.held"]
    lock.release(remove=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["", "no name", "999999999\nanother\n", "1\nanother\n"])
def test_who_cannot_be_asked_may_have_ended(without_flock: int, tmp_path: Path, content: str) -> None:
    (tmp_path / "lock.held").write_text(content)
    with pytest.raises(Locked) as caught:
        Lock(tmp_path / "lock", 0.2)
    assert caught.value.todo[-1] == f"If it has ended already, remove {tmp_path / 'lock.held'}."
