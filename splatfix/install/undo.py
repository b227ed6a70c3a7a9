"""Undoes what an entry of the journal changed: at once when an installation fails, after a kill, or by ``splatfix revert``."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.core.codec import parse_json
from splatfix.core.errors import SplatfixError
from splatfix.core.files import sha256_of, write_bytes
from splatfix.core.limits import MOST_MANIFEST
from splatfix.core.reading import read_text
from splatfix.facts import name_and_version
from splatfix.install.backup import Backup, installed_files, read_backup, restore, sealed_text
from splatfix.install.environment import Environment, wait_for_pip
from splatfix.install.installed import EASY_INSTALL
from splatfix.install.journal import Entry, EntryStatus, Journal, StepRecord, distribution_of, load_entry
from splatfix.install.journal_paths import JournalPaths, OutsidePath, check_links
from splatfix.install.leftovers import move_out
from splatfix.install.outcome import Kept, Restored, RevertOutcome, kept_of
from splatfix.install.tampering import is_sealed, refuse_link, tampered
from splatfix.install.wheels import MANIFEST


def recover(environment: Environment, journal: Journal) -> tuple[RevertOutcome, ...]:
    """Undo runs whose process died, the latest first. Only for the holder of the environment's lock.

    Raises:
        SplatfixError: ``environment-busy`` when the pip of such a run is still at work after two minutes.
    """
    unfinished = journal.unfinished()
    if not unfinished:
        return ()
    for entry in unfinished:
        read_steps(environment, journal, entry)
    wait_for_pip(environment)
    recovered: list[RevertOutcome] = []
    for entry in reversed(unfinished):
        moved = move_out(environment, journal.folder_of(entry))
        items = undo_changes(environment, journal, entry)
        if entry.status is EntryStatus.REVERTING:
            status = EntryStatus.REVERTED
        elif items:
            status = EntryStatus.ROLLED_BACK
        else:
            status = EntryStatus.FAILED
        journal.end(entry, status, "its process ended before it was finished", kept_of(items))
        recovered.append(RevertOutcome(entry.id, str(environment.prefix), items, notes=moved))
    return tuple(recovered)


class Foreseen(Struct):
    """What a dry run would have done until now, so that an earlier entry is judged as it will be then."""

    exists: dict[str, bool] = field(default_factory=dict)
    copies: dict[Path, Path] = field(default_factory=dict)
    """Where the content of a file is found that it has when its entry's turn comes."""
    installed: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """By distribution, (version, digest of its RECORD) of each copy."""

    def add(self, step: StepRecord, backup: Backup, folder: Path) -> None:
        """Remember what restoring a backup would do."""
        self.exists |= dict.fromkeys(backup.will_write, False)
        self.exists |= {item.path: True for item in backup.saved}
        self.copies |= {Path(path): folder / "removed" for path in backup.will_write}
        self.copies |= {Path(item.path): folder / "blobs" / item.blob for item in backup.saved if item.blob}
        if step.kind == "install-wheel":
            name = distribution_of(step)
            records: dict[tuple[str, str], str] = {}
            for item in backup.saved:
                project, version = name_and_version(Path(item.path).parent.name)
                if item.path.endswith("RECORD"):
                    records[canonicalize_name(project), version] = item.digest
            versions = [version for version in backup.version_before.split(", ") if version]
            self.installed[name] = [(version, records.get((name, version), "")) for version in versions]


def undo_changes(
    environment: Environment,
    journal: Journal,
    entry: Entry,
    backups: Mapping[StepRecord, Backup] | None = None,
    foreseen: Foreseen | None = None,
) -> tuple[Restored, ...]:
    """Undo everything this entry changed, the last change first. Safe to repeat after a crash in the middle.

    What somebody has changed since is copied before, beside the journal's entry.

    Args:
        backups: as :func:`read_steps` has read them under the same lock; None reads them now.
        foreseen: of a dry run, which changes nothing else.
    """
    if backups is None:
        backups = read_steps(environment, journal, entry)
    restored: list[Restored] = []
    for step, backup in reversed(tuple(backups.items())):
        reason = belongs_to_original(journal, entry, step)
        if reason:
            item = Restored(step.subject, "", "", step.source, incomplete=not step.done, notes=(reason,))
            restored.append(item)
            continue
        folder = journal.folder_of(entry) / step.backup
        copies = kept_folder(folder)
        changed = tuple(later_changes(backup, copies, foreseen))
        result = replace(_what_is_restored(step, backup, folder, foreseen or Foreseen()), kept=changed)
        if foreseen:
            foreseen.add(step, backup, folder)
        else:
            for kept in changed:
                write_bytes(Path(kept.copy), Path(kept.path).read_bytes())
                # written down at once: a revert that is killed here and repeated finds these files restored already
                entry = journal.save(replace(entry, kept=tuple(dict.fromkeys((*entry.kept, kept)))))
            notes = restore(environment, backup, folder)
            all_kept = tuple(kept for kept in entry.kept if Path(kept.copy).parent == copies)
            result = replace(result, kept=all_kept, notes=notes)
        restored.append(result)
    return tuple(restored)


