"""``splatfix revert``: takes one installation back, or all of them, so that the environment is what it was before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.runner import ProcessRunner, Runner
from splatfix.core.step import run, say
from splatfix.install.journal import Entry, Journal, Status
from splatfix.install.lock import environment_lock
from splatfix.install.outcome import RevertOutcome
from splatfix.install.take_back import ForGood, Preview, distribution_of
from splatfix.install.target import Target, open_target


def revert(
    python: str, identity: str | None = None, *, runner: Runner | None = None, dry_run: bool = False
) -> RevertOutcome:
    """Take back the entry of that id, or the last one that stands.

    Args:
        dry_run: change nothing; the outcome says what would be done.

    Raises:
        SplatfixError: ``nothing-to-revert`` or ``unknown-entry`` (exit 2), ``later-change`` when a newer entry touched the
            same distribution, ``changed-since`` when somebody else did, ``backup-damaged``, ``environment-busy``.
    """
    with _opened(python, runner) as (target, journal):
        hands = Preview(target, journal) if dry_run else ForGood(target, journal)
        dead = hands.unfinished()
        for item in dead:
            # a dead run is taken back in any case; asked for nothing else, that was it
            if item.items and (identity is None or item.entry.startswith(identity)):
                return item
        entries = _without(journal.entries(), dead)
        entry = journal.find(identity) if identity else next((e for e in reversed(entries) if e.stands), None)
        if entry is None or not entry.stands:
            raise _nothing(target, entry)
        _refuse_out_of_order(entry, entries)
        return hands.take_back(entry)


def revert_all(
    python: str,
    *,
    runner: Runner | None = None,
    dry_run: bool = False,
    each: Callable[[RevertOutcome], None] | None = None,
) -> tuple[RevertOutcome, ...]:
    """Take back everything that stands, the newest first.

    Args:
        dry_run: change nothing; the outcomes say what would be done.
        each: hears of every entry when it is taken back, also of those before one that cannot be.

    Raises:
        SplatfixError: as :func:`revert`; those of an entry say which were taken back before it and which still stand
            (``details``: ``reverted``, ``left``).
    """
    done: list[RevertOutcome] = []
    with _opened(python, runner) as (target, journal):
        hands = Preview(target, journal) if dry_run else ForGood(target, journal)
        dead = hands.unfinished()
        for outcome in dead:
            if outcome.items:
                done.append(outcome)
                if each:
                    each(outcome)
        standing = [entry for entry in reversed(_without(journal.entries(), dead)) if entry.stands]
        if not standing and not done:
            raise _nothing(target)
        for at, entry in enumerate(standing):
            try:
                outcome = hands.take_back(entry)
            except SplatfixError as error:
                raise _stopped(error, done, standing[at:], dry_run) from error
            done.append(outcome)
            if each:
                each(outcome)
    return tuple(done)


def read_journal(python: str, *, runner: Runner | None = None) -> tuple[Entry, ...]:
    """Every entry of the environment's journal, oldest first."""
    return Journal(open_target(python, runner or ProcessRunner()).own_folder).entries()


@contextmanager
def _opened(python: str, runner: Runner | None) -> Iterator[tuple[Target, Journal]]:
    target = open_target(python, runner or ProcessRunner())
    journal = Journal(target.own_folder)
    if not journal.folder.is_dir():
        raise _nothing(target)
    target.require_writable()
    with environment_lock(target.own_folder):
        yield target, journal


def _without(entries: Sequence[Entry], dead: Sequence[RevertOutcome]) -> tuple[Entry, ...]:
    """A dry run leaves dead runs in the journal, and taking them back takes them out."""
    gone = {item.entry for item in dead}
    return tuple(entry for entry in entries if entry.id not in gone)


def _nothing(target: Target, entry: Entry | None = None) -> SplatfixError:
    if entry is not None and not entry.changes and entry.status is Status.DONE:
        what = f"Entry {entry.id} changed nothing: what it was to install was there already, byte for byte."
    elif entry is not None:
        what = f"Entry {entry.id} changes nothing any more: it is {entry.status.value}."
    else:
        what = f"splatfix has changed nothing in {target.prefix} that still stands."
    return usage_error(
        "nothing-to-revert", what, say("Name another environment with --python, or another entry.")
    )


def _stopped(
    error: SplatfixError, done: Sequence[RevertOutcome], left: Sequence[Entry], dry_run: bool
) -> SplatfixError:
    """The refusal of one entry among several, with how far it came."""
    before = ", ".join(item.entry for item in done) or "none"
    verb = "would be taken back" if dry_run else "was taken back"
    stand = ", ".join(entry.id for entry in left)
    return SplatfixError(
        error.code,
        f"Entry {left[0].id} cannot be taken back: {error.what}",
        meaning=f"{error.meaning} That is said of this entry; before it {verb}: {before}. Left as they are: {stand}.",
        todo=(*error.todo, run("splatfix", "revert", "--all", text="When that is mended, go on")),
        exit_code=error.exit_code,
        details={
            **error.details,
            "reverted": [item.entry for item in done],
            "left": [entry.id for entry in left],
        },
    )


def _refuse_out_of_order(entry: Entry, entries: tuple[Entry, ...]) -> None:
    mine = {distribution_of(step) for step in entry.changes}
    newer = entries[[e.id for e in entries].index(entry.id) + 1 :]
    for other in reversed(newer):
        shared = mine & {distribution_of(step) for step in other.changes}
        if other.stands and shared:
            raise SplatfixError(
                "later-change",
                f"{', '.join(sorted(shared))} was installed again by the later entry {other.id}.",
                meaning="Taking back the earlier one first would leave a mixture of both; nothing was changed.",
                todo=(
                    run("splatfix", "revert", other.id, text="First"),
                    run("splatfix", "revert", "--all", text="Or everything, the newest first"),
                ),
            )
