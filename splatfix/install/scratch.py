"""Scratch copies of source folders, so that a build never touches the checkout, and temporary folders with an owner.

A temporary folder names its process, so that the next run can remove what a killed one left.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from splatfix.core.errors import SplatfixError
from splatfix.core.resources import user_cache
from splatfix.core.step import say

# torch adds no architecture flags when any nvcc flag contains this text, and include flags contain the scratch path.
_FORBIDDEN = "arch"

_SKIP_ANYWHERE = frozenset({".git", ".hg", ".svn", "__pycache__", ".eggs", ".mypy_cache", ".pytest_cache"})
_SKIP_AT_TOP = frozenset({"build", "dist", "venv", ".venv", ".tox"})
# Compiled modules of an earlier build in place; a wheel must not pick them up.
_STALE = re.compile(r".+\.(cpython-\d+\S*\.so|cp\d+-\S+\.pyd|o|obj)$")

OWNER = ".splatfix-owner"
_DRAFT = f"{OWNER}.new"
_NEW_FOR = 60.0
"""Seconds within which a new folder gets its owner file."""


@dataclass(frozen=True)
class Scratch:
    """Folders of one build; all below ``root``."""

    root: Path
    source: Path
    wheels: Path
    temporary: Path


@contextmanager
def scratch_folder(base: Path | None = None, source: str = "") -> Iterator[Scratch]:
    """A fresh folder, removed at the end whatever happens. Its path never contains "arch".

    Args:
        source: what will be copied there. The same source gets the same path when that is free, because compiler caches
            take the path for a part of what they compile.

    Raises:
        SplatfixError: ``no-scratch`` when no folder can be made.
    """
    root = _make_root([base] if base else _bases(), source)
    try:
        claim(root)
        made = Scratch(root, root / "source", root / "wheels", root / "tmp")
        made.wheels.mkdir()
        made.temporary.mkdir()
        yield made
    finally:
        remove(root)


def sweep_scratch() -> None:
    """Remove what killed runs of this user left."""
    sweep(_bases())


def copy_source(source: Path, destination: Path) -> None:
    """Copy a source tree without version control, build output and stale modules.

    A relative link inside the tree stays a link; any other link is replaced by what it points to, so that the copy
    needs nothing outside itself. A dangling link stays as it is.

    Raises:
        SplatfixError: ``disk-full`` or ``cannot-copy``.
    """
    try:
        _copy_folder(source.resolve(), source.resolve(), destination, at_top=True)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise SplatfixError(
                "disk-full",
                f"The disk is full: {source} could not be copied to {destination.parent}.",
                meaning="Nothing was built and nothing was changed.",
                todo=(say("Make room there, or set TMPDIR to a folder on another disk."),),
            ) from error
        raise SplatfixError(
            "cannot-copy",
            f"{error.filename or source} cannot be copied for the build: {error.strerror or error}.",
            meaning="Nothing was built and nothing was changed.",
            todo=(say("Make the whole source folder readable, then run this again."),),
        ) from error


def _bases() -> list[Path]:
    """Where scratch folders may be, in order of preference. Paths with a blank come last: torch calls the C++ compiler in
    CXX without quotes, and a compiler cache's script is in the scratch folder."""
    places = [
        Path(tempfile.gettempdir()),
        user_cache() / "scratch",
        Path("/tmp"),
        Path("/var/tmp"),
        Path.cwd(),
    ]
    return sorted(places, key=lambda place: any(letter.isspace() for letter in str(place)))


def _make_root(bases: list[Path], source: str) -> Path:
    # hexadecimal digits cannot spell "arch"
    wanted = f"splatfix-{hashlib.sha256(os.fsencode(source)).hexdigest()[:12]}" if source else ""
    problems = []
    for base in bases:
        if _FORBIDDEN in str(base.resolve()):
            problems.append(f"{base}: its path contains {_FORBIDDEN!r}")
            continue
        try:
            base.mkdir(parents=True, exist_ok=True)
            if wanted:
                with suppress(FileExistsError):
                    (base / wanted).mkdir(mode=0o700)
                    return (base / wanted).resolve()
            while True:
                root = Path(tempfile.mkdtemp(prefix="splatfix-", dir=base)).resolve()
                if _FORBIDDEN not in str(root):
                    return root
                root.rmdir()  # the random letters spell "arch"
        except OSError as error:
            problems.append(f"{base}: {error.strerror or error}")
    raise SplatfixError(
        "no-scratch",
        f"No folder for scratch copies could be made: {'; '.join(problems)}.",
        meaning="Nothing was built and nothing was changed.",
        todo=(say(f"Set TMPDIR to a writable folder whose path does not contain {_FORBIDDEN!r}."),),
    )


