"""Writes down what a machine answers while the probes ask it, without what is personal: names, homes, GPU UUIDs, tokens."""

from __future__ import annotations

import platform
import re
from collections import UserDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from splatfix import __version__
from splatfix.binaries import Binary
from splatfix.core.codec import from_json, to_json
from splatfix.core.errors import SplatfixError
from splatfix.core.redact import HIDDEN, redacted, without_credentials
from splatfix.facts.system.live import SYMBOL_QUESTIONS, CachingSystem, System
from splatfix.facts.system.playback import About, RawMachine, packed

_USER_VARIABLES = ("USER", "LOGNAME", "USERNAME", "SUDO_USER")
_HOST_VARIABLES = ("HOSTNAME", "COMPUTERNAME", "HOST", "NAME")
# Names that tell nothing about a person, or that are words of this field, which must stay what they are.
_ORDINARY = re.compile(
    r"root|user|ubuntu|debian|admin|runner|docker|vagrant|nobody|localhost|linux|windows|python|torch|cuda|nvidia|gcc|clang"
    r"|home|build|local|host|site|lib|bin|usr|opt|tmp|conda|nvcc|gsplat|splatfix|test|share|system",
    re.IGNORECASE,
)
# A drive, or the root of a disk, as services have it.
_SHORTEST_HOME = 3
_HOMES = re.compile(r"(?P<root>/home/|/Users/|[A-Za-z]:[\\/]{1,2}Users[\\/]{1,2})(?P<user>[^\\/\s:;,'\"]+)")
_GPU = re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.I)
_IN_URL = re.compile(r"(?<=://)[^/@\s'\"]+(?=@)")


class _AskedVariables(UserDict[str, str]):
    """The environment, remembering which variables were looked at: no other one is written down."""

    def __init__(self, env: Mapping[str, str]) -> None:
        super().__init__(env)
        self.asked: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        self.asked[name] = super().__getitem__(name)
        return self.asked[name]


class RecordingSystem(CachingSystem):
    """Keeps every answer that the probes get, to be written down."""

    def __init__(self, system: System, folder: Path) -> None:
        """``folder`` is the new folder to write; raises SplatfixError (exit code 2) when there is something in it."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise SplatfixError.of("facts.folder-not-empty", folder=folder)
        super().__init__(system)
        self._folder = folder
        self._asked = _AskedVariables(system.env)
        self.env = self._asked

    def write(self, python: str, *, redact: bool = True, imports: bool = False) -> Redactor | None:
        """Write all answers into the folder, in the form that :meth:`RawMachine.read` takes, and return the redactor.

        Args:
            python, imports: see :class:`About`.
            redact: replace user and host names, home folders and GPU UUIDs; credentials are never written.
        """
        redactor = Redactor(self._system.env, platform.node()) if redact else None
        clean: Callable[[Any], Any] = redactor.data if redactor else redacted
        about = About(
            source="recorded on a real machine by splatfix diagnose --record",
            system=self.name,
            machine=self.machine,
            python=python,
            own_python=self.python,
            splatfix=__version__,
            redacted=redact,
            imports=imports,
        )
        symbols = []
        for call in SYMBOL_QUESTIONS:
            for arguments, answer in self.answers(call).items():
                symbols.append({"call": call, "arguments": to_json(arguments), **_document(answer)})
        exists, scripts = self._by_path("exists"), self._by_path("starts_with_script")
        real_paths, fingerprints = self._by_path("realpath"), sorted(self.answers("fingerprint").items())
        document = {
            "machine": to_json(about),
            "env": dict(sorted(self._asked.asked.items())),
            "paths": {
                "exists": [path for path, is_there in exists.items() if is_there],
                "absent": [path for path, is_there in exists.items() if not is_there],
                "links": {path: real for path, real in real_paths.items() if path != real},
                "listings": {path: list(names) for path, names in self._by_path("listdir").items()},
                "scripts": [path for path, is_script in scripts.items() if is_script],
                "modified": self._by_path("modified"),
                "fingerprints": {path: text for (path, _), text in fingerprints if text is not None},
                "unreadable": {item.path: item.reason for item in self.unreadable()},
            },
            "commands": [to_json(replace(done, argv=argv)) for argv, done in self.answers("run").items()],
            "nvml": next(iter(self.answers("nvml").values()), {"error": "not asked"}),
            "binaries": {path: _document(answer) for path, answer in self._by_path("read_binary").items()},
            "symbols": symbols,
            "files": {path: text for path, text in self._by_path("read").items() if text is not None},
        }
        from_json(RawMachine, clean(document)).write(self._folder)
        return redactor

    def _by_path(self, question: str) -> dict[str, Any]:
        return {path: answer for (path,), answer in sorted(self.answers(question).items())}


def _document(answer: Any) -> dict[str, Any]:
    if isinstance(answer, Exception):
        return {"error": str(answer)}
    return to_json(packed(answer)) if isinstance(answer, Binary) else {"answer": to_json(answer)}


class Redactor:
    """Replaces the same thing by the same thing everywhere, so that paths in answers still fit each other."""

    def __init__(self, env: Mapping[str, str], node: str) -> None:
        """``node`` is the host's name as the system itself gives it."""
        users = {env[name] for name in _USER_VARIABLES if name in env}
        moved: set[str] = set()
        for name in ("HOME", "USERPROFILE"):
            home = env.get(name, "")
            usual = _HOMES.match(home)
            if usual:
                users.add(usual.group("user"))
            elif len(home) > _SHORTEST_HOME and home != "/root":
                # outside the usual places (/data/people/ann) it becomes one inside; /root tells nothing
                moved.add(home)
                users.add(home.replace("\\", "/").rstrip("/").rpartition("/")[2])
        # the longest first: one may lie in another
        self._moved = sorted(moved, key=len, reverse=True)
        hosts = {node, node.partition(".")[0], *(env[name] for name in _HOST_VARIABLES if name in env)}
        self._replacements = dict.fromkeys(users, "user") | dict.fromkeys(hosts - users, "host")
        names = [
            re.escape(name)
            for name in sorted(self._replacements, key=len, reverse=True)
            if len(name) > 2 and not _ORDINARY.fullmatch(name) and not name.isdigit()
        ]
        self._names = re.compile(rf"(?<![\w-])({'|'.join(names) or '(?!)'})(?![\w-])")
        self._gpus: dict[str, str] = {}
        self._homes: dict[str, str] = {}

    def text(self, text: str) -> str:
        """Any text without credentials: a path, a file's content, a program's output."""
        text = without_credentials(text)
        for home in self._moved:
            text = re.sub(rf"{re.escape(home)}(?![\w.-])", "/home/user", text)
        text = _HOMES.sub(self._home, text)
        text = _GPU.sub(self._gpu, text)
        text = _IN_URL.sub(HIDDEN, text)
        return self._names.sub(lambda match: self._replacements[match.group(0)], text)

    def data(self, value: object) -> object:
        """Every text inside plain JSON data, keys included."""
        return self._data(redacted(value))

    def _data(self, value: object) -> object:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self._data(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._data(item) for item in value]
        return value

    def _home(self, match: re.Match[str]) -> str:
        name = match.group("user")
        if name in ("Public", "Shared", "Default"):
            return match.group(0)
        number = len(self._homes) + 1
        return match.group("root") + self._homes.setdefault(name, "user" if number == 1 else f"user{number}")

    def _gpu(self, match: re.Match[str]) -> str:
        known = self._gpus.setdefault(match.group(0).lower(), f"{len(self._gpus) + 1:012d}")
        return f"{match.group(1)}-00000000-0000-0000-0000-{known}"
