"""The journal of an environment: what splatfix did there, written down before each step, so that it can be undone."""

from __future__ import annotations

import datetime
import os
import re
import shutil
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix import __version__
from splatfix.core.codec import from_json, parse_json, to_json
from splatfix.core.errors import SplatfixError
from splatfix.core.files import dumps, read_json, write_text
from splatfix.install.environment import open_environment
from splatfix.install.outcome import Kept
from splatfix.model.option import Request

JOURNAL_VERSION = 3
_IN_PREFIX = '"<prefix>/'
"""How a path in the environment begins on disk, which may be copied or moved."""


class EntryStatus(str, Enum):
    """State of an entry."""

    RUNNING = "running"
    """In progress; if nobody holds the lock, the process died."""
    DONE = "done"
    FAILED = "failed"
    """It ended before anything was installed."""
    ROLLED_BACK = "rolled-back"
    """Something was installed, then failed its check; everything is as before."""
    REVERTING = "reverting"
    """A revert is in progress; if nobody holds the lock, the process died."""
    REVERTED = "reverted"
    """Undone by ``splatfix revert``."""


_IN_PROGRESS = (EntryStatus.RUNNING, EntryStatus.REVERTING)


class StepRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """One step of an installation, as far as it came."""

    kind: str
    subject: str
    done: bool = False
    backup: str = ""
    """Folder of its backup, below the entry's folder; "" for a step that changes nothing."""
    source: str = ""
    """The checkout that was edited."""
    distribution: str = ""
    """Canonical name of what was installed, which may differ from the source's name."""
    version: str = ""
    digest: str = ""
    """Of the installed RECORD, the fetched wheel, or the toolkit's wheels; "" until the step is done."""
    result: str = ""
    """What came of it, in a few words, such as the wheel's file name."""

    @property
    def installed(self) -> str:
        """Canonical name of what it installed."""
        return canonicalize_name(self.distribution or self.subject)


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """One run of ``install`` in this environment."""

    id: str
    started: str
    request: Mapping[str, str]
    python: str
    splatfix: str = __version__
    status: EntryStatus = EntryStatus.RUNNING
    ended: str = ""
    error: str = ""
    steps: tuple[StepRecord, ...] = ()
    kept: tuple[Kept, ...] = ()
    """Files that were changed since they were installed, and where undoing it put them."""
    environment: str = ""
    """The environment's prefix at that time: tells a copied environment from a moved one."""
    schema_version: int = JOURNAL_VERSION

    @property
    def changes(self) -> tuple[StepRecord, ...]:
        """The steps that changed the environment or a checkout, or began to."""
        return tuple(step for step in self.steps if step.backup)

    @property
    def active(self) -> bool:
        """What it did, or a part of it, is still in the environment."""
        return bool(self.changes) and self.status in (EntryStatus.DONE, *_IN_PROGRESS)

    @property
    def unsuccessful(self) -> EntryStatus:
        """Its status when it was undone because it did not come to its end."""
        return EntryStatus.ROLLED_BACK if self.changes else EntryStatus.FAILED

    @property
    def subjects(self) -> set[str]:
        """What was to be installed."""
        return set(self.request.get("subjects", "").split())


