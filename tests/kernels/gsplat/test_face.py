"""gsplat's own Python on our module: every name it asks for, what is refused, and its drawing functions whole."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from splatfix.kernels import gsplat_csrc
from tests.tables import data

from ..compare import assert_close
from .cases import SIZE, World, world

OPTIONS = data(__file__)["options"]


def test_every_name_is_here(gsplat: ModuleType) -> None:
    check_names(gsplat, gsplat_csrc)


def check_names(package: ModuleType, module: ModuleType) -> None:
    """Whatever gsplat's Python asks for lazily stands in the module, which is what it found."""
    asked: set[str] = set()
    for path in Path(str(package.__file__)).parent.rglob("*.py"):
        asked |= set(re.findall(r"_make_lazy_cuda_(?:func|obj)\(\s*\"(\w+)\"", path.read_text("utf-8")))
    assert len(asked) > 20
    assert asked <= set(module.__all__)  # what a drop-in hands on
    from gsplat.cuda._backend import _C

    assert _C is module


def test_values_of_enums_stand_at_the_top(gsplat: ModuleType) -> None:
    from gsplat.cuda import _wrapper as theirs

    for kind, values in (
        (gsplat_csrc.CameraModelType, ("PINHOLE", "ORTHO", "FISHEYE", "FTHETA")),
        (gsplat_csrc.ShutterType, [item.name for item in theirs.RollingShutterType]),
        (gsplat_csrc.FThetaPolynomialType, ("PIXELDIST_TO_ANGLE", "ANGLE_TO_PIXELDIST")),
    ):
        for number, value in enumerate(values):
            found = theirs._make_lazy_cuda_obj(f"{kind.__name__}.{value}")
            assert found == number and isinstance(found, kind)
    assert theirs.UnscentedTransformParameters(alpha=0.5).to_cpp().alpha == 0.5


def leaves_of(scene: World, colors: Tensor) -> dict[str, Tensor]:
    """Inputs of gsplat's drawing functions that have gradients."""
    given = {"means": scene.means, "quats": scene.quats, "scales": scene.scales}
    given |= {"opacities": scene.opacities, "colors": colors, "viewmats": scene.viewmats}
    return {name: item.clone().requires_grad_() for name, item in given.items()}


