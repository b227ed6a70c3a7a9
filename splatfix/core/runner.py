"""The one way splatfix starts another program: no shell, always a timeout, output always captured."""

import atexit
import errno
import itertools
import os
import queue
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import force_setattr

from splatfix.core import watchdog
from splatfix.core.isolation import EMPTY, find_program, isolated
from splatfix.core.limits import MOST_ANSWER
from splatfix.core.output import KeptLines, OutputLog, lines
from splatfix.core.reading import as_text
from splatfix.core.redact import without_credentials, without_credentials_in
from splatfix.core.scratch import process_folder
from splatfix.core.watchdog import MARK, end_marked


class Completed(Struct, frozen=True):
    """How a child process ended.

    ``returncode`` is None when it never started or was killed at its timeout; then ``error`` says why. A negative one is the
    number of the signal that ended it, as in :mod:`subprocess`. Credentials are taken out of what it said.
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
            names = {number.value: number.name for number in signal.Signals}
            return f"ended by {names.get(-self.returncode, f'signal {-self.returncode}')}"
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return ": ".join([f"exit code {self.returncode}", *(line.strip() for line in lines[-1:])])


class Runner:
    """Runs processes, each in its own process group, so that a timeout ends the children too.

    The seam between splatfix and other programs: tests hand in one that answers from data.
    """

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
        command = tuple(str(word) for word in argv)
        _watch()
        mark = f"{_OWN}{next(_numbers)}"
        variables = {**isolated(env), MARK: mark}
        # a folder for temporary files that does not outlive us, unless the caller has named another: killed compilers and
        # pips leave theirs
        own = [name for name in ("TMPDIR", "TEMP", "TMP") if variables.get(name) != os.environ.get(name)]
        if not own and (folder := process_folder()):
            variables |= dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
        merged = on_line is not None or log is not None
        started = time.monotonic()

        def overdue() -> str:
            if _no_more.is_set() or (stop and stop.is_set()):
                return "stopped"
            return f"no answer within {timeout:g} s" if time.monotonic() >= started + timeout else ""

        process: subprocess.Popen[bytes] | None = None
        try:
            _running.add(mark)
            if _no_more.is_set():
                return Completed(command, None, error=f"{command[0]} was not started: interrupted")
            try:
                program = find_program(command[0], variables["PATH"])
                if program is None:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
                process = subprocess.Popen(
                    command,
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
                return Completed(command, None, error=reason)
            output = _follow(_blocks(process, overdue), on_line, log) if merged else ""
            stdout, stderr, reason = _answer(process, mark, overdue)
        except BaseException:  # a person pressed Ctrl-C, or a callback failed: no orphan stays behind
            _end(process, mark)
            raise
        finally:
            _running.discard(mark)
        return Completed(
            command,
            None if reason else process.returncode,
            output if merged else as_text(stdout),
            as_text(stderr),
            time.monotonic() - started,
            reason,
        )


def _blocks(process: subprocess.Popen[bytes], overdue: Callable[[], str]) -> Iterator[bytes]:
    """Yield what a child says while it says it."""
    assert process.stdout
    pipe = process.stdout.fileno()
    if os.name == "nt":  # where a pipe cannot be waited for
        yield from _blocks_by_thread(pipe, overdue)
        return
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        block = b"start"
        while block and not overdue():
            if selector.select(_SLICE_S):
                block = os.read(pipe, 1 << 16)
                yield block


def _blocks_by_thread(pipe: int, overdue: Callable[[], str]) -> Iterator[bytes]:
    blocks: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        while block := os.read(pipe, 1 << 16):
            blocks.put(block)
        blocks.put(b"")

    threading.Thread(target=read, daemon=True).start()
    block = b"start"
    while block and not overdue():
        with suppress(queue.Empty):
            block = blocks.get(timeout=_SLICE_S)
            yield block


def _follow(blocks: Iterator[bytes], on_line: Callable[[str], None] | None, log: Path | None) -> str:
    """Return merged output, passed on line by line. What an installer says fits in memory many times over."""
    kept = KeptLines()
    with log.open("a", encoding="utf-8") if log else nullcontext() as sink:
        output_log = OutputLog(sink) if sink else None
        for line in without_credentials_in(lines(blocks)):
            kept.add(line)
            if output_log:
                output_log.write(line)
            if on_line:
                on_line(line.rstrip("\n"))
    return "".join(kept.lines)


def _answer(
    process: subprocess.Popen[bytes], mark: str, overdue: Callable[[], str]
) -> tuple[bytes, bytes, str]:
    """Wait for a child; return what it said on both streams, and why it was ended if it was."""
    while True:
        try:
            stdout, stderr = process.communicate(timeout=_SLICE_S)
            return stdout, stderr or b"", ""
        except subprocess.TimeoutExpired as waiting:
            answer, reason = (waiting.output or b"", waiting.stderr or b""), overdue()
        if sum(map(len, answer)) > MOST_ANSWER:
            reason = f"it said more than {MOST_ANSWER >> 20} MiB, the most that is read"
        if reason:
            _end(process, mark)
            with suppress(subprocess.TimeoutExpired):  # what could not be ended may hold its pipes
                stdout, stderr = process.communicate(timeout=1)
                answer = (stdout, stderr or b"")
            process.wait()
            return answer[0][:MOST_ANSWER], answer[1][:MOST_ANSWER], reason


_SLICE_S = 0.1
"""A signal that comes just before the main thread blocks is heard only when it wakes."""
_OWN = f"{os.getpid()}-{os.urandom(8).hex()}:"
"""How the marks of this process's children begin."""
_numbers = itertools.count(1)
_running: set[str] = set()
"""Marks of the children that threads wait for."""
_no_more = threading.Event()


def interrupt() -> None:
    """Have every child ended, whichever thread waits for it, start no more, and raise KeyboardInterrupt.

    For a signal handler of a process that is to end; it takes no lock.
    """
    _no_more.set()
    raise KeyboardInterrupt


@atexit.register
def _end_children() -> None:
    """Let threads that were given up end their children.

    The watchdog is dismissed only where none is left: after us it ends also what was just being started.
    """
    interrupted = _no_more.is_set()
    _no_more.set()
    until = time.monotonic() + 5
    while _running and time.monotonic() < until:
        time.sleep(0.01)
    if not (interrupted or _running):
        for process in _watchdogs:
            with suppress(subprocess.TimeoutExpired, OSError):
                process.communicate(b".", timeout=1)


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
            started = subprocess.Popen(
                [sys.executable, "-I", "-S", watchdog.__file__, _OWN],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=EMPTY,
                env=variables,
                start_new_session=True,
            )
            _watchdogs.append(started)


def _end(process: subprocess.Popen[bytes] | None, mark: str) -> None:
    """End a child, which may not be known yet, with its descendants."""
    if process and os.name == "posix":
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    elif process:
        process.kill()
    end_marked(mark)
