"""The drawing of surfels: against a naive reference in float64, and gsplat's own."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from splatfix.kernels import gsplat_csrc as module
from tests.tables import data

from ..compare import BOTH, assert_all_close, assert_close
from . import reference
from .cases import SIZE, listed, world
from .test_rasterizer import GRADIENT, VALUE

CASES: dict[str, dict[str, Any]] = data(__file__)["cases"]


class Scene:
    """Surfels in the image, and their tiles."""

    def __init__(
        self, dtype: torch.dtype, count: int = 80, cameras: int = 2, channels: int = 4, **case: Any
    ) -> None:
        made = world(count, cameras).to(dtype)
        self.size, self.tile = case.get("size", SIZE), case.get("tile", 16)
        lens = (made.viewmats, made.Ks, *self.size, 0.3, 0.2, 1e10, 0.0)
        radii, means2d, depths, transforms, normals = module.projection_2dgs_fused_fwd(*made[:3], *lens)
        generator = torch.Generator().manual_seed(9)
        colors = torch.rand(cameras, count, channels, generator=generator).to(dtype)
        colors[..., -1] = depths
        opacities = made.opacities.repeat(cameras, 1)
        if "opacity" in case:
            opacities = torch.full_like(opacities, case["opacity"])
        self.fields = (means2d, transforms, colors, opacities, normals)
        self.background = torch.rand(cameras, channels, generator=generator).to(dtype)
        self.offsets, flatten_ids = listed(means2d, radii, depths, self.size, self.tile)
        self.lists = (*self.size, self.tile, self.offsets, flatten_ids)
        self.masks = torch.rand(self.offsets.shape, generator=generator) < 0.8


@BOTH
@pytest.mark.parametrize("case", CASES)
def test_pixels_and_gradients(case: str, dtype: torch.dtype) -> None:
    scene = Scene(dtype, **CASES[case])
    means2d, _, _, opacities, _ = scene.fields
    masks = scene.masks if case == "plain" else None
    leaves = [item.double().clone().requires_grad_() for item in scene.fields]
    under = {"backgrounds": scene.background.double(), "masks": masks, "normals": leaves[4]}
    expected = reference.draw(*leaves[:4], *scene.lists, **under)
    wanted = (expected.colors, expected.alphas, expected.normals, expected.distortion, expected.median)
    generator = torch.Generator().manual_seed(8)
    weights = [torch.randn(item.shape, generator=generator).double() for item in wanted]
    loss = sum((item * weight).sum() for item, weight in zip(wanted, weights, strict=True))
    assert isinstance(loss, Tensor)
    absolute = reference.absolute(expected.copies, loss, opacities.numel())
    targets = torch.autograd.grad(loss, leaves)

    ends = (scene.background, masks, *scene.lists)
    *images, last_ids, median_ids = module.rasterize_to_pixels_2dgs_fwd(*scene.fields, *ends)
    # where float32 puts a pixel on the other side of a bound (1/255, 1e-4, a half), the next surfel decides
    astray = 3 if dtype == torch.float32 else 0
    assert (last_ids != expected.last_ids).sum() <= astray
    same = median_ids == expected.median_ids
    assert (~same).sum() <= astray
    names = ("colors", "alphas", "normals", "distortion")
    assert_all_close(names, images[:4], wanted[:4], VALUE[dtype], least=1.0)
    assert_close("median", images[4][same], expected.median[same], VALUE[dtype])

    densify = torch.zeros_like(means2d)
    upstream = [weight.to(dtype) for weight in weights]
    drawn = (images[0], images[1], last_ids, median_ids)
    found = module.rasterize_to_pixels_2dgs_bwd(*scene.fields, densify, *ends, *drawn, *upstream, True)
    names = ("means2d", "transforms", "colors", "opacities", "normals")
    assert_all_close(names, found[1:6], targets, GRADIENT[dtype])
    assert_close("absolute", found[0].view(-1, 2), absolute, GRADIENT[dtype])
    statistic = targets[1][..., :2, 2] * leaves[1].detach()[..., 2, 2:]
    assert_close("densify", found[6], statistic, GRADIENT[dtype])
    again = module.rasterize_to_pixels_2dgs_bwd(*scene.fields, densify, *ends, *drawn, *upstream, False)
    assert again[0] is None


@BOTH
@pytest.mark.parametrize("case", ["plain", "opaque", "tiles of 20", "none"])
def test_indices_in_a_range(case: str, dtype: torch.dtype) -> None:
    scene = Scene(dtype, **CASES[case])
    through = torch.full((len(scene.offsets), scene.size[1], scene.size[0]), 0.7, dtype=dtype)
    for first, last in ((0, 1000), (1, 1000)):
        fields = [item.double() for item in scene.fields[:4]]
        ranks = (first * scene.tile**2, last * scene.tile**2)
        expected = reference.draw(*fields, *scene.lists, ranks=ranks, transmittances=through)
        given = (*scene.fields[:2], scene.fields[3], *scene.lists)
        gaussians, pixels = module.rasterize_to_indices_2dgs(first, last, through, *given)
        found = set(zip(gaussians.tolist(), pixels.tolist(), strict=True))
        assert pixels.tolist() == sorted(pixels.tolist())
        assert len(found ^ set(expected.blended)) <= (3 if dtype == torch.float32 else 0)


def test_agrees_with_gsplat(gsplat: ModuleType) -> None:
    """In float32, whose cross products in gsplat's reference are not as exact as ours."""
    from gsplat.cuda._torch_impl_2dgs import _rasterize_to_pixels_2dgs

    scene = Scene(torch.float32)
    means2d, transforms, colors, opacities, normals = scene.fields
    expected = _rasterize_to_pixels_2dgs(
        means2d, transforms, colors, normals, opacities, *scene.lists, backgrounds=scene.background
    )
    drawn = gsplat.rasterize_to_pixels_2dgs(
        *scene.fields, torch.zeros_like(means2d), *scene.lists, backgrounds=scene.background
    )
    assert_all_close(("colors", "alphas", "normals"), drawn[:3], expected[:3], 1e-4, least=1.0)
