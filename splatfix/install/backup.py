"""Backs up what an installation will touch, and puts it back byte for byte."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from splatfix.core.codec import CodecError, from_json, to_json
from splatfix.core.errors import SplatfixError
from splatfix.core.files import read_json, write_bytes, write_json
from splatfix.core.step import run, say
from splatfix.install.distributions import bytecode_of, find_installed
from splatfix.install.journal import move_away
from splatfix.install.target import Target
from splatfix.install.wheel_file import WheelFile


@dataclass(frozen=True)
class SavedFile:
    """One file as it was."""

    path: str
    blob: str
    """Name of its copy in the backup folder; "" for a symbolic link."""
    digest: str
    mode: int
    mtime_ns: int
    """Kept, because compiled Python files name the time of their source."""
    link: str = ""


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


def make_backup(target: Target, wheel: WheelFile, folder: Path) -> Backup:
    """Copy everything that installing ``wheel`` will replace into ``folder``, with ``backup.json`` beside it.

    Raises:
        SplatfixError: ``cannot-back-up``, ``cannot-write``.
    """
    old = find_installed(target, wheel.name)
    new = wheel.destinations(target)
    touched = dict.fromkeys([*(path for item in old for path in item.files), *new])
    touched |= dict.fromkeys(code for path in new for code in bytecode_of(path))
    saved = []
    for number, path in enumerate(touched):
        if path.is_symlink() or path.is_file():
            saved.append(_save(path, folder, number))
    backup = Backup(
        subject=wheel.name,
        version_before=", ".join(item.version for item in old),
        saved=tuple(saved),
        will_write=tuple(str(path) for path in new),
        folders_before=tuple(str(path) for path in _folders(target, touched) if path.is_dir()),
        stashes_before=tuple(str(path) for path in _stashes(target)),
    )
    write_json(folder / "backup.json", to_json(backup))
    return backup


def backup_files(target: Target, subject: str, files: Iterable[Path], folder: Path) -> Backup:
    """Copy files that will be edited, and nothing else, into ``folder``, with ``backup.json`` beside it.

    Raises:
        SplatfixError: ``cannot-write``; OSError when a file cannot be read.
    """
    saved = tuple(_save(path, folder, number) for number, path in enumerate(files))
    backup = Backup(subject, "", saved, (), (), tuple(str(path) for path in _stashes(target)))
    write_json(folder / "backup.json", to_json(backup))
    return backup


def read_backup(folder: Path) -> Backup:
    """The backup that :func:`make_backup` wrote there.

    Raises:
        SplatfixError: ``backup-damaged``.
    """
    try:
        return from_json(Backup, read_json(folder / "backup.json", "a backup of splatfix"))
    except (SplatfixError, CodecError) as error:
        why = error.what if isinstance(error, SplatfixError) else f"{folder / 'backup.json'}: {error}."
        raise _damaged(folder, f"A backup is missing or damaged. {why}", "what it was of") from error


def restore(target: Target, backup: Backup, folder: Path) -> None:
    """Make everything that the installation touched what it was before. Doing it twice changes nothing more.

    Raises:
        SplatfixError: ``backup-damaged`` before anything is changed; ``cannot-write`` if the disk refuses.
    """
    check_backup(backup, folder)
    try:
        _restore(target, backup, folder)
    except OSError as error:
        raise SplatfixError(
            "cannot-restore",
            f"{error.filename or folder} could not be put back: {error.strerror or error}.",
            meaning="The environment is between two states; the backup is complete.",
            todo=(run("splatfix", "revert", text="Make room or make the folder writable, then"),),
        ) from error


def _restore(target: Target, backup: Backup, folder: Path) -> None:
    keep = {item.path for item in backup.saved}
    for path in _to_remove(target, backup):
        if str(path) not in keep:
            path.unlink(missing_ok=True)
    for stash in _stashes(target):
        if str(stash) not in backup.stashes_before:
            shutil.rmtree(stash, ignore_errors=True) if stash.is_dir() else stash.unlink(missing_ok=True)
    for item in backup.saved:
        _put_back(item, folder)
    _prune(target, backup)


def _save(path: Path, folder: Path, number: int) -> SavedFile:
    status = path.lstat()
    if path.is_symlink():
        return SavedFile(str(path), "", "", status.st_mode & 0o7777, status.st_mtime_ns, str(path.readlink()))
    blob = f"{number:05d}"
    content = path.read_bytes()
    write_bytes(folder / "blobs" / blob, content)
    digest = hashlib.sha256(content).hexdigest()
    return SavedFile(str(path), blob, digest, status.st_mode & 0o7777, status.st_mtime_ns)


def _put_back(item: SavedFile, folder: Path) -> None:
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
    temporary.write_bytes((folder / "blobs" / item.blob).read_bytes())
    temporary.chmod(item.mode)
    os.utime(temporary, ns=(item.mtime_ns, item.mtime_ns))
    temporary.replace(path)


def check_backup(backup: Backup, folder: Path) -> None:
    """Look whether every copy is there and whole.

    Raises:
        SplatfixError: ``backup-damaged``.
    """
    for item in backup.saved:
        blob = folder / "blobs" / item.blob
        if item.blob and (not blob.is_file() or hashlib.sha256(blob.read_bytes()).hexdigest() != item.digest):
            what = f"The backup of {item.path} in {folder} is missing or damaged."
            raise _damaged(folder, what, f"{backup.subject} {backup.version_before}".strip())


def _damaged(folder: Path, what: str, subject: str) -> SplatfixError:
    entry = folder.parent.with_name(f"{folder.parent.name}.json")
    return SplatfixError(
        "backup-damaged",
        what,
        meaning="The earlier version cannot be put back byte for byte, so nothing was changed.",
        todo=(
            say(f"Reinstall {subject} from where it came, with pip."),
            move_away(entry, "Then take this entry out of the journal, because it cannot be undone"),
        ),
    )


def _to_remove(target: Target, backup: Backup) -> list[Path]:
    """The files of the new installation: what the wheel brings, its bytecode, and what pip adds to its dist-info."""
    written = [Path(path) for path in backup.will_write]
    found = list(written)
    for path in written:
        found += bytecode_of(path)
    infos = {path.parent for path in written if path.parent.name.endswith(".dist-info")}
    for info in infos:
        found += [path for path in info.rglob("*") if not path.is_dir()]
    return found


def _folders(target: Target, paths: Iterable[Path]) -> list[Path]:
    """Every folder above these paths, up to the environment's own folders, and the bytecode folders beside them."""
    stops = {*target.sites, target.prefix, target.scripts, target.data}
    found: dict[Path, None] = {}
    for path in paths:
        found[path.parent / "__pycache__"] = None
        for parent in path.parents:
            if parent in stops:
                break
            found[parent] = None
    return list(found)


def _prune(target: Target, backup: Backup) -> None:
    """Remove folders that the installation made, the deepest first, as far as they are empty; make those it removed."""
    for name in backup.folders_before:
        Path(name).mkdir(parents=True, exist_ok=True)
    before = set(backup.folders_before)
    folders = _folders(target, [Path(path) for path in backup.will_write])
    for folder in sorted(folders, key=lambda path: -len(path.parts)):
        if str(folder) not in before and folder.is_dir() and next(folder.iterdir(), None) is None:
            folder.rmdir()


def _stashes(target: Target) -> list[Path]:
    """pip renames what it uninstalls to ``~name`` until it has succeeded; a killed pip leaves them."""
    return [path for site in target.sites if site.is_dir() for path in sorted(site.glob("~*"))]
