"""The instruments: CUDA memory on an allocator that the test plays, and the phases of an iteration."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from smoke_trainer import memory
from smoke_trainer.memory import PeakMemory, growth, under_wsl
from smoke_trainer.record import CudaPeak
from smoke_trainer.train import Run, train
from tests.smoke_trainer.conftest import ShortRun

GIB = 1 << 30
CUDA = torch.device("cuda")


class Allocator:
    """Stands in for torch.cuda's statistics; `use` moves the current memory, peaks follow."""

    def __init__(self) -> None:
        self.allocated = self.reserved = self.peak = self.peak_reserved = 0
        self.free, self.total = 8 * GIB, 8 * GIB

    def use(self, allocated: float, reserved: float) -> None:
        self.allocated, self.reserved = int(allocated * GIB), int(reserved * GIB)
        self.peak = max(self.peak, self.allocated)
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def reset(self, device: object) -> None:
        self.peak, self.peak_reserved = self.allocated, self.reserved


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Allocator:
    played = Allocator()
    for name, answer in {
        "memory_allocated": lambda device: played.allocated,
        "memory_reserved": lambda device: played.reserved,
        "max_memory_allocated": lambda device: played.peak,
        "max_memory_reserved": lambda device: played.peak_reserved,
        "reset_peak_memory_stats": played.reset,
        "mem_get_info": lambda device: (played.free, played.total),
    }.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    return played


def test_peaks_of_training_and_evaluation_are_kept_apart(cuda: Allocator):
    peaks = PeakMemory(CUDA)
    for training, evaluation in ((2.0, 5.0), (3.0, 4.0)):
        peaks.enter("train")
        cuda.use(training, training + 1)
        cuda.use(1.0, 1.5)
        peaks.enter("eval")
        cuda.use(evaluation, evaluation + 1)
        cuda.use(1.0, 1.5)
    peaked = peaks.summary().cuda
    assert peaked is not None
    assert peaked.train == CudaPeak(3 * GIB, 4 * GIB) and peaked.eval == CudaPeak(5 * GIB, 6 * GIB)


def test_growth_is_what_the_model_does_not_explain(cuda: Allocator):
    peaks = PeakMemory(CUDA)
    for iteration in range(10, 210, 10):
        model, kept = iteration / 100, iteration / 1000  # GiB
        cuda.use(model + kept, 4.0)
        assert peaks.sample(iteration, int(model * GIB)) == {
            "vram_allocated_gb": pytest.approx(model + kept),
            "vram_reserved_gb": 4.0,
        }
    assert peaks.summary().growth.per_1000 == pytest.approx(GIB, rel=1e-6)


def test_spill_is_seen_under_windows_only(cuda: Allocator, monkeypatch: pytest.MonkeyPatch):
    cuda.use(8.5, 9.0)
    cuda.free = GIB // 2
    linux = PeakMemory(CUDA)
    assert "vram_spill_gb" not in linux.sample(30, 0) and linux.summary().cuda.spill is None
    monkeypatch.setattr(memory, "under_wsl", lambda: True)
    guest = PeakMemory(CUDA)
    assert guest.sample(30, 0)["vram_spill_gb"] == 1.5
    cuda.use(6.0, 6.5)
    assert guest.sample(40, 0)["vram_spill_gb"] == 0.0
    assert guest.summary().cuda.spill == 1.5 * GIB


def test_wsl_is_detected_by_its_kernel(tmp_path: Path):
    (tmp_path / "wsl").write_text("Linux version 5.15.153.1-microsoft-standard-WSL2 (gcc)")
    (tmp_path / "other").write_text("Linux version 6.8.0-45-generic (buildd@lcy02)")
    assert under_wsl(tmp_path / "wsl") and not under_wsl(tmp_path / "other")
    assert not under_wsl(tmp_path / "absent")


def test_a_cpu_has_no_cuda_memory_but_a_resident_peak():
    peaks = PeakMemory(torch.device("cpu"))
    assert set(peaks.sample(30, 0)) == {"rss_gb"}
    report = peaks.summary()
    assert report.cuda is None and report.rss > 10_000_000


def test_growth_of_a_long_run_is_that_of_its_second_half():
    samples = [(step, 1000 * step if step > 15_000 else -step) for step in range(10, 30_001, 10)]
    grown = growth(samples)
    assert grown.per_1000 == pytest.approx(1e6)
    assert 14_900 < grown.start < 15_100 and grown.end > 29_900
    assert growth(samples[:2]) is None


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
    record = train(short_run(25))
    assert record.phases["record"] == record.seconds["train"] == 55.0
