"""How each kernel is called and held against its reference, for the probe that runs inside the target environment.

A rasterizer is called as the smoke trainer calls it. Imports torch, that and the references only; Python 3.8.
"""

from __future__ import annotations

import importlib
import math
import warnings
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Tuple

import torch
from torch import Tensor

from smoke_trainer.errors import RendererUnavailable
from smoke_trainer.rasterizers import Reference, RenderCamera, draw_gsplat
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

FEW = 30
VIEWS: Sequence[Tuple[int, Tuple[int, int]]] = (
    (FEW, (16, 16)),
    (1025, (129, 67)),
    (4099, (320, 240)),
    (100_003, (960, 540)),
)
"""Gaussians, and (width, height) of the image: few in a single tile, and beyond what a kernel may do otherwise for these."""
PIXELS = 16
"""Of an image, of which those are compared where single precision does not decide otherwise than double."""
NO_REFERENCE = {"view2gaussian_precomp", "require_coord", "triangles_points"}
"""Arguments and settings that only variants have which are called and not compared: GOF, RaDe-GS, triangles."""
Results = Iterator[Tuple[str, Dict[str, Any]]]
"""What was compared, in words, and the result."""


SINGLE = 1e-5
"""Relative to the largest expected value; measured: 7e-7 at most, more where a hundred thousand numbers are added."""
TF32 = 1.2e-3
"""Where torch allows it, as it does for convolutions on a GPU: rounded like it on a CPU 4e-4; as bfloat16, 2e-3 to 3e-3."""
NUMBERS = (27, 2439)
"""Rows of 41 numbers: a thousand numbers, and a hundred thousand."""


def _keys(x: Tensor) -> Tensor:
    """Return one of 7 for each number: duplicates, as the keys of tiles, and rows in which a GPU's atomics meet."""
    return (x.detach().flatten() * 512).long() % 7


OPERATIONS: Dict[str, Tuple[Callable[[Tensor], Tensor], float]] = {
    "matrix product": (lambda x: x @ x[:17].t(), SINGLE),
    # as SSIM blurs: every channel by itself, with a window of 11 x 11, and zeros outside of the image
    "convolution": (
        lambda x: torch.nn.functional.conv2d(
            x.reshape(1, 3, -1, 41), x.flatten()[:363].reshape(3, 1, 11, 11), padding=5, groups=3
        ),
        10 * SINGLE,
    ),
    "sort": (lambda x: torch.sort(x.flatten(), stable=True)[0], SINGLE),
    "sort by keys": (lambda x: x.flatten()[torch.sort(_keys(x), stable=True)[1]], SINGLE),
    # single sums in any order: their errors add up
    "index_add": (lambda x: x.new_zeros(7).index_add(0, _keys(x), x.flatten() + 1), 10 * SINGLE),
    "scatter_add": (lambda x: x.new_zeros(7).scatter_add(0, _keys(x), x.flatten() + 1), 10 * SINGLE),
    "cumulative sum": (lambda x: (x.flatten() + 1).cumsum(0), 10 * SINGLE),
    "exponential": (lambda x: x.exp(), SINGLE),
    "square root": (lambda x: (x + 2).sqrt(), SINGLE),
    "sigmoid": (lambda x: x.sigmoid(), SINGLE),
}
"""Of numbers from -1 to 1, and what is allowed; ten times that of gradients."""


class NotMeasured(Exception):
    """This implementation cannot be compared with a reference here; the message says why."""


def start_cuda(device: str) -> None:
    """Make a GPU the current one, on which extensions launch, and start CUDA on it before anything of theirs is loaded."""
    with warnings.catch_warnings(record=True) as texts:
        warnings.simplefilter("always")
        found = torch.cuda.is_available()  # which tells the reason in a warning
    if not found:
        reasons = [" ".join(str(item.message).split()) for item in texts]
        raise NotMeasured(": ".join(["torch finds no GPU", *reasons]).rstrip("."))
    try:
        torch.cuda.set_device(torch.device(device).index or 0)  # which refuses "cuda" without a number
        torch.zeros(1, device=device)
    except RuntimeError as error:
        raise NotMeasured(f"CUDA does not start on {device}: {str(error).partition(chr(10))[0]}") from None


def check(name: str, kernel: Any, device: str, plain: bool) -> Dict[str, Any]:
    """Return the first result that failed, with what was compared, or else the one whose values are closest to what is allowed.

    ``plain``: it is held to the contract of our plain PyTorch.
    """
    results = []
    for compared, result in CHECKS[name](kernel, device, plain):
        if result["outcome"] == "failed":
            return dict(result, detail="; ".join(filter(None, (compared, result["detail"]))))
        results.append(result)
    return max(results, key=lambda result: result.get("value_error", 0.0) / result.get("value_allowed", 1.0))


