"""The journal of an environment: what splatfix did there, written down before each step, so that it can be undone."""

from __future__ import annotations

import datetime
import re
import shutil
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix import __version__
from splatfix.core.codec import from_json, to_json
from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.files import read_json, write_json
from splatfix.core.step import say
from splatfix.install.environment import open_environment
from splatfix.install.outcome import Kept
from splatfix.model.option import Request

JOURNAL_VERSION = 3
_IN_PREFIX = "<prefix>/"


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


_OVER = (EntryStatus.FAILED, EntryStatus.ROLLED_BACK, EntryStatus.REVERTED)
"""Nothing of such an entry is in the environment, and nothing is left to be undone."""


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
    """What else came of it: the wheel's file name, the toolkit's root, the version that was up to date."""


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
        return bool(self.changes) and self.status not in _OVER


class Journal:
    """All entries of one environment; every change is on disk before the method returns."""

    def __init__(self, state_folder: Path) -> None:
        """``state_folder`` is the environment's ``.splatfix``."""
        self.folder = state_folder / "journal"
        self._prefix = state_folder.parent

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
        """Write the entry as it is now; folders of the environment are written relative to it."""
        write_json(self.file_of(entry), to_json(_with_folders(entry, self._relative)))
        return entry

    def _relative(self, text: str) -> str:
        path = Path(text)
        if not path.is_absolute() or not path.is_relative_to(self._prefix):
            return text
        return _IN_PREFIX + path.relative_to(self._prefix).as_posix()

    def _absolute(self, text: str) -> str:
        if not text.startswith(_IN_PREFIX):
            return text
        return str(self._prefix / text.removeprefix(_IN_PREFIX))

    def begin(self, entry: Entry, step: StepRecord) -> Entry:
        return self.save(replace(entry, steps=(*entry.steps, step)))

    def finish(self, entry: Entry, step: StepRecord, *, digest: str = "", result: str = "") -> Entry:
        at = entry.steps.index(step)
        done = replace(step, done=True, digest=digest, result=result)
        return self.save(replace(entry, steps=(*entry.steps[:at], done, *entry.steps[at + 1 :])))

    def end(self, entry: Entry, status: EntryStatus, error: str = "", kept: tuple[Kept, ...] = ()) -> Entry:
        """Close the entry. Wheels are not kept: the wheel cache has them. Backups of what is undone are not kept either;
        logs are, and copies of files that somebody had changed."""
        ended = self.save(replace(entry, status=status, ended=_now(), error=error, kept=kept))
        for earlier in self.entries():
            folder = self.folder_of(earlier)
            # also of earlier entries, whose process was killed
            shutil.rmtree(folder / "wheels", ignore_errors=True)
            if earlier.status in _OVER:
                for step in earlier.changes:
                    shutil.rmtree(folder / step.backup, ignore_errors=True)
        return ended

    def entries(self) -> tuple[Entry, ...]:
        """Read every entry, oldest first.

        Raises:
            SplatfixError: ``journal-damaged``, ``journal-too-new`` or ``journal-too-old``, naming the file.
        """
        # by number: as text 10000 comes before 9999
        paths = sorted(self.folder.glob("*.json"), key=lambda path: (_number_of(path.name), path.name))
        return tuple(_with_folders(load_entry(path), self._absolute) for path in paths)

    def find(self, identity: str) -> Entry:
        """Return the entry of that id or number (``7`` for ``0007-...``), or of the only id that begins so.

        Raises:
            SplatfixError: ``unknown-entry`` (exit 2).
        """
        entries = self.entries()
        matches = [entry for entry in entries if entry.id == identity]
        # a number before a beginning: 1 is 0001, and not the first of 1000, 1001, ...
        if not matches and identity.isdecimal():
            matches = [entry for entry in entries if _number_of(entry.id) == int(identity)]
        if not matches:
            matches = [entry for entry in entries if entry.id.startswith(identity)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            message = f"Several journal entries begin with {identity!r}."
        else:
            message = f"This environment has no journal entry {identity!r}."
        known = ", ".join(entry.id for entry in (matches or entries)) or "none"
        raise usage_error("unknown-entry", message, say(f"Known entries: {known}"))

    def unfinished(self) -> tuple[Entry, ...]:
        """Return entries in progress. Ask only while holding the lock: then their processes are dead."""
        in_progress = (EntryStatus.RUNNING, EntryStatus.REVERTING)
        return tuple(entry for entry in self.entries() if entry.status in in_progress)


def file_name(text: str) -> str:
    """Return the text with a hyphen for every letter that no name in a journal has; a backup called otherwise is refused."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", text)


def distribution_of(step: StepRecord) -> str:
    """Canonical name of what a step installed."""
    return canonicalize_name(step.distribution or step.subject)


def request_to_resume(python: str) -> Request:
    """Return what the last installation that failed was asked for (``splatfix install --resume``), whatever was installed since.

    The plan is made again from that, because machine and sources may have changed; wheels that were built are found in
    the wheel cache, and left-overs in the environment are undone before anything is done.

    Raises:
        SplatfixError: ``nothing-to-resume`` (exit 2), ``journal-damaged``.
    """
    journal = Journal(open_environment(python).state_folder)
    entries = journal.entries()
    failed: list[Entry] = []
    for entry in entries:
        if entry.status in (EntryStatus.RUNNING, EntryStatus.FAILED, EntryStatus.ROLLED_BACK):
            failed.append(entry)
        elif entry.status is EntryStatus.DONE:
            # tried again since, and done
            failed = [other for other in failed if not _subjects_of(other) <= _subjects_of(entry)]
    if not failed:
        reason = "there was none"
        if entries:
            reason = "nothing failed that was not done since"
        raise SplatfixError.of("install.nothing-to-resume", reason=reason, python=python)
    last = failed[-1]
    path = journal.folder_of(last) / "plan.json"
    document = read_json(path, "a plan of splatfix")
    try:
        request = from_json(Request, document["request"])
    except (ValueError, KeyError, TypeError) as error:
        raise SplatfixError.of("install.journal-damaged", path=path, error=error) from error
    if not request.sources:
        subjects = last.request["subjects"]
        raise SplatfixError.of("install.last-was-a-repair", id=last.id, subjects=subjects, python=python)
    return request


def _subjects_of(entry: Entry) -> set[str]:
    return set(entry.request.get("subjects", "").split())


def load_entry(path: Path) -> Entry:
    """Read one entry as it is written, with folders of the environment relative to it.

    Raises:
        SplatfixError: as :meth:`Journal.entries`.
    """
    try:
        document = read_json(path, "a journal entry of splatfix")
    except SplatfixError as error:
        raise _damaged(path, error.what) from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if isinstance(version, int) and version != JOURNAL_VERSION:
        if version > JOURNAL_VERSION:
            raise SplatfixError.of("install.journal-too-new", path=path, version=version)
        writer = document.get("splatfix")
        raise SplatfixError.of("install.journal-too-old", path=path, version=version, writer=writer)
    try:
        entry = from_json(Entry, document)
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    if entry.id != path.stem:
        raise _damaged(path, f"it says that it is {entry.id!r}")
    return entry


def _with_folders(entry: Entry, change: Callable[[str], str]) -> Entry:
    """Return the entry with every folder of the environment in it changed."""
    return replace(
        entry,
        python=change(entry.python),
        steps=tuple(replace(step, source=change(step.source)) for step in entry.steps),
        kept=tuple(Kept(change(item.path), change(item.copy)) for item in entry.kept),
    )


def _damaged(path: Path, reason: str) -> SplatfixError:
    return SplatfixError.of("install.not-an-entry", path=path, reason=reason.rstrip("."))


def _number_of(name: str) -> int:
    number = name.partition("-")[0]
    if not number.isdecimal():
        return 0
    return int(number)


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
