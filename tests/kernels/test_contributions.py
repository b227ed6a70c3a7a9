"""The per-Gaussian sums of several forks against their definition, over the naive float64 renderer's pixels."""

from typing import Any

import pytest
import torch

from splatfix.kernels.contributions import Contributions, contributions, screen_positions
from splatfix.kernels.rasterizer import rasterize

from . import rasterizer_reference as reference
from .compare import in_precision
from .scenes import cloud, look_at, rand


def by_definition(settings: Any, inputs: dict[str, Any], pixel_weights: Any) -> dict[str, list[float]]:
    """Pixel after pixel, Gaussian after Gaussian: a Gaussian contributes where it is blended."""
    drawn = reference.render(settings, **inputs)
    centers, blended = drawn.pixel_positions[:, 0, 0], drawn.weights
    sums = {name: [0.0] * len(blended) for name in Contributions._fields}
    view = inputs["means3D"] @ settings.viewmatrix[:3, 2] + settings.viewmatrix[3, 2]
    order = view.argsort(stable=True)
    behind = torch.zeros_like(blended)
    behind[order] = 1 - blended[order].cumsum(0)
    strongest = blended.argmax(0) if len(blended) else None
    for i, (x, y) in enumerate(centers.tolist()):
        for row in range(settings.image_height):
            for column in range(settings.image_width):
                through = float(blended[i, row, column])
                if through == 0:
                    continue
                sums["pixels"][i] += 1
                sums["weight"][i] += float(pixel_weights[row, column])
                sums["blend"][i] += through
                sums["distance"][i] += ((x - column) ** 2 + (y - row) ** 2) ** 0.5
                sums["transmittance"][i] += float(behind[i, row, column]) + through
                sums["near"][i] += bool(behind[i, row, column] > 0.5)
                sums["strongest"][i] += bool(strongest[row, column] == i)
    return sums


SCENES = {
    "random": (lambda: cloud(30, seed=1), {}),
    "many layers, so that pixels stop": (lambda: cloud(60, seed=2, spread=0.3, size=(0.3, 0.6)), {}),
    "inside the cloud, some behind": (lambda: cloud(30, seed=3, spread=6.0), {}),
    "one": (lambda: cloud(1, seed=4), {}),
    "none": (lambda: cloud(0, seed=5), {}),
    "tiny": (lambda: cloud(30, seed=6, size=(1e-4, 2e-3)), {}),
    "FastGS, half": (lambda: cloud(40, seed=7), {"compact_box": 0.5}),
    "FastGS, whole": (lambda: cloud(40, seed=8, size=(0.2, 0.6)), {"compact_box": 1.0}),
}


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_sums_follow_their_definition(name: str, dtype: Any) -> None:
    make, options = SCENES[name]
    inputs = {key: item for key, item in make().items() if key != "shs"}
    if dtype == torch.float32:
        inputs = {key: item.float().double() for key, item in inputs.items()}
    settings = look_at(37, 29, **options)
    weights = rand(29, 37, seed=9)
    colors = torch.zeros(len(inputs["means3D"]), 3, dtype=torch.float64)
    expected = by_definition(settings, {**inputs, "colors_precomp": colors}, weights)
    given = {key: item.to(dtype) for key, item in inputs.items()}
    result = contributions(settings, **given, pixel_weights=weights.to(dtype))
    flat = contributions(settings, **given, pixel_weights=weights.to(dtype).view(-1))
    assert all(torch.equal(one, other) for one, other in zip(result, flat, strict=True))
    assert result.pixels.dtype == torch.int32 and result.weight.dtype == dtype
    for field, numbers in expected.items():
        exact = torch.tensor(numbers, dtype=torch.float64)
        # in float32 alpha may cross 1/255, or a pixel stop, one Gaussian earlier or later
        room = 1e-9 if dtype == torch.float64 else 2e-3 * max(1.0, float(exact.max()) if numbers else 0.0)
        assert torch.allclose(getattr(result, field).double(), exact, atol=room, rtol=0), field
    used = torch.zeros(len(colors), dtype=torch.int32)
    rasterize(
        in_precision(settings, dtype), **given, means2D=None, colors_precomp=colors.to(dtype), used=used
    )
    assert torch.equal(used, result.pixels.clamp_max(1))
    if name not in ("none", "one"):
        assert (result.pixels > 0).sum() > 3


def test_without_weights_their_sum_is_zero() -> None:
    inputs = {key: item for key, item in cloud(10).items() if key != "shs"}
    result = contributions(look_at(20, 20), **inputs)
    assert result.weight.abs().sum() == 0 and result.pixels.sum() > 0


def test_a_map_of_another_size_is_refused() -> None:
    inputs = {key: item for key, item in cloud(3).items() if key != "shs"}
    with pytest.raises(ValueError, match=r"shape \(399,\), not one number for each of 20 x 20"):
        contributions(look_at(20, 20), **inputs, pixel_weights=torch.ones(399))
    with pytest.raises(ValueError, match="subpixel_offset"):
        contributions(look_at(20, 20, subpixel_offset=torch.zeros(20, 20, 2)), **inputs)


def test_screen_positions_are_those_of_the_renderer() -> None:
    inputs, settings = cloud(40, seed=3, spread=6.0), look_at(37, 29)
    drawn = reference.render(settings, **inputs)
    centers, depths = screen_positions(settings, inputs["means3D"], drawn.radii)
    observed = drawn.radii > 0
    assert 3 < observed.sum() < 40
    assert torch.allclose(centers[observed], drawn.pixel_positions[observed][:, 0, 0])
    view = inputs["means3D"] @ settings.viewmatrix[:3, 2] + settings.viewmatrix[3, 2]
    assert torch.allclose(depths[observed], view[observed])
    assert centers[~observed].abs().sum() == 0 and depths[~observed].abs().sum() == 0
