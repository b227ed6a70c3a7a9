"""Backs up what an installation will touch, and restores it byte for byte: at once when it fails, or later."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace

from splatfix.core.errors import SplatfixError
from splatfix.core.files import read_json, sha256_of, write_bytes, write_json
from splatfix.core.reading import read_blocks
from splatfix.install.environment import Environment, cannot_restore
from splatfix.install.installed import EASY_INSTALL, bytecode_of, find_installed
from splatfix.install.wheels import WheelFile

_ANCHORED = re.compile(r"<(\w+)>/(.+)", re.DOTALL)
# What pip puts between the tilde and the rest of a name (pip/_internal/utils/temp_dir.py, AdjacentTempDirectory).
_STASH_LETTERS = "-~.=%0123456789"


class OutsidePath(Exception):
    """A path that leads out of the environment, or into splatfix's own journal."""


class JournalPaths(Struct, frozen=True, dict=True):
    """The folders that paths of one journal may name, and their names in it; a path goes by the first that it is in.

    A copied or moved environment names its own files by its journal, never those of the environment it was copied from. And
    where a link has come into a path since, nothing behind it is touched: what lies there is not the installation's.
    """

    anchors: tuple[tuple[str, Path], ...]
    state: Path
    """The environment's ``.splatfix``, which is splatfix's own and is never restored or removed."""

    @cached_property
    def _real(self) -> tuple[tuple[str, ...], str]:
        """Return the folders and :attr:`state` with links followed; found once, because a package can have ten thousand files."""
        return tuple(os.path.realpath(folder) for _, folder in self.anchors), os.path.realpath(self.state)

    @classmethod
    def of(cls, environment: Environment, checkout: str = "") -> JournalPaths:
        """Take the folders pip installs into; with ``checkout`` that folder, which ``--in-place`` edited, and nothing else."""
        if checkout:
            return cls((("checkout", Path(checkout)),), environment.state_folder)
        # Debian's Python installs below /usr/local with the prefix /usr; in a venv all of these are in the prefix, and
        # site-packages is often a link to another disk
        names = ("prefix", "purelib", "platlib", "scripts", "data", "headers", "user_site")
        anchors = [(name, getattr(environment, name)) for name in names]
        return cls(tuple(anchor for anchor in anchors if anchor[1]), environment.state_folder)

    def to_text(self, path: str | Path) -> str:
        """Return the path as the journal names it: ``<prefix>/lib/python3.11/site-packages/foo.py``."""
        for name, folder in self.anchors:
            if Path(path).is_relative_to(folder):
                return f"<{name}>/{Path(path).relative_to(folder).as_posix()}"
        raise OutsidePath(f"{path} lies outside of {self.anchors[0][1]}")

    def to_path(self, text: str) -> Path:
        """Return the path in this environment that the journal's ``text`` names; see :meth:`check`."""
        anchored = _ANCHORED.fullmatch(text)
        folder = dict(self.anchors).get(anchored[1]) if anchored else None
        if anchored is None or folder is None:
            raise OutsidePath(f"{text!r} names no folder of this environment")
        path = folder / anchored[2]
        self.check(path)
        return path

    def check(self, path: Path) -> None:
        """See that writing to ``path`` changes nothing outside of these folders, whatever links lie on the way."""
        folders, state = self._real
        # the last part may be a link: links are replaced and removed, never followed
        parent = os.path.realpath(path.parent)
        if path == self.state or _is_below(parent, state):
            raise OutsidePath(f"{path} is splatfix's own")
        if not any(_is_below(parent, folder) for folder in folders):
            raise OutsidePath(f"{path} leads out of {self.anchors[0][1]} by a link")

    def inside(self, path: Path) -> bool:
        """Tell whether the path lies in these folders, links followed."""
        try:
            self.to_text(path)
            self.check(path)
        except OutsidePath:
            return False
        return True


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


class SavedFile(Struct, frozen=True, forbid_unknown_fields=True):
    """One file as it was."""

    path: Path
    blob: str
    """Name of its copy in the backup folder; "" for a symbolic link."""
    digest: str
    mode: int
    mtime_ns: int
    """Compiled Python files name the time of their source."""
    link: str = ""


class WrittenFile(Struct, frozen=True, forbid_unknown_fields=True):
    """One file as the installation left it."""

    path: Path
    digest: str
    """"" when it is not there any more."""
    lines_removed: tuple[str, ...] = ()
    """Of ``easy-install.pth``, which belongs to many distributions."""


