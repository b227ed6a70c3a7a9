"""Backs up what an installation will touch, and restores it byte for byte: at once when it fails, or later."""

import hashlib
import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from msgspec import Struct, convert, to_builtins
from msgspec.structs import asdict, replace

from splatfix.core.errors import SplatfixError
from splatfix.core.files import read_json, sha256_of, write_bytes, write_json
from splatfix.core.reading import read_blocks
from splatfix.install.environment import Environment, cannot_restore
from splatfix.install.installed import EASY_INSTALL, bytecode_of, find_installed
from splatfix.install.wheels import WheelFile


class OutsidePath(Exception):
    """A path that leads out of the environment, or into splatfix's own journal."""


class Places:
    """The folders that an installation may change, by the names that backups have for them.

    So a copied or moved environment restores its own files, never those of the environment it was copied from.
    """

    def __init__(self, environment: Environment, checkout: str = "") -> None:
        """Take the folders pip installs into; with ``checkout`` that folder, which ``--in-place`` edited, and nothing else."""
        # Debian's Python installs below /usr/local with the prefix /usr; in a venv all of these are in the prefix, and
        # site-packages is often a link to another disk
        names = ("prefix", "purelib", "platlib", "scripts", "data", "headers", "user_site")
        folders = {name: getattr(environment, name) for name in names}
        if checkout:
            folders = {"checkout": Path(checkout)}
        self._folders: dict[str, Path] = {name: folder for name, folder in folders.items() if folder}
        # links are followed once, because a package can have ten thousand files
        self._real = tuple(map(_followed, self._folders.values()))
        self._state = _followed(environment.state_folder)

    def hold(self, path: Path) -> bool:
        """Tell whether writing to a path changes nothing elsewhere, whatever links lie on the way, nor what is splatfix's own."""
        # the last part may be a link: links are replaced and removed, never followed
        parent = _followed(path.parent)
        inside = parent.startswith(self._real) and not parent.startswith(self._state)
        return inside and any(map(path.is_relative_to, self._folders.values()))

    def name(self, path: Path) -> str:
        """Return a path as a backup names it: ``<prefix>/lib/python3.11/site-packages/foo.py``."""
        at, folder = next(place for place in self._folders.items() if path.is_relative_to(place[1]))
        return f"<{at}>/{path.relative_to(folder).as_posix()}"

    def path(self, name: str) -> Path:
        """Return the path of that name here; raises OutsidePath where a link has come into it since."""
        at, _, rest = name.removeprefix("<").partition(">/")
        path = self._folders[at] / rest
        if not self.hold(path):
            raise OutsidePath(f"{path} leads out of {next(iter(self._folders.values()))} by a link")
        return path


def _followed(folder: Path) -> str:
    return os.path.realpath(folder).rstrip(os.sep) + os.sep


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
    will_write: tuple[Path, ...] = ()
    """Every path the installation may create."""
    folders_before: tuple[Path, ...] = ()
    """Those of the touched folders that existed."""
    stashes_before: tuple[Path, ...] = ()
    """Left-overs of interrupted pip runs (``~name``) that were there already."""
    written: tuple[WrittenFile, ...] = ()
    """What it wrote, by which a later change is seen; () until an installation is finished."""
    folder_modes: tuple[int, ...] = ()
    """Of :attr:`folders_before`, in order."""
    foreign: tuple[str, ...] = ()
    """Files outside of the environment that the replaced version's RECORD lists; they are left alone."""
    folder: Path = Path()
    """Where it lies, with the copies."""

    @property
    def kept(self) -> Path:
        """Where copies of later changes go; beside the backup, which a repeated revert must find as it was."""
        return self.folder.parent / "kept" / self.folder.name

    @property
    def copies(self) -> dict[Path, Path]:
        """By its path, the copy of each file as it was."""
        return {item.path: self.copy_of(item) for item in self.saved if item.blob}

    def touched(self) -> tuple[Path, ...]:
        """Return what the wheel brings, its bytecode and what pip has added to its dist-info, and what was there."""
        files = list(self.will_write)
        for path in self.will_write:
            files += bytecode_of(path)
        for info in {path.parent for path in self.will_write if path.parent.suffix == ".dist-info"}:
            if not info.is_symlink():
                files += [path for path in info.rglob("*") if not path.is_dir()]
        return tuple(dict.fromkeys([*files, *(item.path for item in self.saved)]))

    def copy_of(self, item: SavedFile) -> Path:
        return self.folder / "blobs" / item.blob

    def save(self, places: Places) -> None:
        document = asdict(self)
        del document["folder"]
        write_json(self.folder / "backup.json", to_builtins(document, enc_hook=places.name))


