"""Undoes what entries of the journal changed: when an installation fails, after a kill, and by ``splatfix revert``."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.files import object_in, sha256_of, write_bytes
from splatfix.core.runner import Runner
from splatfix.core.step import run, say
from splatfix.facts import name_and_version
from splatfix.install.backup import Backup, JournalPaths, installed_files, read_backup, restore
from splatfix.install.environment import Environment, environment_lock, open_environment, wait_for_pip
from splatfix.install.installed import EASY_INSTALL, find_installed
from splatfix.install.journal import Entry, EntryStatus, Journal, StepRecord, distribution_of, load_entry
from splatfix.install.leftovers import move_out
from splatfix.install.outcome import Kept, Restored, RevertOutcome, kept_of
from splatfix.install.wheels import MANIFEST


def revert(
    python: str, identity: str | None = None, *, runner: Runner | None = None, dry_run: bool = False
) -> RevertOutcome:
    """Undo the journal entry of that id; default: the latest active entry.

    Args:
        dry_run: change nothing; the outcome says what would be done.

    Raises:
        SplatfixError: ``nothing-to-revert`` or ``unknown-entry`` (exit 2), ``later-change`` when a newer entry touched the
            same distribution, ``changed-since`` when somebody else did, ``backup-damaged``, ``journal-tampered``,
            ``environment-busy``.
    """
    with _opened(python, runner, dry_run) as undoer:
        interrupted = undoer.recover()
        for item in interrupted:
            # an interrupted run is undone in any case; when nothing else was asked for, that was it
            if item.items and (identity is None or item.entry.startswith(identity)):
                return item
        entries = undoer.entries_without(interrupted)
        entry: Entry | None = None
        if identity:
            entry = undoer.journal.find(identity)
        else:
            for candidate in entries:
                if candidate.active:
                    entry = candidate
        if entry is None or not entry.active:
            raise _nothing(undoer.environment, entry)
        mine = {distribution_of(step) for step in entry.changes}
        newer = entries[[other.id for other in entries].index(entry.id) + 1 :]
        for other in reversed(newer):
            shared = mine & {distribution_of(step) for step in other.changes}
            if other.active and shared:
                splatfix = undoer.environment.splatfix
                todo = (
                    run(*splatfix("revert", other.id), text="First"),
                    run(*splatfix("revert", "--all"), text="Or everything, the newest first"),
                )
                raise SplatfixError.of(
                    "install.later-change", names=sorted(shared), later=other.id, todo=todo
                )
        return undoer.revert(entry)


def revert_all(
    python: str,
    *,
    runner: Runner | None = None,
    dry_run: bool = False,
    each: Callable[[RevertOutcome], None] = lambda _: None,
) -> tuple[RevertOutcome, ...]:
    """Undo every active entry, the newest first; () where there is none.

    Args:
        dry_run: change nothing; the outcomes say what would be done.
        each: called with every outcome as soon as it is there.

    Raises:
        SplatfixError: as :func:`revert`; its ``details`` list the entries ``reverted`` before it and those ``left``.
    """
    done: list[RevertOutcome] = []
    with _opened(python, runner, dry_run) as undoer:

        def add(outcome: RevertOutcome) -> None:
            done.append(outcome)
            each(outcome)

        interrupted = undoer.recover()
        for outcome in interrupted:
            if outcome.items:
                add(outcome)
        active = [entry for entry in reversed(undoer.entries_without(interrupted)) if entry.active]
        for at, entry in enumerate(active):
            try:
                add(undoer.revert(entry))
            except SplatfixError as error:
                reverted, left = [item.entry for item in done], [item.id for item in active[at:]]
                verb = "would be reverted" if dry_run else "reverted"
                again = run(
                    *undoer.environment.splatfix("revert", "--all"), text="When that is fixed, continue"
                )
                raise SplatfixError(
                    error.code,
                    f"Entry {entry.id} cannot be reverted: {error.what}",
                    meaning=f"{error.meaning} (This concerns that entry only. "
                    f"Before it {verb}: {', '.join(reverted) or 'none'}. Still active: {', '.join(left)}.)",
                    todo=(*error.todo, again),
                    exit_code=error.exit_code,
                    details={**error.details, "reverted": reverted, "left": left},
                ) from error
    return tuple(done)


def read_journal(python: str) -> tuple[Entry, ...]:
    """Read every entry of the environment's journal, oldest first."""
    return Journal(open_environment(python).state_folder).entries()


