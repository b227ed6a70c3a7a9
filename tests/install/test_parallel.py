"""Pieces of work side by side: the budget, the order, one failure that stops the rest, and one more try alone."""

import threading
from contextlib import nullcontext

import pytest

from splatfix.core.errors import SplatfixError
from splatfix.install.parallel import Piece, parallel

KILLED = SplatfixError("build-failed", "a compiler was killed", details={"cause": "killed"})


class Recorder:
    """Pieces that say when they run, and how many compilers were busy at most."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.most = 0
        self.together: set[frozenset[str]] = set()
        self._costs: dict[str, int] = {}
        self._lock = threading.Lock()

    def piece(
        self,
        name: str,
        cost: int,
        *errors: Exception,
        seconds: float = 0.05,
    ) -> Piece[str]:
        """One that takes ``seconds``, and raises each error once."""
        left = list(errors)

        def work(stop: threading.Event) -> str:
            with self._lock:
                self._costs[name] = cost
                self.most = max(self.most, sum(self._costs.values()))
                self.together.add(frozenset(self._costs))
            stopped = stop.wait(seconds)
            with self._lock:
                del self._costs[name]
            if stopped:
                self.told.append(f"{name} stopped")
                raise RuntimeError("stopped")
            if left:
                raise left.pop(0)
            return name

        return Piece(
            cost, work, lambda: self.told.append(f"{name} begins"), lambda n: self.told.append(f"{n} ends")
        )


def test_a_small_one_goes_ahead_of_one_that_has_no_room_yet() -> None:
    recorder = Recorder()
    pieces = [recorder.piece("a", 2, seconds=0.3), recorder.piece("big", 3), recorder.piece("c", 1)]
    parallel(pieces, 3)
    assert recorder.told.index("c begins") < recorder.told.index("big begins")
    assert recorder.most <= 3


def test_one_that_costs_more_than_there_is_runs_alone() -> None:
    recorder = Recorder()
    parallel([recorder.piece("a", 9), recorder.piece("b", 1)], 2)
    assert frozenset("ab") not in recorder.together
    assert sorted(recorder.told) == ["a begins", "a ends", "b begins", "b ends"]


def test_an_interrupt_in_the_callers_thread_stops_all() -> None:
    recorder = Recorder()

    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    quick = recorder.piece("quick", 1)
    pieces = [recorder.piece("long", 1, seconds=60.0), Piece(1, quick.work, quick.begin, interrupted)]
    with pytest.raises(KeyboardInterrupt):
        parallel(pieces, 2)
    assert "long stopped" in recorder.told


@pytest.mark.parametrize(("beside", "kills", "fails"), [(1, 1, False), (1, 2, True), (0, 1, True)])
def test_what_had_no_room_for_company_is_done_once_more_alone(beside: int, kills: int, fails: bool) -> None:
    """Alone it is no one's fault but its own."""
    recorder = Recorder()
    pieces = [recorder.piece("a", 1, seconds=0.2)] * beside + [recorder.piece("b", 1, *[KILLED] * kills)]
    with pytest.raises(SplatfixError) if fails else nullcontext():
        parallel(pieces, 2)
    assert frozenset("b") in recorder.together and recorder.told.count("b begins") == 1
    assert (recorder.told[-1] == "b ends") is not fails
