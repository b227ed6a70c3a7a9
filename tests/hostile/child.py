"""A command run as a child whose time and memory are measured and limited."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SECONDS = 20.0
BYTES = 500 << 20
"""The memory a case may take beyond what a plain interpreter with splatfix takes."""
_ADDRESSES = 6 << 30


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    returncode: int
    """Negative for a signal; -9 also for a command that was ended after ``SECONDS``."""
    out: str
    err: str
    seconds: float
    peak: int
    """Most resident memory, in bytes."""

    def complaints(self, plain_peak: int) -> list[str]:
        """Everything about it that no command may do; empty for a clean end."""
        found = []
        if self.returncode not in (0, 1, 2, 3):
            found.append(f"exit code {self.returncode}")
        if (
            "Traceback (most recent call last)" in self.out + self.err
            or "internal-error" in self.out + self.err
        ):
            found.append("an internal error")
        if self.seconds > SECONDS:
            found.append(f"{self.seconds:.0f} s")
        if self.peak - plain_peak > BYTES:
            found.append(f"{(self.peak - plain_peak) / 2**20:.0f} MiB")
        return found


def run_measured(words: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None) -> Ended:
    """Run ``splatfix`` with these words, its address space and time limited; no input, no terminal."""
    argv = [sys.executable, "-m", "splatfix", *words]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.monotonic()
        child = subprocess.Popen(
            argv,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES)),
        )
        status, usage = _wait(child.pid, started + SECONDS + 5)
        child.returncode = os.waitstatus_to_exitcode(status)  # it was waited for here
        seconds = time.monotonic() - started
        texts = []
        for sink in (out, err):
            sink.seek(0)
            texts.append(sink.read().decode("utf-8", "backslashreplace"))
    return Ended(child.returncode, texts[0], texts[1], seconds, usage.ru_maxrss * 1024)


def _wait(pid: int, deadline: float) -> tuple[int, resource.struct_rusage]:
    while time.monotonic() < deadline:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            return status, usage
        time.sleep(0.02)
    os.killpg(pid, 9)
    _, status, usage = os.wait4(pid, 0)
    return status, usage
