"""Plays a machine back from raw answers: what its files said and its programs answered, not our facts."""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from splatfix.binaries import Binary, BinaryError, EntryKind, Fatbin, FatbinEntry, SymbolNeeds
from splatfix.core.codec import from_json, to_json
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.files import read_json, write_json, write_text
from splatfix.core.reading import Unread
from splatfix.core.runner import Completed
from splatfix.facts.system.live import portable

FORMAT = 2
T = TypeVar("T")
_NO_NVML = {"error": "NVML Shared Library Not Found", "error_code": 12}
_RELOCATABLE = "__nv_relfatbin"


class RawMachine(Struct, frozen=True, forbid_unknown_fields=True):
    """What a machine answers when it is probed: recorded on a real one, or simulated by a test.

    On disk a folder with one JSON file per field, and the text files below ``files/`` under their own paths.
    """

    machine: dict[str, Any]
    """``system``, ``machine`` (architecture), ``python`` and ``own_python`` (interpreters), and ``source``, a line that
    says where the answers come from."""
    env: dict[str, str] = field(default_factory=dict)
    paths: dict[str, Any] = field(default_factory=dict)
    """``exists``, ``absent``, ``links``, ``listings``, ``scripts``, ``modified`` times, ``fingerprints``, and ``unreadable``
    files with reasons."""
    commands: list[dict[str, Any]] = field(default_factory=list)
    nvml: dict[str, Any] = field(default_factory=_NO_NVML.copy)
    binaries: dict[str, Any] = field(default_factory=dict)
    symbols: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    """Path on the machine -> content of a text file."""

    @classmethod
    def read(cls, folder: Path) -> RawMachine:
        """A machine from its folder.

        Raises:
            SplatfixError: exit code 2, when the folder holds none, or one of another format.
        """
        machine = read_json(folder / "machine.json", "the first file of a recorded machine")
        if not isinstance(machine, dict) or machine.get("format") != FORMAT:
            raise _no_machine(folder, "")
        lacking = [name for name in _NAMES if not isinstance(machine.get(name), str)]
        if lacking:
            raise _no_machine(folder, f": machine.json lacks {', '.join(lacking)}")
        parts = {}
        for name, kind in _PARTS.items():
            file = folder / f"{name}.json"
            if not file.exists():
                continue
            parts[name] = read_json(file, "a part of a recorded machine")
            try:
                # only to see that it has the right types: somebody may have sent it, or mended it by hand
                from_json(kind, parts[name])
            except ValueError as error:
                raise _no_machine(folder, f": {name}.json: {error}") from error
        files = {}
        # ``files/C/Windows/x`` -> ``C:/Windows/x``; ``files/etc/x`` -> ``/etc/x``
        for file in sorted((folder / "files").rglob("*")):
            if file.is_file():
                path = file.relative_to(folder / "files").as_posix().replace("%3A", ":").replace("%25", "%")
                path = path.replace("/", ":/", 1) if machine["system"] == "windows" else f"/{path}"
                files[path] = file.read_text(encoding="utf-8", errors="replace")
        return cls(machine, **parts, files=files)

    def write(self, folder: Path) -> None:
        """The form that :meth:`read` takes."""
        write_json(folder / "machine.json", {"format": FORMAT, **self.machine})
        for name in _PARTS:
            write_json(folder / f"{name}.json", getattr(self, name))
        for path, text in self.files.items():
            drive = re.match(r"([A-Za-z]):[\\/]", path)
            relative = path.lstrip("/")
            if drive:
                relative = f"{drive.group(1)}/{path[3:]}".replace("\\", "/")
            # colons are spelled %3A, which every file system can store
            write_text(folder / "files" / relative.replace("%", "%25").replace(":", "%3A"), text)


def _no_machine(folder: Path, reason: str) -> SplatfixError:
    text = f"{folder} is not a recorded machine of format {FORMAT}{reason}."
    return SplatfixError("not-a-machine", text, exit_code=Exit.USAGE)


class _PathAnswers(Struct, frozen=True, forbid_unknown_fields=True):
    exists: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    listings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    modified: Mapping[str, float] = field(default_factory=dict)
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)


class _SymbolAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    call: str
    arguments: tuple[Any, ...]
    answer: Any = None
    error: str = ""
    kind: str = ""


class _EqualFatbins(Struct, frozen=True, forbid_unknown_fields=True):
    code: tuple[str, ...]
    count: int = 1
    relocatable: bool = False


