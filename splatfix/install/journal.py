"""The journal of an environment: what splatfix did there, written down before each step, so that it can be undone."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from splatfix import __version__
from splatfix.core.codec import CodecError, from_json, to_json
from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.files import read_json, write_json
from splatfix.core.step import Step, run, say

JOURNAL_VERSION = 1

_NUMBER = re.compile(r"(\d+)-")


class Status(str, Enum):
    """How an entry stands."""

    RUNNING = "running"
    """Being carried out; if nobody holds the lock, the process died in the middle."""
    DONE = "done"
    FAILED = "failed"
    """It ended before anything was installed."""
    ROLLED_BACK = "rolled-back"
    """Something was installed, then failed its check; everything is as before."""
    REVERTING = "reverting"
    """Being taken back; if nobody holds the lock, the process died in the middle."""
    REVERTED = "reverted"
    """A person took it back."""


@dataclass(frozen=True)
class JournalStep:
    """One action of the plan, as far as it came."""

    kind: str
    subject: str
    done: bool = False
    details: Mapping[str, str] = field(default_factory=dict)
    """For an installation: ``backup`` (a file below the entry's folder), ``version``, ``before``,
    ``distribution`` (its name), ``record`` (digest)."""


@dataclass(frozen=True)
class Entry:
    """One run of ``install`` in this environment."""

    id: str
    started: str
    request: Mapping[str, str]
    python: str
    splatfix: str = __version__
    status: Status = Status.RUNNING
    ended: str = ""
    error: str = ""
    steps: tuple[JournalStep, ...] = ()
    schema_version: int = JOURNAL_VERSION

    @property
    def changes(self) -> tuple[JournalStep, ...]:
        """The steps that changed the environment or a checkout, or began to."""
        return tuple(step for step in self.steps if "backup" in step.details)

    @property
    def stands(self) -> bool:
        """What it did, or a part of it, is still in the environment."""
        return bool(self.changes) and self.status in (Status.RUNNING, Status.DONE, Status.REVERTING)


class Journal:
    """All entries of one environment; every change is on disk before the method returns."""

    def __init__(self, own_folder: Path) -> None:
        """``own_folder`` is the environment's ``.splatfix``."""
        self.folder = own_folder / "journal"

    def folder_of(self, entry: Entry) -> Path:
        """Logs, wheels and backups of an entry."""
        return self.folder / entry.id

    def start(self, request: Mapping[str, str], python: str, name: str) -> Entry:
        """A new entry; ids begin with a number that counts up. Only for the holder of the environment's lock."""
        now = _now()
        taken = [_number_of(path) for path in self.folder.glob("*.json")]
        stamp = re.sub(r"[^0-9T]", "", now.partition("+")[0])
        identity = (
            f"{max(taken, default=0) + 1:04d}-{stamp}-{re.sub(r'[^A-Za-z0-9_.-]', '-', name) or 'install'}"
        )
        entry = Entry(identity, now, request, python)
        self.save(entry)
        return entry

    def save(self, entry: Entry) -> Entry:
        """Write the entry as it stands now."""
        write_json(self.folder / f"{entry.id}.json", to_json(entry))
        return entry

    def begin(self, entry: Entry, step: JournalStep) -> Entry:
        """Write down that a step is about to be taken."""
        return self.save(replace(entry, steps=(*entry.steps, step)))

    def finish(self, entry: Entry, begun: JournalStep | None = None, **details: str) -> Entry:
        """Write down that a step is done: the last one, or where several are under way the one ``begun`` so."""
        at = len(entry.steps) - 1 if begun is None else entry.steps.index(begun)
        done = replace(entry.steps[at], done=True, details={**entry.steps[at].details, **details})
        return self.save(replace(entry, steps=(*entry.steps[:at], done, *entry.steps[at + 1 :])))

    def end(self, entry: Entry, status: Status, error: str = "") -> Entry:
        """Close the entry."""
        return self.save(replace(entry, status=status, ended=_now(), error=error))

    def entries(self) -> tuple[Entry, ...]:
        """Every entry, oldest first.

        Raises:
            SplatfixError: ``journal-damaged`` or ``journal-too-new``, naming the file.
        """
        paths = sorted(self.folder.glob("*.json"), key=lambda path: (_number_of(path), path.name))
        return tuple(self._load(path) for path in paths)

    def find(self, identity: str) -> Entry:
        """The entry of that id or number (``7`` for ``0007-...``), or of the only id that begins so.

        Raises:
            SplatfixError: ``unknown-entry`` (exit 2).
        """
        found = self.entries()
        exact = [entry for entry in found if entry.id == identity]
        if not exact and identity.isdecimal():
            exact = [entry for entry in found if _number_of(Path(entry.id)) == int(identity)]
        matching = exact or [entry for entry in found if entry.id.startswith(identity)]
        if len(matching) == 1:
            return matching[0]
        known = ", ".join(entry.id for entry in (matching or found)) or "none"
        text = "several journal entries begin with" if matching else "there is no journal entry"
        raise usage_error(
            "unknown-entry", f"In this environment {text} {identity!r}.", say(f"Known entries: {known}")
        )

    def unfinished(self) -> tuple[Entry, ...]:
        """Entries that say they are being worked on. Ask only while holding the lock: then their processes are dead."""
        return tuple(entry for entry in self.entries() if entry.status in (Status.RUNNING, Status.REVERTING))

    def _load(self, path: Path) -> Entry:
        try:
            document = read_json(path, "a journal entry of splatfix")
        except SplatfixError as error:
            raise self._damaged(path, error.what) from error
        version = document.get("schema_version") if isinstance(document, dict) else None
        if isinstance(version, int) and version > JOURNAL_VERSION:
            raise SplatfixError(
                "journal-too-new",
                f"{path} was written by a newer splatfix (version {version} of the journal).",
                meaning="This splatfix cannot tell how to undo it.",
                todo=(run("pip", "install", "--upgrade", "splatfix", text="Upgrade splatfix"),),
            )
        try:
            return from_json(Entry, document)
        except CodecError as error:
            raise self._damaged(path, str(error)) from error

    def _damaged(self, path: Path, why: str) -> SplatfixError:
        return SplatfixError(
            "journal-damaged",
            f"{path} is no journal entry ({why.rstrip('.')}).",
            meaning="What that run changed cannot be told from it.",
            todo=(move_away(path, "Move the file away"),),
        )


def move_away(path: Path, text: str) -> Step:
    """Take an entry out of the journal and keep it."""
    return run("mv", path, f"{path}.damaged", text=text)


def _number_of(path: Path) -> int:
    found = _NUMBER.match(path.name)
    return int(found.group(1)) if found else 0


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
