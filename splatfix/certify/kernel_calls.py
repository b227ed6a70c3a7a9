"""How each kernel is called and held against its reference, for the probe that runs inside the target environment.

A rasterizer is called as its own trainer calls it: by the names of its settings and of its arguments, which tell the variants
of one module name apart. Imports torch and the references only; Python 3.8.
"""

from __future__ import annotations

import inspect
import math
from typing import Any, Callable, Dict, List, Tuple

import torch
from torch import Tensor

from splatfix.certify import kernel_gsplat
from splatfix.certify.kernel_agreement import Ran
from splatfix.certify.kernel_arithmetic import check_arithmetic
from splatfix.certify.kernel_references import (
    BLANK,
    FAINTEST,
    Pinhole,
    ReferenceSplats,
    finite,
    knn_reference,
    largest_error,
    relative_error,
    splat_reference,
    splats_at,
    ssim_reference,
    surfel_reference,
)

COUNT = 30  # Gaussians of the scene
ONE_TILE = 16
LARGER = ((1025, (257, 131)), (4099, (320, 240)), (100_003, (960, 540)))
"""Gaussians, and (width, height) of the image: beyond what a kernel may do otherwise for few and small ones."""
PIXELS = 24
"""Of a larger image, that are compared."""


class NotMeasured(Exception):
    """This implementation cannot be compared with a reference here; the message says why."""


def check_ssim(kernel: Any, device: str, plain: bool) -> Dict[str, Any]:
    """Check ``fused_ssim``: value and the gradient of the first image. ``plain``: held to the contract of our PyTorch."""
    results = []
    for channels, height, width in ((3, 45, 61), (3, 120, 160), (1, 131, 259), (3, 540, 960)):
        generator = torch.Generator().manual_seed(1)
        first = torch.rand(1, channels, height, width, generator=generator)
        noise = 0.1 * torch.randn(1, channels, height, width, generator=generator)
        second = (first + noise).clamp(0, 1)
        exact = first.double().requires_grad_(True)
        expected = ssim_reference(exact, second.double())
        torch.autograd.backward(expected)
        given = first.to(device, copy=True).requires_grad_(True)
        actual = kernel.fused_ssim(given, second.to(device))
        torch.autograd.backward(actual)
        value, gradient = relative_error(actual, expected), largest_error([given.grad], [exact.grad])
        with torch.no_grad():  # as held-out views are judged
            value = max(
                value, relative_error(kernel.fused_ssim(first.to(device), second.to(device)), expected)
            )
        ran = Ran([first, second], actual, [given.grad])
        # plain PyTorch has its own contract; other single-precision kernels get more room
        allowed = (1e-6, 5e-5) if plain else (1e-5, 1e-4)
        results.append((f"at {width} x {height}", _errors(value, allowed[0], gradient, allowed[1], ran)))
        if results[-1][1]["outcome"] == "failed":
            break
    return _worst(results)


