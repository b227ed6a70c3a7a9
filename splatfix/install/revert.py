"""``splatfix revert``: undoes one installation or all of them, or says what that would do (``--dry-run``)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.runner import ProcessRunner, Runner
from splatfix.core.step import run, say
from splatfix.facts import name_and_version
from splatfix.install.backup import Backup
from splatfix.install.environment import Environment, environment_lock, open_environment
from splatfix.install.installed import find_installed
from splatfix.install.journal import Entry, EntryStatus, Journal, StepRecord, distribution_of
from splatfix.install.outcome import Restored, RevertOutcome, kept_of
from splatfix.install.undo import (
    belongs_to_original,
    kept_folder,
    later_changes,
    left_alone,
    read_steps,
    recover,
    undo_changes,
    what_is_restored,
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
        _refuse_out_of_order(reverter.environment, entry, entries)
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
                raise _stopped(error, reverter.environment, done, active[at:], dry_run) from error
    return tuple(done)


def read_journal(python: str) -> tuple[Entry, ...]:
    """Every entry of the environment's journal, oldest first."""
    return Journal(open_environment(python, ProcessRunner()).state_folder).entries()


class Reverter:
    """Undoes journal entries. Only for the holder of the environment's lock."""

    def __init__(self, environment: Environment, journal: Journal, notes: tuple[str, ...] = ()) -> None:
        self.environment, self.journal, self.notes = environment, journal, notes

    def recover(self) -> tuple[RevertOutcome, ...]:
        """Undo interrupted runs, the latest first.

        Raises:
            SplatfixError: ``environment-busy`` when the pip of such a run is still at work after two minutes.
        """
        return recover(self.environment, self.journal)

    def revert(self, entry: Entry) -> RevertOutcome:
        """Make the environment what it was before that entry; nothing is touched before every step was found fit.

        Raises:
            SplatfixError: ``changed-since``, ``backup-damaged``, ``cannot-restore``.
        """
        backups = read_steps(self.environment, self.journal, entry)
        for step, backup in backups.items():
            if not belongs_to_original(self.journal, entry, step):
                self._refuse_if_edited_since(step, backup, self.journal.folder_of(entry) / step.backup)
            self._refuse_if_reinstalled_since(step)
        return self._undo(entry, backups)

    def entries_without(self, interrupted: Sequence[RevertOutcome]) -> tuple[Entry, ...]:
        """The journal without runs that were, or in a dry run would be, undone already."""
        gone = {item.entry for item in interrupted}
        return tuple(entry for entry in self.journal.entries() if entry.id not in gone)

    def _undo(self, entry: Entry, backups: Mapping[StepRecord, Backup]) -> RevertOutcome:
        entry = self.journal.save(replace(entry, status=EntryStatus.REVERTING))
        restored = undo_changes(self.environment, self.journal, entry, backups)
        self.journal.end(entry, EntryStatus.REVERTED, kept=kept_of(restored))
        return RevertOutcome(entry.id, str(self.environment.prefix), restored, notes=self.notes)

    def _copy_of(self, path: Path) -> Path:
        """Where the content of a file is found that it has when its entry's turn comes."""
        return path

    def _installed(self, name: str) -> tuple[tuple[str, str], ...]:
        """(version, digest of its RECORD) of each installed copy of a distribution when its entry's turn comes."""
        return tuple((item.version, item.digest) for item in find_installed(self.environment, name))

    def _refuse_if_edited_since(self, step: StepRecord, backup: Backup, folder: Path) -> None:
        """A person's work in a file that ``--in-place`` edited must not be lost."""
        edited = step.kind == "edit-source" and step.done
        if edited and any(later_changes(backup, kept_folder(folder), self._copy_of)):
            raise SplatfixError.of("install.changed-since", source=step.source, folder=folder)

    def _refuse_if_reinstalled_since(self, step: StepRecord) -> None:
        """A finished installation must still be the one we made; an unfinished one is undone whatever it looks like."""
        if not step.done or not step.digest or step.kind != "install-wheel":
            return
        name = distribution_of(step)
        installed = self._installed(name)
        if not installed or [digest for _, digest in installed] == [step.digest]:
            return  # when somebody has removed it in the meantime, what was there before can still come back
        todo = run(*self.environment.command("uninstall", name), text="Remove it if you do not want it")
        raise SplatfixError.of(
            "install.installed-by-others", name=name, version=installed[0][0], todo=(todo,)
        )


