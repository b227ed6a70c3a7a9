"""What can be watched: a command that is started here, or a process that runs already."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Protocol

from splatfix.core.errors import Exit, SplatfixError, usage_error
from splatfix.core.step import run, say
from splatfix.facts import LiveSystem, System
from splatfix.facts.machine.resources import alive


class Target(Protocol):
    """What is watched."""

    pid: int
    words: str

    def ended(self) -> bool:
        """It is gone."""
        ...

    def exit_code(self) -> int | None:
        """As a shell would report it; None where it cannot be known."""
        ...


class Command:
    """A command of the person's, on the person's own terminal and without a time limit (so not the usual runner)."""

    def __init__(self, argv: tuple[str, ...], stdout: int | None = None) -> None:
        self.words = " ".join(argv)
        try:
            self._process = subprocess.Popen(argv, stdout=stdout)
        except OSError as error:
            raise usage_error(
                "cannot-start",
                f"Cannot start {argv[0]}: {error.strerror or error}.",
                say("Give the command as you would type it, or the number of a running process."),
            ) from error
        self.pid = self._process.pid

    def ended(self) -> bool:
        """See :class:`Target`."""
        return self._process.poll() is not None

    def exit_code(self) -> int | None:
        """See :class:`Target`."""
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    @contextlib.contextmanager
    def in_charge(self) -> Iterator[None]:
        """Ctrl-C reaches the command by itself (same terminal); the watch goes on until it has ended. SIGTERM is passed on.

        A watch that breaks ends the command: nobody would tell how it went.
        """
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        asked = signal.signal(signal.SIGTERM, lambda number, frame: self._process.terminate())
        try:
            yield
        except BaseException:
            self._process.terminate()
            raise
        finally:
            signal.signal(signal.SIGINT, before)
            signal.signal(signal.SIGTERM, asked)


class Running:
    """A process that runs already; it is only looked at."""

    def __init__(self, pid: int, system: System) -> None:
        self.pid, self._system = pid, system
        self.words = f"process {pid}"
        if not system.listdir("/proc"):
            raise SplatfixError(
                "cannot-watch",
                "A running process can be watched on Linux only.",
                todo=(say("Start the trainer through splatfix: splatfix monitor COMMAND..."),),
                exit_code=Exit.UNDETERMINED,
            )
        if self.ended():
            raise usage_error(
                "no-such-process",
                f"There is no process {pid}.",
                say("Look its number up: nvidia-smi, or ps aux"),
            )

    def ended(self) -> bool:
        """See :class:`Target`."""
        return not alive(self._system, self.pid)

    def exit_code(self) -> int | None:
        """See :class:`Target`."""
        return None


def target_of(words: tuple[str, ...], *, quiet: bool = False, system: System | None = None) -> Target:
    """A process number or a command; ``quiet`` sends the command's standard output to standard error."""
    if words[0].isdigit():
        if len(words) > 1:
            raise usage_error(
                "options-after-number",
                f"{' '.join(words[1:])!r} stands behind the process number {words[0]}.",
                run("splatfix", "monitor", " ".join(words[1:]), words[0], text="Options come first"),
            )
        return Running(int(words[0]), system or LiveSystem())
    return Command(words, stdout=sys.stderr.fileno() if quiet else None)
