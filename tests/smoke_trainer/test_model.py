"""Gaussians, their birth from points, their optimizer; schedule, loss and metrics."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from smoke_trainer.backends import make_knn, make_ssim
from smoke_trainer.config import (
    NEVER,
    PAPER_ITERATIONS,
    SHORTEST_WITH_RESET,
    LearningRates,
    TrainConfig,
    fitted_to_views,
    scaled_to,
)
from smoke_trainer.data.scene import PointCloud
from smoke_trainer.errors import SceneError
from smoke_trainer.metrics import MAX_PSNR, QualityMean, photometric_loss
from smoke_trainer.model import GROUPS, SH_C0, gaussians_from_points, xyz_lr_at
from tests.smoke_trainer.tiny import SHAPES

CPU = torch.device("cpu")


def cloud(count: int = 20, seed: int = 0) -> PointCloud:
    rng = np.random.default_rng(seed)
    return PointCloud(
        rng.normal(size=(count, 3)).astype(np.float32), rng.integers(0, 256, (count, 3)).astype(np.uint8)
    )


def born(points: PointCloud | None = None, **changes: Any) -> Any:
    config = TrainConfig("x", 30_000, Path("out"), **changes)
    return gaussians_from_points(points or cloud(), config, make_knn("kernels", CPU), CPU)


def test_initial_scale_is_the_distance_to_neighbours():
    points, model = cloud(), born()
    squared = ((points.xyz[:, None] - points.xyz[None]) ** 2).sum(axis=2)
    nearest = np.sort(squared, axis=1)[:, 1:4].mean(axis=1)
    assert model.scales().detach().numpy() == pytest.approx(np.sqrt(nearest)[:, None].repeat(3, 1), rel=1e-4)
    assert model.opacities().detach().numpy() == pytest.approx(0.1)
    color = 0.5 + SH_C0 * model.params["f_dc"][:, 0].detach().numpy()
    assert color == pytest.approx(points.rgb / 255.0, abs=1e-6)
    assert {name: tuple(model.params[name].shape[1:]) for name in GROUPS} == SHAPES
    chosen = born(initial_opacity=0.5, initial_scale=0.1)
    assert chosen.opacities().detach().numpy() == pytest.approx(0.5)
    assert chosen.scales().detach().numpy() == pytest.approx(0.1 * model.scales().detach().numpy(), rel=1e-5)


def test_two_equal_points_do_not_make_a_gaussian_of_no_size():
    points = PointCloud(np.zeros((5, 3), dtype=np.float32), np.zeros((5, 3), dtype=np.uint8))
    assert torch.isfinite(born(points).params["scaling"]).all()


def test_splats_are_activated_parameters():
    model = born()
    with torch.no_grad():
        model.params["rotation"].copy_(torch.randn(20, 4, generator=torch.Generator().manual_seed(0)) * 3)
        model.params["opacity"].fill_(math.log(3.0))
        model.params["scaling"].fill_(math.log(0.2))
    splats, rotation = model.splats(), model.params["rotation"]
    assert torch.allclose(splats.rotations * rotation.norm(dim=1, keepdim=True), rotation, atol=1e-6)
    assert splats.rotations.norm(dim=1).detach().numpy() == pytest.approx(1.0, abs=1e-6)
    assert splats.opacities.detach().numpy() == pytest.approx(0.75)
    assert splats.scales.detach().numpy() == pytest.approx(0.2)
    assert torch.equal(splats.shs[:, :1], model.params["f_dc"]) and splats.shs.shape == (20, 16, 3)


def test_sh_degree_rises_to_its_maximum_and_no_further():
    model = born(sh_degree=2)
    degrees = []
    for _ in range(4):
        degrees.append(model.splats().sh_degree)
        model.raise_sh_degree()
    assert degrees == [0, 1, 2, 2]


def test_every_group_has_its_own_rate_and_epsilon():
    groups = born().optimizer.param_groups
    rates = dict(zip(GROUPS, (1.6e-4, 2.5e-3, 1.25e-4, 0.025, 5e-3, 1e-3), strict=True))
    assert {group["name"]: group["lr"] for group in groups} == rates
    assert {group["eps"] for group in groups} == {1e-15}


def test_positions_decay_log_linearly_with_the_extent():
    rates = LearningRates()
    assert xyz_lr_at(rates, 2.0, 0, 100) == pytest.approx(3.2e-4)
    assert xyz_lr_at(rates, 2.0, 50, 100) == pytest.approx(2.0 * math.sqrt(1.6e-4 * 1.6e-6))
    assert xyz_lr_at(rates, 2.0, 100, 100) == pytest.approx(3.2e-6)


def test_short_runs_compress_the_reference_schedule(tmp_path):
    config = TrainConfig("x", PAPER_ITERATIONS, tmp_path)
    assert scaled_to(config) == config
    for iterations in (20, 100, 150, 200, 500, 3000):
        config = scaled_to(TrainConfig("x", iterations, tmp_path))
        d = config.densify
        rounds = [i for i in range(d.refine_start_iter + 1, d.refine_stop_iter) if i % d.refine_every == 0]
        assert len(rounds) >= 2, iterations
        assert d.refine_stop_iter <= iterations
        resets = [i for i in range(1, d.reset_stop_iter) if i % d.reset_every == 0]
        # One reset, with 90 iterations to recover, or none.
        assert len(resets) == (1 if iterations >= SHORTEST_WITH_RESET else 0)
        assert all(iterations - reset >= 90 for reset in resets)
        assert 3 * config.sh_degree_interval <= iterations


@pytest.mark.parametrize("total", [710, 2000, 6999, 7000, 12_000])
def test_one_more_iteration_changes_no_setting_abruptly(total, tmp_path):
    def settings(iterations):
        config = scaled_to(TrainConfig("x", iterations, tmp_path))
        numbers = {**vars(config.densify), **vars(config.lrs), "interval": config.sh_degree_interval}
        return {name: value for name, value in numbers.items() if not isinstance(value, bool)}

    before, after = settings(total), settings(total + 1)
    apart = {name: (value, after[name]) for name, value in before.items() if after[name] != value}
    assert apart
    for name, (one, other) in apart.items():
        near = 0.2 if name == "max_scale3d" and total < 2000 else 0.002
        assert other == pytest.approx(one, rel=near, abs=1), name


@pytest.mark.parametrize("total", [9000, 9050, 12_000, 12_150, 6000, 200, 150])
def test_no_run_ends_soon_after_a_reset(total, tmp_path):
    d = scaled_to(TrainConfig("x", total, tmp_path)).densify
    resets = [i for i in range(1, min(d.reset_stop_iter, total)) if i % d.reset_every == 0]
    assert resets and total - resets[-1] >= min(500, total // 2)


def test_a_short_run_of_few_views_grows_less(tmp_path):
    def fitted(iterations, views):
        return fitted_to_views(scaled_to(TrainConfig("x", iterations, tmp_path)), views)

    nine, few = fitted(500, 9), fitted(3000, 9)
    assert nine.densify.grow_grad2d == pytest.approx(2 * 5e-4)
    assert nine.densify.max_scale3d == 1.0
    assert nine.densify.grow_below3d == pytest.approx(nine.densify.grow_scale3d)
    rates = {total: fitted(total, 9).lrs.f_dc / LearningRates.f_dc for total in (200, 500, 1000, 3000, 7000)}
    assert rates == pytest.approx({200: math.sqrt(35), 500: 2.5, 1000: 1.25, 3000: 1.0, 7000: 1.0})
    assert fitted(500, 10).densify.grow_below3d == fitted(7000, 9).densify.grow_below3d == math.inf
    resets = {views: fitted(1000, views).densify.reset_every < 1000 for views in (9, 10)}
    assert resets == {9: False, 10: True} and nine.densify.reset_every == NEVER
    degrees = {views: 500 // fitted(500, views).sh_degree_interval for views in (2, 9, 21)}
    assert degrees == {2: 1, 9: 1, 21: 2}
    assert fitted(500, 21).densify.max_scale3d == math.inf
    assert 2e-4 < few.densify.grow_grad2d < nine.densify.grow_grad2d < fitted(500, 4).densify.grow_grad2d
    for iterations, views in ((500, 36), (7000, 1), (PAPER_ITERATIONS, 9)):
        assert fitted(iterations, views) == scaled_to(TrainConfig("x", iterations, tmp_path))


def test_mcmc_and_a_white_background_have_their_own_defaults(tmp_path):
    mcmc = scaled_to(TrainConfig("x", 30_000, tmp_path, strategy="mcmc", background="white"))
    assert (mcmc.initial_opacity, mcmc.initial_scale, mcmc.lrs.opacity) == (0.5, 0.1, 0.05)
    assert mcmc.densify.refine_stop_iter == 25_000
    white = scaled_to(TrainConfig("x", 30_000, tmp_path, background="white"))
    assert white.densify.reset_at_start and not mcmc.densify.reset_at_start


def test_short_runs_have_larger_rates_except_opacity(tmp_path):
    reference = LearningRates()
    for iterations, factor in ((1750, 2.0), (20, 8.0)):
        rates = scaled_to(TrainConfig("x", iterations, tmp_path)).lrs
        for name in ("xyz_init", "xyz_final", "f_dc", "f_rest", "rotation"):
            assert getattr(rates, name) == pytest.approx(factor * getattr(reference, name)), name
        assert rates.scaling == pytest.approx(min(4.0, factor) * reference.scaling)
        assert rates.opacity == pytest.approx(2 * reference.opacity)


def test_the_loss_is_the_papers_mixture_and_a_mask_hides_pixels():
    ssim = make_ssim("kernels", CPU)
    truth = torch.rand(3, 20, 24, generator=torch.Generator().manual_seed(0))
    drawn = (truth + 0.1).requires_grad_(True)
    loss = photometric_loss(drawn, truth, ssim, 0.2)
    assert loss.l1.item() == pytest.approx(0.1, rel=1e-5)
    expected = 0.8 * 0.1 + 0.2 * (1 - ssim(drawn[None], truth[None]).item())
    assert loss.total.item() == pytest.approx(expected, rel=1e-5)
    mask = torch.zeros(1, 20, 24)
    mask[:, :, 12:] = 1.0
    photometric_loss(drawn, truth, ssim, 0.0, mask).total.backward()
    assert (drawn.grad[:, :, :12] == 0).all() and (drawn.grad[:, :, 12:] != 0).all()


def test_masked_pixels_do_not_affect_quality():
    ssim = make_ssim("kernels", CPU)
    mask = torch.zeros(1, 16, 16)
    mask[:, :4] = 1.0
    truth = torch.full((3, 16, 16), 0.5)
    drawn = truth + 0.1
    drawn[:, 4:] = 0.0
    mean = QualityMean(ssim)
    mean.add(drawn, truth, torch.zeros(1, 16, 16))
    with pytest.raises(SceneError, match="leave no pixel"):
        mean.result()
    mean.add(drawn, truth, mask)
    quality = mean.result()
    assert (quality.views, quality.l1) == (1, pytest.approx(0.1, rel=1e-5))
    assert quality.psnr == pytest.approx(20.0, abs=1e-4)
    error = photometric_loss(drawn, truth, ssim, 0.2, mask).squared_error
    assert error.item() == pytest.approx(0.01, rel=1e-4)


def test_quality_is_the_mean_over_views_of_clamped_pictures():
    ssim = make_ssim("kernels", CPU)
    mean = QualityMean(ssim)
    zero = torch.zeros(3, 16, 16)
    mean.add(zero + 0.1, zero)
    mean.add(zero + 0.01, zero)
    mean.add(zero + 7.0, zero + 1.0)
    quality = mean.result()
    assert quality.views == 3
    assert quality.psnr == pytest.approx((20.0 + 40.0 + MAX_PSNR) / 3, abs=1e-3)
    assert quality.l1 == pytest.approx(0.11 / 3, rel=1e-4)
    assert quality.lpips is None
