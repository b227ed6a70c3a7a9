"""Backs up what an installation will touch, and restores it byte for byte: at once when it fails, or later."""

from __future__ import annotations

import hashlib
import os
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
from splatfix.install.journal import BLOB_NAME, Entry, Journal, Status, StepRecord, move_away
from splatfix.install.journal_paths import JournalPaths, OtherEnvironment, OutsidePath
from splatfix.install.outcome import Kept, Restored, kept_of
from splatfix.install.tampering import other_environment, refuse_link, tampered
from splatfix.install.wheels import MANIFEST, WheelFile

_MOST_MANIFEST = 1 << 20

# What pip puts between the tilde and the rest of a name (pip/_internal/utils/temp_dir.py, AdjacentTempDirectory).
_STASH_LETTERS = "-~.=%0123456789"


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
    foreign: tuple[str, ...] = ()
    """Files outside of the environment that the replaced version's RECORD lists; they are left alone."""

    @property
    def metadata(self) -> tuple[str, ...]:
        """The files that tell whether anything of the installation is there."""
        return tuple(path for path in self.will_write if Path(path).parent.suffix == ".dist-info")


def make_backup(environment: Environment, wheel: WheelFile, folder: Path) -> Backup:
    """Copy everything that installing ``wheel`` will replace into ``folder``, with ``backup.json`` beside it.

    Raises:
        SplatfixError: ``cannot-back-up``, ``cannot-write``.
    """
    paths = JournalPaths.of(environment)
    old = find_installed(environment, wheel.name)
    new = wheel.destinations(environment)
    foreign = [path for item in old for path in item.files if not paths.inside(path)]
    _refuse_foreign(environment, paths, wheel, new, foreign)
    touched = dict.fromkeys(path for item in old for path in item.files if path not in foreign)
    touched |= dict.fromkeys(new)
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
        foreign=tuple(str(path) for path in foreign if path.exists()),
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
    written = tuple(WrittenFile(str(path), _digest(content)) for path, content in contents.items())
    backup = Backup(subject, "", saved, (), (), (), written)
    _write_backup(backup, folder, paths)
    return backup


def note_written(folder: Path, paths: JournalPaths) -> None:
    """Add to the backup what the installation, which is finished now, has left of every file that it touched."""
    backup = read_backup(folder, paths)
    touched = dict.fromkeys([*_installed_files(backup), *(Path(item.path) for item in backup.saved)])
    written = (_as_left(path, backup, folder) for path in touched if path.suffix != ".pyc")
    _write_backup(replace(backup, written=tuple(written)), folder, paths)


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


def read_backup(folder: Path, paths: JournalPaths) -> Backup:
    """The backup that :func:`make_backup` wrote there, with the paths that it names in this environment.

    Raises:
        SplatfixError: ``backup-damaged``; ``journal-tampered`` where a path, a link or a mode is one that splatfix does not
            write; ``journal-of-another-environment``.
    """
    file = folder / "backup.json"
    for path in (folder, file, folder / "blobs"):
        refuse_link(path)
    try:
        backup = from_json(Backup, read_json(file, "a backup of splatfix"))
    except (SplatfixError, CodecError) as error:
        reason = error.what if isinstance(error, SplatfixError) else f"{file}: {error}."
        raise _damaged(folder, f"A backup is missing or damaged. {reason}", "the package") from error
    todo = move_away(
        _entry_file(folder), "Take this entry out of the journal, because it cannot be undone here"
    )
    try:
        backup = _with_paths(backup, lambda text: str(paths.to_path(text)))
        for item in backup.saved:
            _check_saved(item)
        links = [Path(item.path) for item in backup.saved if item.link]
        paths.check_links(links, map(Path, (*backup.will_write, *(item.path for item in backup.saved))))
    except OtherEnvironment as error:
        raise other_environment(file, str(error), todo) from error
    except (OutsidePath, ValueError) as error:
        raise tampered(file, str(error), todo) from error
    return backup


def check_backup(backup: Backup, folder: Path) -> None:
    """Check that every copy is there and intact.

    Raises:
        SplatfixError: ``backup-damaged``.
    """
    for item in backup.saved:
        blob = folder / "blobs" / item.blob
        refuse_link(blob)
        if item.blob and (not blob.is_file() or _digest(blob.read_bytes()) != item.digest):
            what = f"The backup of {item.path} in {folder} is missing or damaged."
            raise _damaged(folder, what, f"{backup.subject} {backup.version_before}".strip())


