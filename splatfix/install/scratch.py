"""Scratch copies of source folders, so that a build never touches the checkout."""

import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from msgspec import Struct

from splatfix.core.errors import SplatfixError
from splatfix.core.reading import read_text
from splatfix.core.resources import user_cache
from splatfix.core.scratch import PREFIX, ScratchFolder, sweep

# torch adds no architecture flags when any nvcc flag contains this text, and include flags contain the scratch path.
_FORBIDDEN = "arch"

_SKIP_ANYWHERE = frozenset({".git", ".hg", ".svn", "__pycache__", ".eggs", ".mypy_cache", ".pytest_cache"})
# In the top folder only: deeper down a folder called build can be source.
_SKIP_AT_TOP = frozenset({"build", "dist", "venv", ".venv", ".tox"})
# Compiled modules of an earlier build in place; a wheel must not pick them up.
_STALE = re.compile(r".+\.(cpython-\d+\S*\.so|cp\d+-\S+\.pyd|o|obj)$")


# What people keep in a checkout beside its sources, by the names that trainers and their manuals give it.
_DATA = re.compile(
    r"datasets?|data|outputs?|out|results?|runs?|logs?|wandb|tensorboard|checkpoints?|ckpts?|weights|pretrained|"
    r"models|scenes?|experiments?|eval|renders?|node_modules",
    re.IGNORECASE,
)
_DATA_FILE = re.compile(
    r".+\.(ply|splat|spz|ckpt|pth|pt|safetensors|npy|npz|h5|hdf5|onnx|mp4|avi|mov|zip|tar|gz|xz|bz2|zst|7z|rar|whl|db|bin)"
)
_SOURCE_FILE = re.compile(
    r"CMakeLists\.txt|.+\.(py[xi]?|c|cc|cpp|cxx|cuh?|h|hh|hpp|in[lc]|ipp|cmake|in|toml|cfg|slang|glsl|a|so|lib|dll)"
)
_LARGE = 32 << 20
_MOST_BYTES = 2 << 30
_MOST_FILES = 200_000
_MOST_LOOKED_AT = 20_000


class LeftOut(Struct, frozen=True):
    """Something that a copy does without."""

    path: str
    """Relative to what was copied."""
    reason: str


class Scratch(Struct, frozen=True):
    """Folders of one build; all below ``root``."""

    root: Path
    copy: Path
    """Of the repository, or of the source folder alone."""
    source: Path
    """What is built: ``copy`` or a folder in it."""
    wheels: Path
    temporary: Path
    left_out: tuple[LeftOut, ...] = ()
    """What ``copy`` does without."""


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
        made = Scratch(root, root / "source", root / "source", root / "wheels", root / "tmp")
        made.wheels.mkdir()
        made.temporary.mkdir()
        yield made
    finally:
        folder.remove()


def name_of_copy(folder: Path) -> str:
    """A copy's name: its folder's, which a setup.py may build by, unless it is one that a compiler or torch may not take."""
    if _FORBIDDEN in folder.name or not re.fullmatch(r"[\w.+-]+", folder.name, re.ASCII):
        return "source"
    return folder.name


def sweep_scratch() -> None:
    """Remove what killed runs of this user left."""
    sweep(_bases())


def copy_source(source: Path, destination: Path, repository: Path | None = None) -> tuple[LeftOut, ...]:
    """Copy what a build needs: a source folder, or the repository around it; what is left out, and why.

    Left out are version control, build output, stale modules, virtual environments, folders of data in
    the top folder (no source below, not named by a build file; called ``datasets`` or the like, or large) and large files
    of data. A link inside the
    repository stays a link, a link of the source folder that leads out of it is replaced by what it points to, and any other
    is left out. Everything copied can be written to.

    Args:
        repository: the folder that ``destination`` becomes a copy of; None for ``source`` itself.

    Raises:
        SplatfixError: ``disk-full``, ``cannot-copy`` or ``source-too-large``.
    """
    copy = _Copy(source.resolve(), (repository or source).resolve())
    try:
        copy.folder(copy.repository, destination)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise SplatfixError.of("install.disk-full", source=source, parent=destination.parent) from error
        raise SplatfixError.of(
            "install.cannot-copy", path=error.filename or source, reason=error.strerror or error
        ) from error
    return tuple(copy.left_out)


def _bases() -> list[Path]:
    """Where scratch folders may be, in order of preference. Paths with a blank come last: torch calls the C++ compiler in
    CXX without quotes, and a compiler cache's script is in the scratch folder."""
    bases = [
        Path(tempfile.gettempdir()),
        user_cache() / "scratch",
        # what is made there has an unforeseeable name and belongs to its owner alone
        Path("/tmp"),  # nosec B108
        Path("/var/tmp"),  # nosec B108
        Path.cwd(),
    ]
    return sorted(bases, key=lambda base: any(letter.isspace() for letter in str(base)))