def make_backup(environment: Environment, wheel: WheelFile, folder: Path) -> Backup:
    """Copy everything that installing ``wheel`` will replace into ``folder``, with ``backup.json`` beside it."""
    places = Places(environment)
    replaced = find_installed(environment, wheel.name)
    new = wheel.destinations(environment)
    # a dict and not a set: copies are numbered in this order, and a repeated backup has the same
    listed = dict.fromkeys(path for distribution in replaced for path in distribution.files)
    foreign = {path for path in listed if not places.hold(path)}
    # nothing outside of the environment is written or removed
    elsewhere = [path for path in new if not places.hold(path)]
    # pip removes what a RECORD lists in the environment, the journal too
    elsewhere += [path for path in foreign if path.is_relative_to(environment.state_folder)]
    # pip leaves files alone that a RECORD lists outside of a virtual environment (UninstallPathSet._permitted), as uv
    # does; outside of virtual environments pip removes them
    if not environment.virtual and environment.installer.kind != "uv":
        elsewhere += [path for path in foreign if path.exists()]
    if elsewhere:
        raise SplatfixError.of("install.outside-environment", wheel_name=wheel.name, elsewhere=elsewhere[0])

    touched = [path for path in listed if path not in foreign]
    touched += [one for path in new for one in (path, *bytecode_of(path))]
    there = [path for path in dict.fromkeys(touched) if path.is_symlink() or path.is_file()]
    folders = [path for path in _folders(environment, touched) if path.is_dir()]
    will_write = [*new]
    lock = environment.prefix / ".lock"
    if environment.installer.kind == "uv" and not lock.exists():
        will_write.append(lock)  # uv leaves its lock behind
    backup = Backup(
        wheel.name,
        version_before=", ".join(distribution.version for distribution in replaced),
        saved=_copies(folder, there),
        will_write=tuple(will_write),
        folders_before=tuple(folders),
        folder_modes=tuple(path.stat().st_mode & 0o777 for path in folders),
        stashes_before=tuple(_find_stashes(environment)),
        foreign=tuple(sorted(str(path) for path in foreign if path.exists())),
        folder=folder,
    )
    backup.save(places)
    return backup


def backup_files(places: Places, subject: str, contents: Mapping[Path, bytes], folder: Path) -> None:
    """Copy files that will get these contents, and nothing else, into ``folder``, with ``backup.json`` beside it."""
    written = tuple(WrittenFile(path, _digest(content)) for path, content in contents.items())
    Backup(subject, "", _copies(folder, contents), written=written, folder=folder).save(places)


def note_written(environment: Environment, backup: Backup) -> None:
    """Add to the backup what the installation, which is finished now, has left of every file that it touched."""
    copies, written = backup.copies, list[WrittenFile]()
    for path in backup.touched():
        if path.suffix == ".pyc":
            continue  # bytecode is written whenever somebody imports, and is nobody's work
        removed: list[str] = []
        if path in copies and path.name == EASY_INSTALL:
            now = _lines(path)
            removed = [line for line in _lines(copies[path]) if line not in now]
        written.append(WrittenFile(path, sha256_of(path) if path.is_file() else "", tuple(removed)))
    replace(backup, written=tuple(written)).save(Places(environment))


def read_backup(folder: Path, places: Places) -> Backup:
    """Return the backup that lies there, every copy intact, with the paths that it names in this environment."""
    file, entry = folder / "backup.json", folder.parent.with_name(f"{folder.parent.name}.json")
    try:
        document = read_json(file, "a backup of splatfix")
        backup = convert(document, Backup, dec_hook=lambda _, name: places.path(name))
        backup = replace(backup, folder=folder)
        for path in (*backup.will_write, *(item.path for item in backup.saved)):
            if path.is_dir() and not path.is_symlink():
                raise OutsidePath(f"{path} is a folder now")
        for item in backup.saved:
            if item.blob and sha256_of(backup.copy_of(item)) != item.digest:
                raise ValueError(f"the copy of {item.path} is another")
    except OutsidePath as error:
        raise SplatfixError.of("install.journal-tampered", path=file, reason=error, entry=entry) from error
    except (SplatfixError, OSError, ValueError, LookupError, TypeError) as error:
        raise SplatfixError.of("install.backup-damaged", folder=folder, reason=error, entry=entry) from error
    return backup