class _NativeFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A native file as :func:`packed` makes it, or why it could not be read."""

    format: str = "elf"
    machine: str = "x86_64"
    size: int = 0
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    soname: str | None = None
    delay_needed: tuple[str, ...] = ()
    fatbins: tuple[_EqualFatbins, ...] = ()
    error: str = ""
    kind: str = ""


_NAMES = ("system", "machine", "python", "own_python")
# What each file of a recording holds.
_PARTS: dict[str, Any] = {
    "env": Mapping[str, str],
    "paths": _PathAnswers,
    "commands": tuple[Completed, ...],
    "nvml": Mapping[str, Any],
    "binaries": Mapping[str, _NativeFile],
    "symbols": tuple[_SymbolAnswer, ...],
}
# PATH_MAX and MAXSYMLINKS of Linux: a forged recording can lead in circles, each longer than the last.
_LONGEST_PATH = 4096
_MOST_LINKS = 40
_MOST_FATBINS = 100_000


class PlaybackSystem:
    """A :class:`splatfix.facts.system.live.System` that answers from a :class:`RawMachine`; what that lacks is absent."""

    def __init__(self, raw: RawMachine) -> None:
        self.raw = raw
        self.env: Mapping[str, str] = raw.env
        self.name, self.machine = str(raw.machine["system"]), str(raw.machine["machine"])
        self.python = str(raw.machine["own_python"])
        self.target = str(raw.machine["python"])
        """The interpreter whose environment was probed."""
        self._windows = self.name == "windows"
        self._paths = from_json(_PathAnswers, raw.paths)
        self._links = self._keyed(self._paths.links)
        self._listings = self._keyed(self._paths.listings)
        self._scripts = set(map(self._key, self._paths.scripts))
        self._absent = set(map(self._key, self._paths.absent))
        self._modified = self._keyed(self._paths.modified)
        self._fingerprints = self._keyed(self._paths.fingerprints)
        self._binaries = self._keyed(from_json(_PARTS["binaries"], raw.binaries))
        self._files = self._keyed(raw.files)
        symbols = from_json(tuple[_SymbolAnswer, ...], raw.symbols)
        self._symbols = {json.dumps([item.call, item.arguments]): item for item in symbols}
        commands = from_json(tuple[Completed, ...], raw.commands)
        self._commands = {self._command_key(item.argv): item for item in commands}
        # every path that is there, by what the recording knows of it or of something inside
        self._known: set[str] = set()
        leaves = [*map(self._key, self._paths.exists), *self._scripts]
        for folder, names in self._listings.items():
            leaves += [self._key(f"{folder}/{name}") for name in names]
        for answers in (self._files, self._links, self._listings, self._binaries):
            leaves += answers
        for path in leaves:
            while len(path) <= _LONGEST_PATH and path not in self._known and path not in ("", "."):
                self._known.add(path)
                path = posixpath.dirname(path)

    def _keyed(self, items: Mapping[str, T]) -> dict[str, T]:
        return {self._key(path): value for path, value in items.items()}

    def _key(self, path: str) -> str:
        if self._windows:
            path = path.replace("\\", "/").lower()
        return posixpath.normpath(path) if path else path

    def _command_key(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Windows does not mind how a program's path is spelled."""
        program, *arguments = portable(argv)
        if self._windows:
            program = self._key(program)
        return (program, *arguments)

    def _spellings(self, path: str) -> tuple[str, ...]:
        """The path as asked for, then with its links followed."""
        return tuple(dict.fromkeys((self._key(path), self._key(self.realpath(path)))))

    def _at(self, answers: Mapping[str, T], path: str) -> T | None:
        return next((answers[key] for key in self._spellings(path) if key in answers), None)

    def read(self, path: str) -> str | None:
        return self._at(self._files, path)

    def unreadable(self) -> tuple[Unread, ...]:
        return tuple(Unread(path, reason) for path, reason in self._paths.unreadable.items())

    def leave_out(self, path: str, reason: str) -> None:
        """It is in the recording, where the recorded machine left it out too."""

    def exists(self, path: str) -> bool:
        if self._key(path) in self._absent:
            return False
        return any(key in self._known for key in self._spellings(path))

    def listdir(self, path: str) -> tuple[str, ...]:
        names = self._at(self._listings, path)
        if names is not None:
            return names
        # simulated machines list few folders: what they hold is told by the paths that are there
        for key in self._spellings(path):
            prefix = key.rstrip("/") + "/"
            inside = {known.removeprefix(prefix) for known in self._known if known.startswith(prefix)}
            names = tuple(sorted(name for name in inside if name and "/" not in name))
            if names:
                return names
        return ()

    def realpath(self, path: str) -> str:
        if self._windows:
            path = path.replace("\\", "/")
        path = posixpath.normpath(path)
        for _ in range(_MOST_LINKS):
            followed = self._without_last_link(path)
            if followed is None or len(path) > _LONGEST_PATH:
                break
            path = followed
        return path.replace("/", "\\") if self._windows else path

    def _without_last_link(self, path: str) -> str | None:
        """The path with the link in it that is furthest to the right followed; None where there is none."""
        parts = path.split("/")
        for end in range(len(parts), 1, -1):
            head = self._key("/".join(parts[:end]))
            if head in self._links and self._key(self._links[head]) != head:
                return "/".join([self._links[head], *parts[end:]])
        return None

    def run(self, argv: Sequence[str], timeout: float) -> Completed:
        command = tuple(map(str, argv))
        answer = self._commands.get(self._command_key(command))
        if answer is None:
            error = f"could not start {command[0]}: No such file or directory"
            return Completed(command, None, error=error)
        return replace(answer, argv=command)

    def read_binary(self, path: str) -> Binary:
        file = self._at(self._binaries, path)
        if file is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        _raise_recorded(file)
        fatbins: list[Fatbin] = []
        for item in file.fatbins:
            section = _RELOCATABLE if item.relocatable else ".nv_fatbin"
            fatbin = Fatbin(0, section, tuple(map(_entry_of_text, item.code)))
            fatbins += [fatbin] * min(item.count, _MOST_FATBINS)
        fields: dict[str, Any] = {name: getattr(file, name) for name in _PACKED}
        return Binary(path, fatbins=tuple(fatbins), **fields)

    def symbol_needs(self, path: str) -> SymbolNeeds:
        return self._answer(SymbolNeeds, "symbol_needs", path)

    def missing_exports(self, names: Iterable[str], libraries: Sequence[str]) -> tuple[str, ...]:
        return self._answer(tuple[str, ...], "missing_exports", list(names), list(libraries))

    def provided_versions(self, path: str) -> tuple[str, ...]:
        return self._answer(tuple[str, ...], "provided_versions", path)

    def contains(self, path: str, texts: Iterable[str]) -> tuple[str, ...]:
        return self._answer(tuple[str, ...], "contains", path, list(texts))

    def _answer(self, kind: type[T], call: str, *arguments: Any) -> T:
        recorded = self._symbols.get(json.dumps([call, arguments]))
        if recorded is None:
            raise BinaryError(f"{call} was not recorded for this file")
        _raise_recorded(recorded)
        return from_json(kind, recorded.answer)

    def modified(self, path: str) -> float | None:
        return self._at(self._modified, path)

    def fingerprint(self, path: str, hashed: bool) -> str | None:
        return self._at(self._fingerprints, path)

    def starts_with_script(self, path: str) -> bool:
        return not self._scripts.isdisjoint(self._spellings(path))

    def nvml(self) -> dict[str, Any]:
        return dict(self.raw.nvml)


