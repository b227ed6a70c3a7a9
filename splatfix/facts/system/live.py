"""The edge between probes and a machine: the questions a probe may ask, the live machine, and a cache in front of it."""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from splatfix.binaries import (
    Binary,
    SymbolNeeds,
    held_texts,
    missing_exports,
    provided_versions,
    read_binary,
    read_needs,
)
from splatfix.core.isolation import without_relative_path
from splatfix.core.reading import Unread, read_bytes, read_start, read_text
from splatfix.core.runner import Completed, Runner
from splatfix.facts.machine import nvml

# A program's arguments name splatfix's own scripts; where splatfix is installed differs between machines.
_PACKAGE = Path(__file__).resolve().parents[2]
_PACKAGE_MARK, _SCRIPT_MARK = "{splatfix}", "{script}"
_OF_THE_KERNEL = ("/proc/", "/sys/")
_MOST_NAMES = 100_000
# Python takes numbers of any length, and a forged file's would make it count for minutes; no file of a machine has longer ones.
_MOST_DIGITS = 19
F = TypeVar("F", bound=Callable[..., Any])


class System(Protocol):
    """What a probe may ask of a machine. Tests hand in one that is played back; probes go through nothing else.

    What asks a native file for its inside raises BinaryError when it is none, cannot be read, or is damaged.
    """

    name: str
    """``linux``, ``windows`` or ``darwin``."""
    machine: str
    """``x86_64``, ``aarch64``, ``arm64``..."""
    env: Mapping[str, str]
    """The environment variables."""
    python: str
    """splatfix's own interpreter, for children that load native libraries."""

    def read(self, path: str) -> str | None:
        """A text file's content; None when it is not there or not readable."""

    def unreadable(self) -> tuple[Unread, ...]:
        """The files that were asked for and are there, but were not read; those of the kernel do not count."""

    def leave_out(self, path: str, reason: str) -> None:
        """Add to these what a probe does not look at, or not to its end."""

    def exists(self, path: str) -> bool:
        """The file or folder is there."""

    def listdir(self, path: str) -> tuple[str, ...]:
        """Sorted names in a folder; empty when it is not there."""

    def realpath(self, path: str) -> str:
        """The path with every symbolic link followed."""

    def run(self, argv: Sequence[str], timeout: float) -> Completed:
        """Run a program (seconds until it is given up)."""

    def read_binary(self, path: str) -> Binary:
        """Links and fat binaries of a native file."""

    def symbol_needs(self, path: str) -> SymbolNeeds:
        """Symbols and symbol versions that a native file wants from others."""

    def missing_exports(self, names: Iterable[str], libraries: Sequence[str]) -> tuple[str, ...]:
        """Those of ``names`` that none of the libraries exports."""

    def provided_versions(self, path: str) -> tuple[str, ...]:
        """Symbol versions that a library defines."""

    def contains(self, path: str, texts: Iterable[str]) -> tuple[str, ...]:
        """Those of ``texts`` that the file's bytes hold, each ended by a zero byte as a C string is."""

    def modified(self, path: str) -> float | None:
        """When the file was last written, in seconds since 1970; None when it is not there."""

    def fingerprint(self, path: str, hashed: bool) -> str | None:
        """``sha256=BASE64,SIZE`` as a RECORD has it (PEP 376), without ``hashed`` only ``,SIZE``, which takes no reading; "" for
        what is not there, None where it is not known."""

    def starts_with_script(self, path: str) -> bool:
        """The file begins with ``#!``: it is a script, not a program."""

    def nvml(self) -> dict[str, Any]:
        """NVML's raw answers; see :func:`splatfix.facts.machine.nvml.ask`."""


class LiveSystem:
    """The machine splatfix runs on."""

    read_binary, symbol_needs = staticmethod(read_binary), staticmethod(read_needs)
    provided_versions, contains = staticmethod(provided_versions), staticmethod(held_texts)
    nvml = staticmethod(nvml.ask)

    def __init__(self, runner: Runner | None = None, env: Mapping[str, str] | None = None) -> None:
        self._runner = runner or Runner()
        self.name = {"win32": "windows", "darwin": "darwin"}.get(sys.platform, "linux")
        machine = platform.machine()
        self.machine = {"AMD64": "x86_64", "ARM64": "arm64"}.get(machine, machine)
        self.env: Mapping[str, str] = without_relative_path(os.environ if env is None else env)
        self.python = sys.executable
        self._unreadable: dict[str, Unread] = {}

    def read(self, path: str) -> str | None:
        text = read_text(path)
        if not isinstance(text, Unread):
            return text
        # the kernel's files refuse to be read for many reasons that say nothing of a splatting stack
        if not path.startswith(_OF_THE_KERNEL):
            self.leave_out(path, text.reason)
        return None

    def unreadable(self) -> tuple[Unread, ...]:
        return tuple(item for _, item in sorted(self._unreadable.items()))

    def leave_out(self, path: str, reason: str) -> None:
        self._unreadable[path] = Unread(path, reason)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)  # noqa: PTH110

    def listdir(self, path: str) -> tuple[str, ...]:
        try:
            with os.scandir(path) as listing:
                names = [entry.name for entry in islice(listing, _MOST_NAMES + 1)]
        except (OSError, ValueError):
            return ()
        if len(names) > _MOST_NAMES:
            self.leave_out(path, f"it holds more than {_MOST_NAMES} entries, the most that are read")
        return tuple(sorted(names[:_MOST_NAMES]))

    def realpath(self, path: str) -> str:
        return os.path.realpath(path)

    def run(self, argv: Sequence[str], timeout: float) -> Completed:
        return self._runner.run(argv, timeout=timeout, env=self.env)

    def missing_exports(self, names: Iterable[str], libraries: Sequence[str]) -> tuple[str, ...]:
        return missing_exports(names, [Path(library) for library in libraries])

    def modified(self, path: str) -> float | None:
        try:
            return Path(path).stat().st_mtime
        except (OSError, ValueError):
            return None

    def fingerprint(self, path: str, hashed: bool) -> str | None:
        if not hashed:
            try:
                return f",{Path(path).stat().st_size}"
            except (FileNotFoundError, NotADirectoryError):
                return ""
            except (OSError, ValueError):
                return None
        content = read_bytes(path)
        if content is None:
            return ""
        if isinstance(content, Unread):
            return None
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()
        return f"sha256={digest.rstrip('=')},{len(content)}"

    def starts_with_script(self, path: str) -> bool:
        return read_start(path, 2) == b"#!"


