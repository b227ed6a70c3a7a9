"""Plays a machine back from raw answers: what its files said and its programs answered, not our facts."""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from splatfix.binaries import Binary, BinaryError, EntryKind, Fatbin, FatbinEntry, SymbolNeeds
from splatfix.core.codec import from_json, to_json
from splatfix.core.errors import SplatfixError
from splatfix.core.files import read_json, write_json, write_text
from splatfix.core.reading import Unread
from splatfix.core.runner import Completed
from splatfix.facts.system.live import SYMBOL_QUESTIONS, System, portable

T = TypeVar("T")
NO_NVML = {"error": "NVML Shared Library Not Found", "error_code": 12}
_MOST_LINKS = 40  # as Linux: links may lead in circles


class About(Struct, frozen=True, kw_only=True):
    """Where a recording comes from, and what the probes were asked about."""

    format: Literal[2] = 2
    source: str = ""
    """A line that says it to a person."""
    system: str
    machine: str
    """The architecture."""
    python: str
    """The interpreter whose environment was probed."""
    own_python: str
    splatfix: str = ""
    redacted: bool = False
    imports: bool = False
    """The probes also imported torch and the extensions."""


class PathAnswers(Struct, frozen=True, forbid_unknown_fields=True):
    """What there is on a disk, by path."""

    exists: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    links: Mapping[str, str] = {}
    listings: Mapping[str, tuple[str, ...]] = {}
    modified: Mapping[str, float | None] = {}
    fingerprints: Mapping[str, str] = {}
    unreadable: Mapping[str, str] = {}


class EqualFatbins(Struct, frozen=True, forbid_unknown_fields=True):
    """The fatbins of a file with the same entries, each as ``sass sm_90a`` or ``ptx sm_90 8.7``."""

    code: tuple[str, ...]
    count: int = 1
    relocatable: bool = False


class NativeFile(Struct, frozen=True):
    """What facts are drawn from of a native file, or why it could not be read."""

    format: Literal["elf", "pe", "fatbin", "ptx"] = "elf"
    machine: str = "x86_64"
    size: int = 0
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    soname: str | None = None
    delay_needed: tuple[str, ...] = ()
    fatbins: tuple[EqualFatbins, ...] = ()
    error: str = ""


class SymbolAnswer(Struct, frozen=True):
    """The answer to one of :data:`SYMBOL_QUESTIONS`, or why there is none."""

    call: str
    arguments: tuple[Any, ...]
    answer: Any = None
    error: str = ""


class RawMachine(Struct, frozen=True, forbid_unknown_fields=True):
    """What a machine answers when it is probed: recorded on a real one, or simulated by a test.

    On disk a folder with one JSON file per field, and the text files below ``files/`` under their own paths.
    """

    machine: About
    env: Mapping[str, str] = {}
    paths: PathAnswers = PathAnswers()
    commands: tuple[Completed, ...] = ()
    nvml: Mapping[str, Any] = field(default_factory=NO_NVML.copy)
    binaries: Mapping[str, NativeFile] = {}
    symbols: tuple[SymbolAnswer, ...] = ()
    files: Mapping[str, str] = {}
    """Path on the machine -> content of a text file."""

    @classmethod
    def read(cls, folder: Path) -> RawMachine:
        """Return a machine from its folder.

        Raises:
            SplatfixError: exit code 2, when the folder holds none, or one of another format.
        """
        document = {"machine": read_json(folder / "machine.json", "the first file of a recorded machine")}
        for name in _PARTS:
            if (folder / f"{name}.json").exists():
                document[name] = read_json(folder / f"{name}.json", "a part of a recorded machine")
        try:
            raw = from_json(cls, document)
        except ValueError as error:
            raise SplatfixError.of("facts.not-a-machine", folder=folder, error=error) from error
        files = {}
        # ``files/C/Windows/x`` -> ``C:/Windows/x``; ``files/etc/x`` -> ``/etc/x``
        for file in sorted((folder / "files").rglob("*")):
            if file.is_file():
                path = file.relative_to(folder / "files").as_posix().replace("%3A", ":").replace("%25", "%")
                path = path.replace("/", ":/", 1) if raw.machine.system == "windows" else f"/{path}"
                files[path] = file.read_text(encoding="utf-8", errors="replace")
        return replace(raw, files=files)

    def write(self, folder: Path) -> None:
        """Write the form that :meth:`read` takes."""
        for name in ("machine", *_PARTS):
            write_json(folder / f"{name}.json", to_json(getattr(self, name)))
        for path, text in self.files.items():
            drive = re.match(r"([A-Za-z]):[\\/](.*)", path)
            relative = f"{drive[1]}/{drive[2]}".replace("\\", "/") if drive else path.lstrip("/")
            # colons are spelled %3A, which every file system can store
            write_text(folder / "files" / relative.replace("%", "%25").replace(":", "%3A"), text)


_PARTS = ("env", "paths", "commands", "nvml", "binaries", "symbols")


