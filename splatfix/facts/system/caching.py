"""Asks a system every question once: the same question gets the same answer again, also from another thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from splatfix.binaries import Binary, SymbolNeeds
from splatfix.core.runner import Completed
from splatfix.facts.system.live import System
from splatfix.facts.system.playback import portable

T = TypeVar("T")


class CachingSystem:
    """See :class:`splatfix.facts.system.live.System`. Probes overlap in what they ask (nvcc's own root, site-packages), and a
    machine changes while it is looked at: with this between, they all see one and the same."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._env: Mapping[str, str] = system.env
        self._kept: dict[str, dict[Any, Any]] = {}
        self._under_way: set[tuple[str, Any]] = set()
        self._changed = threading.Condition()

    def _ask(self, kind: str, key: Any, question: Callable[[], T]) -> T:
        """The one answer to a question; who asks while it is being found out waits for it."""
        kept = self._kept.setdefault(kind, {})
        if key not in kept:
            with self._changed:
                while (kind, key) in self._under_way:
                    self._changed.wait()
                first = key not in kept
                if first:
                    self._under_way.add((kind, key))
            if first:
                self._find_out(kind, key, question)
        answer: T = kept[key]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _find_out(self, kind: str, key: Any, question: Callable[[], Any]) -> None:
        try:
            answer = question()
        except Exception as error:  # noqa: BLE001 - raised again in everyone who asks
            answer = error
        with self._changed:
            self._kept[kind][key] = answer
            self._under_way.discard((kind, key))
            self._changed.notify_all()

    def answers(self, kind: str) -> dict[Any, Any]:
        """What was asked of one kind, with its answer or the error that came instead."""
        return dict(self._kept.get(kind, {}))

    @property
    def name(self) -> str:
        return self._system.name

    @property
    def machine(self) -> str:
        return self._system.machine

    @property
    def env(self) -> Mapping[str, str]:
        return self._env

    @property
    def python(self) -> str:
        return self._system.python

    def read(self, path: str) -> str | None:
        return self._ask("read", path, lambda: self._system.read(path))

    def exists(self, path: str) -> bool:
        return self._ask("exists", path, lambda: self._system.exists(path))

    def listdir(self, path: str) -> tuple[str, ...]:
        return self._ask("listdir", path, lambda: self._system.listdir(path))

    def realpath(self, path: str) -> str:
        return self._ask("realpath", path, lambda: self._system.realpath(path))

    def run(self, argv: Sequence[str], timeout: float) -> Completed:
        return self._ask("run", portable(argv), lambda: self._system.run(argv, timeout))

    def read_binary(self, path: str) -> Binary:
        return self._ask("read_binary", path, lambda: self._system.read_binary(path))

    def symbol_needs(self, path: str) -> SymbolNeeds:
        return self._ask("symbol_needs", (path,), lambda: self._system.symbol_needs(path))

    def missing_exports(self, names: Iterable[str], libraries: Sequence[str]) -> tuple[str, ...]:
        key = (tuple(names), tuple(libraries))
        return self._ask("missing_exports", key, lambda: self._system.missing_exports(key[0], key[1]))

    def provided_versions(self, path: str) -> tuple[str, ...]:
        return self._ask("provided_versions", (path,), lambda: self._system.provided_versions(path))

    def contains(self, path: str, texts: Iterable[str]) -> tuple[str, ...]:
        key = (path, tuple(texts))
        return self._ask("contains", key, lambda: self._system.contains(key[0], key[1]))

    def modified(self, path: str) -> float | None:
        return self._ask("modified", path, lambda: self._system.modified(path))

    def starts_with_script(self, path: str) -> bool:
        return self._ask("starts_with_script", path, lambda: self._system.starts_with_script(path))

    def nvml(self) -> dict[str, Any]:
        return self._ask("nvml", "", self._system.nvml)