def _make_root(bases: list[Path], source: str) -> ScratchFolder:
    name = ""
    if source:
        name = f"{PREFIX}{hashlib.sha256(os.fsencode(source)).hexdigest()[:12]}"
    problems = []
    for base in bases:
        if _FORBIDDEN in str(base.resolve()):
            problems.append(f"{base}: its path contains {_FORBIDDEN!r}")
            continue
        try:
            base.mkdir(parents=True, exist_ok=True)
            return ScratchFolder(base.resolve(), PREFIX, name)
        except OSError as error:
            problems.append(f"{base}: {error.strerror or error}")
    raise SplatfixError.of("install.no-scratch", problems="; ".join(problems), forbidden=_FORBIDDEN)


class _Copy:
    """One copy in the making."""

    def __init__(self, source: Path, repository: Path) -> None:
        self.source, self.repository = source, repository
        self.left_out: list[LeftOut] = []
        self._bytes = self._entries = 0
        self._sizes: dict[str, int] = {}
        self._build_files = ""
        for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "CMakeLists.txt"):
            text = read_text(source / name)
            if isinstance(text, str):
                self._build_files += f"{text}\n"

    def folder(self, folder: Path, destination: Path, inside: str = "") -> None:
        """Copy a folder; ``inside`` is its path in the copy, with a slash at its end."""
        destination.mkdir(parents=True, exist_ok=True)
        at_top = folder in (self.source, self.repository)
        with os.scandir(folder) as listing:
            # in an order of its own: what is told as left out, and the first file that is too much, are always the same
            entries = sorted(listing, key=lambda entry: entry.name)
        for entry in entries:
            path, copy, name = folder / entry.name, destination / entry.name, f"{inside}{entry.name}"
            is_folder = entry.is_dir(follow_symlinks=False)
            if _is_output(entry.name, is_folder=is_folder, at_top=at_top):
                continue
            if entry.is_symlink():
                self._link(path, copy, name)
            elif is_folder:
                reason = self._reason_to_leave_out(path, at_top=at_top)
                if reason:
                    self.left_out.append(LeftOut(name, reason))
                else:
                    self.folder(path, copy, f"{name}/")
            elif entry.is_file():
                self._file(path, copy, name, entry.stat().st_size)

    def _reason_to_leave_out(self, folder: Path, *, at_top: bool) -> str:
        if (folder / "pyvenv.cfg").is_file() or (folder / "conda-meta").is_dir():
            return "a Python environment"
        named = re.search(rf"(?<![\w-]){re.escape(folder.name)}(?![\w-])", self._build_files)
        around_it = self.source.is_relative_to(folder)
        if at_top and not named and not around_it and _holds_only_data(folder):
            return "data: no source below it, and no build file names it"
        return ""

    def _file(self, path: Path, copy: Path, name: str, size: int) -> None:
        if size > _LARGE and _DATA_FILE.fullmatch(path.name):
            self.left_out.append(LeftOut(name, f"data of {size >> 20} MiB"))
            return
        self._count(name, size)
        shutil.copy2(path, copy)
        # a setup.py may write its version.py anew
        copy.chmod(stat.S_IMODE(copy.stat().st_mode) | stat.S_IWUSR)

    def _link(self, link: Path, copy: Path, name: str) -> None:
        written = link.readlink()
        target = link.resolve()
        inside = not written.is_absolute() and target.is_relative_to(self.repository)
        if inside or not target.exists():
            self._count(name, 0)
            copy.symlink_to(written)
        elif link.parent.resolve().is_relative_to(target):
            copy.symlink_to(target)  # a folder that contains the link itself: copying it would never end
        elif not link.is_relative_to(self.source):
            self.left_out.append(LeftOut(name, f"a link out of the repository, to {target}"))
        elif target.is_file():
            self._file(target, copy, name, target.stat().st_size)
        elif target.is_dir():
            self._linked(target, copy, name)

    def _linked(self, target: Path, copy: Path, name: str) -> None:
        """A folder elsewhere that the source folder links to: its own links stay in it."""
        elsewhere = _Copy(target, target)
        elsewhere._bytes, elsewhere._entries = self._bytes, self._entries
        elsewhere.folder(target, copy)
        self._bytes, self._entries = elsewhere._bytes, elsewhere._entries
        self.left_out += [LeftOut(f"{name}/{item.path}", item.reason) for item in elsewhere.left_out]

    def _count(self, name: str, size: int) -> None:
        self._bytes += size
        self._entries += 1
        top = name.partition("/")[0]
        self._sizes[top] = self._sizes.get(top, 0) + size
        if self._bytes > _MOST_BYTES or self._entries > _MOST_FILES:
            largest = sorted(self._sizes.items(), key=lambda item: -item[1])[:3]
            sizes = ", ".join(f"{part} ({size >> 20} MiB)" for part, size in largest)
            raise SplatfixError.of(
                "install.source-too-large",
                repository=self.repository,
                most=_MOST_BYTES >> 30,
                most_files=_MOST_FILES,
                sizes=sizes,
            )


def _is_output(name: str, *, is_folder: bool, at_top: bool) -> bool:
    if name in _SKIP_ANYWHERE or (at_top and name in _SKIP_AT_TOP):
        return True
    if is_folder:
        return name.endswith(".egg-info")
    return _STALE.match(name) is not None


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
