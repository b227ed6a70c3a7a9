"""Runs slow probes beside each other, each under a time limit, so that one that hangs or breaks costs only its own fact."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from splatfix.core.threads import start
from splatfix.model import Fact, unknown

S = TypeVar("S")
T = TypeVar("T")

# Children that probes start (nvcc, gcc) take a core each; more at once would only push each other past their timeouts.
_AT_ONCE = 4


def within(seconds: float, work: Callable[[], Any], found_via: str = "") -> Fact[Any]:
    """The result of ``work``, which may be a fact itself; unknown when it broke, or was not done in time.

    What hangs is left behind in a daemon thread (a driver call or a dead network drive cannot be interrupted), which
    does not keep the process alive.
    """
    return Job(work).result(time.monotonic() + seconds, seconds, found_via)


def parallel(seconds: float, works: Mapping[str, Callable[[], Any]]) -> dict[str, Fact[Any]]:
    """All of them at once, each as :func:`within`; the limit counts from now for all."""
    jobs = {name: Job(work) for name, work in works.items()}
    deadline = time.monotonic() + seconds
    return {name: job.result(deadline, seconds) for name, job in jobs.items()}


def each(work: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """``work`` done for every item, four at a time; the results are in the items' order."""
    gate = threading.Semaphore(_AT_ONCE)

    def run_one(item: S) -> T:
        with gate:
            return work(item)

    jobs = [Job(partial(run_one, item)) for item in items]
    return [job.value() for job in jobs]


class Job:
    """One probe under way in a thread of its own."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._value: Any = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        if not start(self._thread):
            self._run()  # now, without a time limit

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

    def result(self, deadline: float, seconds: float, found_via: str = "") -> Fact[Any]:
        """The value; waits until ``deadline`` (:func:`time.monotonic`) at most."""
        self._wait(deadline)
        if self._thread.is_alive():
            return unknown(f"no answer within {seconds:g} s", found_via)
        if self._error:
            return unknown(f"the probe itself broke: {type(self._error).__name__}: {self._error}", found_via)
        return self._value if isinstance(self._value, Fact) else Fact(self._value, found_via)

    def _wait(self, deadline: float) -> None:
        # in slices: a signal that comes just before the main thread blocks is heard only when it wakes
        while self._thread.is_alive() and (left := deadline - time.monotonic()) > 0:
            self._thread.join(min(left, 0.1))
