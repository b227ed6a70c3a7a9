"""How even iterations are, and what other programs took meanwhile."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from smoke_trainer import timing
from smoke_trainer.memory import PeakMemory
from smoke_trainer.report import eventful_iterations
from smoke_trainer.timing import OtherPrograms, steadiness
from smoke_trainer.train import Run, train, train_step
from tests.smoke_trainer.conftest import ShortRun


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what other programs take")
def test_another_program_is_seen_and_this_one_is_not() -> None:
    others = OtherPrograms()
    until = time.process_time() + 0.5
    while time.process_time() < until:
        pass
    others.sample(10)
    before = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass"], check=True)
    others.sample(20)
    (_, clock, alone), (_, beside, busy) = others.samples
    assert busy >= 0.4 and beside <= time.perf_counter() - before + 0.1
    assert alone <= clock * (os.cpu_count() or 1) - 0.4  # its own half second is left out


def test_where_the_system_does_not_tell_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_busy_seconds", lambda: None)
    others = OtherPrograms()
    others.sample(40)
    assert steadiness([1.0] * 40, 0, 10, others)["others"] is None


def test_load_at_the_end_is_not_hidden_by_an_idle_start() -> None:
    """The second half of what follows the last densification is judged by its own load."""
    others = OtherPrograms()
    others.samples = [(10, 1.0, 9.0), (80, 97.0, -0.5), (90, 1.0, 0.0), (100, 1.0, 1.0)]
    even = steadiness([1.0] * 90 + [1.9] * 10, 80, 10, others)
    assert even["others"] == 1.0 and even["drift"] == pytest.approx(1.9)
    assert others.cores(10) == pytest.approx(0.5 / 99)
    assert steadiness([1.0] * 40, 0, 10)["others"] is None


def test_what_has_more_to_do_is_no_stall() -> None:
    """As on a healthy GPU: every tenth iteration refines, and a kernel that it uses for the first time is loaded."""
    costs = [5.0] * 200
    for index in range(20, 200, 10):
        costs[index] = 25.0
    costs[100] = 300.0
    eventful = set(range(20, 200, 10))
    assert steadiness(costs, 190, 10, eventful=eventful)["lost"] == 0.0
    assert (steadiness(costs, 190, 10)["lost"] or 0.0) > 0.3
    costs[35] = costs[75] = 400.0
    stalled = steadiness(costs, 190, 10, eventful=eventful)
    assert stalled["slow"] == [36, 76] and (stalled["lost"] or 0.0) > 0.3


def test_recording_and_writing_are_a_phase(short_run: ShortRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that stands still but where an iteration is recorded, and where ten are written."""
    now = [0.0]

    def take(owner: Any, name: str, seconds: float) -> None:
        right = getattr(owner, name)

        def slow(*given: Any) -> Any:
            now[0] += seconds
            return right(*given)

        monkeypatch.setattr(owner, name, slow)

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    take(Run, "held_bytes", 1.0)
    take(PeakMemory, "sample", 10.0)
    document = train(short_run(25)).document
    assert document["phases"]["record"] == document["seconds"]["train"] == 55.0


def test_a_run_knows_which_iterations_have_more_to_do(prepared: Callable[..., Any]) -> None:
    run = prepared(40)
    run.config = replace(run.config, sh_degree_interval=15, evaluate_every=20)
    run.monitor.eventful, run.iteration = [10], 40
    assert eventful_iterations(run) == {10, 11, 15, 16, 30, 31, 45, 46, 21, 22}


def test_photos_of_the_first_epoch_and_updates_that_are_followed_are_no_stall(
    prepared: Callable[..., Any],
) -> None:
    run = prepared(60)
    for iteration in range(1, 12):
        train_step(run, iteration)
    assert run.monitor.eventful == [*range(1, len(run.scene.train) + 1), 10]