def _raise_recorded(recorded: _SymbolAnswer | _NativeFile) -> None:
    """Raise what was raised when it was recorded."""
    if recorded.error:
        raise OSError(recorded.error) if recorded.kind == "OSError" else BinaryError(recorded.error)


# What facts are drawn from of a native file, besides its fatbins.
_PACKED = ("format", "machine", "size", "needed", "rpath", "soname", "delay_needed")


def packed(binary: Binary) -> dict[str, Any]:
    """A native file as small JSON: equal fatbins are counted, offsets and sizes left out."""
    counts = Counter((item.relocatable, tuple(map(_entry_as_text, item.entries))) for item in binary.fatbins)
    fatbins = [_EqualFatbins(code, count, relocatable) for (relocatable, code), count in counts.items()]
    document = {name: to_json(getattr(binary, name)) for name in _PACKED}
    return {**document, "fatbins": to_json(fatbins)}


def _entry_as_text(entry: FatbinEntry) -> str:
    """``sass sm_90a``, ``ptx sm_90 8.7``."""
    text = f"{entry.kind.value} {entry.arch}"
    return text if entry.ptx_version is None else f"{text} {entry.ptx_version[0]}.{entry.ptx_version[1]}"


def _entry_of_text(text: str) -> FatbinEntry:
    kind, arch, *version = text.split()
    ptx_version = None
    if version:
        major, minor = version[0].split(".")[:2]
        ptx_version = (int(major), int(minor))
    return FatbinEntry(EntryKind(kind), arch, ptx_version, None, 0, False)
