"""Runs inside the target environment: compares each kernel with a float64 reference, forward and gradient.

The references are written for clarity, directly from the formulas (SSIM: Wang et al. 2004 with the 11-tap window of
3DGS; EWA splatting: Zwicker et al. 2001 with the constants of 3DGS, Kerbl et al. 2023), and share no code
with the kernels. Imports torch and splatfix.kernels only; Python 3.8.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.metadata
import importlib.util
import json
import math
import sys
from typing import Any, Callable, Dict, FrozenSet, List, Tuple

import torch
from torch import Tensor


def ssim_reference(first: Tensor, second: Tensor) -> Tensor:
    """Mean SSIM of two [1, C, H, W] images with data range 1, zero padding, by direct 11 x 11 convolution."""
    channels = first.shape[1]
    offsets = torch.arange(11, dtype=first.dtype, device=first.device) - 5
    line = torch.exp(-(offsets**2) / (2 * 1.5**2))
    line = line / line.sum()
    window = torch.outer(line, line).expand(channels, 1, 11, 11)

    def blur(image: Tensor) -> Tensor:
        return torch.nn.functional.conv2d(image, window, padding=5, groups=channels)

    mean1, mean2 = blur(first), blur(second)
    var1, var2 = blur(first * first) - mean1**2, blur(second * second) - mean2**2
    cross = blur(first * second) - mean1 * mean2
    c1, c2 = 0.01**2, 0.03**2
    return (
        (2 * mean1 * mean2 + c1) * (2 * cross + c2) / ((mean1**2 + mean2**2 + c1) * (var1 + var2 + c2))
    ).mean()


def knn_reference(points: Tensor) -> Tensor:
    """Mean squared distance to the three nearest other points, [N], by comparing all pairs."""
    squared = ((points[:, None, :] - points[None, :, :]) ** 2).sum(-1)
    squared.fill_diagonal_(float("inf"))
    return torch.topk(squared, 3, largest=False).values.mean(1)


def splat_reference(
    size: Tuple[int, int],
    focal: float,
    background: Tensor,
    view: Tensor,
    means: Tensor,
    scales: Tensor,
    rotations: Tensor,
    opacities: Tensor,
    colors: Tensor,
) -> Tensor:
    """Color [3, H, W] of Gaussians blended front to back at every pixel, without tiles.

    ``view`` is world to camera (4 x 4, column vectors). Pixel centres lie at integers, the image centre at
    ((W - 1) / 2, (H - 1) / 2). The kernel cuts every Gaussian at the tiles of 3 sigma; this reference does not, so the
    scene keeps opacities low enough that nothing beyond 3 sigma reaches 1/255.
    """
    width, height = size
    camera = means @ view[:3, :3].T + view[:3, 3]
    depth = camera[:, 2]
    w, x, y, z = rotations.unbind(-1)
    turn = torch.stack(
        [
            1 - 2 * (y * y + z * z),
            2 * (x * y - w * z),
            2 * (x * z + w * y),
            2 * (x * y + w * z),
            1 - 2 * (x * x + z * z),
            2 * (y * z - w * x),
            2 * (x * z - w * y),
            2 * (y * z + w * x),
            1 - 2 * (x * x + y * y),
        ],
        -1,
    ).reshape(-1, 3, 3)
    stretched = turn * scales[:, None, :]
    covariance = stretched @ stretched.transpose(1, 2)
    zero = torch.zeros_like(depth)
    jacobian = torch.stack(
        [
            focal / depth,
            zero,
            -focal * camera[:, 0] / depth**2,
            zero,
            focal / depth,
            -focal * camera[:, 1] / depth**2,
        ],
        -1,
    ).reshape(-1, 2, 3)
    project = jacobian @ view[:3, :3]
    flat = project @ covariance @ project.transpose(1, 2) + 0.3 * torch.eye(2, dtype=means.dtype)
    conic = torch.linalg.inv(flat)
    centre_x = focal * camera[:, 0] / depth + (width - 1) / 2
    centre_y = focal * camera[:, 1] / depth + (height - 1) / 2
    rows, columns = torch.meshgrid(
        torch.arange(height, dtype=means.dtype), torch.arange(width, dtype=means.dtype), indexing="ij"
    )
    image = torch.zeros(3, height, width, dtype=means.dtype)
    through = torch.ones(height, width, dtype=means.dtype)
    for i in torch.argsort(depth).tolist():
        dx, dy = centre_x[i] - columns, centre_y[i] - rows
        power = -0.5 * (conic[i, 0, 0] * dx * dx + conic[i, 1, 1] * dy * dy) - conic[i, 0, 1] * dx * dy
        alpha = opacities[i] * torch.exp(power)
        alpha = torch.where(alpha < 1.0 / 255.0, torch.zeros_like(alpha), alpha)
        image = image + colors[i][:, None, None] * (alpha * through)
        through = through * (1 - alpha)
    return image + background[:, None, None] * through


def relative_error(found: Tensor, wanted: Tensor) -> float:
    """Largest absolute difference over the largest reference magnitude; infinite for non-finite values or another shape."""
    found, wanted = found.detach().double().cpu(), wanted.detach().double().cpu()
    if found.shape != wanted.shape or not bool(torch.isfinite(found).all()):
        return math.inf
    return float((found - wanted).abs().max() / wanted.abs().max().clamp_min(1e-12))


def check_ssim(kernel: Any, device: str) -> Dict[str, Any]:
    """Check ``fused_ssim``: value and the gradient of the first image."""
    generator = torch.Generator().manual_seed(1)
    first = torch.rand(1, 3, 45, 61, generator=generator)
    second = (first + 0.1 * torch.randn(1, 3, 45, 61, generator=generator)).clamp(0, 1)
    exact = first.double().requires_grad_(True)
    wanted = ssim_reference(exact, second.double())
    torch.autograd.backward(wanted)
    given = first.to(device).requires_grad_(True)
    found = kernel.fused_ssim(given, second.to(device))
    torch.autograd.backward(found)
    value, gradient = relative_error(found, wanted), _gradient_error([given], [exact])
    # plain PyTorch has its own contract; other single-precision kernels get more room
    return _errors(value, 1e-6, gradient, 5e-5) if is_plain(kernel) else _errors(value, 1e-5, gradient, 1e-4)


def check_knn(kernel: Any, device: str) -> Dict[str, Any]:
    """Check ``distCUDA2``: the neighbor distances that initial scales come from."""
    points = torch.randn(700, 3, generator=torch.Generator().manual_seed(2))
    points[10] = points[11]  # a duplicate counts with distance 0
    found = kernel.distCUDA2(points.to(device))
    wanted = knn_reference(points.double())
    error = float(((found.double().cpu() - wanted).abs() / wanted.clamp_min(1e-12)).max())
    return _errors(error, 5e-6 if is_plain(kernel) else 1e-4, None, None)


# Values of optional settings that switch a variant back to the base rasterizer; other settings have no reference.
_NEUTRAL = {"upstream_gradients": False, "antialiasing": False, "kernel_size": None, "subpixel_offset": None}


def check_rasterizer(kernel: Any, device: str) -> Dict[str, Any]:
    """Check ``GaussianRasterizer``: a small scene, color and the gradient of every input."""
    width, height, focal, count = 40, 32, 40.0, 30
    generator = torch.Generator().manual_seed(3)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=generator)

    means = torch.cat([uniform(-0.8, 0.8, count, 2), uniform(3.5, 5.0, count, 1)], 1)
    inputs = [
        means,
        uniform(0.05, 0.25, count, 3),
        torch.nn.functional.normalize(torch.randn(count, 4, generator=generator)),
        # at most 0.3, so that alpha at 3 sigma (0.3 exp(-4.5) = 0.0033) is below 1/255: the tile cut changes nothing
        uniform(0.05, 0.3, count),
        uniform(0.0, 1.0, count, 3),
    ]
    background = torch.tensor([0.2, 0.4, 0.6])
    view = torch.eye(4)
    weight = torch.randn(3, height, width, generator=generator)

    exact = [item.double().requires_grad_(True) for item in inputs]
    wanted = splat_reference((width, height), focal, background.double(), view.double(), *exact)
    torch.autograd.backward((wanted * weight.double()).sum())

    given = [item.to(device).requires_grad_(True) for item in inputs]
    tan_x, tan_y, near, far = width / (2 * focal), height / (2 * focal), 0.01, 100.0
    projection = torch.zeros(4, 4)
    projection[0, 0], projection[1, 1], projection[3, 2] = 1 / tan_x, 1 / tan_y, 1.0
    projection[2, 2], projection[2, 3] = far / (far - near), -far * near / (far - near)
    values = {
        "image_height": height,
        "image_width": width,
        "tanfovx": tan_x,
        "tanfovy": tan_y,
        "bg": background.to(device),
        "scale_modifier": 1.0,
        "viewmatrix": view.T.contiguous().to(device),
        "projmatrix": (projection @ view).T.contiguous().to(device),
        "sh_degree": 0,
        "campos": torch.zeros(3, device=device),
        "prefiltered": False,
        "debug": False,
    }
    extra = [name for name in kernel.GaussianRasterizationSettings._fields if name not in values]
    unknown = [name for name in extra if name not in _NEUTRAL]
    if unknown:
        raise NotMeasured(f"this variant has settings without a reference: {', '.join(unknown)}")
    values.update({name: _NEUTRAL[name] for name in extra})
    means2d = torch.zeros(count, 3, device=device, requires_grad=True)
    color = kernel.GaussianRasterizer(kernel.GaussianRasterizationSettings(**values))(
        means3D=given[0],
        means2D=means2d,
        opacities=given[3][:, None],
        colors_precomp=given[4],
        scales=given[1],
        rotations=given[2],
    )[0]
    torch.autograd.backward((color * weight.to(device)).sum())
    value, gradient = relative_error(color, wanted), _gradient_error(given, exact)
    plain = is_plain(kernel)
    result = _errors(value, 1e-5, gradient, 1e-4) if plain else _errors(value, 5e-5, gradient, 5e-4)
    if means2d.grad is None or not bool(means2d.grad.abs().sum() > 0):
        result.update(outcome="failed", detail="means2D got no gradient, so nothing would densify")
    return result


class NotMeasured(Exception):
    """This implementation cannot be compared with the reference here; the message says why."""


def _gradient_error(given: List[Tensor], exact: List[Tensor]) -> float:
    worst = 0.0
    for found, wanted in zip(given, exact):
        if found.grad is None or wanted.grad is None:
            return math.inf
        worst = max(worst, relative_error(found.grad, wanted.grad))
    return worst


def _errors(value: float, allowed: float, gradient: Any, gradient_allowed: Any) -> Dict[str, Any]:
    good = value <= allowed and (gradient is None or gradient <= gradient_allowed)
    return {
        "outcome": "met" if good else "failed",
        "value_error": _finite(value),
        "value_allowed": allowed,
        "gradient_error": _finite(gradient),
        "gradient_allowed": gradient_allowed,
        "detail": "",
    }


def _finite(number: Any) -> Any:
    return number if number is None or math.isfinite(number) else None


# Kernel, its check, our module, and the module that the stack installs.
KERNELS: List[Tuple[str, Callable[[Any, str], Dict[str, Any]], str, str]] = [
    ("ssim", check_ssim, "splatfix.kernels.ssim", "fused_ssim"),
    ("knn", check_knn, "splatfix.kernels.knn", "simple_knn._C"),
    ("rasterizer", check_rasterizer, "splatfix.kernels.rasterizer", "diff_gaussian_rasterization"),
]


def installed(module: str) -> Any:
    """The stack's module, or None where it is not installed."""
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None
    return importlib.import_module(module) if found else None


