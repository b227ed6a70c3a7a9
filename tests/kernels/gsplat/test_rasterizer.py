"""Tiles and the drawing of Gaussians: against gsplat's references, and a naive one in float64."""

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
from .cases import Flat, flat, listed

CASES: dict[str, dict[str, Any]] = data(__file__)["cases"]
VALUE = {torch.float32: 1e-5, torch.float64: 1e-9}
GRADIENT = {torch.float32: 1e-4, torch.float64: 1e-8}


def of_case(name: str, dtype: torch.dtype) -> tuple[Flat, tuple[int, int], int, Tensor, Tensor]:
    """The scene in that precision, its size, tile edge, offsets and flat ids."""
    case = dict(CASES[name])
    tile = case.pop("tile", 16)
    made = flat(**case)
    scene = Flat(*(item.to(dtype) if item.is_floating_point() else item for item in made))
    pairs = listed(scene.means2d, scene.radii, scene.depths, case["size"], tile)
    return scene, case["size"], tile, *pairs


@BOTH
@pytest.mark.parametrize("case", CASES)
def test_pixels_and_gradients(case: str, dtype: torch.dtype) -> None:
    scene, size, tile, offsets, flatten_ids = of_case(case, dtype)
    generator = torch.Generator().manual_seed(8)
    masks = torch.rand(offsets.shape, generator=generator) < 0.8 if case == "plain" else None
    leaves = [item.double().clone().requires_grad_() for item in scene[:4]]
    background = scene.backgrounds.double()
    frame = (*size, tile, offsets, flatten_ids)
    expected = reference.draw(*leaves, *frame, backgrounds=background, masks=masks)
    weights = [torch.randn(item.shape, generator=generator).double() for item in expected[:2]]
    loss = (expected[0] * weights[0]).sum() + (expected[1] * weights[1]).sum()
    absolute = reference.absolute(expected.copies, loss, scene.opacities.numel())
    gradients = torch.autograd.grad(loss, leaves)

    given = (*scene[:4], scene.backgrounds, masks, *frame)
    colors, alphas, last_ids = module.rasterize_to_pixels_3dgs_fwd(*given)
    assert colors.dtype == dtype and last_ids.dtype == torch.int32
    value, slope = VALUE[dtype], GRADIENT[dtype]
    if case == "without eps2d" and dtype == torch.float32:  # the power of what is a hundredth of a pixel wide
        value, slope = 1e-4, 1e-2
    assert_close("colors", colors, expected.colors, value, least=1.0)
    assert_close("alphas", alphas, expected.alphas, value, least=1.0)
    # where a weight is a rounding above or below a bound, the last one may be another
    assert (last_ids != expected.last_ids).sum() <= (2 if dtype == torch.float32 else 0)
    upstream = [weight.to(dtype) for weight in weights]
    found = module.rasterize_to_pixels_3dgs_bwd(*given, alphas, last_ids, *upstream, True)
    assert_all_close(("means2d", "conics", "colors", "opacities"), found[1:], gradients, slope)
    assert_close("absolute", found[0].view(-1, 2), absolute, slope)

    # what the forward pass left behind on `last_ids` only saves work
    again = module.rasterize_to_pixels_3dgs_bwd(*given, alphas, last_ids.clone(), *upstream, False)
    assert again[0] is None
    assert all(torch.equal(a, b) for a, b in zip(found[1:], again[1:], strict=True))


@BOTH
@pytest.mark.parametrize("case", ["plain", "thin", "tiles of 20", "deep"])
def test_lists_are_gsplats(gsplat: ModuleType, case: str, dtype: torch.dtype) -> None:
    """What is drawn from them test_face.py holds against gsplat's own drawing."""
    from gsplat.cuda import _torch_impl as theirs

    scene, _, tile, offsets, _ = of_case(case, dtype)
    given = (scene.means2d, scene.radii, scene.depths, tile, *reversed(offsets.shape[1:]))
    expected, ours = theirs._isect_tiles(*given), gsplat.isect_tiles(*given)
    assert all(torch.equal(a, b) for a, b in zip(ours, expected, strict=True))
    assert torch.equal(offsets, theirs._isect_offset_encode(expected[1], len(scene.means2d), *given[4:]))