def check_knn(kernel: Any, device: str, plain: bool) -> Dict[str, Any]:
    """Check ``distCUDA2``: the neighbor distances that initial scales come from."""
    results = []
    for count in (700, 1025, 4099, 100_003, 1_000_003):
        points = torch.randn(count, 3, generator=torch.Generator().manual_seed(2))
        points[10] = points[11]  # a duplicate counts with distance 0
        points[:9] *= 30.0  # far from all others, as points of a sky are
        actual = kernel.distCUDA2(points.to(device))
        rows = torch.arange(0, count, max(1, count // min(100, 20_000_000 // count)))
        expected = knn_reference(points.double(), rows)
        given = actual.double().cpu()[rows]
        error = float(((given - expected).abs() / expected.clamp_min(1e-12)).max())
        ran = Ran([points], actual, [])
        results.append((f"of {count} points", _errors(error, 5e-6 if plain else 1e-4, None, None, ran)))
        if results[-1][1]["outcome"] == "failed":
            break
    return _worst(results)


def _worst(results: List[Tuple[str, Dict[str, Any]]]) -> Dict[str, Any]:
    """The result at the first size where it failed, which is named; else the largest errors of all. Own and installed kernels
    are held against each other at the smallest."""
    worst = dict(results[0][1])
    for size, result in results:
        for name in ("value_error", "gradient_error"):
            if result[name] is not None:
                worst[name] = max(worst[name] or 0.0, result[name])
        if result["outcome"] == "failed":
            detail = "; ".join(filter(None, (size, result["detail"])))
            return dict(result, detail=detail, ran=results[0][1]["ran"])
    return worst


def check_rasterizer(kernel: Any, device: str, plain: bool) -> Dict[str, Any]:
    """Check a rasterizer: a small scene, color and the gradient of every input, as the variant defines them."""
    if hasattr(kernel, "TriangleRasterizer"):
        return _run_triangles(kernel, device)
    if kernel.__name__ == "diff_surfel_rasterization":
        return _check_surfels(kernel, device, plain)
    fields, arguments = _fields(kernel), inspect.signature(kernel.GaussianRasterizer.forward).parameters
    values = _values(Pinhole((1, 1), 1.0, torch.zeros(3)), torch.device("cpu"))
    wanted = [
        name
        for name, one in arguments.items()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    unknown = [name for name in fields if name not in values]
    unknown += [name for name in wanted if name not in _ARGUMENTS]
    if unknown:
        raise NotMeasured(f"a variant that splatfix cannot call; unknown to it: {', '.join(unknown)}")
    camera, splats = _scene(fields, one_tile=hasattr(getattr(kernel, "_C", None), "compute_relocation"))
    exact, given = _leaves(splats, device)
    means2d = _centers(kernel, COUNT, device)
    drawn = _draw(kernel, camera, given, means2d)
    color = drawn[0]
    generator = torch.Generator().manual_seed(4)
    weight = torch.randn(color.shape[0], *camera.size[::-1], generator=generator)
    torch.autograd.backward((color * weight.to(device)).sum())
    if "view2gaussian_precomp" in arguments:
        return _only_finite("no reference for the ray space of GOF", [color], [*given, means2d])
    if "require_coord" in fields:
        return _only_finite("no reference for RaDe-GS", [color], [*given, means2d])
    expected, inverse = splat_reference(_double(camera), _meant(kernel, exact))
    torch.autograd.backward((expected * weight.double()).sum())
    value = relative_error(color, expected)
    if "antialiasing" in fields:
        if len(drawn) > 2:  # the inverse depth of Inria 2024
            value = max(value, relative_error(drawn[2], inverse))
        smooth = camera._replace(antialiasing=True)
        drawn = _draw(kernel, smooth, given, torch.zeros_like(means2d))
        value = max(
            value, relative_error(drawn[0], splat_reference(_double(smooth), _meant(kernel, exact))[0])
        )
    ran = Ran([*camera, *splats], color, [item.grad for item in given])
    # epsilons in the backward pass of Mip-Splatting move the gradients of covariances by 5e-4
    allowed = 5e-4 if camera.kernel_size is None else 5e-3
    results = [("", _densifying(value, exact, allowed, ran, means2d, plain))]
    if results[0][1]["outcome"] == "met":
        elsewhere = _check_elsewhere(kernel, (camera, splats), (device, allowed, plain))
        results.append(("seen from elsewhere, with harmonics of degree 3", elsewhere))
    if camera.size[0] > ONE_TILE:
        for count, size in LARGER:
            if results[-1][1]["outcome"] == "failed":
                break
            result = _check_many(kernel, count, size, (device, allowed, plain))
            results.append((f"of {count} Gaussians at {size[0]} x {size[1]}", result))
    return _worst(results)


def _meant(kernel: Any, splats: ReferenceSplats) -> ReferenceSplats:
    """What a rasterizer draws of its inputs: gsplat normalizes rotations, and differentiates that."""
    return _of_length_one(splats) if kernel is kernel_gsplat else splats


def _check_elsewhere(
    kernel: Any, scene: Tuple[Pinhole, ReferenceSplats], how: Tuple[str, float, bool]
) -> Dict[str, Any]:
    """The same picture in a world that is turned and moved, with pixels that are no squares and all harmonics; drawn once more
    without gradients, as held-out views are. What got a gradient must have a radius, by which trainers know what was seen."""
    (camera, splats), (device, allowed, plain) = scene, how
    pose = torch.tensor([[0.0, 1, 0, 0.5], [0, 0, 1, -0.25], [1, 0, 0, 1], [0, 0, 0, 1]])
    camera = camera._replace(pose=pose, aspect=1.25, degree=3)
    w, x, y, z = splats.rotations.unbind(1)
    splats = splats._replace(
        means=(splats.means - pose[:3, 3]) @ pose[:3, :3],
        # by the quaternion (1, 1, 1, 1) / 2, which turns as the pose's inverse
        rotations=torch.stack([w - x - y - z, w + x - y + z, w + x + y - z, w - x + y + z], 1) / 2,
        shs=torch.cat([splats.shs[:, :4], 0.2 * splats.shs[:, 4:]], 1),
    )
    exact, given = _leaves(splats, device)
    means2d = _centers(kernel, COUNT, device)
    drawn = _draw(kernel, camera, given, means2d)
    expected, _ = splat_reference(_double(camera), _meant(kernel, exact))
    weight = torch.randn(expected.shape, generator=torch.Generator().manual_seed(10))
    torch.autograd.backward((drawn[0] * weight.to(device)).sum())
    torch.autograd.backward((expected * weight.double()).sum())
    value = relative_error(drawn[0], expected)
    with torch.no_grad():
        value = max(value, relative_error(_draw(kernel, camera, given, means2d)[0], expected))
    ran = Ran([], drawn[0], [item.grad for item in given])
    result = _densifying(value, exact, allowed, ran, means2d, plain)
    radii, moved = drawn[1], given.opacities.grad
    if moved is not None and radii.shape == (COUNT,) and bool(((radii <= 0) & (moved[:, 0] != 0)).any()):
        result.update(outcome="failed", detail="Gaussians that got a gradient have no radius")
    return result


def _check_many(
    kernel: Any, count: int, size: Tuple[int, int], how: Tuple[str, float, bool]
) -> Dict[str, Any]:
    """A scene of many Gaussians: some pixels and the gradients that come from them, by the Gaussians that reach these pixels."""
    device, allowed, plain = how
    camera, splats = _many(_fields(kernel), count, size)
    exact_camera = _double(camera)
    across, down = _undoubted(exact_camera, splats)
    near = _reaching(camera, splats, across, down)
    exact, given = _leaves(splats, device)
    means2d = _centers(kernel, count, device)
    color = _draw(kernel, camera, given, means2d)[0]
    chosen = ReferenceSplats(*(item[near] for item in _meant(kernel, exact)))
    expected, _, _ = splats_at(exact_camera, chosen, across, down)
    actual = color[:, down.to(device), across.to(device)]
    weight = torch.randn(expected.shape, generator=torch.Generator().manual_seed(7))
    torch.autograd.backward((actual * weight.to(device)).sum())
    torch.autograd.backward((expected * weight.double()).sum())
    ran = Ran([], actual, [item.grad for item in given])
    return _densifying(relative_error(actual, expected), exact, allowed, ran, means2d, plain)


def _centers(kernel: Any, count: int, device: str) -> Tensor:
    """What takes the gradient of the projected means; FastGS writes four columns: the sums of absolute gradients are apart."""
    return torch.zeros(count, 4 if "metric_map" in _fields(kernel) else 3, device=device, requires_grad=True)


def _reaching(camera: Pinhole, splats: ReferenceSplats, across: Tensor, down: Tensor) -> Tensor:
    """The Gaussians that some pixel lies within 4 sigma of, and more."""
    reach = 2.0 + 4.0 * camera.focal * splats.scales.max(1).values / splats.means[:, 2]
    centres = camera.focal * splats.means[:, :2] / splats.means[:, 2:] + (torch.tensor(camera.size) - 1) / 2
    near = torch.zeros(len(splats.means), dtype=torch.bool)
    for x, y in zip(across.tolist(), down.tolist()):
        near |= (centres - torch.tensor([x, y])).abs().max(1).values < reach
    return near


def _check_many_surfels(
    kernel: Any, count: int, size: Tuple[int, int], how: Tuple[str, bool]
) -> Dict[str, Any]:
    """As :func:`_check_many`, at pixels where single precision does not decide otherwise than double."""
    device, plain = how
    camera, gaussians = _many([], count, size)
    splats, number = _discs(gaussians, torch.Generator().manual_seed(9)), torch.arange(PIXELS // 2)
    across, down = number * 211 % size[0], number * 97 % size[1]
    near = _reaching(camera, splats, across, down)
    single = ReferenceSplats(*(item[near] for item in splats))
    double = ReferenceSplats(*(item.double() for item in single))
    good = torch.ones(len(number), dtype=torch.bool)
    pairs = zip(
        surfel_reference(camera, single, (across, down)),
        surfel_reference(_double(camera), double, (across, down)),
    )
    for one, other in pairs:
        good &= ((one[:6, 0] - other[:6, 0]).abs() < 1e-3 * other[:6].abs().max()).all(0)
    across, down = across[good], down[good]
    exact, given = _leaves(splats, device)
    means2d = torch.zeros(count, 3, device=device, requires_grad=True)
    drawn = _draw(kernel, camera, _of_length_one(given), means2d)
    chosen = ReferenceSplats(*(item[near] for item in _of_length_one(exact)))
    expected = torch.cat(surfel_reference(_double(camera), chosen, (across, down)))[:, 0]
    actual = torch.cat([drawn[0], drawn[2]])[:, down.to(device), across.to(device)]
    weight = torch.randn(expected.shape, generator=torch.Generator().manual_seed(7))
    torch.autograd.backward((actual * weight.to(device)).sum())
    torch.autograd.backward((expected * weight.double()).sum())
    value = max(relative_error(actual[:3], expected[:3]), relative_error(actual[3:9], expected[3:9]))
    ran = Ran([], actual, [item.grad for item in given])
    return _densifying(value, exact, 5e-3, ran, means2d, plain)


def _of_length_one(splats: ReferenceSplats) -> ReferenceSplats:
    """As trainers hand rotations on; the kernel does not differentiate its own normalization."""
    return splats._replace(rotations=torch.nn.functional.normalize(splats.rotations))


def _discs(splats: ReferenceSplats, generator: torch.Generator) -> ReferenceSplats:
    """Half turned away from the camera: single precision says little of discs that are seen edge-on."""
    count = len(splats.means)
    turns = torch.cat([torch.ones(count, 1), 0.2 * torch.randn(count, 3, generator=generator)], 1)
    return splats._replace(
        scales=splats.scales[:, :2].contiguous(), rotations=torch.nn.functional.normalize(turns)
    )


def _many(fields: List[str], count: int, size: Tuple[int, int]) -> Tuple[Pinhole, ReferenceSplats]:
    """A camera of that size, and Gaussians of some pixels each that fill its image."""
    camera, few = _scene(fields, one_tile=False, count=count)
    generator = torch.Generator().manual_seed(8)
    focal, (width, height) = 0.8 * size[0], size
    depth = few.means[:, 2:]
    places = (torch.rand(count, 2, generator=generator) - 0.5) * torch.tensor(size) / focal * depth
    # so that a dozen overlap in each pixel
    pixels = math.sqrt(0.3 * width * height / count)
    scales = few.scales / 0.15 * pixels * depth / focal
    offset = None
    if camera.offset is not None:
        offset = torch.rand(height, width, 2, generator=generator) - 0.5
    camera = camera._replace(size=size, focal=focal, offset=offset)
    return camera, few._replace(means=torch.cat([places, depth], 1), scales=scales.clamp_max(0.4))


def _undoubted(camera: Pinhole, splats: ReferenceSplats) -> Tuple[Tensor, Tensor]:
    """Pixels (columns, rows) where no opacity lies so near to the faintest that single precision may decide otherwise, and
    through which light passes."""
    width, height = camera.size
    number = torch.arange(4 * PIXELS)
    across, down = number * 211 % width, number * 97 % height
    with torch.no_grad():
        exact = ReferenceSplats(*(item.double() for item in splats))
        good = torch.ones(len(number), dtype=torch.bool)
        for part in range(0, len(number), 8):
            some = slice(part, part + 8)
            _, _, opacity = splats_at(camera, exact, across[some], down[some])
            doubtful = ((opacity / FAINTEST - 1).abs() < 1e-3).any(0)
            through = (
                torch.where(opacity < FAINTEST, torch.zeros_like(opacity), opacity).neg().log1p().sum(0).exp()
            )
            good[some] = ~doubtful & (through > 1e-3)
    return across[good][:PIXELS], down[good][:PIXELS]


def _check_surfels(kernel: Any, device: str, plain: bool) -> Dict[str, Any]:
    """Check the rasterizer of 2DGS: color and all seven maps, and the gradient of every input through all of them."""
    camera, splats = _scene([], one_tile=False)
    generator = torch.Generator().manual_seed(6)
    splats = _discs(splats, generator)
    exact, given = _leaves(splats, device)
    means2d = torch.zeros(COUNT, 3, device=device, requires_grad=True)
    drawn = _draw(kernel, camera, _of_length_one(given), means2d)
    actual, expected = (drawn[0], drawn[2]), surfel_reference(_double(camera), _of_length_one(exact))
    if drawn[2].shape != expected[1].shape:
        raise NotMeasured(
            f"a variant that splatfix cannot call: its maps have the shape {tuple(drawn[2].shape)}"
        )
    weight = torch.randn(10, *camera.size[::-1], generator=generator)
    weight[9] *= 100.0  # the distortion is small
    torch.autograd.backward((torch.cat(actual) * weight.to(device)).sum())
    torch.autograd.backward((torch.cat(expected) * weight.double()).sum())
    value = max(relative_error(one, other) for one, other in zip(actual, expected))
    # the distortion is a small difference of large numbers in single precision
    value = max(value, 0.01 * relative_error(drawn[2][6], expected[1][6]))
    ran = Ran([*camera, *splats], torch.cat(actual), [item.grad for item in given])
    results = [("", _densifying(value, exact, 5e-3, ran, means2d, plain))]
    sizes: Tuple[Tuple[int, Tuple[int, int]], ...] = LARGER
    if plain and device == "cpu":  # PyTorch's discs take a CPU ten times as long as Gaussians
        sizes = ((1025, (80, 60)),)
    for count, size in sizes:
        if results[-1][1]["outcome"] == "failed":
            break
        result = _check_many_surfels(kernel, count, size, (device, plain))
        results.append((f"of {count} Gaussians at {size[0]} x {size[1]}", result))
    return _worst(results)


def _leaves(splats: ReferenceSplats, device: str) -> tuple[ReferenceSplats, ReferenceSplats]:
    """The inputs of the reference in float64, and those of the kernel, each with gradients of its own."""
    exact = [item.detach().double().requires_grad_(True) for item in splats]
    given = [item.detach().to(device, copy=True).requires_grad_(True) for item in splats]
    return ReferenceSplats(*exact), ReferenceSplats(*given)


def _densifying(
    value: float, exact: ReferenceSplats, allowed: float, ran: Ran, means2d: Tensor, plain: bool
) -> Dict[str, Any]:
    """Judge a rasterizer, which must also give the gradient that densification goes by; ``allowed`` is the error of gradients of
    other kernels than plain PyTorch."""
    gradient = largest_error(ran.gradients, [item.grad for item in exact])
    if plain:
        result = _errors(value, 1e-5, gradient, 1e-4, ran)
    else:
        result = _errors(value, 5e-5, gradient, allowed, ran)
    if means2d.grad is None or not bool(means2d.grad.abs().sum() > 0):
        result.update(outcome="failed", detail="means2D got no gradient, so nothing would densify")
    return result


def _scene(fields: List[str], one_tile: bool, count: int = COUNT) -> tuple[Pinhole, ReferenceSplats]:
    """A camera and Gaussians in front of it. ``one_tile``: no larger than a tile of 16 pixels, as the branch of 3dgs-mcmc cuts
    Gaussians closer than 3 sigma."""
    width, height = (ONE_TILE, ONE_TILE) if one_tile else (40, 32)
    generator = torch.Generator().manual_seed(3)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=generator)

    splats = ReferenceSplats(
        torch.cat([uniform(-0.8, 0.8, count, 2) * (width / 40), uniform(3.5, 5.0, count, 1)], 1),
        uniform(0.05, 0.25, count, 3),
        torch.nn.functional.normalize(torch.randn(count, 4, generator=generator)),
        # at most 0.3, so that alpha at 3 sigma (0.3 exp(-4.5) = 0.0033) is below 1/255: the tile cut changes nothing
        uniform(0.05, 0.3, count, 1),
        torch.cat([uniform(-1.0, 1.5, count, 1, 3), uniform(-0.15, 0.15, count, 15, 3)], 1),
    )
    camera = Pinhole((width, height), 40.0, torch.tensor([0.2, 0.4, 0.6]))
    if "kernel_size" in fields and "subpixel_offset" in fields:
        camera = camera._replace(kernel_size=0.1, offset=uniform(-0.5, 0.5, height, width, 2))
    return camera, splats


def _double(camera: Pinhole) -> Pinhole:
    offset = None if camera.offset is None else camera.offset.double()
    pose = None if camera.pose is None else camera.pose.double()
    return camera._replace(background=camera.background.double(), offset=offset, pose=pose)


def _values(camera: Pinhole, device: torch.device) -> Dict[str, Any]:
    """Every setting of the variants, by name, as their own trainers fill it."""
    width, height = camera.size
    tan_x, tan_y = width / (2 * camera.focal), height / (2 * camera.focal * camera.aspect)
    near, far = 0.01, 100.0
    pose = torch.eye(4) if camera.pose is None else camera.pose
    projection = torch.zeros(4, 4)
    projection[0, 0], projection[1, 1], projection[3, 2] = 1 / tan_x, 1 / tan_y, 1.0
    projection[2, 2], projection[2, 3] = far / (far - near), -far * near / (far - near)
    return {
        "image_height": height,
        "image_width": width,
        "tanfovx": tan_x,
        "tanfovy": tan_y,
        "bg": camera.background.to(device),
        "scale_modifier": 1.0,
        "viewmatrix": pose.t().contiguous().to(device),
        "projmatrix": (projection @ pose).t().contiguous().to(device),
        "sh_degree": camera.degree,
        "campos": camera.place.to(device),
        "prefiltered": False,
        "debug": False,
        # beyond Inria's first twelve
        "antialiasing": camera.antialiasing,
        "kernel_size": camera.kernel_size or 0.0,  # 0: RaDe-GS
        "subpixel_offset": None if camera.offset is None else camera.offset.to(device),
        "pixel_weights": None,
        "mult": 1.0,  # the whole ellipse; FastGS trains with less
        "get_flag": False,
        "metric_map": torch.zeros(height * width, dtype=torch.int32, device=device),
        "require_depth": False,
        "require_coord": False,
        "render_geo": False,
    }


def _fields(kernel: Any) -> List[str]:
    """The settings that are given; others are left at the default that a drop-in or our own rasterizer has for them."""
    kind = kernel.GaussianRasterizationSettings
    defaults = set(getattr(kind, "_field_defaults", {})) - {"antialiasing"}
    return [name for name in kind._fields if name not in defaults]


def _draw(kernel: Any, camera: Pinhole, splats: ReferenceSplats, means2d: Tensor) -> Any:
    device, arguments = means2d.device, inspect.signature(kernel.GaussianRasterizer.forward).parameters
    inputs = {
        "means3D": splats.means,
        "means2D": means2d,
        "opacities": splats.opacities,
        "shs": splats.shs,
        "scales": splats.scales,
        "rotations": splats.rotations,
        "scores": torch.zeros_like(splats.opacities),
        "means2D_abs": torch.zeros_like(means2d, requires_grad=True),
    }
    if "dc" in arguments:
        inputs["dc"], inputs["shs"] = splats.shs[:, :1].contiguous(), splats.shs[:, 1:].contiguous()
    # a wrapper that hands its arguments on wants those of all variants
    expected = set(arguments)
    if any(one.kind is one.VAR_KEYWORD for one in arguments.values()):
        expected |= {"means3D", "means2D", "opacities", "shs", "scales", "rotations"}
    known = {name: value for name, value in inputs.items() if name in expected}
    values = _values(camera, device)
    settings = kernel.GaussianRasterizationSettings(**{name: values[name] for name in _fields(kernel)})
    return kernel.GaussianRasterizer(settings)(**known)


_ARGUMENTS = frozenset(
    ("self", "means3D", "means2D", "opacities", "shs", "scales", "rotations", "scores", "means2D_abs", "dc")
)


def _run_triangles(kernel: Any, device: str) -> Dict[str, Any]:
    """Call Triangle Splatting's rasterizer with a few triangles; splatfix has no reference for it."""
    forward = inspect.signature(kernel.TriangleRasterizer.forward).parameters
    if "triangles_points" not in forward:
        raise NotMeasured("a variant that splatfix cannot call: it takes no triangles_points")
    camera, splats = _scene([], one_tile=False)
    corners = splats.means[:, None] + 0.2 * torch.randn(
        COUNT, 3, 3, generator=torch.Generator().manual_seed(5)
    )
    points = corners.reshape(-1, 3).contiguous().to(device).requires_grad_(True)
    opacities, shs = (splats[i].to(device).requires_grad_(True) for i in (3, 4))
    means2d = torch.zeros(COUNT, 3, device=device, requires_grad=True)
    each = torch.full((COUNT,), 3, dtype=torch.int32, device=device)
    values = _values(camera, points.device)
    kind = kernel.TriangleRasterizationSettings
    color = kernel.TriangleRasterizer(kind(**{name: values[name] for name in kind._fields}))(
        triangles_points=points,
        sigma=torch.ones(COUNT, 1, device=device),
        num_points_per_triangle=each,
        cumsum_of_points_per_triangle=torch.cumsum(each, 0, dtype=torch.int32) - each,
        number_of_points=3 * COUNT,
        opacities=opacities,
        means2D=means2d,
        scaling=torch.zeros(COUNT, device=device),
        density_factor=torch.zeros(COUNT, device=device),
        shs=shs,
    )[0]
    torch.autograd.backward(color.sum())
    return _only_finite("no reference for triangles", [color], [points, opacities, shs])


def _only_finite(reason: str, images: List[Tensor], leaves: List[Tensor]) -> Dict[str, Any]:
    """The result of a kernel that ran and has no reference: not measured, unless it gave what is never right."""
    gradients = [leaf.grad for leaf in leaves if leaf.grad is not None]
    finite = all(bool(torch.isfinite(item).all()) for item in [*images, *gradients])
    drawn = any(float(image.detach().abs().max()) > 0 for image in images)
    if not finite:
        return dict(BLANK, outcome="failed", detail="it ran and gave values that are not finite")
    if not drawn:
        return dict(BLANK, outcome="failed", detail="it ran and gave an empty image")
    return dict(BLANK, outcome="not-measured", detail=f"it ran, with finite results; {reason}")


def _errors(value: float, allowed: float, gradient: Any, gradient_allowed: Any, ran: Ran) -> Dict[str, Any]:
    """The result of a kernel; ``ran``, which is no part of it, is taken out by the probe."""
    good = value <= allowed and (gradient is None or gradient <= gradient_allowed)
    return dict(
        BLANK,
        outcome="met" if good else "failed",
        value_error=finite(value),
        value_allowed=allowed,
        gradient_error=finite(gradient),
        gradient_allowed=gradient_allowed,
        ran=ran,
    )


CHECKS: Dict[str, Callable[[Any, str, bool], Dict[str, Any]]] = {
    "arithmetic": check_arithmetic,
    "ssim": check_ssim,
    "knn": check_knn,
    "rasterizer": check_rasterizer,
    # gsplat's own Python, which has the kernel as its compiled module
    "gsplat": lambda kernel, device, plain: check_rasterizer(kernel_gsplat, device, plain),
}