def restore(environment: Environment, backup: Backup, folder: Path) -> tuple[str, ...]:
    """Make everything that the installation touched what it was before. Doing it twice changes nothing more.

    Returns:
        What was left alone because it is not the installation's, a sentence each.

    Raises:
        SplatfixError: ``backup-damaged`` before anything is changed; ``cannot-restore`` if the disk refuses.
    """
    check_backup(backup, folder)
    keep = {item.path for item in backup.saved}
    try:
        for path in _installed_files(backup):
            if str(path) not in keep:
                path.unlink(missing_ok=True)
        notes = _remove_stashes(environment, backup)
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
    return (*notes, *(f"{path} is outside of the environment and was left alone" for path in backup.foreign))


def paths_of(environment: Environment, step: StepRecord) -> JournalPaths:
    """The folders in which a step of the journal may change files: the environment's, or the checkout that it edited.

    Raises:
        SplatfixError: ``journal-tampered`` for a checkout that is no folder of its own.
    """
    if step.kind != "edit-source":
        return JournalPaths.of(environment)
    source = Path(step.source)
    if not source.is_absolute() or source == Path(source.anchor):
        raise tampered(environment.state_folder, f"{step.source!r} is no checkout")
    return JournalPaths.of(environment, step.source)


def read_step(environment: Environment, journal: Journal, entry: Entry, step: StepRecord) -> Backup:
    """The backup of a step, checked whole.

    Raises:
        SplatfixError: as :func:`read_backup` and :func:`check_backup`.
    """
    folder = journal.folder_of(entry) / step.backup
    backup = read_backup(folder, paths_of(environment, step))
    check_backup(backup, folder)
    if step.kind == "edit-source" and {item.path for item in backup.saved} != {
        left.path for left in backup.written
    }:
        raise tampered(folder / "backup.json", "it names files of a checkout that splatfix did not edit")
    return backup


def belongs_to_original(journal: Journal, entry: Entry, step: StepRecord) -> str:
    """Why a copied environment leaves an edited checkout alone; "" where it is this environment's to restore."""
    original = Path(entry.environment)
    here = journal.folder.parent.parent
    if step.kind != "edit-source" or not entry.environment or original.resolve() == here.resolve():
        return ""
    if not Journal(original / ".splatfix").file_of(entry).is_file():
        return ""  # it was moved: there is no other environment that would restore the checkout
    return (
        f"{step.source} is left as it is: {original}, which this environment was copied from, still uses it"
    )


def undo_changes(environment: Environment, journal: Journal, entry: Entry) -> tuple[Restored, ...]:
    """Undo everything this entry changed, the last change first. Safe to repeat after a crash in the middle.

    What somebody has changed since is copied before, beside the journal's entry.
    """
    # all of them before any: one that cannot be undone leaves everything as it is
    backups = {step: read_step(environment, journal, entry, step) for step in entry.changes}
    done: list[Restored] = []
    for step, backup in reversed(backups.items()):
        if note := belongs_to_original(journal, entry, step):
            done.append(Restored(step.subject, "", "", step.source, not step.done, notes=(note,)))
            continue
        folder = journal.folder_of(entry) / step.backup
        there = any(Path(path).exists() for path in backup.metadata)
        place = kept_folder(folder)
        for item in later_changes(backup, place):
            write_bytes(Path(item.copy), Path(item.path).read_bytes())
            entry = journal.save(replace(entry, kept=tuple(dict.fromkeys((*entry.kept, item)))))
        origin = origins(backup, folder)
        notes = restore(environment, backup, folder)
        removed = step.version if there else ""
        kept = tuple(item for item in entry.kept if Path(item.copy).parent == place)
        restored = Restored(
            step.subject, removed, backup.version_before, step.source, not step.done, kept, *origin, notes
        )
        done.append(restored)
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
    for entry in found:
        for step in entry.changes:
            read_step(environment, journal, entry, step)
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
        mode = status.st_mode & 0o777  # nothing that is installed needs setuid, and it is never restored
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
    temporary.unlink(
        missing_ok=True
    )  # never written through: it could be a link, or have another name elsewhere
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    # open to nobody who may not write to its folder
    temporary.chmod(item.mode & (0o755 | path.parent.stat().st_mode & 0o022))
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


