"""What a trainer's time and memory go to, by the order of its calls: the clock is advanced by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from smoke_trainer import memory
from smoke_trainer.record import Observer, TrainingRecord
from splatfix.certify import Outcome
from splatfix.certify.criteria import judge
from splatfix.certify.criteria.resources import bound_by
from splatfix.certify.model import Criterion
from splatfix.core.runner import Completed
from tests.certify.conftest import trained
from tests.tables import data

pytest.importorskip("torch")

import torch

from splatfix.certify.inside import phases

GIB = 1 << 30
DONE = Completed(("train.py",), 0, "", "", 1.0)


class Event:
    """A moment on the GPU, which here has always caught up."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.at = machine, 0.0

    def record(self) -> None:
        self.at = self.machine.now

    def elapsed_time(self, end: Event) -> float:
        return 1000 * (end.at - self.at)


class Machine:
    """A clock, and a GPU whose memory is set by hand."""

    def __init__(self) -> None:
        self.now, self.autograd, self.synchronized = 0.0, True, 0
        self.allocated = self.peak = 0
        self.total, self.free, self.integrated = 16 * GIB, 4 * GIB, False
        self.device = torch.device
        self.cuda = SimpleNamespace(
            synchronize=self._synchronize,
            Event=lambda **_: Event(self),
            reset_peak_memory_stats=self._reset,
            memory_allocated=lambda _: self.allocated,
            max_memory_allocated=lambda _: self.peak,
            max_memory_reserved=lambda _: self.peak,
            mem_get_info=lambda _: (self.free, self.total),
            current_device=lambda: 0,
            memory_reserved=lambda _: self.allocated,
            get_device_properties=lambda _: SimpleNamespace(
                name="GB10", is_integrated=int(self.integrated), total_memory=self.total
            ),
        )

    def is_grad_enabled(self) -> bool:
        return self.autograd

    def _synchronize(self) -> None:
        self.synchronized += 1

    def _reset(self, _: object) -> None:
        self.peak = self.allocated

    def hold(self, gibibytes: float) -> None:
        self.allocated = int(gibibytes * GIB)
        self.peak = max(self.peak, self.allocated)


@pytest.fixture(name="machine")
def _machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(phases.time, "perf_counter", lambda: machine.now)
    monkeypatch.setattr(phases, "torch", machine)
    monkeypatch.setattr(memory, "torch", machine)
    return machine


def draw(clock: phases.Phases, machine: Machine, seconds: float, gibibytes: float = 4.0) -> None:
    clock.draw()
    machine.hold(gibibytes)
    machine.now += seconds


def run(machine: Machine, iterations: int, *, gpu: bool = False, evaluate_at: int = 0) -> phases.Phases:
    """Load 5 s; of each iteration forward 0.2, backward 0.3, optimizer 0.1, densify or other 0.05 s; evaluation 0.7 s."""
    clock = phases.Phases(on_gpu=gpu)
    machine.now += 5.0
    for number in range(1, iterations + 1):
        draw(clock, machine, 0.2)
        clock.enter("backward")
        machine.now += 0.3
        clock.passed(grown=number == 4)
        if number == evaluate_at:
            draw(clock, machine, 0.7, 9.0)
            machine.hold(4.0)
        clock.enter("optimizer")
        machine.now += 0.1
        clock.enter("other")
        machine.now += 0.05
    return clock


def test_phases_of_a_cpu_run(machine: Machine) -> None:
    fields = run(machine, 11, evaluate_at=6).fields()
    # of the last iteration the step, and what follows, is no training any more
    assert fields["seconds"] == pytest.approx({"setup": 5.0, "train": 7.7, "eval": 0.7})
    expected = {"forward": 2.2, "backward": 3.3, "optimizer": 1.0}
    expected |= {"densify": 0.05, "other": 0.45, "evaluation": 0.7}
    assert fields["phases"] == pytest.approx(expected)
    assert phases.Phases(on_gpu=False).fields()["phases"] == {}


