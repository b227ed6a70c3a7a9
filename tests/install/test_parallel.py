"""Jobs side by side: the budget, the order, one failure that stops the rest, and one more try alone."""

import threading
from collections.abc import Sequence
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
    errors: list[BaseException] = field(default_factory=list)
    at_end: list[BaseException] = field(default_factory=list)


@dataclass
class Recorder:
    """Runs jobs; knows when each ran, and with which others."""

    told: list[str] = field(default_factory=list)
    running: frozenset[str] = frozenset()
    together: set[frozenset[str]] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, jobs: Sequence[Job], budget: int) -> None:
        parallel(jobs, budget, lambda job: job.cost, self.begin, self.work, self.end)

    def begin(self, job: Job) -> None:
        self.told.append(f"{job.name} begins")

    def work(self, job: Job, stop: threading.Event) -> str:
        with self.lock:
            self.running |= {job.name}
            self.together.add(self.running)
        stopped = stop.wait(job.seconds)
        with self.lock:
            self.running -= {job.name}
        if stopped:
            self.told.append(f"{job.name} stopped")
        elif job.errors:
            raise job.errors.pop(0)
        return job.name

    def end(self, job: Job, name: str) -> None:
        if job.at_end:
            raise job.at_end.pop()
        self.told.append(f"{name} ends")


def test_a_small_one_goes_ahead_of_one_that_has_no_room_yet() -> None:
    recorder = Recorder()
    recorder.run([Job("a", 2, 0.3), Job("b", 3), Job("c", 1)], 3)
    assert recorder.told.index("c begins") < recorder.told.index("b begins")
    assert frozenset("ac") in recorder.together and not any(
        "b" in names > {"b"} for names in recorder.together
    )


def test_one_that_costs_more_than_there_is_runs_alone() -> None:
    recorder = Recorder()
    recorder.run([Job("a", 9), Job("b", 1)], 2)
    assert frozenset("ab") not in recorder.together
    assert sorted(recorder.told) == ["a begins", "a ends", "b begins", "b ends"]


def test_an_interrupt_in_the_callers_thread_stops_all() -> None:
    recorder = Recorder()
    with pytest.raises(KeyboardInterrupt):
        recorder.run([Job("long", 1, 60.0), Job("quick", 1, at_end=[KeyboardInterrupt()])], 2)
    assert "long stopped" in recorder.told


@pytest.mark.parametrize(("beside", "kills", "fails"), [(1, 1, False), (1, 2, True), (0, 1, True)])
def test_what_had_no_room_for_company_is_done_once_more_alone(beside: int, kills: int, fails: bool) -> None:
    """Alone it is no one's fault but its own."""
    recorder = Recorder()
    with pytest.raises(SplatfixError) if fails else nullcontext():
        recorder.run([Job("a", 1, 0.2)] * beside + [Job("b", 1, errors=[KILLED] * kills)], 2)
    assert frozenset("b") in recorder.together and recorder.told.count("b begins") == 1
    assert (recorder.told[-1] == "b ends") is not fails
