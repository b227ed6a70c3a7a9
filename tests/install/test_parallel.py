"""Pieces of work side by side: the budget, the order, one failure that stops the rest, and one more try alone."""

from __future__ import annotations

import threading
import time

import pytest

from splatfix.install.parallel import Piece, parallel


class Recorder:
    """Pieces that say when they run, and how many compilers were busy at most."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.busy = self.most = 0
        self.together: set[frozenset[str]] = set()
        self._running: set[str] = set()
        self._lock = threading.Lock()

    def piece(
        self,
        name: str,
        cost: int,
        *,
        seconds: float = 0.05,
        errors: tuple[Exception, ...] = (),
        until: threading.Barrier | None = None,
    ) -> Piece[str]:
        """One that takes ``seconds``, and waits for as many others as ``until`` says, however slow the machine is."""
        left = list(errors)

        def work(stop: threading.Event) -> str:
            with self._lock:
                self.busy += cost
                self.most = max(self.most, self.busy)
                self._running.add(name)
                self.together.add(frozenset(self._running))
            if until is not None:
                until.wait()
            stopped = stop.wait(seconds)
            with self._lock:
                self.busy -= cost
                self._running.discard(name)
            if stopped:
                self.told.append(f"{name} stopped")
                raise RuntimeError("stopped")
            if left:
                raise left.pop(0)
            return name

        return Piece(
            cost, work, lambda: self.told.append(f"{name} begins"), lambda n: self.told.append(f"{n} ends")
        )


def never(_: Exception) -> bool:
    return False


def test_as_many_at_once_as_the_budget_allows() -> None:
    seen = Recorder()
    two = threading.Barrier(2, timeout=60)  # broken, and the test with it, where one runs after the other
    parallel([seen.piece(name, 2, until=two) for name in "abcd"], 4, crowded_out=never)
    assert seen.most == 4
    assert {"a", "b"} in seen.together
    assert seen.told[:2] == ["a begins", "b begins"] and len(seen.told) == 8


def test_a_small_one_goes_ahead_of_one_that_has_no_room_yet() -> None:
    seen = Recorder()
    parallel(
        [seen.piece("a", 2, seconds=0.3), seen.piece("big", 3), seen.piece("c", 1)], 3, crowded_out=never
    )
    assert seen.told.index("c begins") < seen.told.index("big begins")
    assert seen.most <= 3


def test_one_that_costs_more_than_there_is_runs_alone() -> None:
    seen = Recorder()
    parallel([seen.piece("a", 9), seen.piece("b", 1)], 2, crowded_out=never)
    assert frozenset("ab") not in seen.together
    assert sorted(seen.told) == ["a begins", "a ends", "b begins", "b ends"]


def test_a_failure_stops_the_others_and_starts_no_more() -> None:
    seen = Recorder()
    pieces = [
        seen.piece("long", 1, seconds=60.0),
        seen.piece("bad", 1, errors=(ValueError("no such header"),)),
        seen.piece("waits", 2),
    ]
    started = time.monotonic()
    with pytest.raises(ValueError, match="no such header"):
        parallel(pieces, 2, crowded_out=never)
    assert time.monotonic() - started < 20
    assert "long stopped" in seen.told
    assert "waits begins" not in seen.told and "long ends" not in seen.told


def test_an_interrupt_in_the_callers_thread_stops_all() -> None:
    seen = Recorder()

    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    quick = seen.piece("quick", 1)
    pieces = [seen.piece("long", 1, seconds=60.0), Piece(1, quick.work, quick.begin, interrupted)]
    with pytest.raises(KeyboardInterrupt):
        parallel(pieces, 2, crowded_out=never)
    assert "long stopped" in seen.told


def test_what_had_no_room_for_company_is_done_once_more_alone() -> None:
    seen = Recorder()
    pieces = [seen.piece("a", 1, seconds=0.2), seen.piece("b", 1, errors=(MemoryError(),))]
    parallel(pieces, 2, crowded_out=lambda error: isinstance(error, MemoryError))
    assert seen.told[-1] == "b ends" and frozenset("b") in seen.together
    assert seen.told.count("b begins") == 1


def test_alone_it_is_no_ones_fault_but_its_own() -> None:
    seen = Recorder()
    pieces = [seen.piece("a", 1), seen.piece("b", 1, errors=(MemoryError(), MemoryError()))]
    with pytest.raises(MemoryError):
        parallel(pieces, 2, crowded_out=lambda error: isinstance(error, MemoryError))
    single = Recorder()
    with pytest.raises(MemoryError):
        parallel([single.piece("a", 1, errors=(MemoryError(),))], 2, crowded_out=lambda _: True)