def which_all(system: System, program: str) -> tuple[str, ...]:
    """Every executable of that name on PATH, in PATH's order, each folder once."""
    separator, slash, ending = (";", "\\", ".exe") if system.name == "windows" else (":", "/", "")
    paths: dict[str, None] = {}
    for folder in system.env.get("PATH", "").split(separator):
        path = folder.rstrip("/\\") + slash + program + ending
        if folder and path not in paths and system.exists(path):
            paths[path] = None
    return tuple(paths)


def portable(argv: Sequence[str]) -> tuple[str, ...]:
    """Arguments as a recording keeps them: splatfix's folder and whole scripts given by ``-c`` become marks."""
    marked = []
    for argument in map(str, argv):
        if "\n" in argument:
            argument = _SCRIPT_MARK
        elif argument.startswith(str(_PACKAGE)):
            argument = _PACKAGE_MARK + argument.removeprefix(str(_PACKAGE)).replace("\\", "/")
        marked.append(argument)
    return tuple(marked)


def captured(pattern: str | re.Pattern[str], text: str, flags: int = 0) -> str:
    """The group of the first match; "" where there is none."""
    match = re.search(pattern, text, flags)
    return (match.group(1) or "") if match else ""


def whole_number(text: str | None) -> int | None:
    """The number that a text is, blanks around it aside; None for any other text."""
    digits = (text or "").strip()
    if not digits.isascii() or not digits.isdigit() or len(digits) > _MOST_DIGITS:
        return None
    return int(digits)


def _once(question: F) -> F:
    """The question of a :class:`System` as one that a :class:`CachingSystem` passes on the first time only."""
    name = question.__name__

    def ask(self: CachingSystem, *arguments: Any) -> Any:
        return self._answer(name, arguments)

    return cast(F, ask)


class CachingSystem:
    """See :class:`System`. Probes overlap in what they ask (nvcc's own root, site-packages), and a machine changes while it is
    looked at: with this between, they all see one and the same."""

    def __init__(self, system: System) -> None:
        self._system = system
        self.name, self.machine, self.python = system.name, system.machine, system.python
        self.env = system.env
        self._kept: dict[str, dict[tuple[Any, ...], Any]] = {}
        self._asking: dict[tuple[str, tuple[Any, ...]], threading.Lock] = {}
        self.unreadable, self.leave_out = system.unreadable, system.leave_out

    read = _once(System.read)
    exists = _once(System.exists)
    listdir = _once(System.listdir)
    realpath = _once(System.realpath)
    run = _once(System.run)
    read_binary = _once(System.read_binary)
    symbol_needs = _once(System.symbol_needs)
    missing_exports = _once(System.missing_exports)
    provided_versions = _once(System.provided_versions)
    contains = _once(System.contains)
    modified = _once(System.modified)
    fingerprint = _once(System.fingerprint)
    starts_with_script = _once(System.starts_with_script)
    nvml = _once(System.nvml)

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """The one answer to a question; who asks while it is being found out waits for it."""
        arguments = tuple(item if isinstance(item, (str, float, int)) else tuple(item) for item in arguments)
        key = portable(arguments[0]) if name == "run" else arguments
        kept = self._kept.setdefault(name, {})
        with self._asking.setdefault((name, key), threading.Lock()):
            if key not in kept:
                try:
                    kept[key] = getattr(self._system, name)(*arguments)
                except Exception as error:  # noqa: BLE001 - raised again in everyone who asks
                    kept[key] = error
        answer = kept[key]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def answers(self, name: str) -> dict[tuple[Any, ...], Any]:
        """What was asked of one kind (arguments, of a program all but the time limit), with its answer or error."""
        return dict(self._kept.get(name, {}))
