"""Backs up what an installation will touch, and restores it byte for byte: at once when it fails, or later."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from splatfix.core.codec import CodecError, from_json, parse_json, to_json
from splatfix.core.errors import SplatfixError
from splatfix.core.files import read_json, write_bytes, write_json
from splatfix.core.reading import read_text
from splatfix.core.step import run, say
from splatfix.install.environment import Environment, wait_for_pip
from splatfix.install.installed import EASY_INSTALL, bytecode_of, find_installed
from splatfix.install.journal import Entry, Journal, Status, move_away
from splatfix.install.outcome import Kept, Restored, kept_of
from splatfix.install.wheels import MANIFEST, WheelFile

_MOST_MANIFEST = 1 << 20


@dataclass(frozen=True)
class SavedFile:
    """One file as it was."""

    path: str
    blob: str
    """Name of its copy in the backup folder; "" for a symbolic link."""
    digest: str
    mode: int
    mtime_ns: int
    """Compiled Python files name the time of their source."""
    link: str = ""


@dataclass(frozen=True)
class WrittenFile:
    """One file as the installation left it."""

    path: str
    digest: str
    """"" when it is not there any more."""
    lines_removed: tuple[str, ...] = ()
    """Of ``easy-install.pth``, which belongs to many distributions."""


@dataclass(frozen=True)
class Backup:
    """What must be known to undo one installation, written before it begins."""

    subject: str
    version_before: str
    saved: tuple[SavedFile, ...]
    will_write: tuple[str, ...]
    """Every path the installation may create."""
    folders_before: tuple[str, ...]
    """Those of the touched folders that existed."""
    stashes_before: tuple[str, ...]
    """Left-overs of interrupted pip runs (``~name``) that were there already."""
    written: tuple[WrittenFile, ...] = ()
    """What it wrote, by which a later change is seen; () until an installation is finished."""

    @property
    def metadata(self) -> tuple[str, ...]:
        """The files that tell whether anything of the installation is there."""
        return tuple(path for path in self.will_write if Path(path).parent.suffix == ".dist-info")


def make_backup(environment: Environment, wheel: WheelFile, folder: Path) -> Backup:
    """Copy everything that installing ``wheel`` will replace into ``folder``, with ``backup.json`` beside it.

    Raises:
        SplatfixError: ``cannot-back-up``, ``cannot-write``.
    """
    old = find_installed(environment, wheel.name)
    new = wheel.destinations(environment)
    touched = dict.fromkeys([*(path for item in old for path in item.files), *new])
    touched |= dict.fromkeys(code for path in new for code in bytecode_of(path))
    there = [(number, path) for number, path in enumerate(touched) if path.is_symlink() or path.is_file()]
    lock = [
        path
        for path in (environment.prefix / ".lock",)
        if environment.installer.kind == "uv" and not path.exists()
    ]
    backup = Backup(
        subject=wheel.name,
        version_before=", ".join(item.version for item in old),
        saved=tuple(_save(path, folder, number) for number, path in there),
        will_write=tuple(map(str, (*new, *lock))),
        folders_before=tuple(str(path) for path in _folders(environment, touched) if path.is_dir()),
        stashes_before=tuple(map(str, _stashes(environment))),
    )
    write_json(folder / "backup.json", to_json(backup))
    return backup


def backup_files(
    environment: Environment, subject: str, contents: Mapping[Path, bytes], folder: Path
) -> Backup:
    """Copy files that will get these contents, and nothing else, into ``folder``, with ``backup.json`` beside it.

    Raises:
        SplatfixError: ``cannot-back-up``, ``cannot-write``.
    """
    saved = tuple(_save(path, folder, number) for number, path in enumerate(contents))
    written = tuple(WrittenFile(str(path), _digest(content)) for path, content in contents.items())
    backup = Backup(subject, "", saved, (), (), tuple(map(str, _stashes(environment))), written)
    write_json(folder / "backup.json", to_json(backup))
    return backup


def note_written(folder: Path) -> None:
    """Add to the backup what the installation, which is finished now, has left of every file that it touched."""
    backup = read_backup(folder)
    touched = dict.fromkeys([*_installed_files(backup), *(Path(item.path) for item in backup.saved)])
    written = (_as_left(path, backup, folder) for path in touched if path.suffix != ".pyc")
    write_json(folder / "backup.json", to_json(replace(backup, written=tuple(written))))


def later_changes(
    backup: Backup, place: Path, copy_of: Callable[[Path], Path] = lambda path: path
) -> Iterator[Kept]:
    """Files that were changed since the installation wrote them, and where in ``place`` a copy of each goes.

    Args:
        copy_of: where the content is found that a file has when it is this backup's turn.
    """
    left = {item.path: item.digest for item in backup.written}
    before = {item.path: item.digest for item in backup.saved}
    for path in dict.fromkeys([*_installed_files(backup), *map(Path, before)]) if left else ():
        now = copy_of(path)
        # bytecode is nobody's work, and the shared list gets back only its own lines
        if path.suffix == ".pyc" or path.name == EASY_INSTALL or path.is_symlink() or not now.is_file():
            continue
        digest = _digest(now.read_bytes())
        if digest not in (left.get(str(path)), before.get(str(path))):
            yield Kept(str(path), str(place / f"{digest[:8]}-{path.name}"))


def origins(
    backup: Backup, folder: Path, copy_of: Callable[[Path], Path] = lambda path: path
) -> tuple[str, str]:
    """What the manifests say of the version that is installed and of the one before; versions alone may be equal.

    Args:
        copy_of: as of :func:`later_changes`.
    """
    now = next((copy_of(Path(path)) for path in backup.will_write if Path(path).name == MANIFEST), None)
    saved = next((item.blob for item in backup.saved if Path(item.path).name == MANIFEST and item.blob), "")
    return _origin(now), _origin(folder / "blobs" / saved if saved else None)


def _origin(manifest: Path | None) -> str:
    content = read_text(manifest, _MOST_MANIFEST) if manifest else None
    try:
        said = parse_json(content) if isinstance(content, str) else None
    except ValueError:  # a damaged one tells nothing
        return ""
    if not isinstance(said, dict):
        return ""
    if said.get("kind") == "drop-in":
        return f"drop-in {said.get('variant') or ''}".strip()
    targets = ", ".join(map(str, said.get("targets") or ()))
    return f"built from {said.get('source')}{f' for {targets}' if targets else ''}"


def read_backup(folder: Path) -> Backup:
    """The backup that :func:`make_backup` wrote there.

    Raises:
        SplatfixError: ``backup-damaged``.
    """
    try:
        return from_json(Backup, read_json(folder / "backup.json", "a backup of splatfix"))
    except (SplatfixError, CodecError) as error:
        why = error.what if isinstance(error, SplatfixError) else f"{folder / 'backup.json'}: {error}."
        raise _damaged(folder, f"A backup is missing or damaged. {why}", "the package") from error


def check_backup(backup: Backup, folder: Path) -> None:
    """Check that every copy is there and intact.

    Raises:
        SplatfixError: ``backup-damaged``.
    """
    for item in backup.saved:
        blob = folder / "blobs" / item.blob
        if item.blob and (not blob.is_file() or _digest(blob.read_bytes()) != item.digest):
            what = f"The backup of {item.path} in {folder} is missing or damaged."
            raise _damaged(folder, what, f"{backup.subject} {backup.version_before}".strip())


def restore(environment: Environment, backup: Backup, folder: Path) -> None:
    """Make everything that the installation touched what it was before. Doing it twice changes nothing more.

    Raises:
        SplatfixError: ``backup-damaged`` before anything is changed; ``cannot-restore`` if the disk refuses.
    """
    check_backup(backup, folder)
    keep = {item.path for item in backup.saved}
    try:
        for path in _installed_files(backup):
            if str(path) not in keep:
                path.unlink(missing_ok=True)
        for stash in _stashes(environment):
            if str(stash) not in backup.stashes_before:
                shutil.rmtree(stash, ignore_errors=True) if stash.is_dir() else stash.unlink(missing_ok=True)
        for item in backup.saved:
            _put_back(item, backup, folder)
        _prune(environment, backup)
    except OSError as error:
        raise SplatfixError(
            "cannot-restore",
            f"{error.filename or folder} could not be restored: {error.strerror or error}.",
            meaning="The environment is between two states; the backup is complete.",
            todo=(run(*environment.splatfix("revert"), text="Make room or make the folder writable, then"),),
        ) from error


def undo_changes(environment: Environment, journal: Journal, entry: Entry) -> tuple[Restored, ...]:
    """Undo everything this entry changed, the last change first. Safe to repeat after a crash in the middle.

    What somebody has changed since is copied before, beside the journal's entry.
    """
    done: list[Restored] = []
    for step in reversed(entry.changes):
        folder = journal.folder_of(entry) / step.backup
        backup = read_backup(folder)
        check_backup(backup, folder)
        there = any(Path(path).exists() for path in backup.metadata)
        place = kept_folder(folder)
        for item in later_changes(backup, place):
            write_bytes(Path(item.copy), Path(item.path).read_bytes())
            entry = journal.save(replace(entry, kept=tuple(dict.fromkeys((*entry.kept, item)))))
        origin = origins(backup, folder)
        restore(environment, backup, folder)
        removed = step.version if there else ""
        kept = tuple(item for item in entry.kept if Path(item.copy).parent == place)
        done.append(
            Restored(step.subject, removed, backup.version_before, step.source, not step.done, kept, *origin)
        )
    return tuple(done)


def kept_folder(backup_folder: Path) -> Path:
    """Where copies of later changes go; beside the backup, which a repeated revert must find as it was."""
    return backup_folder.parent / "kept" / backup_folder.name


@dataclass(frozen=True)
class Recovered:
    """One interrupted run that was undone."""

    entry: Entry
    items: tuple[Restored, ...]


def recover(environment: Environment, journal: Journal) -> tuple[Recovered, ...]:
    """Undo runs whose process died, the latest first. Only for the holder of the environment's lock.

    Raises:
        SplatfixError: ``environment-busy`` when the pip of such a run is still at work after two minutes.
    """
    found = journal.unfinished()
    if found:
        wait_for_pip(environment)
    done: list[Recovered] = []
    for entry in reversed(found):
        items = undo_changes(environment, journal, entry)
        if entry.status is Status.REVERTING:
            status = Status.REVERTED
        else:
            status = Status.ROLLED_BACK if items else Status.FAILED
        ended = journal.end(entry, status, "its process ended before it was finished", kept_of(items))
        done.append(Recovered(ended, items))
    return tuple(done)


def _save(path: Path, folder: Path, number: int) -> SavedFile:
    try:
        status = path.lstat()
        mode = status.st_mode & 0o7777
        if path.is_symlink():
            return SavedFile(str(path), "", "", mode, status.st_mtime_ns, str(path.readlink()))
        blob, content = f"{number:05d}", path.read_bytes()
    except OSError as error:
        raise SplatfixError(
            "cannot-back-up",
            f"{path} cannot be read: {error.strerror or error}.",
            meaning="splatfix replaces nothing that it could not restore; nothing was changed.",
            todo=(say("Make it readable, then run this again."),),
        ) from error
    write_bytes(folder / "blobs" / blob, content)
    return SavedFile(str(path), blob, _digest(content), mode, status.st_mtime_ns)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _as_left(path: Path, backup: Backup, folder: Path) -> WrittenFile:
    content = path.read_bytes() if path.is_file() else None
    removed: tuple[str, ...] = ()
    saved = next((item for item in backup.saved if item.path == str(path)), None)
    if saved is not None and saved.blob and path.name == EASY_INSTALL:
        before, now = _lines((folder / "blobs" / saved.blob).read_bytes()), _lines(content or b"")
        removed = tuple(line for line in before if line not in now)
    return WrittenFile(str(path), "" if content is None else _digest(content), removed)


def _lines(content: bytes) -> list[str]:
    return content.decode("utf-8", "surrogateescape").splitlines()


def _with_own_lines(item: SavedFile, before: bytes, backup: Backup) -> bytes:
    """``easy-install.pth`` as it is now, with the lines that the installation took out; as before if that is the same."""
    own = next((left.lines_removed for left in backup.written if left.path == item.path), None)
    path = Path(item.path)
    if own is None:
        return before
    now = _lines(path.read_bytes()) if path.is_file() else []
    merged = [*now, *(line for line in own if line not in now)]
    if sorted(merged) == sorted(_lines(before)):
        return before
    return "".join(f"{line}\n" for line in merged).encode("utf-8", "surrogateescape")


def _put_back(item: SavedFile, backup: Backup, folder: Path) -> None:
    path = Path(item.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if item.link:
        if path.is_symlink() or path.exists():
            path.unlink()
        path.symlink_to(item.link)
        return
    if path.is_symlink():
        path.unlink()
    # a name that is always the same, so that a restore killed here and done again leaves nothing behind
    temporary = path.with_name(f".{path.name}.splatfix-restoring")
    content = (folder / "blobs" / item.blob).read_bytes()
    if path.name == EASY_INSTALL:
        content = _with_own_lines(item, content, backup)
    temporary.write_bytes(content)
    temporary.chmod(item.mode)
    os.utime(temporary, ns=(item.mtime_ns, item.mtime_ns))
    temporary.replace(path)


def _installed_files(backup: Backup) -> list[Path]:
    """What the wheel brings, its bytecode, and what pip adds to its dist-info."""
    written = [Path(path) for path in backup.will_write]
    found = [*written, *(code for path in written for code in bytecode_of(path))]
    for info in {path.parent for path in written if path.parent.name.endswith(".dist-info")}:
        found += [path for path in info.rglob("*") if not path.is_dir()]
    return found


def _folders(environment: Environment, paths: Iterable[Path]) -> list[Path]:
    """Every folder above these paths, up to the environment's own folders, and the bytecode folders beside them."""
    stops = {*environment.sites, environment.prefix, environment.scripts, environment.data}
    found: dict[Path, None] = {}
    for path in paths:
        found[path.parent / "__pycache__"] = None
        for parent in path.parents:
            if parent in stops:
                break
            found[parent] = None
    return list(found)


def _prune(environment: Environment, backup: Backup) -> None:
    """Remove empty folders that the installation made, the deepest first; make those it removed."""
    for name in backup.folders_before:
        Path(name).mkdir(parents=True, exist_ok=True)
    folders = _folders(environment, [Path(path) for path in backup.will_write])
    for folder in sorted(folders, key=lambda path: -len(path.parts)):
        new = str(folder) not in backup.folders_before
        if new and folder.is_dir() and next(folder.iterdir(), None) is None:
            folder.rmdir()


def _stashes(environment: Environment) -> list[Path]:
    """pip renames what it uninstalls to ``~name`` until it has succeeded; a killed pip leaves them."""
    return [path for site in environment.sites if site.is_dir() for path in sorted(site.glob("~*"))]


def _damaged(folder: Path, what: str, subject: str) -> SplatfixError:
    entry = folder.parent.with_name(f"{folder.parent.name}.json")
    return SplatfixError(
        "backup-damaged",
        what,
        meaning="The earlier version cannot be restored byte for byte, so nothing was changed.",
        todo=(
            say(f"Reinstall {subject} from where it came, with pip."),
            move_away(entry, "Then take this entry out of the journal, because it cannot be undone"),
        ),
    )
