"""The device of a run: which one it is, that extensions run there too, and that no step waits for it without need."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from smoke_trainer import train as training
from smoke_trainer.backends import check_device
from smoke_trainer.densify import DensifyEvent
from smoke_trainer.errors import RendererUnavailable
from smoke_trainer.renderers import RenderOutput
from smoke_trainer.report import hardware
from smoke_trainer.train import WARM_UP, evaluate, prepare, train, train_step
from tests.smoke_trainer.conftest import ShortRun
from tests.waits import Waits


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """A torch that has two GPUs, as far as it is asked for them; the devices that were made current."""
    current: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    return current


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_has_its_index() -> None:
    """Without one `mem_get_info` refuses it before torch 2.5."""
    assert check_device("cuda:1") == torch.device("cuda", 1)
    assert check_device("cuda") == torch.device("cuda", 0)
    with pytest.raises(RendererUnavailable):
        check_device("cuda:2")


def test_the_device_of_a_run_becomes_the_current_one(
    two_gpus: list[torch.device], monkeypatch: pytest.MonkeyPatch, short_run: ShortRun
) -> None:
    class Reached(Exception):
        pass

    def renderer(*given: Any) -> Any:
        raise Reached

    monkeypatch.setattr(training, "make_renderer", renderer)
    with pytest.raises(Reached):
        prepare(short_run(1, device="cuda:1"))
    assert two_gpus == [torch.device("cuda", 1)]


@pytest.mark.parametrize(
    ("told", "known"), [({"is_integrated": 1}, True), ({"is_integrated": 0}, False), ({}, None)]
)
def test_a_gpu_that_shares_the_machines_memory_is_recorded(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, int], known: bool | None
) -> None:
    about = SimpleNamespace(total_memory=128 << 30, **told)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: about)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA GB10")
    assert hardware(torch.device("cuda", 0)).gpu_integrated is known


class Flat:
    """Renders one colour for all; unlike ours it needs nothing from the device. `to_ndc` as gsplat's."""

    kind = name = version = engine = "flat"

    def render(self, camera: Any, splats: Any, background: torch.Tensor) -> RenderOutput:
        means2d = torch.zeros_like(splats.means, requires_grad=True)
        level = torch.sigmoid(sum(part.sum() for part in splats if isinstance(part, torch.Tensor)))
        color = (level + means2d.sum()).expand(3, camera.height, camera.width) * background.add(1.0)[
            :, None, None
        ]
        radii = torch.ones_like(splats.means[:, 0])
        return RenderOutput(color, radii, means2d, (0.5 * camera.width, 0.5 * camera.height))


@pytest.mark.parametrize("strategy", ["default", "budget", "mcmc"])
def test_no_step_waits_for_the_device(
    prepared: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    run = prepared(strategy=strategy, background="random")
    run.renderer = Flat()
    run.strategy.refine = lambda iteration, model: DensifyEvent()
    run.ssim.entry = lambda first, second: (first * second).mean()
    monkeypatch.setattr(run.model.optimizer, "step", lambda: None)  # its counts of steps are on the host
    run.remaining_views = 2 * list(range(len(run.scene.train)))  # drawn on the host, and read there
    waits = Waits()
    with waits:  # the pictures and cameras of the first epoch are new
        for iteration in range(1, WARM_UP):  # the records of WARM_UP iterations are read at once
            train_step(run, iteration)
    assert waits.found == []


def test_the_numbers_of_ten_iterations_leave_the_device_together(prepared: Callable[..., Any]) -> None:
    run = prepared(WARM_UP + 2)
    for iteration in range(1, WARM_UP):
        train_step(run, iteration)
    assert run.monitor.latest == {}
    with Waits() as waits:
        run.monitor.flush()
    assert run.monitor.history().count("loss") == WARM_UP - 1
    assert waits.found == ["tolist"]


def test_a_metrics_network_is_no_memory_of_evaluating(
    prepared: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """LPIPS' weights lie in torch's cache on many machines: they and its activations come after the peak is taken."""
    run, order = prepared(2), list[str]()

    def network(one: Tensor, two: Tensor) -> float:
        order.append("network")
        return 0.25

    monkeypatch.setattr(training, "find_lpips", lambda *_: (network, ""))
    monkeypatch.setattr(run.monitor.memory, "enter", order.append)
    quality = evaluate(run, previews="last")
    assert order == ["eval", "between", *["network"] * quality.views]
    assert quality.lpips == 0.25


@pytest.mark.gpu
def test_no_step_waits_for_a_gpu(prepared: Callable[..., Any]) -> None:
    run = prepared(device="cuda", background="random")
    run.renderer = Flat()
    run.strategy.refine = lambda iteration, model: DensifyEvent()
    train_step(run, 1)  # the pictures and cameras of the others are new
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for iteration in range(2, WARM_UP):
            train_step(run, iteration)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_speed_leaves_the_warm_up_out(short_run: ShortRun, monkeypatch: pytest.MonkeyPatch) -> None:
    step = training.train_step

    def slow_at_first(run: Any, iteration: int) -> None:
        time.sleep(0.3 if iteration == 1 else 0.0)
        step(run, iteration)

    monkeypatch.setattr(training, "train_step", slow_at_first)
    record = train(short_run(WARM_UP + 5))
    seconds = record.seconds
    assert seconds["warm_up"] >= 0.3
    expected = 5 / (seconds["train"] - seconds["warm_up"])
    assert record.iterations_per_second == pytest.approx(expected, rel=0.05)
