"""A machine played back from a folder of raw inputs: what its files said and its programs answered, not our facts."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from splatfix.binaries import Binary, BinaryError, EntryKind, Fatbin, FatbinEntry, SymbolNeeds
from splatfix.core.codec import CodecError, from_json
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.files import read_json
from splatfix.core.runner import Completed

FORMAT = 2
# A program's arguments name splatfix's own scripts; where splatfix lies differs from machine to machine.
PACKAGE = Path(__file__).resolve().parents[2]
PACKAGE_MARK, SCRIPT_MARK = "{splatfix}", "{script}"
_RELOCATABLE = "__nv_relfatbin"


def file_name(path: str) -> str:
    """Where under ``files/`` the text of a file lies; colons are spelled %3A, which every file system can store."""
    plain = path.replace("\\", "/") if re.match(r"[A-Za-z]:", path) else path
    drive = re.match(r"([A-Za-z]):/", plain)
    return (
        (f"{drive.group(1)}/{plain[3:]}" if drive else plain.lstrip("/"))
        .replace("%", "%25")
        .replace(":", "%3A")
    )


def portable(argv: Sequence[str]) -> tuple[str, ...]:
    """Arguments as a recording keeps them: splatfix's folder and whole scripts given by ``-c`` become marks."""
    words = []
    for word in map(str, argv):
        if "\n" in word:
            word = SCRIPT_MARK
        elif word.startswith(str(PACKAGE)):
            word = PACKAGE_MARK + word[len(str(PACKAGE)) :].replace("\\", "/")
        words.append(word)
    return tuple(words)


