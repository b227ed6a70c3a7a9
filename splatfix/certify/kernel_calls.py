"""How each kernel is called and held against its reference, for the probe that runs inside the target environment.

A rasterizer is called as its own trainer calls it: by the names of its settings and of its arguments, which tell the variants
of one module name apart. Imports torch and the references only; Python 3.8.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import math
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import torch
from torch import Tensor

from splatfix.certify.kernel_arithmetic import check_arithmetic
from splatfix.certify.kernel_references import (
    FAINTEST,
    Pinhole,
    ReferenceSplats,
    knn_reference,
    largest_error,
    measured,
    relative_error,
    splats_at,
    ssim_reference,
    surfels_at,
)

COUNT = 30  # Gaussians of the scene
ONE_TILE = 16
LARGER = ((1025, (257, 131)), (4099, (320, 240)), (100_003, (960, 540)))
"""Gaussians, and (width, height) of the image: beyond what a kernel may do otherwise for few and small ones."""
PIXELS = 24
"""Of a larger image, that are compared."""
NO_REFERENCE = {
    "view2gaussian_precomp": "no reference for the ray space of GOF",
    "require_coord": "no reference for RaDe-GS",
    "triangles_points": "no reference for triangles",
}
"""Variants that are called and not compared, by an argument or a setting that only they have."""
Check = Callable[[Any, str, bool], Dict[str, Any]]
"""From a module, a device, and whether it is held to the contract of our plain PyTorch, to the result."""
Results = Iterator[Tuple[str, Dict[str, Any]]]


class NotMeasured(Exception):
    """This implementation cannot be compared with a reference here; the message says why."""


def at_each_size(results: Callable[[Any, str, bool], Results]) -> Check:
    """Make a check of the results at one size after another: the first that failed, which is named, or the largest errors."""

    @functools.wraps(results)
    def check(kernel: Any, device: str, plain: bool) -> Dict[str, Any]:
        worst: Dict[str, Any] = {}
        for size, result in results(kernel, device, plain):
            if result["outcome"] == "failed":
                return dict(result, detail="; ".join(filter(None, (size, result["detail"]))))
            for name in ("value_error", "gradient_error"):
                if worst.get(name) is not None:
                    result[name] = max(worst[name], result[name])
            worst = result
        return worst

    return check


@at_each_size
def check_ssim(kernel: Any, device: str, plain: bool) -> Results:
    """Check ``fused_ssim``: value and the gradient of the first image."""
    # plain PyTorch has its own contract; other single-precision kernels get more room
    allowed, gradient_allowed = (1e-6, 5e-5) if plain else (1e-5, 1e-4)
    for channels, height, width in ((3, 45, 61), (3, 120, 160), (1, 131, 259), (3, 540, 960)):
        generator = torch.Generator().manual_seed(1)
        first = torch.rand(1, channels, height, width, generator=generator)
        noise = 0.1 * torch.randn(1, channels, height, width, generator=generator)
        second = (first + noise).clamp(0, 1)
        exact = first.double().requires_grad_(True)
        expected = ssim_reference(exact, second.double())
        given = first.to(device, copy=True).requires_grad_(True)
        actual = kernel.fused_ssim(given, second.to(device))
        torch.autograd.backward(expected)
        torch.autograd.backward(actual)
        with torch.no_grad():  # as held-out views are judged
            judged = kernel.fused_ssim(first.to(device), second.to(device))
        value = max(relative_error(actual, expected), relative_error(judged, expected))
        gradient = largest_error([given], [exact])
        yield f"at {width} x {height}", measured(value, allowed, gradient, gradient_allowed)


@at_each_size
def check_knn(kernel: Any, device: str, plain: bool) -> Results:
    """Check ``distCUDA2``: the neighbor distances that initial scales come from."""
    for count in (700, 1025, 4099, 100_003, 1_000_003):
        points = torch.randn(count, 3, generator=torch.Generator().manual_seed(2))
        points[10] = points[11]  # a duplicate counts with distance 0
        points[:9] *= 30.0  # far from all others, as points of a sky are
        actual = kernel.distCUDA2(points.to(device))
        rows = torch.arange(0, count, max(1, count // min(100, 20_000_000 // count)))
        expected = knn_reference(points.double(), rows)
        difference = (actual.double().cpu()[rows] - expected).abs()
        error = float((difference / expected.clamp_min(1e-12)).max())
        yield f"of {count} points", measured(error, 5e-6 if plain else 1e-4)


@at_each_size
def check_rasterizer(kernel: Any, device: str, plain: bool) -> Results:
    """Check a rasterizer: its picture and the gradient of every input, as the variant defines them."""
    variant = (Gsplat if kernel.__name__ == "gsplat.csrc" else Rasterizer)(kernel, device, plain)
    for view in _views(variant):
        yield view.name, variant.compare(view)
        if variant.no_reference:
            break


class View(NamedTuple):
    """What is drawn, and which of its pixels are compared."""

    name: str
    camera: Pinhole
    splats: ReferenceSplats
    across: Tensor  # [S] columns
    down: Tensor  # [S] rows
    weights: Tensor  # [C, S], in the sum whose gradients are compared
    near: Any = slice(None)
    """The Gaussians that reach one of these pixels."""
    again: Tuple[Pinhole, ...] = ()
    """Cameras by which the same is drawn without gradients, as held-out views are."""
    parts: Sequence[Tuple[int, int, float]] = ((0, 3, 1.0), (3, 4, 1.0))
    """Channels that are compared together, from and to, and how much their error counts: color, and the inverse depth."""

    def error(self, actual: Tensor, expected: Tensor) -> float:
        """Return the largest error of the parts that a variant gives."""
        errors = []
        for first, last, share in self.parts:
            if first < len(actual):
                errors.append(share * relative_error(actual[first:last], expected[first:last]))
        return max(errors)


class Rasterizer:
    """One variant of a rasterizer, and what it is to give."""

    discs, one_tile, no_reference = False, False, ""
    fields: Sequence[str] = ()

    def __init__(self, kernel: Any, device: str, plain: bool) -> None:
        self.device, self.plain = device, plain
        kind = "Triangle" if hasattr(kernel, "TriangleRasterizer") else "Gaussian"
        self.rasterizer = getattr(kernel, f"{kind}Rasterizer")
        self.settings = getattr(kernel, f"{kind}RasterizationSettings")
        self.arguments = inspect.signature(self.rasterizer.forward).parameters
        # others are left at the default that a drop-in or our own rasterizer has for them
        defaults = set(getattr(self.settings, "_field_defaults", {})) - {"antialiasing"}
        self.fields = [name for name in self.settings._fields if name not in defaults]
        self.discs = kernel.__name__ == "diff_surfel_rasterization"
        self.normalized = self.discs  # 2DGS's trainer hands on rotations of length one
        # the branch of 3dgs-mcmc cuts Gaussians closer than 3 sigma: its picture is no larger than a tile
        self.one_tile = hasattr(getattr(kernel, "_C", None), "compute_relocation")
        names = {*self.arguments, *self.fields}
        self.no_reference = "".join(reason for name, reason in NO_REFERENCE.items() if name in names)

    def _inputs(self, splats: ReferenceSplats, means2d: Tensor) -> Dict[str, Any]:
        """Return every argument that the variants have, by name."""
        inputs: Dict[str, Any] = {
            "means3D": splats.means,
            "means2D": means2d,
            "opacities": splats.opacities,
            "shs": splats.shs,
            "scales": splats.scales,
            "rotations": splats.rotations,
            "scores": torch.zeros_like(splats.opacities),
            "means2D_abs": torch.zeros_like(means2d, requires_grad=True),
        }
        if "dc" in self.arguments:
            inputs.update(dc=splats.shs[:, :1].contiguous(), shs=splats.shs[:, 1:].contiguous())
        if "triangles_points" in self.arguments:
            count, device = len(splats.means), splats.means.device
            corners = 0.2 * torch.randn(count, 3, 3, generator=torch.Generator().manual_seed(5))
            each = torch.full((count,), 3, dtype=torch.int32, device=device)
            inputs.update(
                triangles_points=(splats.means[:, None] + corners.to(device)).reshape(-1, 3),
                sigma=torch.ones(count, 1, device=device),
                num_points_per_triangle=each,
                cumsum_of_points_per_triangle=torch.cumsum(each, 0, dtype=torch.int32) - each,
                number_of_points=3 * count,
                scaling=torch.zeros(count, device=device),
                density_factor=torch.zeros(count, device=device),
            )
        return inputs

    def call(self, camera: Pinhole, splats: ReferenceSplats, means2d: Tensor) -> Any:
        """Return color [3, H, W], radii, and what else a variant gives."""
        inputs, settings = self._inputs(splats, means2d), _settings(camera, means2d.device)
        if unknown := [name for name in self.fields if name not in settings]:
            raise NotMeasured(f"a variant that splatfix cannot call; unknown to it: {', '.join(unknown)}")
        expected = set(self.arguments)
        # a wrapper that hands its arguments on wants those of all variants
        if any(one.kind is one.VAR_KEYWORD for one in self.arguments.values()):
            expected |= {"means3D", "means2D", "opacities", "shs", "scales", "rotations"}
        rasterizer = self.rasterizer(self.settings(**{name: settings[name] for name in self.fields}))
        return rasterizer(**{name: value for name, value in inputs.items() if name in expected})

    def draw(
        self, camera: Pinhole, splats: ReferenceSplats, means2d: Tensor, view: View
    ) -> Tuple[Tensor, Any]:
        """Return color, and the maps of discs or the inverse depth, [C, S] at the view's pixels; and the radii."""
        if self.discs:
            splats = _of_length_one(splats)
        drawn = self.call(camera, splats, means2d)
        image, radii = drawn[:2]
        if self.discs and drawn[2].shape != (7, *image.shape[1:]):
            shape = tuple(drawn[2].shape)
            raise NotMeasured(f"a variant that splatfix cannot call: its maps have the shape {shape}")
        # Inria 2024 gives the inverse depth
        if self.discs or ("antialiasing" in self.fields and len(drawn) > 2):
            image = torch.cat([image, drawn[2]])
        return image[:, view.down.to(image.device), view.across.to(image.device)], radii

    def reference(self, camera: Pinhole, splats: ReferenceSplats, view: View) -> Tensor:
        """Return what :meth:`draw` is to give, in float64."""
        if self.normalized:
            splats = _of_length_one(splats)
        near = splats.each(lambda item: item[view.near])
        if self.discs:
            return surfels_at(camera.double(), near, view.across, view.down)
        return torch.cat(splats_at(camera.double(), near, view.across, view.down)[:2])

    def compare(self, view: View) -> Dict[str, Any]:
        """Draw a view and compare it at its pixels, with the gradient of every input; densification must get one too."""
        exact = view.splats.each(lambda item: item.double().requires_grad_(True))
        given = view.splats.each(lambda item: item.to(self.device, copy=True).requires_grad_(True))
        # FastGS writes four columns: the sums of absolute gradients are apart
        columns = 4 if "metric_map" in self.fields else 3
        means2d = torch.zeros(len(exact.means), columns, device=self.device, requires_grad=True)
        actual, radii = self.draw(view.camera, given, means2d, view)
        if self.no_reference:
            torch.autograd.backward(actual.sum())
            return self._only_finite(actual, [*given, means2d])
        expected = self.reference(view.camera, exact, view)
        channels = len(view.weights)
        torch.autograd.backward((actual[:channels] * view.weights.to(self.device)).sum())
        torch.autograd.backward((expected[:channels] * view.weights.double()).sum())
        value = view.error(actual, expected)
        for camera in view.again:
            with torch.no_grad():
                actual, _ = self.draw(camera, given, means2d, view)
                value = max(value, view.error(actual, self.reference(camera, exact, view)))
        allowed, gradient_allowed = 5e-5, 5e-4
        if self.plain:
            allowed, gradient_allowed = 1e-5, 1e-4
        elif self.discs or view.camera.kernel_size is not None:
            # epsilons in the backward pass of Mip-Splatting move the gradients of covariances by 5e-4
            gradient_allowed = 5e-3
        detail = ""
        if means2d.grad is None or not bool(means2d.grad.abs().sum() > 0):
            detail = "means2D got no gradient, so nothing would densify"
        elif given.opacities.grad is not None and radii.shape == (len(means2d),):
            # trainers know by their radii which were seen
            moved = given.opacities.grad[:, 0] != 0
            if bool(moved[radii <= 0].any()):
                detail = "Gaussians that got a gradient have no radius"
        return measured(value, allowed, largest_error(given, exact), gradient_allowed, detail)

    def _only_finite(self, image: Tensor, leaves: List[Tensor]) -> Dict[str, Any]:
        """Return the result of a kernel that ran and has no reference: not measured, unless it gave what is never right."""
        gradients = [leaf.grad for leaf in leaves if leaf.grad is not None]
        if not all(bool(torch.isfinite(item).all()) for item in [image, *gradients]):
            return {"outcome": "failed", "detail": "it ran and gave values that are not finite"}
        if not bool((image != 0).any()):
            return {"outcome": "failed", "detail": "it ran and gave an empty image"}
        detail = f"it ran, with finite results; {self.no_reference}"
        return {"outcome": "not-measured", "detail": detail}