def read_steps(environment: Environment, journal: Journal, entry: Entry) -> dict[StepRecord, Backup]:
    """The backups of an entry: all of them before any is restored, so that a refusal leaves everything as it is.

    Raises:
        SplatfixError: as :func:`read_backup`; ``journal-tampered`` for a checkout's backup that this user's splatfix has not
            sealed, and where a path leads through a link that another backup makes; ``cache-not-private``.
    """
    backups: dict[StepRecord, Backup] = {}
    for step in entry.changes:
        folder = journal.folder_of(entry) / step.backup
        if step.kind == "edit-source":
            paths = JournalPaths.of(environment, step.source)
            backup = read_backup(folder, paths)
            if not is_sealed(sealed_text(backup, paths), backup.seal):
                file = journal.file_of(entry)
                raise SplatfixError.of("install.not-sealed", folder=folder, source=step.source, entry=file)
        else:
            backup = read_backup(folder, JournalPaths.of(environment))
        backups[step] = backup
    links = [Path(item.path) for backup in backups.values() for item in backup.saved if item.link]
    for step, backup in backups.items():
        folders = [Path(folder) / "file" for folder in backup.folders_before]
        try:
            check_links(links, [*backup.every_file, *folders])
        except OutsidePath as error:
            raise tampered(journal.file_of(entry), str(error)) from error
        copies = kept_folder(journal.folder_of(entry) / step.backup)
        refuse_link(copies.parent)
        refuse_link(copies)
    return backups


def belongs_to_original(journal: Journal, entry: Entry, step: StepRecord) -> str:
    """Why a copied environment leaves an edited checkout alone; "" where it is this environment's to restore."""
    here = journal.folder.parent.parent
    if step.kind != "edit-source" or Path(step.source).is_relative_to(here):
        return ""  # one inside the environment was copied with it
    original = Path(entry.environment)
    if os.path.realpath(original) == os.path.realpath(here):
        return ""
    file = Journal(original / ".splatfix").file_of(entry)
    try:
        active = file.is_file() and load_entry(file).active
    except (OSError, SplatfixError):  # no journal that could restore anything
        active = False
    # moved, or undone there: then no other environment will restore the checkout
    if not active:
        return ""
    return (
        f"{step.source} is left as it is: {original}, which this environment was copied from, still uses it"
    )


def _what_is_restored(step: StepRecord, backup: Backup, folder: Path, foreseen: Foreseen) -> Restored:
    """Tell what undoing a step with the backup in ``folder`` will do, before it is undone."""
    removed = removed_origin = restored_origin = ""
    for path in backup.will_write:
        # its metadata tells whether anything of it is there
        if Path(path).parent.suffix == ".dist-info" and foreseen.exists.get(path, Path(path).exists()):
            removed = step.version
        if Path(path).name == MANIFEST:
            removed_origin = _origin(foreseen.copies.get(Path(path), Path(path)))
    for item in backup.saved:
        if item.blob and Path(item.path).name == MANIFEST:
            restored_origin = _origin(folder / "blobs" / item.blob)
    return Restored(
        step.subject,
        removed=removed,
        restored=backup.version_before,
        source=step.source,
        incomplete=not step.done,
        removed_origin=removed_origin,
        restored_origin=restored_origin,
    )


def later_changes(backup: Backup, copies: Path, foreseen: Foreseen | None = None) -> Iterator[Kept]:
    """Files that were changed since the installation wrote them, and where in ``copies`` a copy of each goes."""
    if not backup.written:
        return
    as_installed = {item.path: item.digest for item in backup.written}
    before = {item.path: item.digest for item in backup.saved}
    for path in dict.fromkeys([*installed_files(backup), *map(Path, before)]):
        content = foreseen.copies.get(path, path) if foreseen else path
        # bytecode is nobody's work, and the shared list gets back only its own lines
        if path.suffix == ".pyc" or path.name == EASY_INSTALL or path.is_symlink() or not content.is_file():
            continue
        current = sha256_of(content)
        if current not in (as_installed.get(str(path)), before.get(str(path))):
            # the end of it: the file's own name may be as long as the file system takes
            yield Kept(str(path), str(copies / f"{current[:8]}-{path.name[-60:]}"))


def kept_folder(backup_folder: Path) -> Path:
    """Where copies of later changes go; beside the backup, which a repeated revert must find as it was."""
    return backup_folder.parent / "kept" / backup_folder.name


def _origin(manifest: Path) -> str:
    """Read what a manifest says of the version that it came with: versions alone may be equal."""
    content = read_text(manifest, MOST_MANIFEST)
    document: Any = None
    if isinstance(content, str):
        try:
            document = parse_json(content)
        except ValueError:  # a damaged one tells nothing
            return ""
    if not isinstance(document, dict):
        return ""
    if document.get("kind") == "drop-in":
        return f"drop-in {document.get('variant') or ''}".strip()
    origin = f"built from {document.get('source')}"
    if document.get("targets"):
        origin += f" for {', '.join(map(str, document['targets']))}"
    return origin
