"""The edge between probes and a machine: the questions a probe may ask, the live machine, and a cache in front of it."""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import posixpath
import re
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from splatfix.binaries import held_texts, missing_exports, provided_versions, read_binary, read_needs
from splatfix.core.isolation import without_relative_path
from splatfix.core.reading import Unread, read_start, read_text
from splatfix.core.runner import Completed, Runner
from splatfix.facts.machine import nvml

# A program's arguments name splatfix's own scripts; where splatfix is installed differs between machines.
_PACKAGE = Path(__file__).resolve().parents[2]
_PACKAGE_MARK, _SCRIPT_MARK = "{splatfix}", "{script}"
_OF_THE_KERNEL = ("/proc/", "/sys/")
SYMBOL_QUESTIONS = ("symbol_needs", "missing_exports", "provided_versions", "contains")


class System:
    """The machine splatfix runs on: a probe asks these questions and goes through nothing else, so that a machine can also be
    recorded and played back.

    What asks a native file for its inside raises BinaryError when it is none, cannot be read, or is damaged.
    """

    # links and fat binaries of a native file, the symbols that it wants of others, the symbol versions that it defines, and
    # which of some texts its bytes hold, each ended by a zero byte as a C string is
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
        """splatfix's own interpreter, for children that load native libraries."""
        self._unreadable: dict[str, Unread] = {}

    def read(self, path: str) -> str | None:
        """Return a text file's content; None when it is not there or not readable."""
        text = read_text(path)
        if not isinstance(text, Unread):
            return text
        # the kernel's files refuse to be read for many reasons that say nothing of a splatting stack
        if not path.startswith(_OF_THE_KERNEL):
            self._unreadable[path] = text
        return None

    def unreadable(self) -> tuple[Unread, ...]:
        """Return the files that were asked for and are there, but were not read; those of the kernel do not count."""
        return tuple(item for _, item in sorted(self._unreadable.items()))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)  # noqa: PTH110

    def listdir(self, path: str) -> tuple[str, ...]:
        """Return the sorted names in a folder; none when it is not there."""
        try:
            return tuple(sorted(os.listdir(path)))  # noqa: PTH208
        except (OSError, ValueError):
            return ()

    def realpath(self, path: str) -> str:
        return os.path.realpath(path)

    def run(self, argv: Sequence[str], timeout: float = 8.0) -> Completed:
        """Run a program; it gets so many seconds, which most answer in a hundredth of."""
        return self._runner.run(argv, timeout=timeout, env=self.env)

    def missing_exports(self, names: Iterable[str], libraries: Sequence[str]) -> tuple[str, ...]:
        """Return those of the names that none of the libraries exports."""
        return missing_exports(names, [Path(library) for library in libraries])

    def modified(self, path: str) -> float | None:
        """Return when a file was last written, in seconds since 1970; None when it is not there."""
        try:
            return Path(path).stat().st_mtime
        except (OSError, ValueError):
            return None

    def fingerprint(self, path: str, hashed: bool) -> str | None:
        """Return ``sha256=BASE64,SIZE`` as a RECORD has it (PEP 376), without ``hashed`` only ``,SIZE``, which takes no reading;
        "" for what is not there, None where it is not known."""
        try:
            if not hashed:
                return f",{Path(path).stat().st_size}"
            content = Path(path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except (OSError, ValueError):
            return None
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()
        return f"sha256={digest.rstrip('=')},{len(content)}"

    def starts_with_script(self, path: str) -> bool:
        """Tell whether a file begins with ``#!``: it is a script, not a program."""
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


def folder_of(path: str) -> str:
    """Return the folder that a path of any system is in, with forward slashes."""
    return posixpath.dirname(path.replace("\\", "/"))


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
    """Return the number that a text is, blanks around it aside; None for any other text, and for more than 19 digits."""
    digits = captured(r"\A\s*([0-9]{1,19})\s*\Z", text or "")
    if not digits:
        return None
    return int(digits)


class CachingSystem(System):
    """A system that is asked each question once. Probes overlap in what they ask (nvcc's own root, site-packages), and a machine
    changes while it is looked at: with this between, they all see one and the same."""

    def __init__(self, system: System) -> None:
        self._system = system
        self.name, self.machine, self.python = system.name, system.machine, system.python
        self.env = system.env
        self._kept: dict[str, dict[tuple[Any, ...], Any]] = {}
        self._asking: dict[tuple[str, tuple[Any, ...]], threading.Lock] = {}
        for question in vars(System):
            if not question.startswith("_"):
                self._kept[question] = {}
                setattr(self, question, partial(self._answer, question))
        self.unreadable = system.unreadable  # type: ignore[method-assign]

    def _answer(self, name: str, *arguments: Any) -> Any:
        """The one answer to a question; who asks while it is being found out waits for it."""
        arguments = tuple(item if isinstance(item, (str, float, int)) else tuple(item) for item in arguments)
        key = portable(arguments[0]) if name == "run" else arguments
        kept = self._kept[name]
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
        return self._kept[name]