class Gsplat(Rasterizer):
    """gsplat's own Python, which has the kernel as its compiled module."""

    fields = ("antialiasing",)
    normalized = True  # by itself, and it differentiates that

    def __init__(self, kernel: Any, device: str, plain: bool) -> None:
        self.device, self.plain = device, plain

    def call(self, camera: Pinhole, splats: ReferenceSplats, means2d: Tensor) -> Any:
        """Return color [3, H, W] and radii [P] of one camera; ``means2d`` gets the gradient that densification goes by."""
        width, height = camera.size
        intrinsics = torch.tensor(
            [[camera.focal, 0, width / 2], [0, camera.focal * camera.aspect, height / 2], [0, 0, 1]]
        )
        pose = torch.eye(4) if camera.pose is None else camera.pose
        colors, _, meta = importlib.import_module("gsplat").rasterization(
            splats.means,
            splats.rotations,
            splats.scales,
            splats.opacities[:, 0],
            splats.shs,
            pose[None].to(self.device),
            intrinsics[None].to(self.device),
            width,
            height,
            sh_degree=camera.degree,
            packed=False,
            backgrounds=camera.background[None].to(self.device),
            rasterize_mode="antialiased" if camera.antialiasing else "classic",
        )

        def keep(gradient: Tensor) -> None:
            means2d.grad = torch.nn.functional.pad(gradient[0], (0, 1))

        if meta["means2d"].requires_grad:
            meta["means2d"].register_hook(keep)
        radii = meta["radii"][0]
        if radii.dim() == 2:  # from 1.5 on one for each axis
            radii = radii.amax(dim=1)
        return colors[0].permute(2, 0, 1), radii


