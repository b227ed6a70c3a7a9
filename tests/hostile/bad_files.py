"""What can stand in the place of a file: nothing that can be read, nothing that ends, or nothing that was expected."""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

Put = Callable[[Path], None]
"""Puts a bad file at a path; what was there before is gone, and the folder is there."""

SPARSE = 8 << 30


def bad_files() -> Iterator[tuple[str, Put]]:
    """Every kind of bad file with its name. What the platform cannot make is left out."""
    yield "fifo", lambda path: os.mkfifo(path)
    yield "link-to-fifo", _link_to_fifo
    yield "socket", _socket
    yield "folder", lambda path: path.mkdir()
    for name, target in (
        ("zeros", "/dev/zero"),
        ("noise", "/dev/urandom"),
        ("terminal", "/dev/tty"),
        ("kernel-log", "/proc/kmsg"),
        ("memory", "/proc/self/mem"),
        ("pagemap", "/proc/self/pagemap"),
        ("itself", "."),
        ("nowhere", "no/such/file"),
        ("too-long-a-name", "x" * 300),
    ):
        if target.startswith("/") and not Path(target).exists():
            continue
        yield f"link-to-{name}", lambda path, target=target: path.symlink_to(target)  # type: ignore[misc]
    yield "link-loop", lambda path: path.symlink_to(path.name)
    yield "sparse", _sparse
    for name, content in CONTENTS.items():
        yield name, lambda path, content=content: path.write_bytes(content)  # type: ignore[misc]


CONTENTS = {
    "empty": b"",
    "nul-bytes": b"\0" * 100,
    "utf-16": "name = 'x'\n".encode("utf-16"),
    "latin-1": "# J\u00fcrgen\nname = '\u00e9'\n".encode("latin-1"),
    "byte-order-mark": b"\xef\xbb\xbfname = 'x'\n",
    "no-utf-8": bytes(range(128, 256)) * 4,
    "surrogates": b"name = '\xed\xa0\x80'\n",
    "unknown-encoding": b"# -*- coding: no-such-encoding -*-\nname = 'x'\n",
    "utf-7": b"# -*- coding: utf-7 -*-\nname = '+ADw-'\n",
    "one-long-line": b"x" * 900_000,
    "many-lines": b"\n" * 900_000,
    "open-brackets": b"[" * 200_000,
    "assigned-brackets": b"x = " + b"[" * 200_000,
    "open-comment": b"/*" * 400_000,
    "carriage-returns": b"a = 1\r" * 1000,
    "no-line-end": b"a = 1",
    "larger-than-any-source": b"# a line\n" * 400_000,
}
"""Contents that are no proper file of any kind."""


def replace(path: Path, put: Put) -> None:
    """Put a bad file in the place of what is there."""
    if path.is_file() or path.is_symlink():
        path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    put(path)


def _link_to_fifo(path: Path) -> None:
    os.mkfifo(f"{path}.pipe")
    path.symlink_to(f"{path.name}.pipe")


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the address of a socket has room for a hundred letters
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(SPARSE)