class Backup(Struct, frozen=True):
    """What must be known to undo one installation, written before it begins; those of earlier versions have a ``seal`` too."""

    subject: str
    version_before: str
    saved: tuple[SavedFile, ...]
    will_write: tuple[Path, ...]
    """Every path the installation may create."""
    folders_before: tuple[Path, ...]
    """Those of the touched folders that existed."""
    stashes_before: tuple[Path, ...]
    """Left-overs of interrupted pip runs (``~name``) that were there already."""
    written: tuple[WrittenFile, ...] = ()
    """What it wrote, by which a later change is seen; () until an installation is finished."""
    folder_modes: tuple[int, ...] = ()
    """Of :attr:`folders_before`, in order."""
    foreign: tuple[str, ...] = ()
    """Files outside of the environment that the replaced version's RECORD lists; they are left alone."""


def make_backup(environment: Environment, wheel: WheelFile, folder: Path) -> Backup:
    """Copy everything that installing ``wheel`` will replace into ``folder``, with ``backup.json`` beside it.

    Raises:
        SplatfixError: ``cannot-back-up``, ``cannot-write``.
    """
    paths = JournalPaths.of(environment)
    replaced = find_installed(environment, wheel.name)
    new = wheel.destinations(environment)
    listed: dict[Path, None] = {}
    for distribution in replaced:
        listed |= dict.fromkeys(distribution.files)
    foreign = {path for path in listed if not paths.inside(path)}
    # nothing outside of the environment is written or removed
    elsewhere = [path for path in new if not paths.inside(path)]
    # pip removes what a RECORD lists in the environment, the journal too
    elsewhere += [path for path in foreign if path.is_relative_to(environment.state_folder)]
    # pip leaves files alone that a RECORD lists outside of a virtual environment (UninstallPathSet._permitted), as uv
    # does; outside of virtual environments pip removes them
    if not environment.virtual and environment.installer.kind != "uv":
        elsewhere += [path for path in foreign if path.exists()]
    if elsewhere:
        raise SplatfixError.of("install.outside-environment", wheel_name=wheel.name, elsewhere=elsewhere[0])

    # a dict and not a set: blobs are numbered in this order, and a repeated backup has the same
    touched = dict.fromkeys(path for path in listed if path not in foreign)
    touched |= dict.fromkeys(new)
    for path in new:
        touched |= dict.fromkeys(bytecode_of(path))
    saved: list[SavedFile] = []
    for path in touched:
        if path.is_symlink() or path.is_file():
            saved.append(_save(path, folder, len(saved)))

    folders = [path for path in _folders(environment, touched) if path.is_dir()]
    will_write = [*new]
    lock = environment.prefix / ".lock"
    if environment.installer.kind == "uv" and not lock.exists():
        will_write.append(lock)  # uv leaves its lock behind
    backup = Backup(
        subject=wheel.name,
        version_before=", ".join(distribution.version for distribution in replaced),
        saved=tuple(saved),
        will_write=tuple(will_write),
        folders_before=tuple(folders),
        folder_modes=tuple(path.stat().st_mode & 0o777 for path in folders),
        stashes_before=tuple(_find_stashes(environment)),
        foreign=tuple(sorted(str(path) for path in foreign if path.exists())),
    )
    _write_backup(backup, folder, paths)
    return backup


def backup_files(subject: str, contents: Mapping[Path, bytes], folder: Path, paths: JournalPaths) -> Backup:
    """Copy files that will get these contents, and nothing else, into ``folder``, with ``backup.json`` beside it.

    Args:
        paths: of the checkout that the files lie in.

    Raises:
        SplatfixError: ``cannot-back-up``, ``cannot-write``.
    """
    saved = tuple(_save(path, folder, number) for number, path in enumerate(contents))
    written = tuple(WrittenFile(path, digest(content)) for path, content in contents.items())
    backup = Backup(subject, "", saved, (), (), (), written)
    _write_backup(backup, folder, paths)
    return backup