class PlaybackSystem(System):
    """A system that answers from a :class:`RawMachine`; what that lacks is absent."""

    def __init__(self, raw: RawMachine) -> None:
        self.raw = raw
        self.env = raw.env
        self.name, self.machine, self.python = raw.machine.system, raw.machine.machine, raw.machine.own_python
        self._windows = self.name == "windows"
        self._links = self._keyed(raw.paths.links)
        self._listings = self._keyed(raw.paths.listings)
        self._scripts = set(map(self._key, raw.paths.scripts))
        self._absent = set(map(self._key, raw.paths.absent))
        self._modified = self._keyed(raw.paths.modified)
        self._fingerprints = self._keyed(raw.paths.fingerprints)
        self._binaries = self._keyed(raw.binaries)
        self._files = self._keyed(raw.files)
        self._symbols = {json.dumps([item.call, item.arguments]): item for item in raw.symbols}
        self._commands = {self._command_key(item.argv): item for item in raw.commands}
        for question in SYMBOL_QUESTIONS:
            setattr(self, question, partial(self._symbol_answer, question))
        # every path that is there, by what the recording knows of it or of something inside
        self._known: set[str] = set()
        leaves = [*map(self._key, raw.paths.exists), *self._scripts]
        for folder, names in self._listings.items():
            leaves += [self._key(f"{folder}/{name}") for name in names]
        for path in (*leaves, *self._files, *self._links, *self._listings, *self._binaries):
            while path not in self._known and path not in ("", "."):
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
        return (self._key(program) if self._windows else program, *arguments)

    def _spellings(self, path: str) -> tuple[str, ...]:
        """The path as asked for, then with its links followed."""
        return tuple(dict.fromkeys((self._key(path), self._key(self.realpath(path)))))

    def _at(self, answers: Mapping[str, T], path: str) -> T | None:
        return next((answers[key] for key in self._spellings(path) if key in answers), None)

    def read(self, path: str) -> str | None:
        return self._at(self._files, path)

    def unreadable(self) -> tuple[Unread, ...]:
        return tuple(Unread(path, reason) for path, reason in self.raw.paths.unreadable.items())

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
            parts = path.split("/")
            # the link in it that is furthest to the right
            for end in range(len(parts), 1, -1):
                head = self._key("/".join(parts[:end]))
                if self._key(self._links.get(head, head)) != head:
                    path = "/".join([self._links[head], *parts[end:]])
                    break
            else:
                break
        return path.replace("/", "\\") if self._windows else path

    def run(self, argv: Sequence[str], timeout: float = 8.0) -> Completed:
        command = tuple(map(str, argv))
        answer = self._commands.get(self._command_key(command))
        if answer is None:
            error = f"could not start {command[0]}: No such file or directory"
            return Completed(command, None, error=error)
        return replace(answer, argv=command)

    def read_binary(self, path: str) -> Binary:  # type: ignore[override]
        file = self._at(self._binaries, path)
        if file is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        if file.error:
            raise BinaryError(file.error)
        fatbins: list[Fatbin] = []
        for item in file.fatbins:
            entries = []
            for text in item.code:
                kind, arch, *version = text.split()
                ptx_version = None
                if version:
                    major, minor = version[0].split(".")[:2]
                    ptx_version = (int(major), int(minor))
                entries.append(FatbinEntry(EntryKind(kind), arch, ptx_version, None, 0, False))
            section = "__nv_relfatbin" if item.relocatable else ".nv_fatbin"
            fatbins += [Fatbin(0, section, tuple(entries))] * item.count
        return Binary(path, fatbins=tuple(fatbins), **{name: getattr(file, name) for name in _OF_BINARY})

    def _symbol_answer(self, question: str, *arguments: Any) -> Any:
        listed = [item if isinstance(item, str) else list(item) for item in arguments]
        recorded = self._symbols.get(json.dumps([question, listed]))
        if recorded is None:
            raise BinaryError(f"{question} was not recorded for this file")
        if recorded.error:
            raise BinaryError(recorded.error)
        kind: Any = SymbolNeeds if question == "symbol_needs" else tuple[str, ...]
        return from_json(kind, recorded.answer)

    def modified(self, path: str) -> float | None:
        return self._at(self._modified, path)

    def fingerprint(self, path: str, hashed: bool) -> str | None:
        return self._at(self._fingerprints, path)

    def starts_with_script(self, path: str) -> bool:
        return not self._scripts.isdisjoint(self._spellings(path))

    def nvml(self) -> dict[str, Any]:
        return dict(self.raw.nvml)


_OF_BINARY = ("format", "machine", "size", "needed", "rpath", "soname", "delay_needed")


def packed(binary: Binary) -> NativeFile:
    """Return a native file as small JSON has it: equal fatbins are counted, offsets and sizes left out."""
    counts: Counter[tuple[tuple[str, ...], bool]] = Counter()
    for fatbin in binary.fatbins:
        code = []
        for entry in fatbin.entries:
            version = "" if entry.ptx_version is None else " {}.{}".format(*entry.ptx_version)
            code.append(f"{entry.kind.value} {entry.arch}{version}")
        counts[tuple(code), fatbin.relocatable] += 1
    fatbins = tuple(EqualFatbins(code, count, relocatable) for (code, relocatable), count in counts.items())
    return NativeFile(fatbins=fatbins, **{name: getattr(binary, name) for name in _OF_BINARY})
