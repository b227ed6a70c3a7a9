"""The one way splatfix starts another program: no shell, always a timeout, output always captured."""

import atexit
import errno
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import force_setattr

from splatfix.core import watchdog
from splatfix.core.isolation import EMPTY, find_program, isolated
from splatfix.core.limits import MOST_ANSWER
from splatfix.core.output import SLICE_S, KeptLines, OutputLog, Pipes, TooMuch, lines
from splatfix.core.redact import without_credentials, without_credentials_in
from splatfix.core.scratch import process_folder
from splatfix.core.watchdog import MARK, end_marked


class Completed(Struct, frozen=True):
    """How a child process ended.

    ``returncode`` is None when it never started or was killed at its timeout; then ``error`` says why in words.
    A negative ``returncode`` is the number of the signal that ended it, as in :mod:`subprocess`. Credentials are taken out of
    what it said.
    """

    argv: tuple[str, ...]
    returncode: int | None = 0
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    error: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "stdout", without_credentials(self.stdout))
        force_setattr(self, "stderr", without_credentials(self.stderr))

    @property
    def ok(self) -> bool:
        """It started, ended by itself in time, and said 0."""
        return self.returncode == 0

    def why(self) -> str:
        """Return one line that says how it failed, for a person; "" when it did not."""
        if self.ok:
            return ""
        if self.error:
            return self.error
        assert self.returncode is not None
        if self.returncode < 0:
            try:
                name = signal.Signals(-self.returncode).name
            except ValueError:
                name = f"signal {-self.returncode}"
            return f"ended by {name}"
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return ": ".join([f"exit code {self.returncode}", *(line.strip() for line in lines[-1:])])


class Runner(Protocol):
    """The seam between splatfix and other programs; tests hand in one that answers from data."""

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        timeout: float,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
        log: Path | None = None,
        stop: threading.Event | None = None,
    ) -> Completed:
        """Run ``argv`` to its end or its timeout (seconds). Never raises for what the child does.

        ``cwd`` defaults to an empty folder: who gives another trusts all code that lies there. ``env`` is the whole
        environment (None: inherit), from which what leads into the current folder is taken; see :func:`isolated`.
        ``on_line`` gets each line of merged stdout and stderr as it appears (both then come back in ``stdout``); ``log``
        also receives those lines.
        Another thread that sets ``stop`` ends the child and all its children; ``returncode`` is then None.
        """
        ...


class ProcessRunner:
    """Runs real processes, each in its own process group, so that a timeout ends the children too."""

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        timeout: float,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
        log: Path | None = None,
        stop: threading.Event | None = None,
    ) -> Completed:
        """See :meth:`Runner.run`."""
        command = tuple(str(word) for word in argv)
        merged = on_line is not None or log is not None
        if _no_more.is_set():
            return Completed(command, None, error=f"{command[0]} was not started: interrupted")
        _watch()
        mark = f"{_OWN}{next(_numbers)}"
        variables = {**isolated(env), MARK: mark}
        # a folder for temporary files that does not outlive us, unless the caller has named another: killed compilers and
        # pips leave theirs
        names = ["TEMP", "TMP"] if os.name == "nt" else ["TMPDIR"]
        if all(variables.get(name) == os.environ.get(name) for name in names) and (
            folder := process_folder()
        ):
            variables |= dict.fromkeys(names, str(folder))
        program = find_program(command[0], variables["PATH"])
        if program is None:
            return Completed(
                command, None, error=f"could not start {command[0]}: {os.strerror(errno.ENOENT)}"
            )
        started = time.monotonic()

        def goes_on() -> bool:
            return time.monotonic() < started + timeout and not (stop and stop.is_set())

        _starting.add(threading.get_ident())
        try:
            if _no_more.is_set():
                return Completed(command, None, error=f"{command[0]} was not started: interrupted")
            process = _start(
                command,
                mark,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if merged else subprocess.PIPE,
                executable=program,
                cwd=cwd or EMPTY,
                env=variables,
                start_new_session=os.name == "posix",
            )
        except OSError as error:
            reason = f"could not start {command[0]}: {error.strerror or error}"
            return Completed(command, None, seconds=time.monotonic() - started, error=reason)
        finally:
            _starting.discard(threading.get_ident())
        stdout, stderr, reason = "", "", ""
        try:
            with ExitStack() as stack:
                streams = filter(None, (process.stdout, process.stderr))
                pipes = Pipes([stack.enter_context(stream) for stream in streams], goes_on)
                try:
                    if merged:
                        stdout = _follow(pipes, on_line, log)
                    else:
                        stdout, stderr = pipes.texts()
                except TooMuch:
                    reason = f"it said more than {MOST_ANSWER >> 20} MiB, the most that is read"
                while pipes.at_end and goes_on() and process.poll() is None:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(SLICE_S)
                if not reason and not (pipes.at_end and process.poll() is not None):
                    reason = f"no answer within {timeout:g} s"
                    if stop is not None and stop.is_set():
                        reason = "stopped"
                # before its pipes are closed: on Windows that would wait for what a thread reads from them
                if reason:
                    _end(process)
                    process.wait()
        except BaseException:  # a person pressed Ctrl-C, or a callback failed: no orphan stays behind
            _end(process)
            raise
        finally:
            _living.pop(process, None)
        returncode = None if reason else process.returncode
        return Completed(command, returncode, stdout, stderr, time.monotonic() - started, reason)