def is_native(module: Any) -> bool:
    """The module, or its ``_C`` or ``_cuda`` backend, is compiled."""
    names = (module.__name__, f"{module.__name__}._C", f"{module.__name__}_cuda")
    files = [getattr(sys.modules.get(name), "__file__", None) or "" for name in names]
    return any(file.endswith((".so", ".pyd")) for file in files)


def is_plain(module: Any) -> bool:
    """The module is splatfix's plain PyTorch: its kernels, or a drop-in with copies of them."""
    return module.__name__.startswith("splatfix.") or is_dropin(module.__name__)


def is_dropin(name: str) -> bool:
    """The module belongs to a drop-in distribution of splatfix."""
    return name.partition(".")[0] in dropins()


@functools.lru_cache(maxsize=None)
def dropins() -> FrozenSet[str]:
    """Modules that installed drop-ins of splatfix replace; read once, because environments can be large."""
    found = []
    for distribution in importlib.metadata.distributions():
        text = distribution.read_text("splatfix.json")
        try:
            manifest = json.loads(text) if text else None
        except ValueError:  # a damaged manifest is none
            continue
        if isinstance(manifest, dict) and manifest.get("kind") == "drop-in":
            found.append(str(manifest.get("replaces")))
    return frozenset(found)


def kind_of(module: Any, own: bool) -> str:
    """``ours``, ``drop-in`` (made by splatfix), ``native`` (compiled), or ``python``."""
    if own:
        return "ours"
    if is_native(module):
        return "native"
    return "drop-in" if is_dropin(module.__name__) else "python"