def check_arithmetic(device: str) -> Results:
    """Check what every kernel and every training stands on, torch's own arithmetic: each operation in single precision where
    training runs, and its gradient, against the same in double precision on the CPU."""
    # what every trainer takes for granted
    made, recorded = torch.empty(0), torch.is_grad_enabled()
    if made.dtype is not torch.float32 or made.device.type != "cpu" or not recorded:
        detail = f"torch makes tensors of {made.dtype} on {made.device}, and records gradients: {recorded}"
        yield "something sets that when Python starts", {"outcome": "failed", "detail": detail}
    rounded = {}
    if device != "cpu":
        rounded["matrix product"] = torch.backends.cuda.matmul.allow_tf32
        rounded["convolution"] = torch.backends.cudnn.allow_tf32
    for rows in NUMBERS:
        generator = torch.Generator().manual_seed(1)
        numbers = torch.rand(rows, 41, generator=generator) * 2 - 1
        for name, (operation, allowed) in OPERATIONS.items():
            if rounded.get(name):
                allowed = TF32
            exact = numbers.double().requires_grad_(True)
            given = numbers.to(device, copy=True).requires_grad_(True)
            expected, actual = operation(exact), operation(given)
            weights = torch.randn(expected.shape, generator=generator)
            torch.autograd.backward((expected * weights.double()).sum())
            torch.autograd.backward((actual * weights.to(device)).sum())
            error, slope = relative_error(actual, expected), largest_error([given], [exact])
            yield f"{name} of {numbers.numel()} numbers", measured(error, allowed, slope, 10 * allowed)


def check_ssim(kernel: Any, device: str, plain: bool) -> Results:
    """Check ``fused_ssim``: value and the gradient of the first image."""
    # plain PyTorch has its own contract; other single-precision kernels get more room
    allowed, gradient_allowed = (1e-6, 5e-5) if plain else (1e-5, 1e-4)
    for channels, height, width in ((3, 45, 61), (1, 131, 259), (3, 540, 960)):
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


