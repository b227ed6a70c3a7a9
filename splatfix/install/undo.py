"""Takes installations back from the journal: at once when a check fails, and later for runs that died."""

from __future__ import annotations

from splatfix.install.backup import read_backup, restore
from splatfix.install.journal import Entry, Journal, Status
from splatfix.install.outcome import Restored
from splatfix.install.target import Target


def undo_changes(target: Target, journal: Journal, entry: Entry) -> tuple[Restored, ...]:
    """Put back everything this entry changed, the last change first. Safe to repeat after a crash in the middle."""
    done: list[Restored] = []
    for step in reversed(entry.changes):
        folder = journal.folder_of(entry) / step.details["backup"]
        backup = read_backup(folder)
        restore(target, backup, folder)
        done.append(Restored(step.subject, step.details.get("version", ""), backup.version_before))
    return tuple(done)


def recover(target: Target, journal: Journal) -> tuple[Entry, ...]:
    """Put back what runs left that died in the middle. Only for the holder of the environment's lock."""
    found = journal.unfinished()
    for entry in reversed(found):
        changed = bool(undo_changes(target, journal, entry))
        journal.end(
            entry,
            Status.ROLLED_BACK if changed else Status.FAILED,
            "its process ended before it was finished",
        )
    return found
