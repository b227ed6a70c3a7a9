"""One training step, part by part: each leaves a trace that would be missing without it; and which groups an optimizer moves."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from smoke_trainer import report
from smoke_trainer.densify import DensifyEvent
from smoke_trainer.metrics import Loss
from smoke_trainer.model import xyz_lr_at
from smoke_trainer.record import GroupUpdates
from smoke_trainer.renderers import TorchRenderer
from smoke_trainer.train import evaluate, train_step
from smoke_trainer.updates import UpdateCheck
from splatfix.kernels import knn


def rates(run: Any) -> dict[str, float]:
    return {group["name"]: group["lr"] for group in run.model.optimizer.param_groups}


def resets(run: Any) -> int:
    return run.monitor.history().count('"opacity_reset": true')


def test_only_the_learning_rate_of_positions_changes(prepared):
    run = prepared()
    before = rates(run)
    for iteration in (1, 2, 9):
        train_step(run, iteration)
        expected = xyz_lr_at(run.config.lrs, run.scene.extent, iteration, 20)
        assert rates(run) == {**before, "xyz": expected}


def test_refinement_comes_after_the_evaluation_of_its_iteration(prepared):
    run = prepared()
    densify = replace(run.config.densify, refine_start_iter=0, refine_every=2, reset_every=2, grow_grad2d=0.0)
    run.strategy.config = densify
    train_step(run, 1)
    train_step(run, 2)
    assert (len(run.model), resets(run)) == (run.strategy.initial_count, 0)
    train_step(run, 3)
    assert len(run.model) > run.strategy.initial_count and resets(run) == 1


def test_views_come_in_an_order_that_the_seed_decides(prepared):
    def two_rounds(run):
        return [[run.next_view().name for _ in run.scene.train] for _ in range(2)]

    first, second = two_rounds(prepared(seed=1))
    in_file_order = [view.name for view in prepared().scene.train]
    assert sorted(first) == sorted(second) == in_file_order
    assert first not in (in_file_order, in_file_order[::-1]) and first != second
    assert two_rounds(prepared(seed=1)) == [first, second]
    assert two_rounds(prepared(seed=2)) != [first, second]


@pytest.mark.parametrize(("strategy", "pulls"), [("default", False), ("mcmc", True)])
def test_only_mcmc_has_gradients_without_visibility(strategy, pulls, prepared, monkeypatch):
    run = prepared(strategy=strategy)
    with torch.no_grad():
        run.model.params["xyz"][0] = 1e6
    observed = {}

    honest = TorchRenderer.render

    def look(*given):
        output = honest(*given)
        observed.update(radius=int(output.radii[0]))
        opacity = run.model.params["opacity"]
        opacity.register_hook(lambda grad: observed.update(gradient=float(grad[0])))
        return output

    monkeypatch.setattr(TorchRenderer, "render", look)
    train_step(run, 1)
    assert observed["radius"] == 0 and (observed["gradient"] > 0) is pulls


def test_a_step_leaves_no_gradient_behind(prepared):
    run = prepared()
    train_step(run, 1)
    assert all(rows.grad is None for rows in run.model.params.values())


@pytest.mark.parametrize("engine", ["torch-cpu", "scipy"])
def test_the_report_names_the_knn_engine(engine, prepared, monkeypatch):
    if engine == "scipy":
        pytest.importorskip("scipy.spatial")
    else:
        monkeypatch.setattr(knn, "_scipy_spatial", lambda: None)
    assert prepared().knn.implementation().engine == engine


def test_the_report_keeps_the_peak_of_gaussians_that_are_gone(prepared):
    run = prepared()
    one = torch.tensor(0.5)
    for iteration, count in ((1, 7000), (2, 500)):
        run.monitor.start()
        run.monitor.record(iteration, Loss(one, one, one, one), {}, count, DensifyEvent())
    run.seconds.update(iterations=2.0, train=1.0)
    counts = report.write_result(run, "ok", evaluate(run), evaluate(run)).gaussians
    assert counts.peak == 7000 > counts.final


@pytest.mark.parametrize(
    ("asked", "behind"), [("black", [0.0] * 3), ("white", [1.0] * 3), ("random", [0.0] * 3)]
)
def test_evaluation_uses_one_plain_background(asked, behind, prepared, monkeypatch):
    run = prepared(background=asked)
    honest, colours = TorchRenderer.render, []

    def watched(self, camera, splats, background):
        colours.append(background.tolist())
        return honest(self, camera, splats, background)

    monkeypatch.setattr(TorchRenderer, "render", watched)
    evaluate(run)
    assert colours == [behind] * len(run.scene.test)
    colours.clear()
    for iteration in (1, 2):
        train_step(run, iteration)
    assert (colours == [behind] * 2) is (asked != "random")
    assert asked != "random" or colours[0] != colours[1]


ROWS = 1300


class SparseGaussianAdam(torch.optim.Adam):
    """Of the rows with a gradient only, as Inria's."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                rows = (parameter.grad != 0).any(dim=1)
                parameter[rows] -= group["lr"] * parameter.grad[rows].sign()


def followed(make: Callable[[Any], Any], spoil: Callable[[Any, Any], None] = lambda *_: None) -> GroupUpdates:
    """Ten steps of an optimizer on random gradients, of which a third of the rows has none; ``spoil`` acts after each."""
    generator = torch.Generator().manual_seed(1)
    parameter = torch.randn(ROWS, 4, generator=generator).requires_grad_(True)
    optimizer, check = make([{"params": [parameter], "lr": 1e-3}]), UpdateCheck()
    for number in range(10):
        parameter.grad = (
            torch.randn(ROWS, 4, generator=generator) * (torch.arange(ROWS) % 3 != number % 3)[:, None]
        )
        before = parameter.detach().clone()
        check.before("rotation", parameter)
        optimizer.step()
        with torch.no_grad():
            spoil(parameter, before)
        check.after()
    return check.summary()["rotation"]


@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, SparseGaussianAdam])
def test_a_group_that_moves(make: Callable[[Any], Any]) -> None:
    assert followed(make) == GroupUpdates(10, 10)


def test_weight_decay_alone_moves_nothing_that_has_a_gradient() -> None:
    """Rows without a gradient may move: by momentum, or by decay."""

    def spoil(parameter: Any, before: Any) -> None:
        pulled = parameter.grad != 0
        parameter[pulled] = before[pulled]

    assert followed(lambda groups: torch.optim.AdamW(groups, weight_decay=0.1), spoil) == GroupUpdates(10, 0)


def test_a_group_without_a_gradient_is_not_looked_at() -> None:
    check = UpdateCheck()
    parameter = torch.zeros(2, 1, requires_grad=True)
    check.before("opacity", parameter)
    check.after()
    assert check.summary() == {}
    parameter.grad = torch.zeros(2, 1)
    check.before("opacity", parameter)
    check.after()
    assert check.summary() == {"opacity": GroupUpdates(0, 0)}
