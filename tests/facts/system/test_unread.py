"""A machine's bad files: each is noted once, the next question is answered, and a recording keeps it."""

import os
from pathlib import Path

import pytest

from splatfix.binaries import BinaryError
from splatfix.core.reading import Unread
from splatfix.facts.system.live import CachingSystem, System
from splatfix.facts.system.playback import PlaybackSystem, RawMachine
from splatfix.facts.system.recording import RecordingSystem

PIPE = "it is a named pipe, not a file"


@pytest.fixture
def pipe(tmp_path: Path) -> str:
    os.mkfifo(tmp_path / "pipe")
    return str(tmp_path / "pipe")


def test_no_question_waits_for_a_pipe(pipe: str) -> None:
    system = CachingSystem(System())
    assert system.read(pipe) is None and not system.starts_with_script(pipe)
    with pytest.raises(BinaryError, match="not a regular file"):
        system.contains(pipe, ["x"])
    assert system.unreadable() == (Unread(pipe, PIPE),)


def test_files_of_the_kernel_are_no_finding() -> None:
    system = System()
    assert system.read("/proc/self/mem") is None and system.read("/nowhere") is None
    assert system.unreadable() == ()


def test_a_recording_keeps_what_was_unreadable(pipe: str, tmp_path: Path) -> None:
    system = RecordingSystem(System(), tmp_path / "recorded")
    system.read(pipe)
    system.write("/usr/bin/python", redact=False)
    assert PlaybackSystem(RawMachine.read(tmp_path / "recorded")).unreadable() == (Unread(pipe, PIPE),)
