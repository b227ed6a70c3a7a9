"""The one way a checkout is copied: for a build, for its trainer's rehearsal, and into the image of a container.

Its links are whatever a stranger made them, and secrets of its owner may lie beside the sources: a copy has nothing from outside,
and nothing that is called as secrets are.
"""

import errno
import fnmatch
import os
import re
import shutil
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from splatfix.core.errors import SplatfixError
from splatfix.core.reading import read_text
from splatfix.core.resources import bundled
from splatfix.facts.source.names import NAMES, any_of

# Compiled modules of an earlier build in place; a wheel must not pick them up.
_STALE = re.compile(r".+\.(cpython-\d+\S*\.so|cp\d+-\S+\.pyd|o|obj)$")
_DATA = any_of("data-folders", re.IGNORECASE)
_DATA_FILE, _SOURCE_FILE = any_of("data-files"), any_of("source-files")
# What of .git tells the commit, and where it was cloned from.
_GIT = re.compile(r"(modules/.+/)?(HEAD|config|packed-refs|refs/.+)")
_LARGE = 32 << 20
_MOST_BYTES = 2 << 30
_MOST_FILES = 200_000
_MOST_LOOKED_AT = 20_000


class LeftOut(Struct, frozen=True):
    """Something that a copy does without."""

    path: str
    """Relative to what was copied."""
    reason: str
    wanted: bool = True
    """It may be missed: it is neither data nor an environment."""


def missed(left_out: Iterable[LeftOut]) -> list[str]:
    """Return what of it people are told without asking: neither data nor environments."""
    return [f"{item.path} ({item.reason})" for item in left_out if item.wanted]


class Entry(NamedTuple):
    """A folder, file or link of a copy."""

    name: str
    """Its path in the copy, with '/'; "" for the copy itself."""
    path: Path
    link: str = ""
    """What the link says in the copy; "" for what is none."""


def copy_source(source: Path, destination: Path, repository: Path | None = None) -> tuple[LeftOut, ...]:
    """Copy what a build needs, a source folder, or the repository around it that ``destination`` becomes a copy of, so that
    everything can be written to; what is left out, and why.

    Raises:
        SplatfixError: ``disk-full``, ``cannot-copy`` or ``source-too-large``.
    """
    files = SourceFiles(source, repository)
    try:
        for entry in files.bounded():
            copy = destination / entry.name
            if entry.link:
                copy.symlink_to(entry.link)
            elif entry.path.is_dir():
                copy.mkdir(parents=True, exist_ok=True)
            else:
                shutil.copy2(entry.path, copy)
                # a setup.py may write its version.py anew
                copy.chmod(stat.S_IMODE(copy.stat().st_mode) | stat.S_IWUSR)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise SplatfixError.of("facts.disk-full", source=source, parent=destination.parent) from error
        raise _cannot_copy(source, error) from error
    return tuple(files.left_out)


def _cannot_copy(source: Path, error: OSError) -> SplatfixError:
    return SplatfixError.of(
        "facts.cannot-copy", path=error.filename or source, reason=error.strerror or error
    )


