"""Standard output and error: signs that the encoding lacks, and a reader that has gone."""

import codecs
import io
import os
import sys
from typing import NoReturn

BROKEN_PIPE = 141
"""128 + SIGPIPE, the exit code a shell shows for a program that this signal ended."""

_PLAIN = {"✓": "+", "✗": "x", "–": "-", "→": "->", "☠": "!", "·": ".", "…": "...", "×": "x"}


def use_plain_signs_where_needed() -> None:
    """Let standard output and error fall back to plain signs where their encoding lacks ours (cp1252, ASCII)."""
    codecs.register_error("splatfix-plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure") and (stream.encoding or "").lower().replace("-", "") != "utf8":
            stream.reconfigure(errors="splatfix-plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Codec error handler: a plain sign for each of ours that a stream cannot show, ``?`` for anything else."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


def exit_on_broken_pipe() -> None:
    """End quietly with :data:`BROKEN_PIPE` when the reader of standard output closes it (``splatfix ... | head``)."""
    stream = sys.stdout
    if os.name == "posix" and type(stream) is io.TextIOWrapper and stream is sys.__stdout__:
        encoding, errors, by_line = stream.encoding, stream.errors, stream.line_buffering
        sys.stdout = _ExitOnBrokenPipe(stream.detach(), encoding, errors, line_buffering=by_line)
        sys.__stdout__ = sys.stdout  # type: ignore[misc]


class _ExitOnBrokenPipe(io.TextIOWrapper):
    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            _leave()

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            _leave()


def _leave() -> NoReturn:
    discard_output()
    raise SystemExit(BROKEN_PIPE)


def discard_output() -> None:
    """Send what is still buffered to the null device, so that the interpreter's last flush does not fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