def test_a_gpu_is_waited_for_once_in_an_iteration(machine: Machine) -> None:
    spent = run(machine, 40, gpu=True).fields()["phases"]
    assert machine.synchronized == 40
    assert spent == pytest.approx(
        {"forward": 8.0, "backward": 12.0, "optimizer": 3.9, "densify": 0.05, "other": 1.9}
    )


def test_a_picture_without_autograd_is_evaluated(machine: Machine) -> None:
    clock = run(machine, 2)
    machine.autograd = False
    draw(clock, machine, 2.0)
    machine.autograd = True
    draw(clock, machine, 0.2)
    clock.enter("backward")
    machine.now += 0.3
    assert clock.passed(grown=False)[0]["evaluation"] == 2000.0


def judged(clock: phases.Phases) -> dict[str, Criterion]:
    record = TrainingRecord(iterations=40, observer=Observer(started=True), **clock.fields())
    training = trained(asdict(record), device="cuda", stack=True)
    return {item.code: item for item in judge(training)}


def test_an_evaluation_that_takes_more_than_training_is_refused(machine: Machine) -> None:
    found = judged(run(machine, 40, gpu=True, evaluate_at=7))
    assert found["evaluation-memory"].outcome is Outcome.FAILED
    assert "9,216 MiB in evaluation, 4,096 MiB in training" in found["evaluation-memory"].measured
    assert found["time-by-phase"].outcome is found["memory-utilisation"].outcome is Outcome.MET


def test_memory_beyond_the_card_is_refused(machine: Machine) -> None:
    """Windows' driver, also under WSL2, gives more than the card has."""
    machine.total = 3 * GIB
    criterion = judged(run(machine, 40, gpu=True))["memory-spill"]
    assert criterion.outcome is Outcome.FAILED and "1,024 MiB" in criterion.measured


@pytest.mark.parametrize(("integrated", "outcome"), [(False, Outcome.FAILED), (True, Outcome.NOT_MEASURED)])
def test_memory_that_a_gpu_shares_with_the_page_cache_is_not_judged(
    machine: Machine, integrated: bool, outcome: Outcome
) -> None:
    machine.free, machine.integrated = GIB // 16, integrated
    criterion = judged(run(machine, 40, gpu=True))["memory-utilisation"]
    assert criterion.outcome is outcome, criterion.measured


def test_where_one_phase_bounds_the_gain_it_is_said_by_how_much() -> None:
    """A forward pass of 43.5 % that becomes 88 times faster is 1.75 times in all: without it 1.77."""
    assert "2.30 times as fast in all" in bound_by({"forward": 0.435, "backward": 0.565})


TRAINER: str = data(__file__)["texts"]["trainer"]
RASTERIZER = "import time\n\ndef rasterize_gaussians(points):\n    time.sleep(0.003)\n    return points * 2\n"


def test_monitor_times_the_phases_of_any_command(tmp_path: Path) -> None:
    """A trainer that keeps 0.5 MiB of each iteration, and takes most of its time to draw."""
    (tmp_path / "train.py").write_text(TRAINER)
    (tmp_path / "diff_gaussian_rasterization.py").write_text(RASTERIZER)
    monitor = ["-m", "splatfix", "monitor", "--phases", "--json", "--out"]
    words = [sys.executable, *monitor, str(tmp_path / "out")]
    command = [*words, sys.executable, str(tmp_path / "train.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    costs = json.loads(done.stdout)["phases"]
    assert costs["iterations"] == 300 and "times as fast in all" in costs["bound"]
    assert {"load", "forward", "backward", "optimizer", "evaluation"} <= costs["seconds"].keys()
    assert 0.3 < costs["growth_gb"] < 0.8
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["phases"] == costs
    assert subprocess.run([*words, "1"], capture_output=True, check=False).returncode == 2