def restore(environment: Environment, backup: Backup) -> tuple[str, ...]:
    """Make everything that the installation touched what it was before, and say what is not its own and was left alone.

    Doing it twice changes nothing more.
    """
    saved = {item.path for item in backup.saved}
    # first what is new goes, then what was there comes back: a file can be in the place of a folder
    notes = [f"{path} is outside of the environment and was left alone" for path in backup.foreign]
    try:
        for path in backup.touched():
            if path not in saved:
                path.unlink(missing_ok=True)
        # the edit of a checkout writes nothing new, and no pip ran for it
        if backup.will_write:
            known = {item.link or item.digest for item in backup.saved}
            for stash in sorted({*_find_stashes(environment)}.difference(backup.stashes_before)):
                # a pip that has finished leaves none: then it is of another run, as one that holds anything else
                if backup.written or not all(_is_known(path, known) for path in (stash, *stash.rglob("*"))):
                    notes.append(f"{stash} is of another run of pip and was left alone")
                else:
                    shutil.rmtree(stash)
        for item in backup.saved:
            _put_back(item, backup)
        # empty folders that the installation made go, the deepest first; those that it removed come back
        for path in backup.folders_before:
            path.mkdir(parents=True, exist_ok=True)
        # pip may have made them anew under another umask
        for path, mode in zip(backup.folders_before, backup.folder_modes, strict=False):
            path.chmod(mode & _open_to(path))
        made = set(_folders(environment, backup.will_write)) - {*backup.folders_before}
        for path in sorted(made, key=lambda path: -len(path.parts)):
            if path.is_dir() and next(path.iterdir(), None) is None:
                path.rmdir()
    except OSError as error:
        raise cannot_restore(environment, backup.folder, error) from error
    return tuple(notes)


def _find_stashes(environment: Environment) -> list[Path]:
    """Find folders ``~name``: pip renames what it uninstalls so until it has succeeded; a killed pip leaves them."""
    named_so = [path for site in environment.sites for path in sorted(site.glob("~*"))]
    return [path for path in named_so if path.is_dir() and not path.is_symlink()]


def _is_known(path: Path, known: Collection[str]) -> bool:
    """Tell whether nothing of a stash's file is lost without it: a backup has its digest, or where it leads as a link."""
    if path.is_symlink():
        return str(path.readlink()) in known
    if path.is_dir() or path.suffix == ".pyc":  # bytecode is made anew by itself
        return True
    return path.is_file() and sha256_of(path) in known


def _copies(folder: Path, paths: Iterable[Path]) -> tuple[SavedFile, ...]:
    """Copy files, whose names are numbers there, into a backup's folder."""
    saved: list[SavedFile] = []
    for number, path in enumerate(paths):
        blob = f"{number:05d}"
        try:
            status = path.lstat()
            mode = status.st_mode & 0o777  # nothing that is installed needs setuid, and it is never restored
            if path.is_symlink():
                saved.append(SavedFile(path, "", "", mode, status.st_mtime_ns, str(path.readlink())))
                continue
            content = b"".join(read_blocks(path))
        except OSError as error:
            reason = error.strerror or error
            raise SplatfixError.of("install.unreadable-installed-file", path=path, reason=reason) from error
        write_bytes(folder / "blobs" / blob, content)
        saved.append(SavedFile(path, blob, _digest(content), mode, status.st_mtime_ns))
    return tuple(saved)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8", "surrogateescape").splitlines() if path.is_file() else []


def _open_to(path: Path) -> int:
    """Return the mode that a path can have at the most: open to nobody who may not write to its folder."""
    return 0o755 | path.parent.stat().st_mode & 0o022


def _put_back(item: SavedFile, backup: Backup) -> None:
    path = item.path
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() or (item.link and path.exists()):
        path.unlink()
    if item.link:
        path.symlink_to(item.link)
        return
    content = backup.copy_of(item).read_bytes()
    if path.name == EASY_INSTALL:
        for removed in (written.lines_removed for written in backup.written if written.path == path):
            # as it is now, with the lines that the installation took out; as before if that is the same
            lines = _lines(path)
            lines += [line for line in removed if line not in lines]
            if sorted(lines) != sorted(_lines(backup.copy_of(item))):
                content = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
    # a name that is always the same, so that a restore killed here and done again leaves nothing behind, and short:
    # the file's own may be as long as the file system takes
    temporary = path.with_name(f".splatfix-{_digest(os.fsencode(path.name))[:16]}")
    # never written through: it could be a link, or have another name elsewhere
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    temporary.chmod(item.mode & _open_to(path))
    # bytecode beside it names this time, and would be compiled anew for another
    os.utime(temporary, ns=(item.mtime_ns, item.mtime_ns))
    temporary.replace(path)


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
