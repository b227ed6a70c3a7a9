"""Undoes what entries of the journal changed: when an installation fails, after a kill, and by ``splatfix revert``."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.core.errors import SplatfixError
from splatfix.core.files import object_in, sha256_of, write_bytes
from splatfix.core.step import run
from splatfix.facts import name_and_version
from splatfix.install.backup import Backup, Places, read_backup, restore
from splatfix.install.environment import Environment, environment_lock, open_environment, wait_for_pip
from splatfix.install.installed import EASY_INSTALL, find_installed
from splatfix.install.journal import Entry, EntryStatus, Journal, StepRecord
from splatfix.install.leftovers import move_out
from splatfix.install.outcome import Kept, Restored, RevertOutcome, kept_of
from splatfix.install.wheels import MANIFEST

Backups = Mapping[StepRecord, Backup]


def revert(python: str, identity: str | None = None, *, dry_run: bool = False) -> RevertOutcome:
    """Undo the journal entry of that id, or the latest that is active; in a dry run only say what would be done.

    Raises ``nothing-to-revert`` or ``unknown-entry`` (exit 2), ``later-change`` when a newer entry touched the same
    distribution, ``changed-since`` when somebody else did, ``backup-damaged``, ``journal-tampered``, ``environment-busy``.
    """
    with _opened(python, dry_run) as undoer:
        for item in undoer.recover():
            # an interrupted run is undone in any case; when nothing else was asked for, that was it
            if item.items and (identity is None or item.entry.startswith(identity)):
                return item
        standing = undoer.standing()
        entry = next(reversed(standing), None)
        if identity is not None:
            entry = undoer.journal.find(identity)
        if entry not in standing:
            reason = "nothing that splatfix installed is there"
            if entry:
                reason = f"entry {entry.id}, which is {entry.status.value}, has nothing there"
            prefix = undoer.environment.prefix
            raise SplatfixError.of("install.nothing-to-revert", prefix=prefix, reason=reason)
        mine = {step.installed for step in entry.changes}
        for later in reversed(standing[standing.index(entry) + 1 :]):
            names = sorted(mine & {step.installed for step in later.changes})
            if names:
                raise SplatfixError.of("install.later-change", names=names, later=later.id, python=python)
        return undoer.revert(entry)


def revert_all(
    python: str, *, dry_run: bool = False, each: Callable[[RevertOutcome], None] = lambda _: None
) -> tuple[RevertOutcome, ...]:
    """Undo every active entry, the newest first; ``each`` is called with every outcome as soon as it is there.

    Raises as :func:`revert`; the error's ``details`` list the entries ``reverted`` before it and those ``left``.
    """
    done: list[RevertOutcome] = []
    with _opened(python, dry_run) as undoer:
        for outcome in undoer.recover():
            if outcome.items:
                done.append(outcome)
                each(outcome)
        left = undoer.standing()
        while left:
            try:
                done.append(undoer.revert(left[-1]))
            except SplatfixError as error:
                standing, undone = [entry.id for entry in reversed(left)], [item.entry for item in done]
                error.what = f"Entry {standing[0]} cannot be reverted: {error.what}"
                error.meaning += (
                    " (This concerns that entry only."
                    f" Before it came: {', '.join(undone) or 'none'}. Still active: {', '.join(standing)}.)"
                )
                again = ("splatfix", "revert", "--all", "--python", python)
                error.todo += (run(*again, text="When that is fixed, continue"),)
                error.details |= {"reverted": undone, "left": standing}
                raise
            left.pop()
            each(done[-1])
    return tuple(done)


class Undoer(Struct):
    """Undoes journal entries, or in a dry run says what that would do. Only for the holder of the environment's lock."""

    environment: Environment
    journal: Journal
    notes: tuple[str, ...] = ()
    dry_run: bool = False
    preview: dict[Path, Path | None] = field(default_factory=dict)
    """Of a dry run: where the content of a file is found that it would have by now, None for a file that would be gone, so
    that an earlier entry is judged as it will be when its turn comes. Empty where files are what they are."""

    def recover(self) -> tuple[RevertOutcome, ...]:
        """Undo runs whose process died, the latest first."""
        # all of them are read before any is undone, so that a refusal leaves everything as it is
        unfinished = [(entry, self.read(entry)) for entry in self.journal.unfinished()]
        if unfinished and not self.dry_run:
            wait_for_pip(self.environment)
        recovered: list[RevertOutcome] = []
        for entry, backups in reversed(unfinished):
            moved: tuple[str, ...] = ()
            if not self.dry_run:
                moved = move_out(self.environment, self.journal.folder_of(entry))
            status, error = entry.unsuccessful, "its process ended before it was finished"
            if entry.status is EntryStatus.REVERTING:
                status = EntryStatus.REVERTED
            recovered.append(self._undone(entry, backups, status, error, moved))
        return tuple(recovered)

    def standing(self) -> list[Entry]:
        """Return the entries, oldest first, that have something in the environment once those in progress are undone."""
        return [one for one in self.journal.entries() if one.changes and one.status is EntryStatus.DONE]

    def revert(self, entry: Entry) -> RevertOutcome:
        """Make the environment what it was before that entry; nothing is touched before every step was found fit."""
        backups = self.read(entry)
        for step, backup in backups.items():
            # an unfinished step is undone whatever it looks like
            if step.done and step.source and not self._used_by_original(entry, step):
                # a person's work in a file that --in-place edited must not be lost, nor their decision to be without it
                edits = [item.path for item in backup.saved if item.path not in self.preview]
                gone = any(path.is_symlink() or not path.is_file() for path in edits)
                if gone or any(self._later_changes(backup)):
                    source, folder = step.source, backup.folder
                    raise SplatfixError.of("install.changed-since", source=source, folder=folder)
            elif step.done and step.digest:
                there = self._installed(step.installed)
                # when somebody has removed it in the meantime, what was there before can still come back
                if there and [digest for _, digest in there] != [step.digest]:
                    name, version = step.installed, there[0][0]
                    uninstall = self.environment.installer.command(self.environment.python, "uninstall", name)
                    todo = (run(*uninstall, text="Remove it if you do not want it"),)
                    raise SplatfixError.of(
                        "install.installed-by-others", todo=todo, name=name, version=version
                    )
        if not self.dry_run:
            entry = self.journal.save(replace(entry, status=EntryStatus.REVERTING))
        return self._undone(entry, backups, EntryStatus.REVERTED, "", self.notes)

    def read(self, entry: Entry) -> Backups:
        """Read the backups of an entry: all of them before any is restored, so that a refusal leaves everything as it is."""
        folder = self.journal.folder_of(entry)
        return {
            step: read_backup(folder / step.backup, Places(self.environment, step.source))
            for step in entry.changes
        }

    def undo(self, entry: Entry, backups: Backups) -> tuple[Restored, ...]:
        """Undo everything this entry changed, the last change first. Safe to repeat after a crash in the middle.

        What somebody has changed since is copied before, beside the journal's entry.
        """
        restored: list[Restored] = []
        for step, backup in reversed(tuple(backups.items())):
            original = self._used_by_original(entry, step)
            if original:
                note = f"{step.source} is left as it is: {original}, which this environment was copied from, still uses it"
                item = Restored(step.subject, "", "", step.source, incomplete=not step.done, notes=(note,))
                restored.append(item)
                continue
            kept = tuple(self._later_changes(backup))
            notes: tuple[str, ...] = ()
            now = {path: content for path in backup.will_write if (content := self.preview.get(path, path))}
            # its metadata tells whether anything of it is there
            infos = [content for path, content in now.items() if path.parent.suffix == ".dist-info"]
            removed, removed_origin = "", _origin(now)
            if any(content.exists() for content in infos):
                removed = step.version
            if self.dry_run:
                self.preview |= dict.fromkeys(backup.will_write) | backup.copies
            else:
                for one in kept:
                    write_bytes(Path(one.copy), Path(one.path).read_bytes())
                    # written down at once: a revert that is killed here and repeated finds these files restored already
                    entry = self.journal.save(replace(entry, kept=tuple(dict.fromkeys((*entry.kept, one)))))
                notes = restore(self.environment, backup)
                kept = tuple(one for one in entry.kept if Path(one.copy).parent == backup.kept)
            item = Restored(
                step.subject,
                removed,
                restored=backup.version_before,
                source=step.source,
                incomplete=not step.done,
                kept=kept,
                removed_origin=removed_origin,
                restored_origin=_origin(backup.copies),
                notes=notes,
            )
            restored.append(item)
        return tuple(restored)

    def _undone(
        self, entry: Entry, backups: Backups, status: EntryStatus, error: str, notes: tuple[str, ...]
    ) -> RevertOutcome:
        items = self.undo(entry, backups)
        if not self.dry_run:
            self.journal.end(entry, status, error, kept_of(items))
        return RevertOutcome(entry.id, str(self.environment.prefix), items, self.dry_run, notes)

    def _used_by_original(self, entry: Entry, step: StepRecord) -> str:
        """Return the environment that this one was copied from, where an edited checkout is left to it; else ""."""
        here, original = self.environment.prefix, Path(entry.environment)
        # one inside the environment was copied with it
        if not step.source or Path(step.source).is_relative_to(here):
            return ""
        journal = Journal(original / ".splatfix")
        # moved, undone there, or no journal that could restore anything: then no other environment will restore the checkout
        with suppress(OSError, SplatfixError):
            if not original.samefile(here) and journal.load(journal.file_of(entry)).active:
                return str(original)
        return ""

    def _installed(self, name: str) -> list[tuple[str, str]]:
        """List (version, digest of its RECORD) of each copy of a distribution that is there, or would be by now in a dry run."""
        previewed = {
            path: content
            for path, content in self.preview.items()
            if path.name == "RECORD" and canonicalize_name(name_and_version(path.parent.name)[0]) == name
        }
        if not previewed:
            return [(item.version, item.digest) for item in find_installed(self.environment, name)]
        there = [(path, content) for path, content in previewed.items() if content]
        return [(name_and_version(path.parent.name)[1], sha256_of(content)) for path, content in there]

    def _later_changes(self, backup: Backup) -> Iterator[Kept]:
        """Find files that were changed since the installation wrote them, and where a copy of each goes."""
        known = {(item.path, item.digest) for item in backup.saved}
        known |= {(item.path, item.digest) for item in backup.written}
        if not backup.written:
            return
        for path in backup.touched():
            content = self.preview.get(path, path)
            # bytecode is nobody's work, and the shared list gets back only its own lines
            if path.suffix == ".pyc" or path.name == EASY_INSTALL or path.is_symlink():
                continue
            if content and content.is_file() and (path, current := sha256_of(content)) not in known:
                # the end of it: the file's own name may be as long as the file system takes
                yield Kept(str(path), str(backup.kept / f"{current[:8]}-{path.name[-60:]}"))


def _origin(files: Mapping[Path, Path]) -> str:
    """Read what the manifest among files says of the version that it came with: versions alone may be equal."""
    document: Mapping[str, Any] = {}
    for manifest in (content for path, content in files.items() if path.name == MANIFEST):
        document = object_in(manifest)
    if document.get("kind") == "drop-in":
        return f"drop-in {document.get('variant') or ''}".strip()
    targets = ", ".join(map(str, document.get("targets") or ()))
    goal = f" for {targets}" if targets else ""
    return f"built from {document['source']}{goal}" if document.get("source") else ""


@contextmanager
def _opened(python: str, dry_run: bool) -> Iterator[Undoer]:
    environment = open_environment(python)
    journal = Journal(environment.state_folder)
    if not journal.folder.is_dir():
        reason = "splatfix has installed nothing there"
        raise SplatfixError.of("install.nothing-to-revert", prefix=environment.prefix, reason=reason)
    environment.require_writable()
    with environment_lock(environment.state_folder) as notes:
        yield Undoer(environment, journal, notes, dry_run)