class Undoer(Struct):
    """Undoes journal entries, or in a dry run says what that would do. Only for the holder of the environment's lock."""

    environment: Environment
    journal: Journal
    notes: tuple[str, ...] = ()
    preview: dict[Path, Path | None] | None = None
    """Of a dry run: where the content of a file is found that it would have by now, None for a file that would be gone, so
    that an earlier entry is judged as it will be when its turn comes."""

    def recover(self) -> tuple[RevertOutcome, ...]:
        """Undo runs whose process died, the latest first.

        Raises:
            SplatfixError: ``environment-busy`` when the pip of such a run is still at work after two minutes.
        """
        unfinished = self.journal.unfinished()
        # all of them before any is undone, so that a refusal leaves everything as it is
        backups = {entry.id: self.read(entry) for entry in unfinished}
        if self.preview is None and unfinished:
            wait_for_pip(self.environment)
        recovered: list[RevertOutcome] = []
        for entry in reversed(unfinished):
            moved: tuple[str, ...] = ()
            if self.preview is None:
                moved = move_out(self.environment, self.journal.folder_of(entry))
            items = self.undo(entry, backups[entry.id])
            if self.preview is None:
                status = EntryStatus.FAILED
                if entry.status is EntryStatus.REVERTING:
                    status = EntryStatus.REVERTED
                elif items:
                    status = EntryStatus.ROLLED_BACK
                self.journal.end(entry, status, "its process ended before it was finished", kept_of(items))
            recovered.append(self._outcome(entry, items, moved))
        return tuple(recovered)

    def entries_without(self, interrupted: Sequence[RevertOutcome]) -> tuple[Entry, ...]:
        """Return the journal without runs that were, or in a dry run would be, undone already."""
        gone = {item.entry for item in interrupted}
        return tuple(entry for entry in self.journal.entries() if entry.id not in gone)

    def revert(self, entry: Entry) -> RevertOutcome:
        """Make the environment what it was before that entry; nothing is touched before every step was found fit.

        Raises:
            SplatfixError: ``changed-since``, ``backup-damaged``, ``cannot-restore``.
        """
        backups = self.read(entry)
        for step, backup in backups.items():
            folder = self.journal.folder_of(entry) / step.backup
            if step.kind == "edit-source" and step.done and not self._used_by_original(entry, step):
                edits = [item.path for item in backup.saved]
                gone = any(
                    path.is_symlink() or not path.is_file()
                    for path in edits
                    if path not in (self.preview or ())
                )
                # a person's work in a file that --in-place edited must not be lost, nor their decision to be without it
                if gone or any(self._later_changes(backup, folder)):
                    raise SplatfixError.of("install.changed-since", source=step.source, folder=folder)
            # a finished installation must still be the one we made; an unfinished one is undone whatever it looks like
            if not step.done or not step.digest or step.kind != "install-wheel":
                continue
            name = distribution_of(step)
            installed = self._installed(name)
            # when somebody has removed it in the meantime, what was there before can still come back
            if installed and [digest for _, digest in installed] != [step.digest]:
                todo = run(
                    *self.environment.command("uninstall", name), text="Remove it if you do not want it"
                )
                raise SplatfixError.of(
                    "install.installed-by-others", name=name, version=installed[0][0], todo=(todo,)
                )
        if self.preview is None:
            entry = self.journal.save(replace(entry, status=EntryStatus.REVERTING))
        items = self.undo(entry, backups)
        if self.preview is None:
            self.journal.end(entry, EntryStatus.REVERTED, kept=kept_of(items))
        return self._outcome(entry, items, self.notes)

    def read(self, entry: Entry) -> dict[StepRecord, Backup]:
        """Read the backups of an entry: all of them before any is restored, so that a refusal leaves everything as it is.

        Raises:
            SplatfixError: as :func:`read_backup`.
        """
        backups: dict[StepRecord, Backup] = {}
        for step in entry.changes:
            checkout = ""
            if step.kind == "edit-source":
                checkout = step.source
            paths = JournalPaths.of(self.environment, checkout)
            backups[step] = read_backup(self.journal.folder_of(entry) / step.backup, paths)
        return backups

    def undo(self, entry: Entry, backups: Mapping[StepRecord, Backup]) -> tuple[Restored, ...]:
        """Undo everything this entry changed, the last change first. Safe to repeat after a crash in the middle.

        What somebody has changed since is copied before, beside the journal's entry.

        Args:
            backups: as :meth:`read` has read them under the same lock.
        """
        restored: list[Restored] = []
        for step, backup in reversed(tuple(backups.items())):
            original = self._used_by_original(entry, step)
            if original:
                note = f"{step.source} is left as it is: {original}, which this environment was copied from, still uses it"
                item = Restored(step.subject, "", "", step.source, incomplete=not step.done, notes=(note,))
                restored.append(item)
                continue
            folder = self.journal.folder_of(entry) / step.backup
            changed = tuple(self._later_changes(backup, folder))
            result = replace(self._what_is_restored(step, backup, folder), kept=changed)
            if self.preview is not None:
                self.preview |= dict.fromkeys(backup.will_write)
                self.preview |= {
                    item.path: folder / "blobs" / item.blob for item in backup.saved if item.blob
                }
            else:
                for kept in changed:
                    write_bytes(Path(kept.copy), Path(kept.path).read_bytes())
                    # written down at once: a revert that is killed here and repeated finds these files restored already
                    entry = self.journal.save(replace(entry, kept=tuple(dict.fromkeys((*entry.kept, kept)))))
                notes = restore(self.environment, backup, folder)
                copies = kept_folder(folder)
                all_kept = tuple(kept for kept in entry.kept if Path(kept.copy).parent == copies)
                result = replace(result, kept=all_kept, notes=notes)
            restored.append(result)
        return tuple(restored)

    def _outcome(self, entry: Entry, items: tuple[Restored, ...], notes: tuple[str, ...]) -> RevertOutcome:
        dry_run = self.preview is not None
        return RevertOutcome(entry.id, str(self.environment.prefix), items, dry_run, notes)

    def _used_by_original(self, entry: Entry, step: StepRecord) -> str:
        """Return the environment that this one was copied from, where an edited checkout is left to it; else ""."""
        here, original = self.environment.prefix, entry.environment
        if step.kind != "edit-source" or Path(step.source).is_relative_to(here):
            return ""  # one inside the environment was copied with it
        if os.path.realpath(original) == os.path.realpath(here):
            return ""
        file = Journal(Path(original) / ".splatfix").file_of(entry)
        try:
            active = file.is_file() and load_entry(file).active
        except (OSError, SplatfixError):  # no journal that could restore anything
            active = False
        # moved, or undone there: then no other environment will restore the checkout
        if not active:
            return ""
        return original

    def _now(self, path: Path) -> Path | None:
        """Return where the content of a file is found that it has, or in a dry run would have by now."""
        return (self.preview or {}).get(path, path)

    def _installed(self, name: str) -> list[tuple[str, str]]:
        """List (version, digest of its RECORD) of each copy of a distribution that is there, or would be by now in a dry run."""
        records = {
            path: content
            for path, content in (self.preview or {}).items()
            if path.name == "RECORD" and canonicalize_name(name_and_version(path.parent.name)[0]) == name
        }
        if records:
            return [
                (name_and_version(path.parent.name)[1], sha256_of(content))
                for path, content in records.items()
                if content is not None
            ]
        return [(item.version, item.digest) for item in find_installed(self.environment, name)]

    def _what_is_restored(self, step: StepRecord, backup: Backup, folder: Path) -> Restored:
        """Tell what undoing a step with the backup in ``folder`` will do, before it is undone."""
        removed = removed_origin = restored_origin = ""
        for path in backup.will_write:
            content = self._now(path)
            if content is None:
                continue
            # its metadata tells whether anything of it is there
            if path.parent.suffix == ".dist-info" and content.exists():
                removed = step.version
            if path.name == MANIFEST:
                removed_origin = _origin(content)
        for item in backup.saved:
            if item.blob and item.path.name == MANIFEST:
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

    def _later_changes(self, backup: Backup, folder: Path) -> Iterator[Kept]:
        """Find files that were changed since the installation wrote them, and where a copy of each goes."""
        if not backup.written:
            return
        as_installed = {item.path: item.digest for item in backup.written}
        before = {item.path: item.digest for item in backup.saved}
        for path in dict.fromkeys([*installed_files(backup), *before]):
            content = self._now(path)
            # bytecode is nobody's work, and the shared list gets back only its own lines
            if path.suffix == ".pyc" or path.name == EASY_INSTALL or path.is_symlink():
                continue
            if content is None or not content.is_file():
                continue
            current = sha256_of(content)
            if current not in (as_installed.get(path), before.get(path)):
                # the end of it: the file's own name may be as long as the file system takes
                yield Kept(str(path), str(kept_folder(folder) / f"{current[:8]}-{path.name[-60:]}"))


