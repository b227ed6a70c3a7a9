"""Scratch copies of source folders, so that a build never touches the checkout."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from splatfix.core.errors import SplatfixError
from splatfix.core.resources import user_cache
from splatfix.core.scratch import PREFIX, Folder, sweep
from splatfix.core.step import say

# torch adds no architecture flags when any nvcc flag contains this text, and include flags contain the scratch path.
_FORBIDDEN = "arch"

_SKIP_ANYWHERE = frozenset({".git", ".hg", ".svn", "__pycache__", ".eggs", ".mypy_cache", ".pytest_cache"})
_SKIP_AT_TOP = frozenset({"build", "dist", "venv", ".venv", ".tox"})
# Compiled modules of an earlier build in place; a wheel must not pick them up.
_STALE = re.compile(r".+\.(cpython-\d+\S*\.so|cp\d+-\S+\.pyd|o|obj)$")


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
    folder = _make_root([base] if base else _bases(), source)
    root = folder.path
    try:
        made = Scratch(root, root / "source", root / "wheels", root / "tmp")
        made.wheels.mkdir()
        made.temporary.mkdir()
        yield made
    finally:
        folder.remove()


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
        # what is made there has an unforeseeable name and belongs to its owner alone
        Path("/tmp"),  # nosec B108
        Path("/var/tmp"),  # nosec B108
        Path.cwd(),
    ]
    return sorted(places, key=lambda place: any(letter.isspace() for letter in str(place)))


def _make_root(bases: list[Path], source: str) -> Folder:
    wanted = f"{PREFIX}{hashlib.sha256(os.fsencode(source)).hexdigest()[:12]}" if source else ""
    problems = []
    for base in bases:
        if _FORBIDDEN in str(base.resolve()):
            problems.append(f"{base}: its path contains {_FORBIDDEN!r}")
            continue
        try:
            base.mkdir(parents=True, exist_ok=True)
            return Folder(base.resolve(), PREFIX, wanted)
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