def note_written(backup: Backup, folder: Path, paths: JournalPaths) -> None:
    """Add to the backup what the installation, which is finished now, has left of every file that it touched."""
    saved = {item.path: item for item in backup.saved}
    written: list[WrittenFile] = []
    for path in dict.fromkeys([*installed_files(backup), *saved]):
        if path.suffix == ".pyc":
            continue  # bytecode is written whenever somebody imports, and is nobody's work
        content = path.read_bytes() if path.is_file() else b""
        current = digest(content) if path.is_file() else ""
        removed: list[str] = []
        if path.name == EASY_INSTALL and path in saved and saved[path].blob:
            before = _lines((folder / "blobs" / saved[path].blob).read_bytes())
            removed = [line for line in before if line not in _lines(content)]
        written.append(WrittenFile(path, current, tuple(removed)))
    _write_backup(replace(backup, written=tuple(written)), folder, paths)


def read_backup(folder: Path, paths: JournalPaths) -> Backup:
    """Return the backup that :func:`make_backup` wrote there, every copy intact, with the paths it names in this environment.

    Raises:
        SplatfixError: ``backup-damaged``; ``journal-tampered`` where a path leads out of the environment.
    """
    file, entry = folder / "backup.json", folder.parent.with_name(f"{folder.parent.name}.json")

    def damaged(problem: str, subject: str = "the package") -> SplatfixError:
        return SplatfixError.of("install.backup-damaged", what=problem, subject=subject, entry=entry)

    try:
        document = read_json(file, "a backup of splatfix")
        backup = convert(document, Backup, dec_hook=lambda _, text: paths.to_path(text))
        for path in (*backup.will_write, *(item.path for item in backup.saved)):
            if path.is_dir() and not path.is_symlink():
                raise OutsidePath(f"{path} is a folder")
    except SplatfixError as error:
        raise damaged(f"A backup is missing or damaged. {error.what}") from error
    except ValidationError as error:
        raise damaged(f"A backup is damaged. {file}: {error}.") from error
    except OutsidePath as error:
        raise SplatfixError.of("install.journal-tampered", path=file, reason=error, entry=entry) from error
    for item in backup.saved:
        blob = folder / "blobs" / item.blob
        if item.blob and (not blob.is_file() or sha256_of(blob) != item.digest):
            problem = f"The backup of {item.path} in {folder} is missing or damaged."
            raise damaged(problem, f"{backup.subject} {backup.version_before}".strip())
    return backup


def restore(environment: Environment, backup: Backup, folder: Path) -> tuple[str, ...]:
    """Make everything that the installation touched what it was before. Doing it twice changes nothing more.

    Args:
        backup: as :func:`read_backup` has read it from ``folder``, which has checked its copies.

    Returns:
        What was left alone because it is not the installation's, a sentence each.

    Raises:
        SplatfixError: ``cannot-restore`` if the disk refuses.
    """
    saved = {item.path for item in backup.saved}
    # first what is new goes, then what was there comes back: a file can be in the place of a folder
    notes = [f"{path} is outside of the environment and was left alone" for path in backup.foreign]
    try:
        for path in installed_files(backup):
            if path not in saved:
                path.unlink(missing_ok=True)
        # the edit of a checkout writes nothing new, and no pip ran for it
        if backup.will_write:
            digests = {item.digest for item in backup.saved}
            paths = [(path, site) for path in saved for site in environment.sites]
            tops = {path.relative_to(site).parts[0] for path, site in paths if path.is_relative_to(site)}
            for stash in _find_stashes(environment):
                if stash in backup.stashes_before:
                    continue
                # a pip that has finished leaves none: then it is of another run
                if backup.written or not _remove_stash(stash, tops, digests):
                    notes.append(f"{stash} is of another run of pip and was left alone")
        for item in backup.saved:
            _put_back(item, backup, folder)
        # empty folders that the installation made go, the deepest first; those that it removed come back
        for path in backup.folders_before:
            path.mkdir(parents=True, exist_ok=True)
        # pip may have made them anew under another umask
        for path, mode in zip(backup.folders_before, backup.folder_modes, strict=False):
            path.chmod(mode & (0o755 | path.parent.stat().st_mode & 0o022))
        made = _folders(environment, backup.will_write)
        for path in sorted(made, key=lambda path: -len(path.parts)):
            new = path not in backup.folders_before
            if new and path.is_dir() and next(path.iterdir(), None) is None:
                path.rmdir()
    except OSError as error:
        raise cannot_restore(environment, folder, error) from error
    return tuple(notes)


def _find_stashes(environment: Environment) -> list[Path]:
    """Find folders ``~name``: pip renames what it uninstalls so until it has succeeded; a killed pip leaves them."""
    stashes: list[Path] = []
    for site in environment.sites:
        if site.is_dir():
            stashes += sorted(site.glob("~*"))
    return stashes


