"""``splatfix revert``: undoes one installation or all of them, or says what that would do (``--dry-run``)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.runner import ProcessRunner, Runner
from splatfix.core.step import run, say
from splatfix.install.backup import Backup
from splatfix.install.environment import Environment, environment_lock, open_environment
from splatfix.install.installed import find_installed
from splatfix.install.journal import Entry, EntryStatus, Journal, StepRecord, distribution_of
from splatfix.install.outcome import RevertOutcome, kept_of
from splatfix.install.undo import (
    Foreseen,
    belongs_to_original,
    kept_folder,
    later_changes,
    read_steps,
    recover,
    undo_changes,
)


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
    with _opened(python, runner, dry_run) as reverter:
        interrupted = reverter.recover()
        for item in interrupted:
            # an interrupted run is undone in any case; when nothing else was asked for, that was it
            if item.items and (identity is None or item.entry.startswith(identity)):
                return item
        entries = reverter.entries_without(interrupted)
        entry: Entry | None = None
        if identity:
            entry = reverter.journal.find(identity)
        else:
            for candidate in entries:
                if candidate.active:
                    entry = candidate
        if entry is None or not entry.active:
            raise _nothing(reverter.environment, entry)
        mine = {distribution_of(step) for step in entry.changes}
        newer = entries[[other.id for other in entries].index(entry.id) + 1 :]
        for other in reversed(newer):
            shared = mine & {distribution_of(step) for step in other.changes}
            if other.active and shared:
                splatfix = reverter.environment.splatfix
                todo = (
                    run(*splatfix("revert", other.id), text="First"),
                    run(*splatfix("revert", "--all"), text="Or everything, the newest first"),
                )
                raise SplatfixError.of(
                    "install.later-change", names=sorted(shared), later=other.id, todo=todo
                )
        return reverter.revert(entry)


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
    with _opened(python, runner, dry_run) as reverter:

        def add(outcome: RevertOutcome) -> None:
            done.append(outcome)
            each(outcome)

        interrupted = reverter.recover()
        for outcome in interrupted:
            if outcome.items:
                add(outcome)
        active = [entry for entry in reversed(reverter.entries_without(interrupted)) if entry.active]
        for at, entry in enumerate(active):
            try:
                add(reverter.revert(entry))
            except SplatfixError as error:
                reverted, left = [item.entry for item in done], [item.id for item in active[at:]]
                verb = "would be reverted" if dry_run else "reverted"
                again = run(
                    *reverter.environment.splatfix("revert", "--all"), text="When that is fixed, continue"
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
    """Every entry of the environment's journal, oldest first."""
    return Journal(open_environment(python, ProcessRunner()).state_folder).entries()


class _Reverter(Struct):
    """Undoes journal entries, or with ``foreseen`` says what that would do. Only for the holder of the environment's lock."""

    environment: Environment
    journal: Journal
    notes: tuple[str, ...]
    foreseen: Foreseen | None

    def recover(self) -> tuple[RevertOutcome, ...]:
        """Undo interrupted runs, the latest first.

        Raises:
            SplatfixError: ``environment-busy`` when the pip of such a run is still at work after two minutes.
        """
        if self.foreseen is None:
            return recover(self.environment, self.journal)
        unfinished = reversed(self.journal.unfinished())
        return tuple(
            self._undo(entry, read_steps(self.environment, self.journal, entry)) for entry in unfinished
        )

    def revert(self, entry: Entry) -> RevertOutcome:
        """Make the environment what it was before that entry; nothing is touched before every step was found fit.

        Raises:
            SplatfixError: ``changed-since``, ``backup-damaged``, ``cannot-restore``.
        """
        backups = read_steps(self.environment, self.journal, entry)
        for step, backup in backups.items():
            folder = self.journal.folder_of(entry) / step.backup
            edited = step.kind == "edit-source" and step.done
            ours = edited and not belongs_to_original(self.journal, entry, step)
            put_back = self.foreseen.copies if self.foreseen else ()
            edits = [path for path in (Path(item.path) for item in backup.saved) if path not in put_back]
            gone = any(path.is_symlink() or not path.is_file() for path in edits)
            # a person's work in a file that --in-place edited must not be lost, nor their decision to be without it
            if ours and (gone or any(later_changes(backup, kept_folder(folder), self.foreseen))):
                raise SplatfixError.of("install.changed-since", source=step.source, folder=folder)
            # a finished installation must still be the one we made; an unfinished one is undone whatever it looks like
            if not step.done or not step.digest or step.kind != "install-wheel":
                continue
            name = distribution_of(step)
            if self.foreseen and name in self.foreseen.installed:
                installed = self.foreseen.installed[name]
            else:
                installed = [(item.version, item.digest) for item in find_installed(self.environment, name)]
            # when somebody has removed it in the meantime, what was there before can still come back
            if installed and [digest for _, digest in installed] != [step.digest]:
                todo = run(
                    *self.environment.command("uninstall", name), text="Remove it if you do not want it"
                )
                raise SplatfixError.of(
                    "install.installed-by-others", name=name, version=installed[0][0], todo=(todo,)
                )
        return self._undo(entry, backups)

    def entries_without(self, interrupted: Sequence[RevertOutcome]) -> tuple[Entry, ...]:
        """The journal without runs that were, or in a dry run would be, undone already."""
        gone = {item.entry for item in interrupted}
        return tuple(entry for entry in self.journal.entries() if entry.id not in gone)

    def _undo(self, entry: Entry, backups: Mapping[StepRecord, Backup]) -> RevertOutcome:
        dry_run = self.foreseen is not None
        if not dry_run:
            entry = self.journal.save(replace(entry, status=EntryStatus.REVERTING))
        restored = undo_changes(self.environment, self.journal, entry, backups, self.foreseen)
        if not dry_run:
            self.journal.end(entry, EntryStatus.REVERTED, kept=kept_of(restored))
        return RevertOutcome(entry.id, str(self.environment.prefix), restored, dry_run, self.notes)


@contextmanager
def _opened(python: str, runner: Runner | None, dry_run: bool) -> Iterator[_Reverter]:
    environment = open_environment(python, runner or ProcessRunner())
    journal = Journal(environment.state_folder)
    if not journal.folder.is_dir():
        raise _nothing(environment)
    environment.require_writable()
    with environment_lock(environment.state_folder) as notes:
        yield _Reverter(environment, journal, notes, Foreseen() if dry_run else None)


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
