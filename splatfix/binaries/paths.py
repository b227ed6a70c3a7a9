"""What a person may point at: a library, a wheel, a folder of libraries, or several of these."""

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
    try:
        top = root.resolve(strict=True)
        next(os.scandir(top), None)
    except (OSError, RuntimeError, ValueError) as error:
        raise BinaryError(f"{root}: this folder cannot be listed: {error}") from error
    visited: set[tuple[int, int]] = set()
    # real folders first, links to folders after: a library is found under its real path where it has one
    starts = [root]
    while starts:
        start = starts.pop(0)
        for name, folders, files in os.walk(
            start, onerror=lambda error: on_unreadable(Path(error.filename), error)
        ):
            here = Path(name)
            try:
                status = here.stat()
            except OSError as error:
                on_unreadable(here, error)
                continue
            if (status.st_dev, status.st_ino) in visited:
                folders.clear()
                continue
            visited.add((status.st_dev, status.st_ino))
            below = [here / folder for folder in sorted(folders)]
            starts += [link for link in below if link.is_symlink() and _is_followed(link, top)]
            # os.walk goes into those that are left here
            folders[:] = [folder.name for folder in below if not _is_view(folder, top)]
            for path in (here / file for file in sorted(files) if is_native_name(file)):
                try:
                    if _is_library(path, top):
                        yield path
                except OSError as error:
                    on_unreadable(path, error)


def _is_followed(link: Path, top: Path) -> bool:
    """Tell whether a link leads to a folder below which the walk does not come by itself, and not above the link."""
    target = link.resolve()
    above = {top, *top.parents, *link.parent.resolve().parents}
    return target not in above and not _is_view(target, top)


def _is_view(folder: Path, top: Path) -> bool:
    """Whether a folder is one of ``_VIEWS`` or below, and the walk did not start there."""
    return any(view in (folder, *folder.parents) and view not in (top, *top.parents) for view in _VIEWS)


def _is_library(path: Path, top: Path) -> bool:
    """Tell whether a file of a library's name is one, or is empty and should have been one, and has no other name here.

    Raises OSError where it cannot be opened.
    """
    if path.is_symlink():
        try:
            target = path.resolve(strict=True)
        except (OSError, RuntimeError):  # dangling, or a link to itself: there is nothing to read
            return False
        if top in target.parents and is_native_name(target.name):
            return False
    if is_binary(path):
        return True
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        return False
    with path.open("rb"):  # what cannot be opened is no text either
        return not status.st_size