def kept_folder(backup_folder: Path) -> Path:
    """Return where copies of later changes go; beside the backup, which a repeated revert must find as it was."""
    return backup_folder.parent / "kept" / backup_folder.name


def _origin(manifest: Path) -> str:
    """Read what a manifest says of the version that it came with: versions alone may be equal."""
    document = object_in(manifest)
    if not document:  # a damaged one tells nothing
        return ""
    if document.get("kind") == "drop-in":
        return f"drop-in {document.get('variant') or ''}".strip()
    origin = f"built from {document.get('source')}"
    if document.get("targets"):
        origin += f" for {', '.join(map(str, document['targets']))}"
    return origin


@contextmanager
def _opened(python: str, runner: Runner | None, dry_run: bool) -> Iterator[Undoer]:
    environment = open_environment(python, runner)
    journal = Journal(environment.state_folder)
    if not journal.folder.is_dir():
        raise _nothing(environment)
    environment.require_writable()
    with environment_lock(environment.state_folder) as notes:
        yield Undoer(environment, journal, notes, {} if dry_run else None)


def _nothing(environment: Environment, entry: Entry | None = None) -> SplatfixError:
    if entry is None:
        message = f"Nothing to revert in {environment.prefix}."
    elif not entry.changes and entry.status is EntryStatus.DONE:
        message = f"Entry {entry.id} changed nothing: everything was already up to date."
    else:
        message = f"Entry {entry.id} is not active any more: it is {entry.status.value}."
    return usage_error(
        "nothing-to-revert", message, say("Name another environment with --python, or another entry.")
    )