def _views(variant: Rasterizer) -> Iterator[View]:
    """Yield what a rasterizer is to draw: a small scene, the same seen from elsewhere, and larger ones."""
    camera, splats = _scene(variant)
    down, across = torch.meshgrid(*map(torch.arange, camera.size[::-1]), indexing="ij")
    weights = torch.randn(3, across.numel(), generator=torch.Generator().manual_seed(4))
    small = View("", camera, splats, across.flatten(), down.flatten(), weights)
    sizes: Tuple[Tuple[int, Tuple[int, int]], ...] = LARGER
    if variant.discs:
        generator = torch.Generator().manual_seed(6)
        splats, weights = _discs(splats, generator), torch.randn(10, across.numel(), generator=generator)
        # the distortion is small, a difference of large numbers in single precision
        weights[9] *= 100.0
        parts = ((0, 3, 1.0), (3, 10, 1.0), (9, 10, 0.01))
        yield small._replace(splats=splats, weights=weights, parts=parts)
        if variant.plain and variant.device == "cpu":  # PyTorch's discs take a CPU ten times as long
            sizes = ((1025, (80, 60)),)
    else:
        if "antialiasing" in variant.fields:
            small = small._replace(again=(camera._replace(antialiasing=True),))
        yield small
        yield _elsewhere(small)
    if not variant.one_tile:
        for count, size in sizes:
            yield _large(variant, count, size)


