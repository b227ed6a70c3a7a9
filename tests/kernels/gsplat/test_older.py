"""gsplat 1.4.0's own Python on our module for it."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from splatfix.kernels import gsplat_csrc_14

from ..compare import assert_all_close, assert_close
from .cases import SIZE, world
from .test_face import camera_of, check_names, check_rasterization, leaves_of, weighted


def test_every_name_is_here(older: ModuleType) -> None:
    check_names(older, gsplat_csrc_14)


@pytest.mark.usefixtures("without_cuda")
@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
def test_rasterization(older: ModuleType, packed: bool) -> None:
    """1.4.0 as nerfstudio calls it, against its own `_rasterization`."""
    scene = world().to(torch.float32)
    leaves, camera = leaves_of(scene, torch.rand(80, 9, 3)), camera_of(scene)
    options = {"sh_degree": 2, "render_mode": "RGB+ED", "rasterize_mode": "antialiased"}
    check_rasterization(older, scene, leaves, options, packed=packed, absgrad=True)
    with pytest.raises(NotImplementedError, match="packed=True of 2DGS"):
        older.rasterization_2dgs(**leaves, **camera, sh_degree=2, packed=True)
    assert older.rasterization_2dgs(**leaves, **camera, sh_degree=2)[0].shape == (2, SIZE[1], SIZE[0], 3)
    covars, _ = older.quat_scale_to_covar_preci(leaves["quats"], leaves["scales"], compute_preci=False)
    made = older.world_to_cam(leaves["means"], covars, leaves["viewmats"])
    from gsplat.cuda._torch_impl import _world_to_cam

    target = _world_to_cam(leaves["means"], covars, leaves["viewmats"])
    assert_all_close("view", made, target, 1e-6)
    same = [weighted(images, leaves) for images in (made, target)]
    assert set(same[0]) == set(same[1]) == {"means", "quats", "scales", "viewmats"}
    for key, wanted in same[1].items():
        assert_close(key, same[0][key], wanted, 1e-5)


def test_the_radius(older: ModuleType) -> None:
    """1.4.0's own reference has its radius, one for both directions; the rest does not differ."""
    from gsplat.cuda import _torch_impl as theirs

    scene = world()
    covars, _ = theirs._quat_scale_to_covar_preci(scene.quats, scene.scales, True, False)
    expected = theirs._fully_fused_projection(
        scene.means, covars, scene.viewmats, scene.Ks, *SIZE, near_plane=0.2, calc_compensations=True
    )
    options = {"near_plane": 0.2, "calc_compensations": True}
    camera = (scene.viewmats, scene.Ks, *SIZE)
    found = older.fully_fused_projection(scene.means, None, scene.quats, scene.scales, *camera, **options)
    assert found[0].shape == expected[0].shape == (2, 80)
    differing = (found[0] != expected[0]) & (expected[0] > 0)
    assert not differing.any() and (found[0] > 0).sum() > 40
    seen = found[0] > 0
    assert_all_close("field", (one[seen] for one in found[1:]), [one[seen] for one in expected[1:]], 1e-9)
    packed = older.fully_fused_projection(
        scene.means, None, scene.quats, scene.scales, *camera, packed=True, **options
    )
    assert torch.equal(torch.stack(packed[:2], 1), seen.nonzero())
    assert all(torch.equal(a, b[seen]) for a, b in zip(packed[2:], found, strict=True))