class Journal:
    """All entries of one environment; every change is on disk before the method returns."""

    def __init__(self, state_folder: Path) -> None:
        """``state_folder`` is the environment's ``.splatfix``."""
        self.folder = state_folder / "journal"
        self._prefix = state_folder.parent
        self._here = dumps(f"{self._prefix}{os.sep}").rstrip('"\n')

    def file_of(self, entry: Entry) -> Path:
        return self.folder / f"{entry.id}.json"

    def folder_of(self, entry: Entry) -> Path:
        """Logs and backups of an entry, and while it is in progress its wheels."""
        return self.folder / entry.id

    def start(self, request: Mapping[str, str], python: str, name: str) -> Entry:
        """Write a new entry; ids begin with a number that counts up. Only for the holder of the environment's lock."""
        now = _now()
        number = max((_number_of(path.name) for path in self.folder.glob("*.json")), default=0) + 1
        stamp = re.sub(r"[^0-9T]", "", now.partition("+")[0])
        identity = f"{number:04d}-{stamp}-{file_name(name) or 'install'}"
        return self.save(Entry(identity, now, request, python, environment=str(self._prefix)))

    def save(self, entry: Entry) -> Entry:
        """Write the entry as it is now."""
        write_text(self.file_of(entry), dumps(to_json(entry)).replace(self._here, _IN_PREFIX))
        return entry

    def note(self, entry: Entry, kind: str, subject: str, **known: object) -> Entry:
        """Write down a step that begins, or what more is known of it."""
        steps = {(step.kind, step.subject): step for step in entry.steps}
        step = steps.get((kind, subject)) or StepRecord(kind, subject)
        steps[kind, subject] = replace(step, **known)
        return self.save(replace(entry, steps=tuple(steps.values())))

    def end(self, entry: Entry, status: EntryStatus, error: str = "", kept: tuple[Kept, ...] = ()) -> Entry:
        """Close the entry. Wheels are not kept: the wheel cache has them. Backups of what is undone are not kept either;
        logs are, and copies of files that somebody had changed."""
        ended = self.save(replace(entry, status=status, ended=_now(), error=error, kept=kept))
        for earlier in self.entries():
            folder = self.folder_of(earlier)
            # also of earlier entries, whose process was killed
            shutil.rmtree(folder / "wheels", ignore_errors=True)
            if not earlier.active:
                for step in earlier.changes:
                    shutil.rmtree(folder / step.backup, ignore_errors=True)
        return ended

    def load(self, path: Path) -> Entry:
        """Read one entry; raises ``journal-damaged``, ``journal-too-new`` or ``journal-too-old``, naming the file."""
        try:
            document = parse_json(path.read_text("utf-8").replace(_IN_PREFIX, self._here))
            version = document["schema_version"]
            if version > JOURNAL_VERSION:
                raise SplatfixError.of("install.journal-too-new", path=path, version=version)
            if version < JOURNAL_VERSION:
                writer = document.get("splatfix")
                raise SplatfixError.of("install.journal-too-old", path=path, version=version, writer=writer)
            return from_json(Entry, document)
        except (OSError, ValueError, LookupError, TypeError) as error:
            reason = str(error).rstrip(".")
            raise SplatfixError.of("install.not-an-entry", path=path, reason=reason) from error

    def entries(self) -> tuple[Entry, ...]:
        """Read every entry, oldest first."""
        # by number: as text 10000 comes before 9999
        paths = sorted(self.folder.glob("*.json"), key=lambda path: (_number_of(path.name), path.name))
        return tuple(map(self.load, paths))

    def find(self, identity: str) -> Entry:
        """Return the entry of that number (``7`` for ``0007-...``), else the only one whose id begins so."""
        entries = self.entries()
        # a number before a beginning: 1 is 0001, and not the first of 1000, 1001, ...
        number = identity.isdecimal() and int(identity)
        matches = [entry for entry in entries if number and _number_of(entry.id) == number]
        matches = matches or [entry for entry in entries if entry.id.startswith(identity)]
        if len(matches) == 1:
            return matches[0]
        known = [entry.id for entry in matches or entries] or "none"
        raise SplatfixError.of("install.unknown-entry", identity=identity, known=known)

    def unfinished(self) -> tuple[Entry, ...]:
        """Return entries in progress. Ask only while holding the lock: then their processes are dead."""
        return tuple(entry for entry in self.entries() if entry.status in _IN_PROGRESS)


def file_name(text: str) -> str:
    """Return the text with a hyphen for every letter that no name in a journal has."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", text)


def request_to_resume(python: str) -> Request:
    """Return what the last installation that failed was asked for (``splatfix install --resume``), whatever was installed since.

    The plan is made again from that, because machine and sources may have changed; wheels that were built are found in
    the wheel cache, and left-overs in the environment are undone before anything is done.
    """
    journal = Journal(open_environment(python).state_folder)
    entries, done_since = journal.entries(), list[set[str]]()
    failed = (EntryStatus.RUNNING, EntryStatus.FAILED, EntryStatus.ROLLED_BACK)
    for last in reversed(entries):
        if last.status is EntryStatus.DONE:
            done_since.append(last.subjects)
        elif last.status in failed and not any(last.subjects <= done for done in done_since):
            break
    else:
        reason = "nothing failed that was not done since" if entries else "there was none"
        raise SplatfixError.of("install.nothing-to-resume", reason=reason, python=python)
    path = journal.folder_of(last) / "plan.json"
    try:
        request = from_json(Request, read_json(path, "a plan of splatfix")["request"])
    except ValueError as error:
        raise SplatfixError.of("install.journal-damaged", path=path, error=error) from error
    if not request.sources:
        subjects = last.request["subjects"]
        raise SplatfixError.of("install.last-was-a-repair", id=last.id, subjects=subjects, python=python)
    return request


def _number_of(name: str) -> int:
    number = name.partition("-")[0]
    return int(number) if number.isdecimal() else 0


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