def test_packed_and_unsorted() -> None:
    """Packed is the same with one list of all images; an order that gsplat did not ask to sort stays that of the Gaussians."""
    scene, size, tile, offsets, flatten_ids = of_case("plain", torch.float32)
    seen = (scene.radii > 0).all(-1)
    image_ids, gaussian_ids = seen.nonzero().unbind(1)
    packed = [item[seen] for item in (scene.means2d, scene.radii, scene.depths)]
    columns, rows = offsets.shape[2], offsets.shape[1]
    arguments = (*packed, image_ids, gaussian_ids, 2, tile, columns, rows)
    counts, ids, order = module.intersect_tile(*arguments, True, True)
    assert counts.shape == (len(image_ids),)
    assert torch.equal(module.intersect_offset(ids, 2, columns, rows), offsets)
    whole = (image_ids * seen.shape[1] + gaussian_ids).to(torch.int32)
    assert torch.equal(whole[order.long()], flatten_ids)
    _, raw, unsorted = module.intersect_tile(*arguments, False, False)
    assert torch.equal(unsorted, unsorted.sort()[0]) and torch.equal(raw.sort()[0], ids)

    frame = (scene.backgrounds, None, *size, tile, offsets)
    both = (*(item[seen] for item in scene[:4]), *frame, order), (*scene[:4], *frame, flatten_ids)
    drawn, expected = (module.rasterize_to_pixels_3dgs_fwd(*given) for given in both)
    assert torch.equal(drawn[0], expected[0]) and torch.equal(drawn[2], expected[2])
    upstream = (torch.randn_like(drawn[0]), torch.randn_like(drawn[1]), False)
    found = module.rasterize_to_pixels_3dgs_bwd(*both[0], *drawn[1:], *upstream)
    target = module.rasterize_to_pixels_3dgs_bwd(*both[1], *expected[1:], *upstream)
    for result, wanted in zip(found[1:], target[1:], strict=True):
        assert torch.equal(result, wanted[seen])


@BOTH
@pytest.mark.parametrize("case", ["plain", "none", "opaque", "tiles of 4", "tiles of 20"])
def test_indices_in_a_range(case: str, dtype: torch.dtype) -> None:
    """In two goes, the second with the transmittance that the first left."""
    scene, size, tile, offsets, flatten_ids = of_case(case, dtype)
    batch, frame = tile * tile, (*size, tile, offsets, flatten_ids)
    through = torch.ones(len(scene.means2d), size[1], size[0], dtype=dtype)
    for first, last in ((0, 1), (1, 1000)):
        inputs = [item.double() for item in scene[:4]]
        ranks = (first * batch, last * batch)
        expected = reference.draw(*inputs, *frame, ranks=ranks, transmittances=through)
        given = (*scene[:2], scene.opacities, *frame)
        gaussians, pixels = module.rasterize_to_indices_3dgs(first, last, through, *given)
        assert gaussians.dtype == pixels.dtype == torch.int64
        assert list(zip(gaussians.tolist(), pixels.tolist(), strict=True)) == expected.blended
        through = through - expected.alphas[..., 0].to(dtype)


def test_broken_numbers_reach_no_pixel() -> None:
    scene, size, tile, _, _ = of_case("plain", torch.float32)
    for k, value in enumerate((torch.nan, torch.inf, -torch.inf)):
        scene.means2d[0, k] = value
    offsets, flatten_ids = listed(scene.means2d, scene.radii, scene.depths, size, tile)
    drawn = module.rasterize_to_pixels_3dgs_fwd(*scene[:4], None, None, *size, tile, offsets, flatten_ids)
    assert not set(range(3)) & set(flatten_ids.tolist())
    assert all(bool(torch.isfinite(item).all()) for item in drawn)