class SourceFiles:
    """What a copy of a source folder has, or of the repository around it; ``with_commit`` also what of ``.git`` tells the commit.

    Left out are version control, build output, stale modules, virtual environments, folders of data in the top folder (no
    source below, not named by a build file; called ``datasets`` or the like, or large), large files of data, links that lead
    out, and secrets. A link inside stays a link.
    """

    def __init__(self, source: Path, repository: Path | None = None, *, with_commit: bool = False) -> None:
        self.source, self.repository = source.resolve(), (repository or source).resolve()
        self.left_out: list[LeftOut] = []
        """Filled by :meth:`walk`."""
        self._with_commit = with_commit
        names = ("setup.py", "pyproject.toml", "MANIFEST.in", "CMakeLists.txt")
        texts = (read_text(self.source / name) for name in names)
        self._build_files = "\n".join(text for text in texts if isinstance(text, str))

    def bounded(self) -> Iterator[Entry]:
        """Yield the same as :meth:`walk`; raises ``source-too-large`` for more than is copied."""
        sizes = Counter[str]()
        for count, entry in enumerate(self.walk()):
            sizes[entry.name.partition("/")[0]] += entry.path.lstat().st_size
            if sizes.total() > _MOST_BYTES or count > _MOST_FILES:
                largest = ", ".join(f"{part} ({size >> 20} MiB)" for part, size in sizes.most_common(3))
                raise SplatfixError.of(
                    "facts.source-too-large",
                    repository=self.repository,
                    most=_MOST_BYTES >> 30,
                    most_files=_MOST_FILES,
                    sizes=largest,
                )
            yield entry

    def walk(self) -> Iterator[Entry]:
        """Yield folders before what is in them, in an order of its own: what is told as left out, and the first file that is too
        much, are always the same. Raises ``cannot-copy`` where a folder cannot be listed."""
        pending = [("", self.repository)]
        while pending:
            inside, folder = pending.pop()
            yield Entry(inside, folder)
            try:
                with os.scandir(folder) as listing:
                    entries = sorted(listing, key=lambda entry: entry.name)
                found: list[Entry] = []
                for item in entries:
                    found += self._of(item, f"{inside}/{item.name}".lstrip("/"))
            except OSError as error:
                raise _cannot_copy(self.repository, error) from error
            below = [entry for entry in found if not entry.link and entry.path.is_dir()]
            yield from (entry for entry in found if entry not in below)
            pending += ((entry.name, entry.path) for entry in reversed(below))

    def _of(self, entry: os.DirEntry[str], name: str) -> Iterator[Entry]:
        """Yield what the copy has of one entry of a folder."""
        path, is_folder = Path(entry.path), entry.is_dir(follow_symlinks=False)
        skipped = set(NAMES["never-copied"])
        if path.parent in (self.source, self.repository):
            skipped |= set(NAMES["not-copied-at-top"])
        is_output = entry.name.endswith(".egg-info") if is_folder else _STALE.match(entry.name)
        if entry.name == ".git" and is_folder and self._with_commit:
            for file in sorted(path.rglob("*")):
                place = file.relative_to(path).as_posix()
                if _GIT.fullmatch(place) and not file.is_symlink() and file.is_file():
                    yield Entry(f"{name}/{place}", file)
        elif is_output or entry.name in skipped:
            return
        elif left_out := self._left_out(path, name):
            self.left_out.append(left_out)
        elif entry.is_symlink():
            # written anew: the way that it tells may lead through folders outside, and others are around the copy
            yield Entry(name, path, os.path.relpath(path.resolve(), path.parent))
        elif is_folder or entry.is_file():
            yield Entry(name, path)

    def _left_out(self, path: Path, name: str) -> LeftOut | None:
        around_it = self.source.is_relative_to(path)
        if _secret_names().fullmatch(path.name) and not around_it:
            return LeftOut(name, "called as secrets are")
        if path.is_symlink():
            try:
                target = path.resolve()
            except (OSError, RuntimeError):  # it leads to itself: RuntimeError up to Python 3.12
                return LeftOut(name, "a link that leads nowhere")
            if not target.is_relative_to(self.repository):
                return LeftOut(name, f"a link out of the checkout, to {target}")
        elif path.is_dir():
            if (path / "pyvenv.cfg").is_file() or (path / "conda-meta").is_dir():
                return LeftOut(name, "a Python environment", wanted=False)
            named = re.search(rf"(?<![\w-]){re.escape(path.name)}(?![\w-])", self._build_files)
            is_top = path.parent in (self.source, self.repository)
            if is_top and not around_it and not named and _holds_only_data(path):
                return LeftOut(name, "data: no source below it, and no build file names it", wanted=False)
        elif _DATA_FILE.fullmatch(path.name) and (size := path.stat().st_size) > _LARGE:
            return LeftOut(name, f"data of {size >> 20} MiB", wanted=False)
        return None


@cache
def _secret_names() -> re.Pattern[str]:
    """Return the names that no image gets, by ``dockerfiles/secrets.dockerignore``."""
    lines = (bundled("dockerfiles") / "secrets.dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [fnmatch.translate(line.removeprefix("**/")) for line in lines if line.startswith("**/")]
    return re.compile("|".join(patterns), re.IGNORECASE)


def _holds_only_data(folder: Path) -> bool:
    """No file in it that a build could use, among the first thousands; and it is called as data are, or large."""
    pending, looked_at, size = [folder], 0, 0
    while pending and looked_at < _MOST_LOOKED_AT:
        with os.scandir(pending.pop()) as listing:
            for entry in islice(listing, _MOST_LOOKED_AT):
                looked_at += 1
                if _SOURCE_FILE.fullmatch(entry.name):
                    return False
                if entry.is_dir(follow_symlinks=False):
                    pending.append(Path(entry.path))
                else:
                    size += entry.stat(follow_symlinks=False).st_size
    return _DATA.fullmatch(folder.name) is not None or size > _LARGE or looked_at >= _MOST_LOOKED_AT
