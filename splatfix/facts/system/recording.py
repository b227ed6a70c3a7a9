"""Writes down what a machine answers while the probes ask it, so that it can be played back elsewhere."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from splatfix import __version__
from splatfix.binaries import Binary
from splatfix.core.codec import to_json
from splatfix.core.errors import usage_error
from splatfix.core.runner import Completed
from splatfix.core.step import say
from splatfix.facts.system.caching import CachingSystem
from splatfix.facts.system.live import System
from splatfix.facts.system.playback import RawMachine, packed
from splatfix.facts.system.redact import Redactor


class _AskedVariables(Mapping[str, str]):
    """The environment, remembering which variables were looked at: no other one is written down."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self.asked: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        value = self._env[name]
        self.asked[name] = value
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._env)

    def __len__(self) -> int:
        return len(self._env)


class RecordingSystem(CachingSystem):
    """Keeps every answer that the probes get, to be written down."""

    def __init__(self, system: System, folder: Path) -> None:
        """``folder`` is the new folder to write; raises SplatfixError (exit code 2) when there is something in it."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise usage_error(
                "folder-not-empty",
                f"{folder} exists and is not empty.",
                say("Name a new folder for --record."),
            )
        super().__init__(system)
        self._folder = folder
        self._asked = _AskedVariables(system.env)
        self._env = self._asked

    def write(self, python: str, *, redact: bool = True, imports: bool = False) -> Redactor | None:
        """Write all answers into the folder, in the form that :meth:`RawMachine.read` takes.

        Args:
            python: the target interpreter that the probes were asked about.
            imports: the probes also imported torch and the extensions.
            redact: replace user and host names, home folders, GPU UUIDs, tokens and keys.

        Returns:
            The redactor that was used, or None.
        """
        redactor = Redactor(self._system.env, platform.node()) if redact else None
        env = redactor.variables(self._asked.asked) if redactor else self._asked.asked
        clean: Callable[[Any], Any] = redactor.data if redactor else lambda value: value
        about = {
            "source": "recorded on a real machine by splatfix diagnose --record",
            "system": self.name,
            "machine": self.machine,
            "python": python,
            "own_python": self.python,
            "splatfix": __version__,
            "redacted": redact,
            "imports": imports,
        }
        RawMachine(
            machine=clean(about),
            env=dict(sorted(env.items())),
            paths=clean(self._paths()),
            commands=clean([_command(*item) for item in self.answers("run").items()]),
            nvml=clean(next(iter(self.answers("nvml").values()), {"error": "not asked"})),
            binaries=clean({path: _binary(answer) for path, answer in self.answers("read_binary").items()}),
            symbols=clean(self._symbol_answers()),
            files=clean({path: text for path, text in self.answers("read").items() if text is not None}),
        ).write(self._folder)
        return redactor

    def _paths(self) -> dict[str, Any]:
        exists, links = self.answers("exists"), self.answers("realpath")
        return {
            "exists": sorted(path for path, there in exists.items() if there),
            "absent": sorted(path for path, there in exists.items() if not there),
            "links": {path: real for path, real in sorted(links.items()) if path != real},
            "listings": {path: list(names) for path, names in sorted(self.answers("listdir").items())},
            "scripts": sorted(
                path for path, is_script in self.answers("starts_with_script").items() if is_script
            ),
            "modified": dict(sorted(self.answers("modified").items())),
        }

    def _symbol_answers(self) -> list[dict[str, Any]]:
        calls = ("symbol_needs", "missing_exports", "provided_versions", "contains")
        return [
            {"call": call, "arguments": to_json(key), **_answer(answer)}
            for call in calls
            for key, answer in self.answers(call).items()
        ]


def _command(argv: tuple[str, ...], done: Completed) -> dict[str, Any]:
    return {
        "argv": list(argv),
        "returncode": done.returncode,
        "stdout": done.stdout,
        "stderr": done.stderr,
        "error": done.error,
        "seconds": done.seconds,
    }


def _binary(answer: Binary | Exception) -> dict[str, Any]:
    return packed(answer) if isinstance(answer, Binary) else _answer(answer)


def _answer(answer: Any) -> dict[str, Any]:
    if isinstance(answer, Exception):
        return {"error": str(answer), "kind": "OSError" if isinstance(answer, OSError) else "BinaryError"}
    return {"answer": to_json(answer)}