def _scene(variant: Rasterizer, count: int = COUNT) -> Tuple[Pinhole, ReferenceSplats]:
    """Return a camera, and Gaussians in front of it."""
    width, height = (ONE_TILE, ONE_TILE) if variant.one_tile else (40, 32)
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
    if "kernel_size" in variant.fields and "subpixel_offset" in variant.fields:
        camera = camera._replace(kernel_size=0.1, offset=uniform(-0.5, 0.5, height, width, 2))
    return camera, splats


def _elsewhere(view: View) -> View:
    """Return the same picture in a world that is turned and moved, with pixels that are no squares and all harmonics."""
    pose = torch.tensor([[0.0, 1, 0, 0.5], [0, 0, 1, -0.25], [1, 0, 0, 1], [0, 0, 0, 1]])
    camera, splats = view.camera._replace(pose=pose, aspect=1.25, degree=3), view.splats
    w, x, y, z = splats.rotations.unbind(1)
    splats = splats._replace(
        means=(splats.means - pose[:3, 3]) @ pose[:3, :3],
        # by the quaternion (1, 1, 1, 1) / 2, which turns as the pose's inverse
        rotations=torch.stack([w - x - y - z, w + x - y + z, w + x + y - z, w - x + y + z], 1) / 2,
        shs=torch.cat([splats.shs[:, :4], 0.2 * splats.shs[:, 4:]], 1),
    )
    weights = torch.randn(3, len(view.across), generator=torch.Generator().manual_seed(10))
    name = "seen from elsewhere, with harmonics of degree 3"
    return view._replace(name=name, camera=camera, splats=splats, weights=weights, again=(camera,))