def weighted(images: Any, leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gradients of a random weighting of the images."""
    generator = torch.Generator().manual_seed(2)
    loss = sum((image * torch.rand(image.shape, generator=generator)).sum() for image in images)
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, retain_graph=True)
    return {name: item for name, item in zip(leaves, found, strict=True) if item is not None}


def camera_of(scene: World) -> dict[str, Any]:
    return {"Ks": scene.Ks, "width": SIZE[0], "height": SIZE[1], "near_plane": 0.2}


def check_rasterization(
    package: ModuleType, scene: World, leaves: dict[str, Tensor], options: dict[str, Any], **how: Any
) -> dict[str, Tensor]:
    """Draw as gsplat's own `_rasterization` does, whose gradients are autograd's; returns ours."""
    from gsplat.rendering import _rasterization

    theirs = _rasterization(**leaves, **camera_of(scene), **options)
    ours = package.rasterization(**leaves, **camera_of(scene), **options, **how)
    for k in range(2):
        assert_close(f"image {k}", ours[k], theirs[k], 1e-4, least=1.0)
    expected, found = weighted(theirs[:2], leaves), weighted(ours[:2], leaves)
    assert set(found) == set(expected)
    for key, target in expected.items():
        assert_close(key, found[key], target, 1e-3)
    return found


@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
@pytest.mark.parametrize("name", OPTIONS)
def test_rasterization(gsplat: ModuleType, name: str, packed: bool) -> None:
    """The poses of the cameras have gradients too."""
    options = dict(OPTIONS[name])
    if "backgrounds" in options:
        options["backgrounds"] = torch.tensor(options["backgrounds"])
    if packed and "backgrounds" in options:
        pytest.skip("gsplat 1.5.3 takes no backgrounds of several images with packed=True")
    scene = world().to(torch.float32)
    # what gsplat's reference has no rule for: it cuts boxes at 3.33 sigma whatever the opacity
    scene = scene._replace(opacities=scene.opacities.clamp_min(0.999))
    generator = torch.Generator().manual_seed(1)
    colors = torch.rand(80, *[9] * ("sh_degree" in options), 3, generator=generator)
    leaves = leaves_of(scene, colors)
    found = check_rasterization(gsplat, scene, leaves, options, packed=packed)
    assert "viewmats" in found
    if packed:
        again = gsplat.rasterization(**leaves, **camera_of(scene), **options, packed=True, sparse_grad=True)
        sparse = weighted(again[:2], leaves)
        assert sparse["quats"].is_sparse
        for key in ("means", "quats", "scales"):
            assert_close(f"sparse {key}", sparse[key].to_dense(), found[key], 1e-5)


@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
def test_what_strategies_read(gsplat: ModuleType, packed: bool) -> None:
    """Batches of scenes, the gradients of the centers in the image and `absgrad`."""
    scene = world().to(torch.float32)
    leaves, camera = leaves_of(scene, torch.rand(80, 3)), camera_of(scene)
    images, _, info = gsplat.rasterization(**leaves, **camera, packed=packed, absgrad=True)
    info["means2d"].retain_grad()
    images.sum().backward()
    signed, absolute = info["means2d"].grad, info["means2d"].absgrad
    assert signed.shape == absolute.shape == info["means2d"].shape
    assert bool((absolute >= signed.abs() * (1 - 1e-5) - 1e-6).all()) and absolute.sum() > signed.abs().sum()

    stacked = {name: torch.stack([item, item.roll(1, 0)]).detach() for name, item in leaves.items()}
    batches, _, _ = gsplat.rasterization(
        **stacked, **{**camera, "Ks": torch.stack([scene.Ks] * 2)}, packed=False
    )
    assert torch.equal(batches[0], gsplat.rasterization(**leaves, **camera, packed=False)[0])


@pytest.mark.usefixtures("without_cuda")
@pytest.mark.parametrize("mode", ["RGB", "RGB+ED"])
def test_rasterization_2dgs(gsplat: ModuleType, mode: str) -> None:
    """All six images, and gradients, which test_projection and test_surfels hold against references step by step."""
    scene = world(40, 1).to(torch.float32)
    leaves, camera = leaves_of(scene, torch.rand(40, 4, 3)), camera_of(scene)
    *drawn, _ = gsplat.rasterization_2dgs(
        **leaves, **camera, sh_degree=1, render_mode=mode, distloss=mode != "RGB"
    )
    images = [image for image in drawn if image is not None and image.requires_grad]
    assert len(images) >= 4 and all(bool(torch.isfinite(image).all()) for image in images)
    gradients = weighted(images[:3], leaves)
    assert set(gradients) == set(leaves)
    assert all(bool(item.isfinite().all()) and bool(item.any()) for item in gradients.values())


def test_what_is_refused_says_so(gsplat: ModuleType) -> None:
    """By the name of the function, the option that asked for it, and what to do."""
    scene = world().to(torch.float32)
    given = {**leaves_of(scene, torch.rand(80, 3)), "Ks": scene.Ks, "width": SIZE[0], "height": SIZE[1]}
    for function, options, words in data(__file__)["refused"]:
        with pytest.raises(NotImplementedError) as refused:
            getattr(gsplat, function)(**given, **options)
        assert all(word in str(refused.value) for word in (*words, "compile gsplat itself"))
    for direction in ("fwd", "bwd"):
        with pytest.raises(NotImplementedError, match="with_eval3d=True"):
            getattr(gsplat_csrc, f"rasterize_to_pixels_from_world_3dgs_{direction}")()
    lens = (*SIZE, 0.3, 0.01, 1e10, 0.0, False, gsplat_csrc.FTHETA)
    with pytest.raises(NotImplementedError, match=r"ftheta.*undistort"):
        gsplat_csrc.projection_ewa_3dgs_fused_fwd(
            scene.means, None, scene.quats, scene.scales, None, scene.viewmats, scene.Ks, *lens
        )
