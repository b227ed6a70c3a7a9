"""Native files that a person points at: libraries, wheels, folders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from splatfix.binaries import Binary, BinaryError, is_binary, read_path
from splatfix.core.errors import usage_error
from splatfix.core.step import say


@dataclass(frozen=True)
class NativeFiles:
    """What could be read, and what could not, with the reason."""

    binaries: tuple[Binary, ...]
    unreadable: tuple[tuple[str, str], ...]
    """(path, reason): damaged, empty, or no such thing."""
    skipped: tuple[tuple[str, str], ...] = ()
    """(path, reason): what the system did not let be read."""


def read_files(paths: Iterable[Path]) -> NativeFiles:
    """Read every native file named or contained in what is named.

    Raises:
        SplatfixError: ``no-such-file`` or ``not-a-binary`` (exit code 2) for a path that is nothing of the kind.
    """
    binaries: list[Binary] = []
    unreadable: list[tuple[str, str]] = []
    skipped: list[tuple[str, str]] = []
    named = list(paths)
    for path in named:
        if not path.exists():
            raise usage_error("no-such-file", f"There is no file or folder {path}.")
        try:
            binaries += read_path(
                path,
                on_error=lambda name, error: unreadable.append((name, str(error))),
                on_skipped=lambda name, error: skipped.append((name, str(error))),
            )
        except BinaryError as error:
            if len(named) == 1 and not is_binary(path):
                raise usage_error(
                    "not-a-binary",
                    str(error),
                    say("Name a library (.so, .pyd, .dll), a wheel, or a folder that holds some."),
                ) from error
            unreadable.append((str(path), str(error)))  # the others are still looked at
    return NativeFiles(tuple(binaries), _short(unreadable), _short(skipped))


def _short(items: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The reasons without the path that stands before them anyway."""
    return tuple((path, reason.removeprefix(f"{path}: ")) for path, reason in items)
