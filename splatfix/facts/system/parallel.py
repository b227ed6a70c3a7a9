"""Runs slow probes beside each other, each under a time limit, so that one that hangs or breaks costs only its own fact."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")


def within(seconds: float, work: Callable[[], T]) -> tuple[T | None, str]:
    """The result of ``work``, or None and the reason: it broke, or it was not done in time.

    What hangs is left behind in a daemon thread (a driver call or a dead network drive cannot be interrupted), which
    does not keep the process alive.
    """
    return Job(work).result(time.monotonic() + seconds, seconds)


def parallel(seconds: float, works: Mapping[str, Callable[[], Any]]) -> dict[str, tuple[Any, str]]:
    """All of them at once, each as :func:`within`; the limit counts from now for all."""
    jobs = {name: Job(work) for name, work in works.items()}
    deadline = time.monotonic() + seconds
    return {name: job.result(deadline, seconds) for name, job in jobs.items()}


def each(work: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """``work`` done for every item, four at a time; the results are in the items' order."""
    gate = threading.Semaphore(4)

    def one(item: S) -> T:
        with gate:
            return work(item)

    jobs = [Job(partial(one, item)) for item in items]
    return [job.value() for job in jobs]


class Job:
    """One probe under way in a thread of its own."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._value: Any = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._work()
        except Exception as error:  # noqa: BLE001 - given to whoever waits; the other probes go on
            self._error = error

    def value(self) -> Any:
        """The value, however long it takes; raises what the work raised."""
        self._wait(float("inf"))
        if self._error:
            raise self._error
        return self._value

    def result(self, deadline: float, seconds: float) -> tuple[Any, str]:
        """The value, or None and the reason; waits until ``deadline`` (:func:`time.monotonic`) at most."""
        self._wait(deadline)
        if self._thread.is_alive():
            return None, f"no answer within {seconds:g} s"
        if self._error:
            return None, f"the probe itself broke: {type(self._error).__name__}: {self._error}"
        return self._value, ""

    def _wait(self, deadline: float) -> None:
        """Wait in slices: a signal that comes just before the main thread blocks is heard only when it wakes."""
        while self._thread.is_alive() and (left := deadline - time.monotonic()) > 0:
            self._thread.join(min(left, 0.1))