def run_check(
    kernel: str, check: Callable[[Any, str], Dict[str, Any]], name: str, own: bool, device: str
) -> Dict[str, Any]:
    """Compare one implementation with the reference; an exception is its result."""
    blank = {"value_error": None, "value_allowed": 0.0, "gradient_error": None, "gradient_allowed": None}
    kind = "ours" if own else ""
    try:
        if device != "cpu" and not torch.cuda.is_available():
            raise NotMeasured("torch finds no GPU")
        module = importlib.import_module(name) if own else installed(name)
        if module is None:
            raise NotMeasured("not installed in this environment")
        kind = kind_of(module, own)
        if not own and device == "cpu" and is_native(module):
            raise NotMeasured("a CUDA extension, which needs a GPU")
        outcome = check(module, device)
    except NotMeasured as reason:
        outcome = dict(blank, outcome="not-measured", detail=str(reason))
    except Exception as error:  # noqa: BLE001 - any exception of a kernel is its result
        outcome = dict(blank, outcome="failed", detail=f"{type(error).__name__}: {error}")
    return dict({"name": kernel, "implementation": name, "kind": kind}, **outcome)


def main() -> int:
    """Check every implementation of every kernel on one device and print a JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    results = []
    for kernel, check, ours, theirs in KERNELS:
        results.append(run_check(kernel, check, ours, True, device))
        results.append(run_check(kernel, check, theirs, False, device))
    sys.stdout.write(json.dumps({"device": device, "torch": torch.__version__, "kernels": results}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
