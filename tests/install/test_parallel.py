"""Jobs side by side: the budget, the order, one failure that stops the rest, and one more try alone."""

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import pytest

from splatfix.core.errors import SplatfixError
from splatfix.install.parallel import parallel

KILLED = SplatfixError("build-failed", "a compiler was killed", details={"cause": "killed"})


@dataclass
class Job:
    """One that takes ``seconds``, and raises each error once."""

    name: str
    cost: int
    seconds: float = 0.05
    errors: list[Exception] = field(default_factory=list)


class Recorder:
    """Runs jobs, and knows when each ran, and how many compilers were busy at most."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.most = 0
        self.together: set[frozenset[str]] = set()
        self._costs: dict[str, int] = {}
        self._lock = threading.Lock()

    def run(self, jobs: Sequence[Job], budget: int, end: Callable[[Job, str], None] | None = None) -> None:
        def ended(job: Job, name: str) -> None:
            self.told.append(f"{name} ends")

        def begin(job: Job) -> None:
            self.told.append(f"{job.name} begins")

        parallel(jobs, budget, lambda job: job.cost, begin, self._work, end or ended)

    def _work(self, job: Job, stop: threading.Event) -> str:
        with self._lock:
            self._costs[job.name] = job.cost
            self.most = max(self.most, sum(self._costs.values()))
            self.together.add(frozenset(self._costs))
        stopped = stop.wait(job.seconds)
        with self._lock:
            del self._costs[job.name]
        if stopped:
            self.told.append(f"{job.name} stopped")
            raise RuntimeError("stopped")
        if job.errors:
            raise job.errors.pop(0)
        return job.name


def test_a_small_one_goes_ahead_of_one_that_has_no_room_yet() -> None:
    recorder = Recorder()
    recorder.run([Job("a", 2, 0.3), Job("big", 3), Job("c", 1)], 3)
    assert recorder.told.index("c begins") < recorder.told.index("big begins")
    assert recorder.most <= 3


def test_one_that_costs_more_than_there_is_runs_alone() -> None:
    recorder = Recorder()
    recorder.run([Job("a", 9), Job("b", 1)], 2)
    assert frozenset("ab") not in recorder.together
    assert sorted(recorder.told) == ["a begins", "a ends", "b begins", "b ends"]


def test_an_interrupt_in_the_callers_thread_stops_all() -> None:
    recorder = Recorder()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recorder.run([Job("long", 1, 60.0), Job("quick", 1)], 2, interrupted)
    assert "long stopped" in recorder.told


@pytest.mark.parametrize(("beside", "kills", "fails"), [(1, 1, False), (1, 2, True), (0, 1, True)])
def test_what_had_no_room_for_company_is_done_once_more_alone(beside: int, kills: int, fails: bool) -> None:
    """Alone it is no one's fault but its own."""
    recorder = Recorder()
    jobs = [Job("a", 1, 0.2)] * beside + [Job("b", 1, errors=[KILLED] * kills)]
    with pytest.raises(SplatfixError) if fails else nullcontext():
        recorder.run(jobs, 2)
    assert frozenset("b") in recorder.together and recorder.told.count("b begins") == 1
    assert (recorder.told[-1] == "b ends") is not fails