def check_knn(kernel: Any, device: str, plain: bool) -> Results:
    """Check ``distCUDA2``: the neighbor distances that initial scales come from."""
    counts = (700, 1025, 4099, 100_003, 1_000_003)
    for count in (
        counts[:4] if plain and device == "cpu" else counts
    ):  # PyTorch's search does the same for more
        points = torch.randn(count, 3, generator=torch.Generator().manual_seed(2))
        points[10] = points[11]  # a duplicate counts with distance 0
        points[:9] *= 30.0  # far from all others, as points of a sky are
        actual = kernel.distCUDA2(points.to(device))
        rows = torch.arange(0, count, max(1, count // min(100, 20_000_000 // count)))
        expected = knn_reference(points.double(), rows)
        difference = (actual.double().cpu()[rows] - expected).abs()
        error = float((difference / expected.clamp_min(1e-12)).max())
        yield f"of {count} points", measured(error, 5e-6 if plain else 1e-4)


def check_rasterizer(kernel: Any, device: str, plain: bool) -> Results:
    """Check a rasterizer: its picture and the gradient of every input, as the variant defines them."""
    variant = Rasterizer(kernel, device, plain)
    for count, size in variant.views:
        yield f"of {count} Gaussians at {size[0]} x {size[1]}", variant.compare(count, size)
        if variant.no_reference:
            break


class Rasterizer:
    """One variant of a rasterizer, and what it is to give."""

    def __init__(self, kernel: Any, device: str, plain: bool) -> None:
        self.device, self.plain, self.views = torch.device(device), plain, VIEWS
        self.discs = kernel.__name__ == "diff_surfel_rasterization"
        self.expected = surfels_at if self.discs else splats_at
        """What :meth:`draw` is to give at some pixels, in float64, and the opacity of each Gaussian there."""
        self.reference: Optional[Reference] = None
        """None: gsplat's own Python, which has the kernel as its compiled module."""
        names = ["antialiasing"]
        if kernel.__name__ != "gsplat.csrc":
            self.reference = Reference(kernel)
            names = [*self.reference.arguments, *self.reference.fields]
        self.names = frozenset(names)
        """Of its settings and arguments."""
        self.no_reference = not NO_REFERENCE.isdisjoint(self.names)
        if hasattr(getattr(kernel, "_C", None), "compute_relocation"):
            # the branch of 3dgs-mcmc cuts Gaussians closer than 3 sigma at the border of a tile
            self.views = VIEWS[:1]
        elif self.discs and plain and device == "cpu":
            self.views = VIEWS[:2]  # PyTorch's discs take ten times as long

    def draw(self, camera: Pinhole, splats: ReferenceSplats, means2d: Tensor) -> Tuple[Tensor, Any]:
        """Return color, and the maps of discs or the inverse depth, [C, H, W]; and the radii. ``means2d`` gets the gradient that
        densification goes by."""
        splats = splats._replace(rotations=torch.nn.functional.normalize(splats.rotations))
        (width, height), (across, down) = camera.size, camera.focal.tolist()
        lens = SimpleNamespace(width=width, height=height, fx=across, fy=down, cx=width / 2, cy=height / 2)
        pose, place = camera.pose.tolist(), camera.place.tolist()
        view = RenderCamera.of(
            SimpleNamespace(camera=lens, world_to_camera=pose, position=place), self.device
        )
        background = camera.background.float().to(self.device)
        if self.reference is None:
            mode = "antialiased" if camera.antialiasing else "classic"
            gsplat = importlib.import_module("gsplat")
            image, radii, centres = draw_gsplat(gsplat, view, splats, background, mode)

            def keep(gradient: Tensor) -> None:
                means2d.grad = torch.nn.functional.pad(gradient[0], (0, 1))

            if centres.requires_grad:
                centres.register_hook(keep)  # type: ignore[no-untyped-call, unused-ignore]
            return image, radii
        chosen: Dict[str, Any] = {"antialiasing": camera.antialiasing, "render_geo": False}
        if camera.offset is not None:
            offset = camera.offset.float().to(self.device)
            chosen.update(kernel_size=camera.kernel_size, subpixel_offset=offset)
        if "triangles_points" in self.names:
            zeros = torch.zeros_like(splats.opacities[:, 0])
            each = (zeros + 3).int()
            chosen.update(
                triangles_points=(splats.means[:, None] + torch.diag_embed(splats.scales)).reshape(-1, 3),
                sigma=torch.ones_like(splats.opacities),
                num_points_per_triangle=each,
                cumsum_of_points_per_triangle=torch.cumsum(each, 0, dtype=torch.int32) - each,
                number_of_points=3 * len(each),
                scaling=zeros,
                density_factor=zeros,
            )
        try:
            drawn = self.reference.draw(view, splats, background, means2d, **chosen)
        except RendererUnavailable as error:
            raise NotMeasured(error.message) from None
        image, radii = drawn[:2]
        if self.discs and drawn[2].shape != (7, *image.shape[1:]):
            shape = tuple(drawn[2].shape)
            raise NotMeasured(f"a variant that splatfix cannot call: its maps have the shape {shape}")
        # Inria 2024 gives the inverse depth
        if self.discs or ("antialiasing" in self.names and len(drawn) > 2):
            image = torch.cat([image, drawn[2]])
        return image, radii

    def compare(self, count: int, size: Tuple[int, int]) -> Dict[str, Any]:
        """Draw a view and compare it at some pixels, with the gradient of every input; densification must get one too."""
        camera, splats, columns, rows = _view(self, count, size)
        exact = splats.each(lambda item: item.double().requires_grad_(True))
        given = splats.each(lambda item: item.to(self.device, copy=True).requires_grad_(True))
        # FastGS writes four columns: the sums of absolute gradients are apart
        width = 4 if "metric_map" in self.names else 3
        means2d = torch.zeros(count, width, device=self.device, requires_grad=True)
        image, radii = self.draw(camera, given, means2d)
        if self.no_reference:
            torch.autograd.backward(image.sum())
            return _only_finite(image, [*given, means2d])
        actual = image[:, rows, columns]
        expected, _ = self.expected(camera, exact, columns, rows)
        # the gradients of color alone, or of color and the maps of discs
        channels = 10 if self.discs else 3
        weights = torch.randn(channels, actual.shape[1], generator=torch.Generator().manual_seed(4))
        few = count == FEW
        if self.discs and few:
            weights[9] *= 100.0  # the distortion is small
        torch.autograd.backward((actual[:channels] * weights.to(self.device)).sum())
        torch.autograd.backward((expected[:channels] * weights.double()).sum())
        errors = list(map(relative_error, actual, expected))
        if few:
            # as held-out views are drawn, and where a variant has it with the compensation of opacity
            camera = camera._replace(antialiasing="antialiasing" in self.names)
            with torch.no_grad():
                again = self.draw(camera, given, means2d)[0][:, rows, columns]
                expected, _ = self.expected(camera, exact, columns, rows)
            errors = list(map(max, errors, map(relative_error, again, expected)))
        if self.discs and few:
            errors[9] *= 0.01
        elif self.discs:  # a difference of large numbers in single precision: of many discs it says nothing
            del errors[9]
        allowed, gradient_allowed = 5e-5, 5e-4
        if self.plain:
            allowed, gradient_allowed = 1e-5, 1e-4
        elif self.discs or camera.kernel_size is not None:
            # epsilons in the backward pass of Mip-Splatting move the gradients of covariances by 5e-4
            gradient_allowed = 5e-3
        detail = ""
        if means2d.grad is None or not bool(means2d.grad.abs().sum() > 0):
            detail = "means2D got no gradient, so nothing would densify"
        elif given.opacities.grad is not None and radii.shape == (count,):
            # trainers know by their radii which were seen
            moved = given.opacities.grad[:, 0] != 0
            if bool(moved[radii <= 0].any()):
                detail = "Gaussians that got a gradient have no radius"
        return measured(max(errors), allowed, largest_error(given, exact), gradient_allowed, detail)


def _only_finite(image: Tensor, leaves: Sequence[Tensor]) -> Dict[str, Any]:
    """Return the result of a kernel that ran and has no reference: not measured, unless it gave what is never right."""
    gradients = [leaf.grad for leaf in leaves if leaf.grad is not None]
    finite = all(bool(torch.isfinite(item).all()) for item in [image, *gradients])
    if not finite or not bool((image != 0).any()):
        return {"outcome": "failed", "detail": "it gave an empty image, or values that are not finite"}
    detail = "it ran, with finite results; splatfix has no reference for this variant"
    return {"outcome": "not-measured", "detail": detail}


def _view(
    variant: Rasterizer, count: int, size: Tuple[int, int]
) -> Tuple[Pinhole, ReferenceSplats, Tensor, Tensor]:
    """Return a camera and Gaussians that fill its image, in a world that is turned and moved, with pixels that are no squares;
    and columns and rows of pixels where single precision does not decide otherwise than double."""
    generator = torch.Generator().manual_seed(3)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=generator)

    (width, height), focal = size, torch.tensor([0.8, 1.0]) * size[0]
    depth = uniform(3.5, 5.0, count, 1)
    middles = uniform(-0.5, 0.5, count, 2) * torch.tensor(size) / focal
    # so that a dozen overlap in each pixel
    pixels = math.sqrt(0.3 * width * height / count)
    scales = (uniform(0.33, 1.67, count, 3) * pixels * depth / focal[0]).clamp_max(0.4)
    turns = torch.randn(count, 4, generator=generator)
    pose = torch.tensor([[0.0, 1, 0, 0.5], [0, 0, 1, -0.25], [1, 0, 0, 1], [0, 0, 0, 1]])
    if variant.discs:
        # half turned away from the camera: single precision says little of those seen edge-on
        scales, turns = scales[:, :2], 1.0 + uniform(-0.3, 0.3, count, 4)
    # small enough that no color is below 0
    harmonics = uniform(-1.0, 1.0, count, 15, 3) * torch.tensor([0.15] * 3 + [0.03] * 12)[:, None]
    splats = ReferenceSplats(
        (torch.cat([middles * depth, depth], 1) - pose[:3, 3]) @ pose[:3, :3],
        scales.contiguous(),
        torch.nn.functional.normalize(turns),
        # at most 0.3, so that alpha at 3 sigma (0.3 exp(-4.5) = 0.0033) is below 1/255: the tile cut changes nothing
        uniform(0.05, 0.3, count, 1),
        torch.cat([uniform(-0.9, 1.5, count, 1, 3), harmonics], 1),
    )
    camera = Pinhole(size, focal.double(), pose.double(), torch.tensor([0.2, 0.4, 0.6]).double())
    if "subpixel_offset" in variant.names:  # Mip-Splatting
        camera = camera._replace(kernel_size=0.1, offset=uniform(-0.5, 0.5, height, width, 2).double())

    # at odd places: the first column and row of a tile belong to Gaussians that end a pixel before it
    places = 2 * (uniform(0.0, 1.0, PIXELS, 2) * (torch.tensor(size) // 2)).long() + 1
    across, down = places.unbind(1)
    # no opacity is nearly the faintest, and light passes
    _, opacity = variant.expected(camera, splats.each(Tensor.double), across, down)
    drawn = torch.where(opacity < FAINTEST, torch.zeros_like(opacity), opacity)
    good = ((opacity / FAINTEST - 1).abs() >= 1e-3).all(0) & ((1 - drawn).prod(0) > 1e-3)
    return camera, splats, across[good], down[good]


CHECKS: Dict[str, Callable[[Any, str, bool], Results]] = {
    "arithmetic": lambda module, device, plain: check_arithmetic(device),
    "ssim": check_ssim,
    "knn": check_knn,
    "rasterizer": check_rasterizer,
    "gsplat": check_rasterizer,
}
"""From a module, a device, and whether it is held to the contract of our plain PyTorch, to results one after another."""
