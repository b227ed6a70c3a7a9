"""Takes installations back from the journal: at once when a check fails, and later for runs that died."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from splatfix.install.backup import read_backup, restore
from splatfix.install.journal import Entry, Journal, Status
from splatfix.install.outcome import Restored
from splatfix.install.pip import wait_for_pip
from splatfix.install.target import Target


def undo_changes(target: Target, journal: Journal, entry: Entry) -> tuple[Restored, ...]:
    """Put back everything this entry changed, the last change first. Safe to repeat after a crash in the middle."""
    done: list[Restored] = []
    for step in reversed(entry.changes):
        folder = journal.folder_of(entry) / step.details["backup"]
        backup = read_backup(folder)
        there = any(Path(path).exists() for path in backup.will_write)
        restore(target, backup, folder)
        source = step.details.get("source", "")
        removed = step.details.get("version", "") if there else ""
        done.append(Restored(step.subject, removed, backup.version_before, source, not step.done))
    return tuple(done)


@dataclass(frozen=True)
class Recovered:
    """One dead run that was put back."""

    entry: Entry
    items: tuple[Restored, ...]


def recover(target: Target, journal: Journal) -> tuple[Recovered, ...]:
    """Put back what runs left that died in the middle, the latest first. Only for the holder of the environment's lock.

    Raises:
        SplatfixError: ``environment-busy`` when a dead run's pip is still at work after a while.
    """
    found = journal.unfinished()
    if not found:
        return ()
    wait_for_pip(target)
    done: list[Recovered] = []
    for entry in reversed(found):
        items = undo_changes(target, journal, entry)
        if entry.status is Status.REVERTING:
            status = Status.REVERTED
        else:
            status = Status.ROLLED_BACK if items else Status.FAILED
        done.append(Recovered(journal.end(entry, status, "its process ended before it was finished"), items))
    return tuple(done)