class RecordedSystem:
    """See :class:`splatfix.facts.system.live.System`; what was not recorded is not there.

    The folder holds ``machine.json`` (system, machine, interpreters, and in ``source`` a line that says where the
    inputs come from), ``env.json``, ``files/`` (the text of files, under their own paths), ``paths.json`` (listings,
    links, further existing paths, scripts, free bytes, times), ``commands.json``, ``nvml.json``, ``binaries.json``
    and ``symbols.json``; all but the first may be missing.
    """

    def __init__(self, folder: Path) -> None:
        """Raises SplatfixError (exit code 2) when the folder is no recorded machine."""
        self.folder = folder
        about = read_json(folder / "machine.json", "the first file of a recorded machine")
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise SplatfixError(
                "not-a-machine",
                f"{folder} is not a recorded machine of format {FORMAT}.",
                exit_code=Exit.USAGE,
            )
        self.about: Mapping[str, Any] = about
        self._windows = about["system"] == "windows"
        paths = self._part("paths.json", {})
        self._links = {self._key(path): target for path, target in paths.get("links", {}).items()}
        self._listings = {self._key(path): tuple(names) for path, names in paths.get("listings", {}).items()}
        self._scripts = {self._key(path) for path in paths.get("scripts", ())}
        self._absent = {self._key(path) for path in paths.get("absent", ())}
        self._free = {self._key(path): size for path, size in paths.get("free_bytes", {}).items()}
        self._modified = {self._key(path): time for path, time in paths.get("modified", {}).items()}
        self._env: dict[str, str] = self._part("env.json", {})
        self._nvml: dict[str, Any] = self._part(
            "nvml.json", {"error": "NVML Shared Library Not Found", "error_code": 12}
        )
        self._binaries = {self._key(path): item for path, item in self._part("binaries.json", {}).items()}
        self._symbols = {_symbol_key(item): item for item in self._part("symbols.json", [])}
        self._commands = {self._command_key(item["argv"]): item for item in self._part("commands.json", [])}
        self._files = {
            self._key(self._original(path)): path for path in (folder / "files").rglob("*") if path.is_file()
        }
        self._known = self._with_parents(paths.get("exists", ()))

    def _part(self, name: str, default: Any) -> Any:
        path = self.folder / name
        return read_json(path, "a part of a recorded machine") if path.exists() else default

    def _original(self, path: Path) -> str:
        """``files/C/Windows`` -> ``C:/Windows``; ``files/etc`` -> ``/etc``."""
        parts = [
            part.replace("%3A", ":").replace("%25", "%")
            for part in path.relative_to(self.folder / "files").parts
        ]
        return f"{parts[0]}:/{'/'.join(parts[1:])}" if self._windows else "/" + "/".join(parts)

    def _key(self, path: str) -> str:
        plain = path.replace("\\", "/").lower() if self._windows else path
        return posixpath.normpath(plain) if plain else plain

    def _command_key(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Windows does not mind how a program's path is spelled."""
        words = portable(argv)
        return (self._key(words[0]), *words[1:]) if self._windows else words

    def _with_parents(self, more: Iterable[str]) -> set[str]:
        listed = (f"{folder}/{name}" for folder, names in self._listings.items() for name in names)
        known: set[str] = set()
        leaves = [
            *map(self._key, more),
            *map(self._key, listed),
            *self._files,
            *self._links,
            *self._listings,
            *self._binaries,
            *self._scripts,
        ]
        for path in leaves:
            while path not in known and path not in ("", "."):
                known.add(path)
                path = posixpath.dirname(path)
        return known

    @property
    def name(self) -> str:
        """See :class:`System`."""
        return str(self.about["system"])

    @property
    def machine(self) -> str:
        """See :class:`System`."""
        return str(self.about["machine"])

    @property
    def env(self) -> Mapping[str, str]:
        """See :class:`System`."""
        return self._env

    @property
    def python(self) -> str:
        """See :class:`System`."""
        return str(self.about["own_python"])

    @property
    def target(self) -> str:
        """The interpreter whose environment was recorded."""
        return str(self.about["python"])

    def _roads(self, path: str) -> tuple[str, ...]:
        """The path as asked for, then with its links followed."""
        key = self._key(path)
        real = self._key(self.realpath(path))
        return (key,) if key == real else (key, real)

    def read(self, path: str) -> str | None:
        """See :class:`System`."""
        for key in self._roads(path):
            if key in self._files:
                return self._files[key].read_text(encoding="utf-8", errors="replace")
        return None

    def exists(self, path: str) -> bool:
        """See :class:`System`."""
        key = self._key(path)
        return key not in self._absent and any(road in self._known for road in self._roads(path))

    def listdir(self, path: str) -> tuple[str, ...]:
        """See :class:`System`."""
        for key in self._roads(path):
            if key in self._listings:
                return self._listings[key]
        for key in self._roads(path):
            inside = key.rstrip("/") + "/"
            names = {
                known[len(inside) :] for known in self._known if known.startswith(inside) and known != inside
            }
            if names := {name for name in names if "/" not in name}:
                return tuple(sorted(names))
        return ()

    def realpath(self, path: str) -> str:
        """See :class:`System`."""
        plain = posixpath.normpath(path.replace("\\", "/") if self._windows else path)
        for _ in range(40):  # as many links as Linux follows
            parts = plain.split("/")
            for end in range(len(parts), 1, -1):
                head = self._key("/".join(parts[:end]))
                if head in self._links and self._key(self._links[head]) != head:
                    plain = "/".join([self._links[head], *parts[end:]])
                    break
            else:
                break
        return plain.replace("/", "\\") if self._windows else plain

    def run(self, argv: Sequence[str], timeout: float) -> Completed:
        """See :class:`System`."""
        words = tuple(map(str, argv))
        found = self._commands.get(self._command_key(words))
        if found is None:
            return Completed(
                words, None, "", "", 0.0, f"could not start {words[0]}: No such file or directory"
            )
        return Completed(
            words,
            found.get("returncode", 0),
            found.get("stdout", ""),
            found.get("stderr", ""),
            found.get("seconds", 0.0),
            found.get("error", ""),
        )

    def read_binary(self, path: str) -> Binary:
        """See :class:`System`."""
        for key in self._roads(path):
            if key in self._binaries:
                return unpacked(path, _or_raise(self._binaries[key]))
        raise FileNotFoundError(2, "No such file or directory", path)

    def symbol_needs(self, path: str) -> SymbolNeeds:
        """See :class:`System`."""
        try:
            return from_json(SymbolNeeds, self._symbol("symbol_needs", [path]))
        except CodecError as error:
            raise BinaryError(f"the recording is damaged: {error}") from error

    def missing_exports(self, names: Iterable[str], libraries: Sequence[str]) -> tuple[str, ...]:
        """See :class:`System`."""
        return tuple(self._symbol("missing_exports", [list(names), list(libraries)]))

    def provided_versions(self, path: str) -> tuple[str, ...]:
        """See :class:`System`."""
        return tuple(self._symbol("provided_versions", [path]))

    def contains(self, path: str, texts: Iterable[str]) -> tuple[str, ...]:
        """See :class:`System`."""
        return tuple(self._symbol("contains", [path, list(texts)]))

    def _symbol(self, call: str, arguments: list[Any]) -> Any:
        found = self._symbols.get(_symbol_key({"call": call, "arguments": arguments}))
        if found is None:
            raise BinaryError(f"{call} was not recorded for this file")
        return _or_raise(found)["answer"]

    def modified(self, path: str) -> float | None:
        """See :class:`System`."""
        return next((self._modified[key] for key in self._roads(path) if key in self._modified), None)

    def starts_with_script(self, path: str) -> bool:
        """See :class:`System`."""
        return any(key in self._scripts for key in self._roads(path))

    def nvml(self) -> dict[str, Any]:
        """See :class:`System`."""
        return dict(self._nvml)

    def free_bytes(self, path: str) -> int | None:
        """See :class:`System`."""
        key = self._key(path)
        while key not in self._free and key != posixpath.dirname(key):
            key = posixpath.dirname(key)
        return self._free.get(key)


def _symbol_key(item: Mapping[str, Any]) -> str:
    return json.dumps([item["call"], item["arguments"]])


def _or_raise(item: Mapping[str, Any]) -> Mapping[str, Any]:
    if "error" in item:
        raise (OSError if item.get("kind") == "OSError" else BinaryError)(item["error"])
    return item


def packed(binary: Binary) -> dict[str, Any]:
    """JSON-able data of a file; fatbins with the same device code stand once, with their number."""
    counts: dict[tuple[bool, tuple[str, ...]], int] = {}
    for fatbin in binary.fatbins:
        key = (fatbin.relocatable, tuple(_words(entry) for entry in fatbin.entries))
        counts[key] = counts.get(key, 0) + 1
    return {
        "format": binary.format,
        "machine": binary.machine,
        "size": binary.size,
        "needed": list(binary.needed),
        "rpath": list(binary.rpath),
        "soname": binary.soname,
        "delay_needed": list(binary.delay_needed),
        "fatbins": [
            {"code": list(code), "count": number, **({"relocatable": True} if relocatable else {})}
            for (relocatable, code), number in counts.items()
        ],
    }


def unpacked(path: str, document: Mapping[str, Any]) -> Binary:
    """The file again, as far as facts are drawn from it.

    Raises:
        BinaryError: when the document is not what :func:`packed` makes.
    """
    try:
        fatbins = tuple(
            Fatbin(
                0, _RELOCATABLE if item.get("relocatable") else ".nv_fatbin", tuple(map(_entry, item["code"]))
            )
            for item in document.get("fatbins", ())
            for _ in range(item.get("count", 1))
        )
        return Binary(
            path=path,
            format=document.get("format", "elf"),
            machine=document.get("machine", "x86_64"),
            size=document.get("size", 0),
            fatbins=fatbins,
            needed=tuple(document.get("needed", ())),
            rpath=tuple(document.get("rpath", ())),
            soname=document.get("soname"),
            delay_needed=tuple(document.get("delay_needed", ())),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BinaryError(f"the recording of {path} is damaged: {error}") from error


def _words(entry: FatbinEntry) -> str:
    """``sass sm_90a``, ``ptx sm_90 8.7``."""
    version = f" {entry.ptx_version[0]}.{entry.ptx_version[1]}" if entry.ptx_version else ""
    return f"{entry.kind.value} {entry.arch}{version}"


def _entry(words: str) -> FatbinEntry:
    kind, arch, *version = words.split()
    numbers = tuple(int(n) for n in version[0].split(".")) if version else None
    return FatbinEntry(
        EntryKind(kind), arch, (numbers[0], numbers[1]) if numbers else None, None, 0, 0, False
    )