def _follow(pipes: Pipes, on_line: Callable[[str], None] | None, log: Path | None) -> str:
    """Return merged output, passed on line by line.

    What an installer says fits in memory many times over: of more, the middle is not kept.
    """
    kept = KeptLines()
    with ExitStack() as stack:
        sink = OutputLog(stack.enter_context(log.open("a", encoding="utf-8"))) if log else None
        for line in without_credentials_in(lines(block for _, block in pipes.blocks())):
            kept.add(line)
            if sink:
                sink.write(line)
            if on_line:
                on_line(line.rstrip("\n"))
    return "".join(kept.all())


_OWN = f"{os.getpid()}-{os.urandom(8).hex()}:"
"""How the marks of this process's children begin."""
_numbers = itertools.count(1)
_living: dict[subprocess.Popen[bytes], str] = {}
"""Children with their marks."""
_starting: set[int] = set()
"""Threads that are just starting a child, which is not in ``_living`` yet."""
_no_more = threading.Event()


class _Start:
    """Whether the main thread, which is where signals are heard, is just starting a child."""

    under_way = False
    interrupted = False


def _start(command: tuple[str, ...], mark: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start a child that :func:`interrupt` can end, from the first moment on."""
    if threading.current_thread() is not threading.main_thread():
        process = subprocess.Popen(command, **options)
        _living[process] = mark
    else:
        _Start.under_way = True
        try:
            process = subprocess.Popen(command, **options)
            _living[process] = mark
        finally:
            _Start.under_way = False
            if _Start.interrupted:
                _Start.interrupted = False
                _end_living()
                raise KeyboardInterrupt
    if _no_more.is_set():  # the interrupt came while it was being started
        _end(process)
    return process


def interrupt() -> None:
    """End every child, whichever thread waits for it, start no more, and raise KeyboardInterrupt.

    For a signal handler of a process that is to end; it takes no lock.
    """
    _no_more.set()
    _end_living()
    if _Start.under_way:
        _Start.interrupted = True  # the child that is not known yet would be left behind
        return
    raise KeyboardInterrupt


@atexit.register
def _end_children() -> None:
    """A thread that was given up because its child hangs leaves that child behind; one that is just starting a child
    would not come to ending it any more."""
    until = time.monotonic() + 5
    while _starting and time.monotonic() < until:
        time.sleep(0.005)
    _end_living()
    for process in _watchdogs:
        with suppress(subprocess.TimeoutExpired, OSError):
            process.communicate(b".", timeout=1)


def _end_living() -> None:
    living = [process for process in tuple(_living) if process.returncode is None]
    for process in living:
        _end_group(process)
    if living:
        end_marked(_OWN)


_preparing = threading.Lock()
_watchdogs: list[subprocess.Popen[bytes]] = []


def _watch() -> None:
    """Start the program that ends all children when this process is killed, once; where it cannot start, none does."""
    with _preparing:
        if _watchdogs or sys.platform != "linux":
            return
        with suppress(OSError):
            # unmarked, and in a session of its own: what ends this process must not end it too
            variables = {name: value for name, value in isolated(None).items() if name != MARK}
            argv = [sys.executable, "-I", "-S", watchdog.__file__, _OWN]
            started = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=EMPTY,
                env=variables,
                start_new_session=True,
            )
            _watchdogs.append(started)


def _end(process: subprocess.Popen[bytes]) -> None:
    _end_group(process)
    if mark := _living.get(process):
        end_marked(mark)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    if os.name == "posix":
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
    else:
        process.kill()
