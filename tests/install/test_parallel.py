"""Jobs side by side: the budget, the order, one failure that stops the rest, and one more try alone."""

import threading
from collections.abc import Mapping
from contextlib import nullcontext

import pytest

from splatfix.core.errors import SplatfixError
from splatfix.install.parallel import parallel


class Recorder:
    """Runs jobs by their names; knows what was told, and which ran with which others.

    Args:
        seconds: what a job takes, where it is not a twentieth.
        errors: what the work of a job raises, one error each time.
    """

    def __init__(self, seconds: Mapping[str, float] | None = None, **errors: list[BaseException]) -> None:
        self.seconds, self.errors = seconds or {}, errors
        self.told: list[str] = []
        self.running: frozenset[str] = frozenset()
        self.together: set[frozenset[str]] = set()
        self.lock = threading.Lock()

    def run(self, budget: int, **costs: int) -> None:
        """Run these jobs, which cost so much."""

        def begin(name: str) -> None:
            self.told.append(f"{name} begins")

        parallel(list(costs), budget, lambda name: costs[name], begin, self.work, self.end)

    def work(self, name: str, stop: threading.Event) -> str:
        with self.lock:
            self.running |= {name}
            self.together.add(self.running)
        stopped = stop.wait(self.seconds.get(name, 0.05))
        with self.lock:
            self.running -= {name}
        if stopped:
            self.told.append(f"{name} stopped")
        elif self.errors.get(name):
            raise self.errors[name].pop(0)
        return name

    def end(self, _: str, name: str) -> None:
        if name == "interrupts":
            raise KeyboardInterrupt
        self.told.append(f"{name} ends")


def test_a_small_one_goes_ahead_of_one_that_has_no_room_yet() -> None:
    recorder = Recorder({"a": 0.3})
    recorder.run(3, a=2, b=3, c=1)
    assert recorder.told.index("c begins") < recorder.told.index("b begins")
    assert frozenset("ac") in recorder.together
    assert not any("b" in names > {"b"} for names in recorder.together)


def test_one_that_costs_more_than_there_is_runs_alone() -> None:
    recorder = Recorder()
    recorder.run(2, a=9, b=1)
    assert frozenset("ab") not in recorder.together
    assert sorted(recorder.told) == ["a begins", "a ends", "b begins", "b ends"]


def test_an_interrupt_in_the_callers_thread_stops_all() -> None:
    recorder = Recorder({"long": 60.0})
    with pytest.raises(KeyboardInterrupt):
        recorder.run(2, long=1, interrupts=1)
    assert "long stopped" in recorder.told


@pytest.mark.parametrize(("beside", "kills", "fails"), [(1, 1, False), (1, 2, True), (0, 1, True)])
def test_what_had_no_room_for_company_is_done_once_more_alone(beside: int, kills: int, fails: bool) -> None:
    """Alone it is no one's fault but its own."""
    killed = SplatfixError("build-failed", "a compiler was killed", details={"cause": "killed"})
    recorder = Recorder({"a": 0.2}, b=[killed] * kills)
    with pytest.raises(SplatfixError) if fails else nullcontext():
        recorder.run(2, **{"a": 1} if beside else {}, b=1)
    assert frozenset("b") in recorder.together and recorder.told.count("b begins") == 1
    assert (recorder.told[-1] == "b ends") is not fails