def _remove_stash(stash: Path, tops: Iterable[str], digests: set[str]) -> bool:
    """Remove a stash whose every file is in a backup; False for one that holds anything else, which is left alone.

    Args:
        tops: names of what the backup has in site-packages, one of which pip has renamed.
        digests: SHA-256 of the files that the backup has.
    """
    if not any(top.endswith(stash.name[1:].lstrip(_STASH_LETTERS)) for top in tops):
        return False
    contents = [stash]
    is_folder = stash.is_dir() and not stash.is_symlink()
    if is_folder:
        contents += stash.rglob("*")
    linked = any(path.is_symlink() for path in contents)
    # bytecode is made anew by itself, and pip stashes no links of its own
    files = [path for path in contents if not (path.is_symlink() or path.suffix == ".pyc" or path.is_dir())]
    if (linked and not files) or not all(path.is_file() and sha256_of(path) in digests for path in files):
        return False
    if is_folder:
        shutil.rmtree(stash)
    else:
        stash.unlink()
    return True


def _save(path: Path, folder: Path, number: int) -> SavedFile:
    try:
        status = path.lstat()
        mode = status.st_mode & 0o777  # nothing that is installed needs setuid, and it is never restored
        if path.is_symlink():
            return SavedFile(path, "", "", mode, status.st_mtime_ns, str(path.readlink()))
        blob, content = f"{number:05d}", b"".join(read_blocks(path))
    except OSError as error:
        raise SplatfixError.of(
            "install.unreadable-installed-file", path=path, reason=error.strerror or error
        ) from error
    write_bytes(folder / "blobs" / blob, content)
    return SavedFile(path, blob, digest(content), mode, status.st_mtime_ns)


def digest(content: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def _lines(content: bytes) -> list[str]:
    return content.decode("utf-8", "surrogateescape").splitlines()


def _put_back(item: SavedFile, backup: Backup, folder: Path) -> None:
    path = item.path
    path.parent.mkdir(parents=True, exist_ok=True)
    if item.link:
        if path.is_symlink() or path.exists():
            path.unlink()
        path.symlink_to(item.link)
        return
    if path.is_symlink():
        path.unlink()
    # a name that is always the same, so that a restore killed here and done again leaves nothing behind, and short:
    # the file's own may be as long as the file system takes
    temporary = path.with_name(f".splatfix-{digest(os.fsencode(path.name))[:16]}")
    content = (folder / "blobs" / item.blob).read_bytes()
    written = [file for file in backup.written if file.path == item.path]
    if path.name == EASY_INSTALL and written:
        # as it is now, with the lines that the installation took out; as before if that is the same
        lines: list[str] = []
        if path.is_file():
            lines = _lines(path.read_bytes())
        lines += [line for line in written[0].lines_removed if line not in lines]
        if sorted(lines) != sorted(_lines(content)):
            content = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
    # never written through: it could be a link, or have another name elsewhere
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    # open to nobody who may not write to its folder
    temporary.chmod(item.mode & (0o755 | path.parent.stat().st_mode & 0o022))
    # bytecode beside it names this time, and would be compiled anew for another
    os.utime(temporary, ns=(item.mtime_ns, item.mtime_ns))
    temporary.replace(path)


def installed_files(backup: Backup) -> list[Path]:
    """Return what the wheel brings, its bytecode, and what pip adds to its dist-info."""
    files = list(backup.will_write)
    for path in backup.will_write:
        files += bytecode_of(path)
    for info in {path.parent for path in backup.will_write if path.parent.name.endswith(".dist-info")}:
        if not info.is_symlink():
            files += [path for path in info.rglob("*") if not path.is_dir()]
    return files


def _folders(environment: Environment, paths: Iterable[Path]) -> list[Path]:
    """Return every folder above these paths, up to the environment's own folders, and the bytecode folders beside them."""
    stops = {*environment.sites, environment.prefix, environment.scripts, environment.data}
    folders: dict[Path, None] = {}
    for path in paths:
        folders[path.parent / "__pycache__"] = None
        for parent in path.parents:
            if parent in stops:
                break
            folders[parent] = None
    return list(folders)


def _write_backup(backup: Backup, folder: Path, paths: JournalPaths) -> None:
    write_json(folder / "backup.json", to_builtins(backup, enc_hook=paths.to_text))
