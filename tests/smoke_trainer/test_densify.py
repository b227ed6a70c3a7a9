"""Strategies and their verbs: counts, moments, and the algebra of sharing a place."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from smoke_trainer import densify as ops
from smoke_trainer.config import DensifyConfig, LearningRates
from smoke_trainer.densify import STRATEGIES, DensifyEvent, inject_noise
from smoke_trainer.model import GROUPS, Gaussians, logit
from smoke_trainer.renderers import RenderOutput

CONFIG = DensifyConfig(refine_start_iter=0, refine_stop_iter=101, refine_every=10, reset_every=50)


def model_of(count: int = 6, scale: float = 0.001, opacity: float = 0.5, seed: int = 0) -> Gaussians:
    g = torch.Generator().manual_seed(seed)
    params = {
        "xyz": torch.randn(count, 3, generator=g),
        "f_dc": torch.randn(count, 1, 3, generator=g),
        "f_rest": torch.randn(count, 3, 3, generator=g),
        "opacity": logit(torch.full((count, 1), opacity)),
        "scaling": torch.full((count, 3), scale).log(),
        "rotation": torch.randn(count, 4, generator=g),
    }
    model = Gaussians(params, 1, LearningRates())
    sum((p.sum() * 0.1 + (p**2).sum()) for p in model.params.values()).backward()
    model.optimizer.step()
    model.optimizer.zero_grad(set_to_none=True)
    return model


def strategy_of(name: str, count: int = 6, **changes: Any) -> Any:
    config = dataclasses.replace(CONFIG, **changes)
    return STRATEGIES[name](config, 1.0, count, torch.Generator().manual_seed(0))


def output_of(gradients: Sequence[float], radii: Sequence[int] | None = None) -> RenderOutput:
    """A render output whose screen gradients have the given norms."""
    points = torch.zeros(len(gradients), 3, requires_grad=True)
    points.grad = torch.tensor([[g, 0.0, 9.0] for g in gradients])
    shown = torch.tensor(radii or [1] * len(gradients), dtype=torch.int32)
    return RenderOutput(torch.zeros(3, 4, 4), shown, points)


def put(model: Gaussians, rows: Any = slice(None), **values: Any) -> None:
    """Set raw parameters of some rows."""
    for name, value in values.items():
        with torch.no_grad():
            model.params[name][rows] = torch.as_tensor(value, dtype=torch.float32)


def step(strategy: Any, iteration: int, model: Gaussians, output: RenderOutput | None = None) -> Any:
    strategy.learn(iteration, model, output, 0.0)
    return strategy.refine(iteration, model)


def moments(model: Gaussians, name: str, key: str = "exp_avg") -> torch.Tensor:
    return model.optimizer.state[model.params[name]][key]


def assert_in_step(model: Gaussians, state: dict[str, torch.Tensor]) -> None:
    """Parameters, optimizer groups, moments and strategy rows all speak of the same Gaussians."""
    for group in model.optimizer.param_groups:
        assert group["params"] == [model.params[group["name"]]]
        assert len(model.params[group["name"]]) == len(model)
        for key in ops.MOMENTS:
            assert moments(model, group["name"], key).shape == model.params[group["name"]].shape
    assert len(model.optimizer.state) == len(GROUPS)
    assert all(len(rows) == len(model) for rows in state.values())


def test_remove_takes_moments_and_state_along():
    model, state = model_of(), {"count": torch.arange(6.0)}
    mask = torch.tensor([True, False, True, True, False, True])
    before = {name: (model.params[name].detach().clone(), moments(model, name).clone()) for name in GROUPS}
    assert ops.remove(model, state, ~mask) == 2
    for name, (rows, average) in before.items():
        assert torch.equal(model.params[name], rows[mask])
        assert torch.equal(moments(model, name), average[mask])
    assert state["count"].tolist() == [0, 2, 3, 5]
    assert_in_step(model, state)


def test_clone_copies_with_zero_moments():
    model, state = model_of(), {"count": torch.ones(6)}
    mask = torch.tensor([False, True, False, False, True, False])
    assert ops.clone(model, state, mask) == 2
    assert len(model) == 8
    for name in GROUPS:
        assert torch.equal(model.params[name][6:], model.params[name][:6][mask])
        assert (moments(model, name)[6:] == 0).all() and (moments(model, name)[:6] != 0).any()
    assert state["count"].tolist() == [1] * 6 + [0] * 2
    assert_in_step(model, state)


def test_split_replaces_one_by_two_smaller():
    model, state = model_of(scale=0.5), {}
    mask = torch.tensor([True, False, False, False, False, True])
    parents = {name: model.params[name].detach()[mask].clone() for name in GROUPS}
    assert ops.split(model, state, mask, torch.Generator().manual_seed(1)) == 2
    assert len(model) == 8
    children = {name: model.params[name].detach()[4:] for name in GROUPS}
    ratio = torch.exp(parents["scaling"].repeat(2, 1) - children["scaling"])
    assert ratio == pytest.approx(1.6)
    for name in ("f_dc", "f_rest", "opacity", "rotation"):
        assert torch.equal(children[name], parents[name].repeat(2, *[1] * (parents[name].dim() - 1)))
    offset = children["xyz"] - parents["xyz"].repeat(2, 1)
    assert (offset.norm(dim=1) > 0).all() and (offset.abs() < 5 * 0.51).all()
    assert_in_step(model, state)


def test_split_offsets_follow_the_gaussians_own_shape():
    scales = torch.tensor([[1.0, 0.1, 0.01]]).repeat(20000, 1)
    quaternion = torch.tensor([[0.9, 0.3, -0.2, 0.5]]).repeat(20000, 1)
    drawn = ops.sample_offsets(scales, quaternion, torch.Generator().manual_seed(0))
    rotation = ops.rotation_matrices(quaternion[:1])[0]
    assert torch.allclose(rotation @ rotation.T, torch.eye(3), atol=1e-6)
    expected = rotation @ torch.diag(scales[0] ** 2) @ rotation.T
    assert torch.allclose(torch.cov(drawn.T), expected, atol=0.02)


def test_opacity_reset_clears_only_opacity_moments():
    model = model_of(opacity=0.9)
    kept = moments(model, "xyz").clone()
    ops.reset_opacity(model)
    assert model.opacities().max().item() == pytest.approx(0.01)
    assert (moments(model, "opacity") == 0).all()
    assert torch.equal(moments(model, "xyz"), kept)


def test_default_clones_small_splits_large_and_prunes_faint():
    model, strategy = model_of(), strategy_of("default")
    put(model, 1, scaling=np.log(0.5))
    put(model, 5, opacity=-9.0)
    output = output_of([1e-3, 1e-3, 1e-5, 1e-5, 1e-5, 1e-5])
    assert step(strategy, 9, model, output) == DensifyEvent() and len(model) == 6
    event = step(strategy, 10, model, output)
    assert (event.cloned, event.split, event.pruned, event.opacity_reset) == (1, 1, 1, False)
    assert len(model) == 6 + 1 + 1 - 1
    assert_in_step(model, strategy.state)
    assert not any(rows.any() for rows in strategy.state.values())  # the next round starts from nothing


@pytest.mark.parametrize(
    ("large", "changes", "counts"),
    [
        # larger ones stay as they are, the smaller half grows below any limit
        ((1,), {"grow_below3d": 0.4}, (5, 0)),
        ((3, 4, 5), {"grow_below3d": 1e-6, "grow_scale3d": 1e-6}, (0, 3)),
    ],
)
def test_a_limit_of_size_stops_the_larger_half(large, changes, counts):
    model, strategy = model_of(), strategy_of("default", **changes)
    for index in large:
        put(model, index, scaling=np.log(0.5))
    event = step(strategy, 10, model, output_of([1e-3] * 6))
    assert (event.cloned, event.split) == counts


def test_default_averages_only_over_views_that_show_a_gaussian():
    model, strategy = model_of(3), strategy_of("default")
    strategy.learn(1, model, output_of([4.0, 4.0, 4.0], radii=[1, 1, 0]), 0.0)
    strategy.learn(2, model, output_of([2.0, 8.0, 8.0], radii=[0, 5, 0]), 0.0)
    assert strategy.average_grad2d().tolist() == [4.0, 6.0, 0.0]
    assert strategy.state["radii"].tolist() == [1.0, 5.0, 0.0]


@pytest.mark.parametrize(("iteration", "left"), [(50, 4), (60, 3)])  # by size on screen nothing is pruned
def test_default_prunes_by_size_only_after_the_first_reset(iteration, left):
    model, strategy = model_of(4), strategy_of("default")
    put(model, 0, scaling=np.log(0.3))
    step(strategy, iteration, model, output_of([0.0] * 4, radii=[1, 999, 1, 1]))
    assert len(model) == left


@pytest.mark.parametrize(
    ("changes", "resets"),
    [
        ({}, [20, 40, 60]),  # none after the last refinement
        ({"reset_stop_iter": 50}, [20, 40]),
        ({"reset_at_start": True}, [10, 20, 40, 60]),  # white background
        ({"refine_stop_iter": 60}, [20, 40]),
    ],
)
def test_opacity_is_reset_only_while_refinements_follow(changes, resets):
    config = {"refine_start_iter": 10, "refine_stop_iter": 80, "reset_every": 20, **changes}
    observed = []
    for iteration in range(101):
        model, strategy = model_of(), strategy_of("default", **config)
        strategy.learn(1, model, output_of([0.0] * 6), 0.0)
        if strategy.refine(iteration, model).opacity_reset:
            observed.append(iteration)
    assert observed == resets


@pytest.mark.parametrize(("extent", "counts"), [(1.0, (0, 6)), (10.0, (6, 0))])
def test_large_is_measured_by_the_scenes_extent(extent, counts):
    model, strategy = model_of(scale=0.05), strategy_of("default")
    strategy.extent = extent
    event = step(strategy, 10, model, output_of([1.0] * 6))
    assert (event.cloned, event.split) == counts


@pytest.mark.parametrize("name", ["default", "mcmc", "budget"])
def test_refine_start_and_stop_are_excluded(name):
    acted = []
    for iteration in (10, 20, 25, 30, 40, 50):
        model, limits = model_of(40), {"refine_start_iter": 20, "refine_stop_iter": 40, "budget": 9.0}
        strategy = strategy_of(name, count=40, **limits)
        step(strategy, iteration, model, output_of([1.0] * 40))
        if len(model) != 40:
            acted.append(iteration)
    assert acted == [30]


def test_no_gradient_on_screen_densifies_nothing():
    model, strategy = model_of(), strategy_of("default")
    output = output_of([1.0] * 6)
    output.means2d.grad = None
    event = step(strategy, 10, model, output)
    assert (event.cloned, event.split) == (0, 0)


def test_budget_grows_along_its_curve_and_never_beyond():
    strategy = strategy_of("budget", count=100, budget=3.0)
    assert (strategy.target(0), strategy.target(100), strategy.final_count) == (100, 300, 300)
    targets = [strategy.target(i) for i in range(0, 101, 10)]
    assert targets == sorted(targets)
    assert targets[1] - targets[0] > targets[-1] - targets[-2]
    model = model_of(100)
    for iteration in range(1, 101):
        step(strategy, iteration, model, output_of([1.0] * len(model)))
        assert len(model) <= max(strategy.target(iteration), 100)
    assert len(model) == 300
    assert strategy_of("budget", count=100, budget=250.0).final_count == 250


def test_budget_grows_only_above_the_threshold():
    strategy, model = strategy_of("budget", count=6, budget=50.0), model_of(6)
    assert step(strategy, 10, model, output_of([1.0, 0.0, 1.0, 0.0, 0.0, 0.0])).cloned == 2


def test_budget_prefers_high_scores(monkeypatch):
    strategy, model, grown = strategy_of("budget", count=400, budget=500.0), model_of(400), []
    monkeypatch.setattr(strategy, "clone_or_split", lambda model, chosen: grown.append(chosen) or (0, 0))
    step(strategy, 100, model, output_of([1.0] * 200 + [1e-3] * 200))
    assert int(grown[0].sum()) == 100
    # gradient over its mean, opacity of one half and the same radius: (2 + 1.5) against (0 + 1.5)
    assert 62 <= int(grown[0][:200].sum()) <= 78


def test_mcmc_relocates_dead_gaussians_and_grows_to_its_cap():
    model, strategy = model_of(40), strategy_of("mcmc", count=40, cap_max=43)
    put(model, slice(5), opacity=-9.0)
    places = model.params["xyz"].detach()[5:].clone()
    event = step(strategy, 10, model)
    assert (event.pruned, event.cloned, len(model)) == (5, 2, 42)
    moved = model.params["xyz"].detach()[:5]
    assert (torch.cdist(moved, places).min(dim=1).values == 0).all()
    step(strategy, 20, model)
    step(strategy, 30, model)
    assert len(model) == 43
    assert_in_step(model, strategy.state)


def test_mcmc_counts_all_at_a_shared_position():
    """One dead Gaussian moves onto the only living one: two share its place, each less opaque and a little smaller."""
    model, strategy = model_of(2), strategy_of("mcmc", count=2, cap_max=2)
    put(model, scaling=np.log(0.3), opacity=[[-9.0], [np.log(3.0)]])
    step(strategy, 10, model)
    # 1 - (1 - 0.75)^(1/2) = 0.5; 0.75 / (0.5 + 0.5 - 0.25 / sqrt(2)) is the factor of equation 9.
    assert model.opacities().detach()[:, 0].tolist() == pytest.approx([0.5, 0.5], rel=1e-5)
    smaller = 0.3 * 0.75 / (1.0 - 0.25 / np.sqrt(2))
    assert model.scales().detach().flatten().tolist() == pytest.approx([smaller] * 6, rel=1e-5)


def test_mcmc_prefers_opaque_sources():
    model, strategy = model_of(302), strategy_of("mcmc", count=302, cap_max=302)
    put(model, opacity=-9.0)
    put(model, slice(2), opacity=logit(torch.tensor([[0.9], [0.1]])))
    opaque = model.params["xyz"].detach()[0].clone()
    step(strategy, 10, model)
    assert 0.85 < float((model.params["xyz"].detach()[2:] == opaque).all(dim=1).float().mean()) < 0.95


def test_mcmc_clears_moments_at_shared_positions():
    model, strategy = model_of(30), strategy_of("mcmc", count=30, cap_max=30)
    put(model, slice(4), opacity=-9.0)
    before = moments(model, "xyz").clone()
    opacity = model.params["opacity"].detach().clone()
    assert step(strategy, 10, model).pruned == 4
    changed = (model.params["opacity"].detach() != opacity)[:, 0]
    shared = changed.clone()
    shared[:4] = False  # those that moved there
    assert 1 <= int(shared.sum()) <= 4
    assert (moments(model, "xyz")[shared] == 0).all()
    others = ~changed
    assert torch.equal(moments(model, "xyz")[others], before[others]) and (before[others] != 0).any()


def test_mcmc_noise_has_the_shape_of_its_gaussian():
    model = model_of(20000)
    put(model, opacity=-12.0, scaling=np.log([1.0, 0.5, 0.1]), rotation=[0.9, 0.3, -0.2, 0.5])
    before = model.params["xyz"].detach().clone()
    inject_noise(model, 2.0, torch.Generator().manual_seed(0))
    rotation = ops.rotation_matrices(model.params["rotation"].detach()[:1])[0]
    covariance = rotation @ torch.diag(torch.tensor([1.0, 0.25, 0.01])) @ rotation.T
    weight = 1 / (1 + np.exp(-100 * (1 - 1 / (1 + np.exp(12.0)) - 0.995)))
    moved = torch.cov((model.params["xyz"].detach() - before).T)
    assert torch.allclose(moved, (2.0 * weight) ** 2 * covariance @ covariance, atol=0.03)


def test_mcmc_noise_moves_only_faint_gaussians():
    model = model_of(2, scale=0.1)
    put(model, opacity=[[-9.0], [9.0]])
    before = model.params["xyz"].detach().clone()
    inject_noise(model, 1.0, torch.Generator().manual_seed(0))
    moved = (model.params["xyz"].detach() - before).norm(dim=1)
    assert moved[0] > 1e-4 and moved[1] < 1e-12


def test_mcmc_regularizes_opacity_and_scale():
    model, strategy = model_of(), strategy_of("mcmc")
    penalty = strategy.regularization(model)
    penalty.backward()
    assert (model.params["opacity"].grad > 0).all() and (model.params["scaling"].grad > 0).all()
    assert strategy_of("default").regularization(model) == 0.0
