"""Writes down what a machine answers while the probes ask it, so that it can be played back elsewhere."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from splatfix import __version__
from splatfix.binaries import Binary, BinaryError, SymbolNeeds
from splatfix.core.codec import to_json
from splatfix.core.errors import usage_error
from splatfix.core.files import write_json, write_text
from splatfix.core.runner import Completed
from splatfix.facts.binary_json import packed
from splatfix.facts.recorded import FORMAT, file_name, portable
from splatfix.facts.redact import Redactor
from splatfix.facts.system import System

T = TypeVar("T")


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


class RecordingSystem:
    """Passes every question on to a system and keeps the answer; the same question gets the same answer again."""

    def __init__(self, system: System, folder: Path) -> None:
        """``folder`` is the new folder to write; raises SplatfixError (exit code 2) when there is something in it."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise usage_error("folder-not-empty", f"{folder} exists and is not empty.",
                              "Name a new folder for --record.")  # fmt: skip
        self._folder = folder
        self._system = system
        self._env = _AskedVariables(system.env)
        self._answers: dict[str, dict[Any, Any]] = {}

    def _ask(self, kind: str, key: Any, question: Callable[[], T]) -> T:
        """The first answer to a question; of two threads that ask at once, both get the same one."""
        kept = self._answers.setdefault(kind, {})
        if key not in kept:
            try:
                kept.setdefault(key, question())
            except (BinaryError, OSError) as error:
                kept.setdefault(key, error)
        answer: T = kept[key]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def name(self) -> str:
        """See :class:`System`."""
        return self._system.name

    @property
    def machine(self) -> str:
        """See :class:`System`."""
        return self._system.machine

    @property
    def env(self) -> Mapping[str, str]:
        """See :class:`System`."""
        return self._env

    @property
    def python(self) -> str:
        """See :class:`System`."""
        return self._system.python

    def read(self, path: str) -> str | None:
        """See :class:`System`."""
        return self._ask("read", path, lambda: self._system.read(path))

    def exists(self, path: str) -> bool:
        """See :class:`System`."""
        return self._ask("exists", path, lambda: self._system.exists(path))

    def listdir(self, path: str) -> tuple[str, ...]:
        """See :class:`System`."""
        return self._ask("listdir", path, lambda: self._system.listdir(path))

    def realpath(self, path: str) -> str:
        """See :class:`System`."""
        return self._ask("realpath", path, lambda: self._system.realpath(path))

    def run(self, argv: Sequence[str], timeout: float) -> Completed:
        """See :class:`System`."""
        return self._ask("run", portable(argv), lambda: self._system.run(argv, timeout))

    def read_binary(self, path: str) -> Binary:
        """See :class:`System`."""
        return self._ask("read_binary", path, lambda: self._system.read_binary(path))

    def symbol_needs(self, path: str) -> SymbolNeeds:
        """See :class:`System`."""
        return self._ask("symbol_needs", (path,), lambda: self._system.symbol_needs(path))

    def missing_exports(self, names: Iterable[str], libraries: Sequence[str]) -> tuple[str, ...]:
        """See :class:`System`."""
        key = (tuple(names), tuple(libraries))
        return self._ask("missing_exports", key, lambda: self._system.missing_exports(key[0], key[1]))

    def provided_versions(self, path: str) -> tuple[str, ...]:
        """See :class:`System`."""
        return self._ask("provided_versions", (path,), lambda: self._system.provided_versions(path))

    def contains(self, path: str, texts: Iterable[str]) -> tuple[str, ...]:
        """See :class:`System`."""
        key = (path, tuple(texts))
        return self._ask("contains", key, lambda: self._system.contains(key[0], key[1]))

    def modified(self, path: str) -> float | None:
        """See :class:`System`."""
        return self._ask("modified", path, lambda: self._system.modified(path))

    def starts_with_script(self, path: str) -> bool:
        """See :class:`System`."""
        return self._ask("starts_with_script", path, lambda: self._system.starts_with_script(path))

    def nvml(self) -> dict[str, Any]:
        """See :class:`System`."""
        return self._ask("nvml", "", self._system.nvml)

    def free_bytes(self, path: str) -> int | None:
        """See :class:`System`."""
        return self._ask("free_bytes", path, lambda: self._system.free_bytes(path))

    def write(self, python: str, *, redact: bool = True, imports: bool = False) -> Redactor | None:
        """Write all answers into the folder, in the form that :class:`RecordedSystem` reads.

        Args:
            python: the target interpreter that the probes were asked about.
            imports: the probes also imported torch and the extensions.
            redact: replace user and host names, home folders, GPU UUIDs, tokens and keys.

        Returns:
            The redactor that was used, or None.
        """
        folder = self._folder
        redactor = Redactor(self._system.env, platform.node()) if redact else None
        env = redactor.variables(self._env.asked) if redactor else dict(self._env.asked)
        clean: Callable[[Any], Any] = redactor.data if redactor else lambda value: value
        about = {
            "format": FORMAT, "source": "recorded on a real machine by splatfix diagnose --record",
            "system": self.name, "machine": self.machine, "python": python, "own_python": self.python,
            "splatfix": __version__, "redacted": redact, "imports": imports,
        }  # fmt: skip
        write_json(folder / "machine.json", clean(about))
        write_json(folder / "env.json", dict(sorted(env.items())))
        write_json(folder / "paths.json", clean(self._paths()))
        write_json(folder / "commands.json", clean([_command(*item) for item in self._of("run").items()]))
        write_json(folder / "nvml.json", clean(next(iter(self._of("nvml").values()), {"error": "not asked"})))
        write_json(
            folder / "binaries.json", clean({p: _binary(b) for p, b in self._of("read_binary").items()})
        )
        write_json(folder / "symbols.json", clean(self._symbol_answers()))
        for path, text in self._of("read").items():
            if text is not None:
                write_text(folder / "files" / file_name(clean(path)), clean(text))
        return redactor

    def _of(self, kind: str) -> dict[Any, Any]:
        return self._answers.get(kind, {})

    def _paths(self) -> dict[str, Any]:
        exists, links = self._of("exists"), self._of("realpath")
        return {
            "exists": sorted(path for path, there in exists.items() if there),
            "absent": sorted(path for path, there in exists.items() if not there),
            "links": {path: real for path, real in sorted(links.items()) if path != real},
            "listings": {path: list(names) for path, names in sorted(self._of("listdir").items())},
            "scripts": sorted(
                path for path, is_script in self._of("starts_with_script").items() if is_script
            ),
            "free_bytes": dict(sorted(self._of("free_bytes").items())),
            "modified": dict(sorted(self._of("modified").items())),
        }

    def _symbol_answers(self) -> list[dict[str, Any]]:
        calls = ("symbol_needs", "missing_exports", "provided_versions", "contains")
        return [
            {"call": call, "arguments": to_json(key), **_answer(answer)}
            for call in calls
            for key, answer in self._of(call).items()
        ]


def _command(argv: tuple[str, ...], done: Completed) -> dict[str, Any]:
    return {
        "argv": list(argv), "returncode": done.returncode, "stdout": done.stdout, "stderr": done.stderr,
        "error": done.error, "seconds": done.seconds,
    }  # fmt: skip


def _binary(answer: Binary | Exception) -> dict[str, Any]:
    return packed(answer) if isinstance(answer, Binary) else _answer(answer)


def _answer(answer: Any) -> dict[str, Any]:
    if isinstance(answer, Exception):
        return {"error": str(answer), "kind": "OSError" if isinstance(answer, OSError) else "BinaryError"}
    return {"answer": to_json(answer)}