def _large(variant: Rasterizer, count: int, size: Tuple[int, int]) -> View:
    """Return a view of many Gaussians of some pixels each that fill the image, at pixels where single precision does not decide
    otherwise than double."""
    camera, splats = _scene(variant, count)
    generator = torch.Generator().manual_seed(8)
    focal, (width, height) = 0.8 * size[0], size
    depth = splats.means[:, 2:]
    middles = (torch.rand(count, 2, generator=generator) - 0.5) * torch.tensor(size) / focal
    # so that a dozen overlap in each pixel
    pixels = math.sqrt(0.3 * width * height / count)
    scales = (splats.scales / 0.15 * pixels * depth / focal).clamp_max(0.4)
    splats = splats._replace(means=torch.cat([middles * depth, depth], 1), scales=scales)
    camera = camera._replace(size=size, focal=focal)
    if camera.offset is not None:
        camera = camera._replace(offset=torch.rand(height, width, 2, generator=generator) - 0.5)
    if variant.discs:
        splats = _discs(splats, torch.Generator().manual_seed(9))
    number = torch.arange(PIXELS // 2 if variant.discs else 4 * PIXELS)
    across, down = number * 211 % width, number * 97 % height
    # the Gaussians that some pixel lies within 4 sigma of, and more
    reach = 2.0 + 4.0 * focal * splats.scales.max(1).values / depth[:, 0]
    centres = focal * middles + (torch.tensor(size) - 1) / 2
    near = torch.zeros(count, dtype=torch.bool)
    for x, y in zip(across.tolist(), down.tolist()):
        near |= (centres - torch.tensor([x, y])).abs().max(1).values < reach
    single = splats.each(lambda item: item[near])
    exact = single.each(Tensor.double)
    if variant.discs:
        rounded = surfels_at(camera, single, across, down)
        right = surfels_at(camera.double(), exact, across, down)
        good = torch.ones(len(number), dtype=torch.bool)
        for some in (slice(3), slice(3, 9)):
            good &= ((rounded[some] - right[some]).abs() < 1e-3 * right[some].abs().max()).all(0)
    else:
        # no opacity is nearly the faintest, and light passes
        opacity = splats_at(camera.double(), exact, across, down)[2]
        drawn = torch.where(opacity < FAINTEST, torch.zeros_like(opacity), opacity)
        good = ((opacity / FAINTEST - 1).abs() >= 1e-3).all(0) & ((1 - drawn).prod(0) > 1e-3)
    across, down = across[good][:PIXELS], down[good][:PIXELS]
    channels = 10 if variant.discs else 3
    weights = torch.randn(channels, len(across), generator=torch.Generator().manual_seed(7))
    view = View(f"of {count} Gaussians at {width} x {height}", camera, splats, across, down, weights, near)
    if variant.discs:  # without the distortion
        view = view._replace(parts=((0, 3, 1.0), (3, 9, 1.0)))
    return view


def _discs(splats: ReferenceSplats, generator: torch.Generator) -> ReferenceSplats:
    """Make discs of Gaussians, half turned away from the camera: single precision says little of those seen edge-on."""
    count = len(splats.means)
    turns = torch.cat([torch.ones(count, 1), 0.2 * torch.randn(count, 3, generator=generator)], 1)
    return _of_length_one(splats._replace(scales=splats.scales[:, :2].contiguous(), rotations=turns))


def _of_length_one(splats: ReferenceSplats) -> ReferenceSplats:
    """Normalize the rotations."""
    return splats._replace(rotations=torch.nn.functional.normalize(splats.rotations))


def _settings(camera: Pinhole, device: torch.device) -> Dict[str, Any]:
    """Return every setting of the variants, by name, as their own trainers fill it."""
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


CHECKS: Dict[str, Check] = {
    "arithmetic": lambda module, device, plain: check_arithmetic(device),
    "ssim": check_ssim,
    "knn": check_knn,
    "rasterizer": check_rasterizer,
    "gsplat": check_rasterizer,
}
