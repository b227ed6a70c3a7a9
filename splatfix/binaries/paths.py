"""What a person may point at: a library, a wheel, a folder of libraries, or several of these."""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from splatfix.binaries._bytes import opened
from splatfix.binaries.model import Binary, BinaryError
from splatfix.binaries.reader import is_binary, is_native_name, read_binary
from splatfix.binaries.wheel import MAGIC as ZIP_MAGIC
from splatfix.binaries.wheel import read_wheel
from splatfix.core.errors import SplatfixError

# Files people mistake for a CUDA library, by their first bytes.
_OTHERS = {
    b"!<arch>\n": "a static library: it takes effect only through what is linked from it; inspect that",
    b"\xcf\xfa\xed\xfe": "a macOS library: CUDA code does not occur in those",
    b"\xca\xfe\xba\xbe": "a macOS universal library: CUDA code does not occur in those",
    b"\x1f\x8b": "a gzip archive: unpack it, or build a wheel from it first",
    b"PK\x05\x06": "an empty zip file",
}

OnUnreadable = Callable[[Path, OSError], None]

# Folders that hold no files but views of the system: endless, and full of what even root may not read.
_VIEWS = (Path("/proc"), Path("/sys"), Path("/dev"))


class NativeFiles(Struct, frozen=True):
    """What could be read, and what could not, with the reason."""

    binaries: tuple[Binary, ...]
    unreadable: tuple[tuple[str, str], ...]
    """(path, reason): damaged, empty, or no such thing."""
    skipped: tuple[tuple[str, str], ...] = ()
    """(path, reason): what the system did not let be read."""


def read_files(paths: Iterable[Path]) -> NativeFiles:
    """Read every native file named, and every one in the wheels and folders that are named.

    Raises:
        SplatfixError: ``no-such-file`` or ``not-a-binary`` (exit code 2) for a path that is nothing of the kind.
    """
    binaries: list[Binary] = []
    unreadable: list[tuple[str, str]] = []
    skipped: list[tuple[str, str]] = []

    def damaged(path: str, error: BinaryError) -> None:
        unreadable.append((path, str(error).removeprefix(f"{path}: ")))

    def refused(path: Path, error: OSError) -> None:
        skipped.append((str(path), f"cannot be read: {error.strerror or error}"))

    named = list(paths)
    for path in named:
        if not path.exists():
            raise SplatfixError.of("binaries.no-such-file", path=path)
        is_folder = path.is_dir()
        try:
            if not is_folder and not is_binary(path):
                _require_wheel(path)
                binaries += read_wheel(path, on_error=damaged)
                continue
            for file in find_binaries(path, refused) if is_folder else (path,):
                try:
                    binaries.append(read_binary(file))
                except BinaryError as error:
                    damaged(str(file), error)
        except BinaryError as error:
            if len(named) == 1:
                raise SplatfixError.of("binaries.not-a-binary", error=error) from error
            damaged(str(path), error)  # the others are still looked at
    return NativeFiles(tuple(binaries), tuple(unreadable), tuple(skipped))


def _require_wheel(path: Path) -> None:
    """Raise `BinaryError` with a sentence for people for a file that is none of what can be read."""
    with opened(path) as reader:
        head = reader.take(0, min(8, reader.size), "the file's first bytes")
    for magic, description in _OTHERS.items():
        if head.startswith(magic):
            raise BinaryError(f"{path}: {description}")
    if not head.startswith(ZIP_MAGIC):
        raise BinaryError(
            f"{path}: neither a library (ELF or PE), a cubin, a fatbin, a wheel nor a folder (it starts with {head.hex()})"
        )


def find_binaries(root: Path, on_unreadable: OnUnreadable = lambda *_: None) -> Iterator[Path]:
    """Native modules and shared libraries below `root`, each once, in an order that depends on names alone.

    A file counts by its name and its first bytes, so that text linker scripts called `libfoo.so` do not appear; an
    empty file counts too, because something is missing there. Symbolic links are followed, except to files that are
    found under their own name anyway and to folders that were visited or that contain the place of the link.
    /proc, /sys and /dev are entered only where `root` lies in them. `on_unreadable` hears of folders, files and
    links that cannot be read.
    Raises `BinaryError` if `root` itself cannot be listed.
    """
    root = Path(root)
    try:
        top = root.resolve(strict=True)
        next(os.scandir(top), None)
    except (OSError, RuntimeError, ValueError) as error:
        raise BinaryError(f"{root}: this folder cannot be listed: {error}") from error
    visited: set[tuple[int, int]] = set()
    # real folders first, links to folders after: a library is found under its real path where it has one
    links: list[Path] = []
    yield from _below(root, top, visited, links, on_unreadable)
    while links:
        link = links.pop(0)
        target = link.resolve()
        if target == top or target in top.parents or target in link.parent.resolve().parents:
            continue
        if _is_view(target, top):
            continue
        yield from _below(link, top, visited, links, on_unreadable)


def _below(
    folder: Path, top: Path, visited: set[tuple[int, int]], links: list[Path], on_unreadable: OnUnreadable
) -> Iterator[Path]:
    pending = [folder]
    while pending:
        here = pending.pop()
        try:
            status = here.stat()
            if (status.st_dev, status.st_ino) in visited:
                continue
            visited.add((status.st_dev, status.st_ino))
            with os.scandir(here) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            on_unreadable(here, error)
            continue
        folders = []
        for entry in entries:
            path = here / entry.name
            try:
                if entry.is_dir(follow_symlinks=False):
                    if not _is_view(path, top):
                        folders.append(path)
                elif entry.is_symlink() and _leads_to_folder(path):
                    links.append(path)
                elif is_native_name(entry.name) and _counts(path, entry.is_symlink(), top) and _is_one(path):
                    yield path
            except OSError as error:
                on_unreadable(path, error)
        pending += reversed(folders)


def _is_view(folder: Path, top: Path) -> bool:
    """Whether a folder is one of ``_VIEWS`` or below, and the walk did not start there."""
    return any(view in (folder, *folder.parents) and view not in (top, *top.parents) for view in _VIEWS)


def _leads_to_folder(link: Path) -> bool:
    """Whether a link leads to a folder; False for one that dangles or leads to itself."""
    try:
        return stat.S_ISDIR(link.stat().st_mode)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        raise


def _is_one(path: Path) -> bool:
    """Whether a file of a library's name is one, or is empty and should have been one.

    Raises OSError where it cannot be opened.
    """
    if is_binary(path):
        return True
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        return False
    with path.open("rb"):  # what cannot be opened is no text either
        return not status.st_size


def _counts(path: Path, is_link: bool, top: Path) -> bool:
    """Whether `path` is not merely a second name of a file that the walk meets under its own."""
    if not is_link:
        return True
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):  # dangling, or a link to itself: there is nothing to read
        return False
    return top not in target.parents or not is_native_name(target.name)