class DryRun(Reverter):
    """Changes nothing, and remembers what it would have done, so that an earlier entry is judged as it will be then."""

    def __init__(self, environment: Environment, journal: Journal, notes: tuple[str, ...] = ()) -> None:
        super().__init__(environment, journal, notes)
        self._exists: dict[str, bool] = {}
        self._copies: dict[Path, Path] = {}
        self._versions: dict[str, tuple[tuple[str, str], ...]] = {}

    def recover(self) -> tuple[RevertOutcome, ...]:
        """What undoing interrupted runs would do."""
        outcomes = []
        for entry in reversed(self.journal.unfinished()):
            outcomes.append(self._undo(entry, read_steps(self.environment, self.journal, entry)))
        return tuple(outcomes)

    def _undo(self, entry: Entry, backups: Mapping[StepRecord, Backup]) -> RevertOutcome:
        items: list[Restored] = []
        for step, backup in reversed(tuple(backups.items())):
            reason = belongs_to_original(self.journal, entry, step)
            if reason:
                items.append(left_alone(step, reason))
                continue
            folder = self.journal.folder_of(entry) / step.backup
            kept = tuple(later_changes(backup, kept_folder(folder), self._copy_of))
            result = what_is_restored(step, backup, folder, self._there, self._copy_of)
            items.append(replace(result, kept=kept))
            self._remember(step, backup, folder)
        return RevertOutcome(entry.id, str(self.environment.prefix), tuple(items), True, self.notes)

    def _there(self, path: str) -> bool:
        return self._exists.get(path, Path(path).exists())

    def _copy_of(self, path: Path) -> Path:
        return self._copies.get(path, path)

    def _installed(self, name: str) -> tuple[tuple[str, str], ...]:
        if name in self._versions:
            return self._versions[name]
        return super()._installed(name)

    def _remember(self, step: StepRecord, backup: Backup, folder: Path) -> None:
        self._exists |= dict.fromkeys(backup.will_write, False)
        self._exists |= {item.path: True for item in backup.saved}
        self._copies |= {Path(path): folder / "removed" for path in backup.will_write}
        self._copies |= {Path(item.path): folder / "blobs" / item.blob for item in backup.saved if item.blob}
        if step.kind == "install-wheel":
            name = distribution_of(step)
            records: dict[tuple[str, str], str] = {}
            for item in backup.saved:
                project, version = name_and_version(Path(item.path).parent.name)
                if item.path.endswith("RECORD"):
                    records[canonicalize_name(project), version] = item.digest
            versions = [version for version in backup.version_before.split(", ") if version]
            self._versions[name] = tuple((v, records.get((name, v), "")) for v in versions)


@contextmanager
def _opened(python: str, runner: Runner | None, dry_run: bool) -> Iterator[Reverter]:
    environment = open_environment(python, runner or ProcessRunner())
    journal = Journal(environment.state_folder)
    if not journal.folder.is_dir():
        raise _nothing(environment)
    environment.require_writable()
    with environment_lock(environment.state_folder) as notes:
        if dry_run:
            yield DryRun(environment, journal, notes)
        else:
            yield Reverter(environment, journal, notes)


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


def _stopped(
    error: SplatfixError,
    environment: Environment,
    done: Sequence[RevertOutcome],
    left: Sequence[Entry],
    dry_run: bool,
) -> SplatfixError:
    """The refusal of one entry among several, with how far the revert came."""
    reverted, kept = [item.entry for item in done], [entry.id for entry in left]
    verb = "reverted"
    if dry_run:
        verb = "would be reverted"
    return SplatfixError(
        error.code,
        f"Entry {left[0].id} cannot be reverted: {error.what}",
        meaning=f"{error.meaning} (This concerns that entry only. Before it {verb}: {', '.join(reverted) or 'none'}. "
        f"Still active: {', '.join(kept)}.)",
        todo=(
            *error.todo,
            run(*environment.splatfix("revert", "--all"), text="When that is fixed, continue"),
        ),
        exit_code=error.exit_code,
        details={**error.details, "reverted": reverted, "left": kept},
    )


def _refuse_out_of_order(environment: Environment, entry: Entry, entries: tuple[Entry, ...]) -> None:
    mine = {distribution_of(step) for step in entry.changes}
    newer = entries[[other.id for other in entries].index(entry.id) + 1 :]
    for other in reversed(newer):
        shared = mine & {distribution_of(step) for step in other.changes}
        if other.active and shared:
            todo = (
                run(*environment.splatfix("revert", other.id), text="First"),
                run(*environment.splatfix("revert", "--all"), text="Or everything, the newest first"),
            )
            raise SplatfixError.of("install.later-change", names=sorted(shared), later=other.id, todo=todo)
