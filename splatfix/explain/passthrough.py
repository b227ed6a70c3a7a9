"""Runs a command as typed, on the user's own terminal and without a time limit, and keeps a copy of what it says."""

import os
import select
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import IO

from splatfix.core.errors import SplatfixError
from splatfix.core.threads import start


def run_and_copy(argv: Sequence[str], copy: IO[bytes], *, quiet: bool = False) -> int:
    """Run a command; its output goes where ours goes as it appears, and both streams go into ``copy``.

    Ctrl-C reaches the command, which decides; SIGTERM is passed on to it.

    Args:
        quiet: the command's standard output goes to our standard error.

    Returns:
        The exit code as a shell reports it: 128 and the number of the signal that ended the command.

    Raises:
        SplatfixError: ``cannot-start`` (exit code 2).
    """
    try:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        raise SplatfixError.of(
            "explain.cannot-start", program=argv[0], reason=error.strerror or error
        ) from error
    assert process.stdout is not None and process.stderr is not None
    lock = threading.Lock()
    sys.stdout.flush()
    pieces: dict[IO[bytes], Iterator[None]] = {}
    threads = []
    for source, end in ((process.stdout, 2 if quiet else 1), (process.stderr, 2)):
        pieces[source] = _copy(source, end, copy, lock)
    # Ctrl-C is left to the command (same terminal), and SIGTERM passed on
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    on_terminate = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        for source in tuple(pieces):
            thread = threading.Thread(target=deque, args=(pieces[source], 0), daemon=True)
            if start(thread):
                threads.append(thread)
                del pieces[source]
        # streams for which no thread could be started, by turns (on Windows those are not waited for together)
        while pieces:
            for source in select.select(list(pieces), [], [])[0]:
                if next(pieces[source], pieces) is pieces:
                    del pieces[source]
        code = process.wait()
        for thread in threads:
            thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, on_terminate)
        if process.poll() is None:
            process.kill()
            process.wait()
    if code >= 0:
        return code
    # as a shell says it: who is killed says nothing
    copy.write(f"\n{signal.strsignal(-code)}\n".encode())
    return 128 - code


def _copy(source: IO[bytes], end: int, copy: IO[bytes], lock: threading.Lock) -> Iterator[None]:
    """Pass on what is there as soon as it is, a piece a turn; a reader of ours that has gone stops the copy to it only.

    Into ``copy`` go whole lines: the other stream's do not break them.
    """
    there, held = True, b""
    while piece := os.read(source.fileno(), 1 << 16):
        whole, end_of_line, rest = (held + piece).rpartition(b"\r" if b"\n" not in piece else b"\n")
        held = rest
        with lock:
            copy.write(whole + end_of_line)
        while there and piece:
            try:
                piece = piece[os.write(end, piece) :]
            except OSError:
                there = False
        yield
    with lock:
        copy.write(held)
