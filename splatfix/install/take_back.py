"""Takes one journal entry back, or says what that would come to; both look first whether it is still theirs to undo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from packaging.utils import canonicalize_name

from splatfix.core.errors import SplatfixError
from splatfix.core.step import run, say
from splatfix.install.backup import Backup, check_backup, read_backup
from splatfix.install.distributions import find_installed
from splatfix.install.edit import digest_of
from splatfix.install.journal import Entry, Journal, JournalStep, Status
from splatfix.install.outcome import Restored, RevertOutcome
from splatfix.install.target import Target
from splatfix.install.undo import recover, undo_changes

Installed = Callable[[str], tuple[tuple[str, str], ...]]
"""From a distribution's name to (version, digest of its RECORD) of each copy that is installed."""


class ForGood:
    """Changes the environment. Only for the holder of its lock."""

    def __init__(self, target: Target, journal: Journal) -> None:
        self._target, self._journal = target, journal

    def unfinished(self) -> tuple[RevertOutcome, ...]:
        """Put back what dead runs left, the latest first.

        Raises:
            SplatfixError: ``environment-busy`` when a dead run's pip is still at work after a while.
        """
        recovered = recover(self._target, self._journal)
        return tuple(RevertOutcome(one.entry.id, str(self._target.prefix), one.items) for one in recovered)

    def take_back(self, entry: Entry) -> RevertOutcome:
        """Make the environment what it was before that entry.

        Raises:
            SplatfixError: ``changed-since``, ``backup-damaged``, ``cannot-restore``.
        """
        for step in entry.changes:
            _refuse_if_edited_since(step, self._journal.folder_of(entry), lambda path: path)
            _refuse_if_changed(step, lambda name: _installed(self._target, name))
        entry = self._journal.save(replace(entry, status=Status.REVERTING))
        restored = undo_changes(self._target, self._journal, entry)
        self._journal.end(entry, Status.REVERTED)
        return RevertOutcome(entry.id, str(self._target.prefix), restored)


class Preview:
    """Changes nothing, and remembers what it said, so that the entry before the last is judged as it will then be."""

    def __init__(self, target: Target, journal: Journal) -> None:
        self._target, self._journal = target, journal
        self._there: dict[str, bool] = {}
        self._copies: dict[Path, Path] = {}
        self._installed: dict[str, tuple[tuple[str, str], ...]] = {}

    def unfinished(self) -> tuple[RevertOutcome, ...]:
        """What putting back what dead runs left would come to."""
        return tuple(self._look(entry) for entry in reversed(self._journal.unfinished()))

    def take_back(self, entry: Entry) -> RevertOutcome:
        """What taking that entry back would come to; raises what taking it back would raise."""
        for step in entry.changes:
            folder = self._journal.folder_of(entry)
            _refuse_if_edited_since(step, folder, lambda path: self._copies.get(path, path))
            _refuse_if_changed(step, self._now)
        return self._look(entry)

    def _now(self, name: str) -> tuple[tuple[str, str], ...]:
        return self._installed[name] if name in self._installed else _installed(self._target, name)

    def _look(self, entry: Entry) -> RevertOutcome:
        items: list[Restored] = []
        for step in reversed(entry.changes):
            folder = self._journal.folder_of(entry) / step.details["backup"]
            backup = read_backup(folder)
            check_backup(backup, folder)
            there = any(self._there.get(path, Path(path).exists()) for path in backup.will_write)
            removed = step.details.get("version", "") if there else ""
            source = step.details.get("source", "")
            items.append(Restored(step.subject, removed, backup.version_before, source, not step.done))
            self._remember(step, backup, folder)
        return RevertOutcome(entry.id, str(self._target.prefix), tuple(items), dry_run=True)

    def _remember(self, step: JournalStep, backup: Backup, folder: Path) -> None:
        self._there |= dict.fromkeys(backup.will_write, False)
        self._there |= {item.path: True for item in backup.saved}
        self._copies |= {Path(item.path): folder / "blobs" / item.blob for item in backup.saved if item.blob}
        if step.kind == "install-wheel":
            records = {Path(s.path).parent.name: s.digest for s in backup.saved if s.path.endswith("RECORD")}
            versions = [version for version in backup.version_before.split(", ") if version]
            self._installed[distribution_of(step)] = tuple(
                (version, _record_of(records, distribution_of(step), version)) for version in versions
            )


def distribution_of(step: JournalStep) -> str:
    """What was installed, which may be called otherwise than the source was; entries of older versions do not say it."""
    return canonicalize_name(step.details.get("distribution", step.subject))


def _record_of(records: dict[str, str], name: str, version: str) -> str:
    for info, digest in records.items():
        project, _, rest = info.partition("-")
        if canonicalize_name(project) == name and rest == f"{version}.dist-info":
            return digest
    return ""


def _installed(target: Target, name: str) -> tuple[tuple[str, str], ...]:
    return tuple((item.version, item.digest) for item in find_installed(target, name))


def _refuse_if_edited_since(step: JournalStep, folder: Path, as_it_lies: Callable[[Path], Path]) -> None:
    """A person's work in a file that ``--in-place`` edited is not splatfix's to throw away."""
    if step.kind != "edit-source" or not step.done:
        return
    files = [as_it_lies(Path(item.path)) for item in read_backup(folder / step.details["backup"]).saved]
    if digest_of(files) != step.details.get("record"):
        raise SplatfixError(
            "changed-since",
            f"Files in {step.details['source']} were changed since splatfix edited them.",
            meaning="Putting them back would throw that work away; nothing was changed.",
            todo=(
                say(
                    f"The files as they were before lie in {folder / step.details['backup']}; see its backup.json."
                ),
                run("git", "-C", step.details["source"], "diff", text="With git"),
            ),
        )


def _refuse_if_changed(step: JournalStep, installed: Installed) -> None:
    """A finished installation must still be the one we made; a half-finished one is put back whatever it looks like."""
    record = step.details.get("record")
    if not step.done or not record or step.kind != "install-wheel":
        return
    name = distribution_of(step)
    found = installed(name)
    if not found or (len(found) == 1 and found[0][1] == record):
        return  # removed by somebody in the meantime: what was there before can come back all the same
    raise SplatfixError(
        "changed-since",
        f"{name} was changed since splatfix installed it: version {found[0][0]} is there now.",
        meaning="Somebody else installed it, and that is not splatfix's to undo; nothing was changed.",
        todo=(run("pip", "uninstall", name, text="Remove it with pip if you do not want it"),),
    )
