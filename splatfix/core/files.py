"""The one way splatfix writes files: whole or not at all, and never over something without a backup when asked."""

import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from splatfix.core.codec import json_object, parse_json
from splatfix.core.errors import SplatfixError, cannot_write
from splatfix.core.limits import MOST_JSON
from splatfix.core.reading import NEVER_WAITING, read_blocks, read_bytes, read_text
from splatfix.core.step import say
from splatfix.core.visible import visible_in_json

TEMPORARY = ".splatfix-"
"""How the name of a file begins that is not whole yet."""


def write_bytes(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write ``data``, or blocks of it, to ``path`` atomically: readers see the old file or the new one, never a part.

    A device or a pipe (``/dev/null``, ``/dev/stdout``) is written into: a file in its place would take it from everyone. A
    link is replaced, wherever it leads. What the system refuses is ``cannot-write``.
    """
    blocks = [data] if isinstance(data, bytes) else data
    # not called after the file, whose name may be as long as the file system takes
    temporary = path.parent / f"{TEMPORARY}{secrets.token_hex(6)}"
    try:
        if stream := _stream(path):
            with stream:
                stream.writelines(blocks)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        # with "x" the system applies the umask: asking for it would change it for the other threads for a moment
        with temporary.open("xb") as file:
            file.writelines(blocks)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically; see :func:`write_bytes`."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, document: Any) -> None:
    """Write a JSON document atomically, indented, with a final newline; see :func:`write_bytes`."""
    write_text(path, dumps(document))


def dumps(document: Any) -> str:
    """Return the one JSON text form splatfix prints and stores: keys in the order given, indented, final newline.

    What no terminal should obey is escaped, so that it is UTF-8 and reads as it was, names that are no text included.
    """
    return visible_in_json(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def make_folder(path: Path, mode: int = 0o777) -> Path:
    """Make a folder (and those above it) if it is not there; ``cannot-write`` where it cannot be."""
    try:
        path.mkdir(mode, parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(path, error) from error
    return path


def set_aside(folder: Path, names: Iterable[str]) -> None:
    """Move what is there of these to ``previous`` in the folder (``previous-2``, ...); ``cannot-write`` where that cannot be."""
    # a link that leads nowhere yet is there too: what is opened to be written would be made where it leads
    earlier = [folder / name for name in names if os.path.lexists(folder / name)]
    if not earlier:
        return
    kept, count = folder / "previous", 1
    while os.path.lexists(kept):
        count += 1
        kept = folder / f"previous-{count}"
    try:
        kept.mkdir()
        for path in earlier:
            path.rename(kept / path.name)
    except OSError as error:
        text = f"What is in {folder} cannot be moved aside: {error.strerror or error}."
        raise cannot_write(text, say("Choose another folder with --out.")) from error


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder, as far as it can be."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def read_named(path: Path) -> bytes:
    """Read a file a person named; ``cannot-read`` (exit code 2) where that cannot be."""
    content = read_bytes(path, MOST_JSON)
    if not isinstance(content, bytes):
        reason = content.reason if content else "No such file or directory"
        raise SplatfixError.of("core.cannot-read", path=path, reason=reason)
    return content


def read_json(path: Path, what: str) -> Any:
    """Read a JSON file a person named; ``cannot-read``, or ``not-json`` with ``what`` it should have been (exit code 2)."""
    content = read_named(path)
    try:
        return parse_json(content.decode("utf-8-sig"))
    except ValueError as error:
        raise SplatfixError.of("core.not-json", path=path, what=what, error=error) from error


def object_in(path: Path) -> dict[str, Any]:
    """Return the JSON object that a file holds; empty where it cannot be read, or holds another text."""
    text = read_text(path, MOST_JSON)
    return json_object(text) if isinstance(text, str) else {}


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal digits; raises as :func:`read_blocks`."""
    digest = hashlib.sha256()
    for block in read_blocks(path):
        digest.update(block)
    return digest.hexdigest()


def _stream(path: Path) -> IO[bytes] | None:
    """Open a device or a pipe; of links only the system's own count, which name open files (``/dev/stdout``, ``/dev/fd/63``)."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return None
    folder = path.parent.resolve()
    named_by_system = folder.is_relative_to("/proc") or folder.is_relative_to("/dev")
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or (stat.S_ISLNK(mode) and not named_by_system):
        return None
    # waiting for nobody to open it, but for whoever reads
    stream = os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | NEVER_WAITING), "wb")
    if os.name == "posix":
        os.set_blocking(stream.fileno(), True)
    return stream


def _cannot_write(path: Path, error: OSError) -> SplatfixError:
    state = f"{path.name} is as it was." if os.path.lexists(path) else f"There is no {path.name}."
    todo = say("Choose a folder you may write to, or make room on that disk.")
    return cannot_write(f"Cannot write {path}: {error.strerror or error}.", todo, meaning=state)