def _remove_stashes(environment: Environment, backup: Backup) -> tuple[str, ...]:
    """Remove what the pip of this installation left when it was killed; what was left alone instead, a sentence each.

    Only a stash whose every file is in the backup goes: others are of another pip, that was killed later.
    """
    if not backup.will_write:
        return ()  # the edit of a checkout: no pip ran
    own = {item.digest for item in backup.saved}
    tops = {_top_of(environment, Path(item.path)) for item in backup.saved}
    notes: list[str] = []
    for stash in _stashes(environment):
        if str(stash) in backup.stashes_before:
            continue
        files = (
            sorted(stash.rglob("*"), reverse=True) if stash.is_dir() and not stash.is_symlink() else [stash]
        )
        known = not backup.written and any(_is_stash_of(stash.name, top) for top in tops)
        if not known or not all(_is_saved(path, own) for path in files):
            notes.append(f"{stash} is of another run of pip and was left alone")
            continue
        for path in files:  # deepest first
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        if stash.is_dir():
            stash.rmdir()
    return tuple(notes)


def _top_of(environment: Environment, path: Path) -> str:
    """The file or folder in site-packages that a path lies in; "" for one elsewhere."""
    site = next((site for site in environment.sites if path.is_relative_to(site)), None)
    return path.relative_to(site).parts[0] if site else ""


def _is_stash_of(stash: str, name: str) -> bool:
    """pip would stash ``name`` under this name: with ``~`` and letters of its own before it, or in place of its first ones."""
    for taken in range(len(name)):
        rest = name[taken:]
        letters = stash[1:].removesuffix(rest)
        own = stash.endswith(rest) and not letters.strip(_STASH_LETTERS)
        if own and (taken == 0 or len(letters) == taken - 1):
            return True
    return False


def _is_saved(path: Path, digests: set[str]) -> bool:
    if path.is_symlink() or path.suffix == ".pyc":
        return True
    return path.is_dir() or (path.is_file() and _digest(path.read_bytes()) in digests)


def _refuse_foreign(
    environment: Environment, paths: JournalPaths, wheel: WheelFile, new: Iterable[Path], foreign: list[Path]
) -> None:
    """See that nothing outside of the environment will be written or removed.

    pip leaves files alone that a RECORD lists outside of a virtual environment (``UninstallPathSet._permitted``), as uv does;
    outside of virtual environments pip removes them.

    Raises:
        SplatfixError: ``cannot-back-up``.
    """
    elsewhere = [path for path in new if not paths.inside(path)]
    if not environment.virtual and environment.installer.kind != "uv":
        elsewhere += [path for path in foreign if path.exists()]
    if elsewhere:
        raise SplatfixError(
            "cannot-back-up",
            f"Installing {wheel.name} would change {elsewhere[0]}, which lies outside of {environment.prefix}.",
            meaning="splatfix replaces nothing that it could not restore; nothing was changed.",
            todo=(say("Remove the link or the line of RECORD that leads there, then run this again."),),
        )


def _write_backup(backup: Backup, folder: Path, paths: JournalPaths) -> None:
    write_json(folder / "backup.json", to_json(_with_paths(backup, paths.to_text)))


def _with_paths(backup: Backup, change: Callable[[str], str]) -> Backup:
    """The backup with every path in it changed; ``foreign`` names what is never touched and stays."""
    return replace(
        backup,
        saved=tuple(replace(item, path=change(item.path)) for item in backup.saved),
        will_write=tuple(map(change, backup.will_write)),
        folders_before=tuple(map(change, backup.folders_before)),
        stashes_before=tuple(map(change, backup.stashes_before)),
        written=tuple(replace(item, path=change(item.path)) for item in backup.written),
    )


def _check_saved(item: SavedFile) -> None:
    """Raise ValueError for a file that :func:`_save` cannot have written."""
    if bool(item.blob) is bool(item.link):
        raise ValueError(f"{item.path} must be either a file or a link")
    if item.blob and not BLOB_NAME.fullmatch(item.blob):
        raise ValueError(f"{item.blob!r} is no copy of a file")
    if item.mode & ~0o777:
        raise ValueError(f"{item.path} would get the mode {item.mode:o}")


def _entry_file(folder: Path) -> Path:
    return folder.parent.with_name(f"{folder.parent.name}.json")


def _damaged(folder: Path, what: str, subject: str) -> SplatfixError:
    entry = _entry_file(folder)
    return SplatfixError(
        "backup-damaged",
        what,
        meaning="The earlier version cannot be restored byte for byte, so nothing was changed.",
        todo=(
            say(f"Reinstall {subject} from where it came, with pip."),
            move_away(entry, "Then take this entry out of the journal, because it cannot be undone"),
        ),
    )
