"""From the world to the image: against gsplat's references in float64, and the rules of culling one by one."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from splatfix.kernels import gsplat_csrc as module
from tests.tables import data

from ..compare import BOTH, assert_all_close, assert_close
from .cases import SIZE, World, world
from .test_rasterizer import GRADIENT, VALUE

TABLE = data(__file__)
MODELS = ["pinhole", "ortho", "fisheye"]
LEAVES = ("means", "quats", "scales", "viewmats")
NAMES = ("means2d", "depths", "conics", "compensations")


def batched(scene: World) -> World:
    """Two batches of half the Gaussians each."""
    half = len(scene.means) // 2
    return World(
        *(item.view(2, half, *item.shape[1:]) for item in scene[:4]),
        torch.stack([scene.viewmats, scene.viewmats.roll(1, 0)]),
        torch.stack([scene.Ks, scene.Ks.roll(1, 0)]),
    )


def pulled(results: Any, leaves: list[Tensor], seen: Tensor) -> tuple[Tensor, ...]:
    """Gradients of a random weighting of what is seen."""
    generator = torch.Generator().manual_seed(4)
    loss = 0.0
    for item in results:
        weight = torch.randn(item.shape, generator=generator, dtype=torch.float64).to(item.dtype)
        loss = loss + (item * weight)[seen].sum()
    return torch.autograd.grad(loss, leaves, retain_graph=True)


@BOTH
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("form", ["quats", "covars", "batches"])
def test_projection(gsplat: ModuleType, form: str, model: str, dtype: torch.dtype) -> None:
    """Values and gradients, those of the cameras too; packed gives the rows that are seen."""
    from gsplat.cuda import _torch_impl as theirs

    scene = world().to(dtype)
    if form == "batches":
        scene = batched(scene)
    if model == "ortho":
        scene = scene._replace(Ks=scene.Ks * scene.Ks.new_tensor([0.3, 0.3, 1.0])[:, None].clamp_min(0.3))
    options = {"near_plane": 0.2, "calc_compensations": True, "camera_model": model}
    shapes = {"quats": scene.quats, "scales": scene.scales}
    if form == "covars":
        flat, _ = theirs._quat_scale_to_covar_preci(*shapes.values(), True, False, True)
        shapes = {"covars": flat}
    given = {"means": scene.means, **shapes, "viewmats": scene.viewmats}
    precise = {name: item.double().clone().requires_grad_() for name, item in given.items()}
    if form == "covars":
        covars = precise["covars"][..., [0, 1, 2, 1, 3, 4, 2, 4, 5]].unflatten(-1, (3, 3))
    else:
        covars, _ = theirs._quat_scale_to_covar_preci(precise["quats"], precise["scales"], True, False)
    radii, *expected = theirs._fully_fused_projection(
        precise["means"], covars, precise["viewmats"], scene.Ks.double(), *SIZE, **options
    )
    ours = {name: item.clone().requires_grad_() for name, item in given.items()}

    def project(**more: Any) -> Any:
        shaped = (ours.get(name) for name in ("covars", "quats", "scales"))
        return gsplat.fully_fused_projection(
            ours["means"], *shaped, ours["viewmats"], scene.Ks, *SIZE, **options, **more
        )

    found, *fields = project()
    seen = (found > 0).all(-1) & (radii > 0).all(-1)
    assert found.dtype == torch.int32 and seen.sum() > 20
    # in float32 a radius of nearly a whole number may be the next one
    assert (found != radii).any(-1).sum() <= (1 if dtype == torch.float32 else 0)
    for name, result, target in zip(NAMES, fields, expected, strict=True):
        assert result.dtype == dtype
        assert_close(name, result[seen], target[seen], VALUE[dtype])
        assert not result[(found == 0).all(-1)].any()
    # gsplat's kernel damps the gradient of the compensation by 1e-6; its guard of fisheye's divisions is 1e-7
    guarded = max(GRADIENT[dtype], 2e-6 if model == "fisheye" else 0.0)
    for results, of, tolerance in ((fields, expected, 1e-4), (fields[:3], expected[:3], guarded)):
        gradients = pulled(results, list(ours.values()), seen)
        targets = pulled(of, list(precise.values()), seen)
        assert_all_close(given, gradients, targets, tolerance)

    visible = (found > 0).all(-1)
    where = visible.view(-1, *visible.shape[-2:]).nonzero().unbind(1)
    packed = project(packed=True)
    for result, target in zip(packed[:3], where, strict=True):
        assert torch.equal(result, target)
    for result, target in zip(packed[3:], (found, *fields), strict=True):
        assert torch.equal(result, target[visible])
    weights = [torch.rand_like(item) for item in packed[4:]]

    def weighted(results: Any) -> tuple[Tensor, ...]:
        loss = sum((item * weight).sum() for item, weight in zip(results, weights, strict=True))
        return torch.autograd.grad(loss, list(ours.values()))

    dense = weighted([field[visible] for field in project()[1:]])
    assert_all_close(given, weighted(packed[4:]), dense, 1e-6)
    if form != "batches":  # whose sparse gradients gsplat's own Python gives the wrong size
        for name, result, target in zip(
            given, weighted(project(packed=True, sparse_grad=True)[4:]), dense, strict=True
        ):
            assert result.is_sparse == (name != "viewmats")
            assert_close(name, result.to_dense(), target, 1e-6)


@BOTH
@pytest.mark.parametrize("model", MODELS)
def test_from_view_space(gsplat: ModuleType, model: str, dtype: torch.dtype) -> None:
    from gsplat.cuda import _torch_impl as theirs

    scene = world()
    covars, _ = theirs._quat_scale_to_covar_preci(scene.quats, scene.scales, True, False)
    in_view = theirs._world_to_cam(scene.means, covars, scene.viewmats)
    in_front = (in_view[0][..., 2] > 0.2).all(0)
    given = [item[:, in_front].to(dtype) for item in in_view]
    reference = {"pinhole": theirs._persp_proj, "ortho": theirs._ortho_proj, "fisheye": theirs._fisheye_proj}[
        model
    ]
    theirs_in = [item.double().clone().requires_grad_() for item in given]
    expected = reference(*theirs_in, scene.Ks.to(dtype).double(), *SIZE)
    ours_in = [item.clone().requires_grad_() for item in given]
    made = gsplat.proj(*ours_in, scene.Ks.to(dtype), *SIZE, model)
    assert_all_close(model, made, expected, VALUE[dtype])
    everything = torch.ones(given[0].shape[:2], dtype=torch.bool)
    both = pulled(made, ours_in, everything), pulled(expected, theirs_in, everything)
    assert_all_close(model, *both, max(GRADIENT[dtype], 2e-6))


def _one(changes: dict[str, Any]) -> dict[str, Any]:
    """A Gaussian in the middle of an image of 40 x 40 pixels, sigma 1.01 pixels with the blur, at the depth 5."""
    given = {**TABLE["one"], **changes, "camera_model": module.PINHOLE}
    return {name: torch.tensor(item) if isinstance(item, tuple) else item for name, item in given.items()}


@pytest.mark.parametrize(("changes", "radii"), TABLE["culled"])
def test_what_is_culled(changes: dict[str, Any], radii: tuple[int, int]) -> None:
    given = _one(changes)
    found, *fields = module.projection_ewa_3dgs_fused_fwd(*given.values())
    assert found.tolist() == [[list(radii)]]
    assert all(bool(torch.isfinite(field).all()) for field in fields if field is not None)
    packed = module.projection_ewa_3dgs_packed_fwd(*given.values())
    assert packed[0].tolist() == [0, int(radii[0] > 0)] and packed[0].dtype == torch.int32
    ends = (None, *(torch.ones_like(field) for field in fields[:3]), None, True)
    shapes = [
        given[name] for name in ("means", "covars", "quats", "scales", "viewmats", "Ks", "width", "height")
    ]
    gradients = module.projection_ewa_3dgs_fused_bwd(
        *shapes, given["eps2d"], module.PINHOLE, found, fields[2], *ends
    )
    assert all(bool(torch.isfinite(item).all()) for item in gradients if item is not None)


@BOTH
@pytest.mark.parametrize("form", ["one", "batches"])
def test_surfels(gsplat: ModuleType, form: str, dtype: torch.dtype) -> None:
    from gsplat.cuda._torch_impl_2dgs import _fully_fused_projection_2dgs

    scene = world().to(dtype)
    scene.scales[:, 2] = 1.0  # which gsplat's reference, but not its kernel, has in the normal
    if form == "batches":
        scene = batched(scene)
    precise = World(*(item.double().clone().requires_grad_() for item in scene))
    radii, *expected = _fully_fused_projection_2dgs(
        *precise[:3], precise.viewmats, precise.Ks, *SIZE, near_plane=0.2
    )
    ours = World(*(item.clone().requires_grad_() for item in scene))
    found, *fields = gsplat.fully_fused_projection_2dgs(
        *ours[:3], ours.viewmats, ours.Ks, *SIZE, near_plane=0.2
    )
    seen = (found > 0).all(-1) & (radii > 0).all(-1)
    assert seen.sum() > 20
    assert (found != radii).any(-1).sum() <= (1 if dtype == torch.float32 else 0)
    names = ("means2d", "depths", "transforms", "normals")
    assert_all_close(names, (one[seen] for one in fields), [one[seen] for one in expected], VALUE[dtype])
    gradients = pulled(fields, [*ours[:3], ours.viewmats], seen)
    targets = pulled(expected, [*precise[:3], precise.viewmats], seen)
    for name, result, target in zip(LEAVES, gradients, targets, strict=True):
        if name == "scales":
            result, target = result[..., :2], target[..., :2]
        assert_close(name, result, target, GRADIENT[dtype])
