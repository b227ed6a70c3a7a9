"""Finds native modules and shared libraries below a folder, without losing its way in symbolic links."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from splatfix.binaries.model import BinaryError
from splatfix.binaries.reader import is_binary

OnUnreadable = Callable[[Path, OSError], None]

# Folders that hold no files but views of the system: endless, and full of what even root may not read.
_VIEWS = (Path("/proc"), Path("/sys"), Path("/dev"))

# libfoo.so, libfoo.so.1.2, _C.cpython-311-x86_64-linux-gnu.so, _C.pyd, foo.dll
_NATIVE_NAME = re.compile(r".+\.(so(\.[0-9][\w.]*)?|pyd|dll)", re.IGNORECASE)


def is_native_name(name: str) -> bool:
    """Whether a file of this name should be a native module or a shared library."""
    return _NATIVE_NAME.fullmatch(name) is not None


def find_binaries(root: Path, *, on_unreadable: OnUnreadable | None = None) -> Iterator[Path]:
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
    folder: Path,
    top: Path,
    visited: set[tuple[int, int]],
    links: list[Path],
    on_unreadable: OnUnreadable | None,
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
            if on_unreadable is not None:
                on_unreadable(here, error)
            continue
        folders = []
        for entry in entries:
            path = here / entry.name
            try:
                if entry.is_dir(follow_symlinks=False):
                    folders += [] if _is_view(path, top) else [path]
                elif entry.is_symlink() and _leads_to_folder(path):
                    links.append(path)
                elif is_native_name(entry.name) and _counts(path, entry.is_symlink(), top) and _is_one(path):
                    yield path
            except OSError as error:
                if on_unreadable is not None:
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