def _copy_folder(top: Path, folder: Path, destination: Path, *, at_top: bool = False) -> None:
    destination.mkdir(parents=True, exist_ok=True)
    with os.scandir(folder) as listing:
        entries = sorted(listing, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name in _SKIP_ANYWHERE or (at_top and entry.name in _SKIP_AT_TOP):
            continue
        if entry.name.endswith(".egg-info") and entry.is_dir(follow_symlinks=False):
            continue
        path, copy = folder / entry.name, destination / entry.name
        if entry.is_symlink():
            _copy_link(top, path, copy)
        elif entry.is_dir():
            _copy_folder(top, path, copy)
        elif entry.is_file() and not _STALE.match(entry.name):
            shutil.copy2(path, copy)


def _copy_link(top: Path, link: Path, copy: Path) -> None:
    written = link.readlink()
    target = link.resolve()
    inside = not written.is_absolute() and target.is_relative_to(top)
    if inside or not target.exists():
        copy.symlink_to(written)
    elif target.is_file():
        shutil.copy2(target, copy)
    elif link.parent.resolve().is_relative_to(target):
        copy.symlink_to(target)  # a folder that contains the link itself: copying it would never end
    elif target.is_dir():
        _copy_folder(target, target, copy)


def claim(folder: Path) -> None:
    """Write the owner file: which process the folder belongs to."""
    draft = folder / _DRAFT
    draft.write_text(json.dumps({"pid": os.getpid(), **_identity(os.getpid())}), encoding="utf-8")
    draft.replace(folder / OWNER)


def remove(folder: Path) -> None:
    """Remove the folder, its owner file last, so that what cannot be removed now is found again later."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.name == OWNER:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            with suppress(OSError):
                entry.unlink()
    with suppress(OSError):
        left = [entry.name for entry in folder.iterdir()]
        if left == [OWNER]:
            shutil.rmtree(folder)
        elif not left:
            folder.rmdir()


def sweep(bases: Iterable[Path], pattern: str = "splatfix-*") -> tuple[Path, ...]:
    """Remove folders of this pattern whose process is dead; returns them.

    Left alone: folders without an owner file, of other users, machines and containers, and those in which a child of
    the dead process is still at work.
    """
    swept: list[Path] = []
    for base in dict.fromkeys(bases):
        with suppress(OSError):
            for folder in sorted(base.glob(pattern)):
                if _abandoned(folder):
                    remove(folder)
                    swept.append(folder)
    return tuple(swept)


@contextmanager
def temporary_folder(prefix: str, base: Path | None = None) -> Iterator[Path]:
    """A temporary folder that is removed at the end, and by a later run where there is no end.

    Args:
        base: where, if not where temporary files go; what killed runs left there under this prefix is removed now.
    """
    if base is not None:
        sweep([base], f"{prefix}*")
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
    try:
        claim(folder)
        yield folder
    finally:
        remove(folder)


def _abandoned(folder: Path) -> bool:
    if os.name != "posix":  # there is no way to ask for a process there without other packages
        return False
    try:
        note = folder / OWNER
        if folder.is_symlink() or note.stat().st_uid != os.getuid():
            return False
        said = json.loads(note.read_text(encoding="utf-8"))
        pid = int(said["pid"])
        same_place = said["place"] == _identity(os.getpid())["place"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return _unclaimed_for_long(folder)
    except OSError:
        return False
    return same_place and not _alive(pid, said.get("started")) and not _in_use(folder)


def _unclaimed_for_long(folder: Path) -> bool:
    """The process was killed between making the folder and its owner file, or between removing the two."""
    try:
        found = folder.stat()
        mine = found.st_uid == os.getuid()
        names = {entry.name for entry in folder.iterdir()}
        return mine and time.time() - found.st_mtime > _NEW_FOR and names <= {OWNER, _DRAFT}
    except OSError:
        return False


def _alive(pid: int, started: object) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return _identity(pid)["started"] == started


def _identity(pid: int) -> dict[str, str]:
    """Tells this process from a later one with the same number (Linux), and this machine or container from another."""
    started, place = "", os.uname().nodename if hasattr(os, "uname") else ""
    with suppress(OSError, IndexError):
        # field 22 of proc(5) stat: when it started; the name in brackets before may hold blanks
        started = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    with suppress(OSError):
        place += f" {Path('/proc/self/ns/pid').readlink()}"
        place += f" {Path('/proc/sys/kernel/random/boot_id').read_text(encoding='ascii').strip()}"
    return {"started": started, "place": place}


def _in_use(folder: Path) -> bool:
    """A process has its working folder in there: the compilers of a killed run live on until they finish."""
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            if link.readlink().is_relative_to(folder):
                return True
    return False
