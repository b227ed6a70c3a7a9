"""What a stand-in computes, with splatfix's own kernels on the CPU. Installed into the package that it stands in for.

`call` is what the compiled functions hand their arguments to. The state between forward and backward is kept under the number
that the real extensions return as `num_rendered`.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_ELSEWHERE = "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be"
_ELSEWHERE += " incorrect."
NO_IMAGE = f"CUDA error: no kernel image is available for execution on the device{_ELSEWHERE}"
ILLEGAL = f"CUDA error: an illegal memory access was encountered{_ELSEWHERE}"
EMPTY = torch.zeros(0)

_numbers = itertools.count(1000)
_under_way: dict[int, tuple[dict[str, Tensor], dict[str, Tensor]]] = {}


class _BrokenContext(TorchDispatchMode):
    """A CUDA context after an illegal address: everything fails from now on, in this process."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(ILLEGAL)


def call(variant: str, sabotage: str, function: str, names: str, arguments: tuple[Any, ...]) -> Any:
    """One call of a compiled function; `names` are those of its arguments, then `->` and those of its results."""
    takes, _, gives = names.partition("->")
    given = dict(zip(takes.split(), arguments, strict=True))
    if sabotage == "no-kernel-image":
        raise RuntimeError(NO_IMAGE)
    if sabotage == "refuses":
        raise RuntimeError("means3D must have dimensions (num_points, 3)")
    with torch.no_grad():
        result = FUNCTIONS[function](variant, given)
        _spoil(sabotage, function, result)
    if sabotage == "illegal-address":
        _BrokenContext().__enter__()  # asynchronous: this call returns, the next one says so
    results = tuple(result[name] for name in gives.split())
    return results[0] if len(results) == 1 else results or None


def _spoil(sabotage: str, function: str, found: dict[str, Any]) -> None:
    backward = function.endswith("backward")
    if sabotage == "wrong-values" and not backward:
        for name in ("color", "map", "distances"):
            if name in found:
                found[name] = found[name] * 1.2
    factor = {"zero-gradients": 0.0, "halved-gradients": 0.5}.get(sabotage)
    if backward and factor is not None:
        found.update({name: value * factor for name, value in found.items()})


def _leaf(value: Tensor) -> Tensor:
    return value.detach().clone().requires_grad_(True)


def _keep(leaves: dict[str, Tensor], images: dict[str, Tensor]) -> int:
    number = next(_numbers)
    _under_way[number] = (leaves, images)
    return number


_SETTINGS = (
    *("image_height", "image_width", "tanfovx", "tanfovy", "bg"),
    *("viewmatrix", "projmatrix", "sh_degree", "campos", "prefiltered"),
)


def _settings(given: dict[str, Any], **options: Any) -> Any:
    """Of our own kernel, by the names of what was called; triangles have no scale to modify, some no ``debug``."""
    from splatfix.kernels.rasterizer import GaussianRasterizationSettings

    options |= {name: given[name] for name in _SETTINGS}
    scale, debug = given.get("scale_modifier", 1.0), given.get("debug", False)
    return GaussianRasterizationSettings(scale_modifier=scale, debug=debug, **options)


def _rasterize(variant: str, given: dict[str, Any]) -> dict[str, Any]:
    from splatfix.kernels import rasterizer, surfels

    count = len(given["means3D"])
    # as the real ones: their gradients, also where these are not the derivative
    options: dict[str, Any] = {"antialiasing": given.get("antialiasing", False), "upstream_gradients": True}
    if variant == "mip":
        options.update(kernel_size=given["kernel_size"], subpixel_offset=given["subpixel_offset"])
    settings = _settings(given, **options)
    names = ("means3D", "colors", "opacities", "scales", "rotations", "cov3D", "sh", "dc", "all_map")
    leaves = {name: _leaf(given[name]) for name in names if name in given and given[name].numel()}
    leaves["means2D"] = torch.zeros(count, 4 if variant == "fastgs" else 3, requires_grad=True)
    with torch.enable_grad():
        scales = leaves.get("scales")
        harmonics = [leaves[name] for name in ("dc", "sh") if name in leaves]

        def draw(colors: Tensor | None, shs: Tensor | None, means2d: Tensor, at: Any) -> rasterizer.Rendered:
            shape = (scales, leaves.get("rotations"), leaves.get("cov3D"))
            given = (leaves["means3D"], means2d, leaves["opacities"], shs, colors, *shape)
            return rasterizer.rasterize(at, *given)

        shs = torch.cat(harmonics, 1) if harmonics else None
        if variant == "2dgs-surfel":
            flat = [leaves.get(name) for name in ("colors", "scales", "rotations", "cov3D")]
            disc = surfels.rasterize_surfels(
                settings, leaves["means3D"], leaves["means2D"], leaves["opacities"], shs, *flat
            )
            kept = {"color": disc.color, "allmap": disc.allmap}
            plain = {name: image.detach() for name, image in kept.items()}
            plain.update(dict.fromkeys(("geometry", "binning", "image"), EMPTY), radii=disc.radii)
            return dict(plain, rendered=_keep(leaves, kept))
        drawn = draw(leaves.get("colors"), shs, leaves["means2D"], settings)
        images = {"color": drawn.color, "depth": drawn.depth}
        images |= {"alpha": drawn.alpha, "invdepths": drawn.invdepth}
        if variant == "gof":  # normal, depth, alpha, distortion: ours has no normals
            blank = torch.zeros_like(drawn.alpha)
            images["color"] = torch.cat([drawn.color, *(blank,) * 3, drawn.depth, drawn.alpha, blank])
        if "all_map" in leaves:
            features = leaves["all_map"]
            flat = settings._replace(bg=torch.zeros(features.shape[1]))
            images["out_all_map"] = draw(features, None, torch.zeros(count, 3), flat).color
            images["out_plane_depth"] = drawn.depth
    plain = {name: image.detach() for name, image in images.items()}
    plain.update(dict.fromkeys(_UNUSED, EMPTY), radii=drawn.radii, buckets=1)
    plain.setdefault("out_all_map", torch.zeros(5, *drawn.color.shape[1:]))
    plain.setdefault("out_plane_depth", drawn.depth.detach())
    plain.update(is_used=(drawn.radii > 0).int(), accum_metric_counts=torch.zeros(count, dtype=torch.int32))
    plain.update({name: torch.zeros(3, *drawn.color.shape[1:]) for name in ("coord", "mcoord", "normal")})
    plain["mdepth"] = plain["depth"]
    return dict(plain, rendered=_keep(leaves, images))


_UNUSED = (
    *("geometry", "binning", "image", "sample", "kernel_times", "countBuffer", "out_observe"),
    *("listBuffer", "listBufferRender", "listBufferDistance", "centers", "depths", "my_radii"),
    *("accum_weights", "accum_count", "accum_blend", "accum_dist"),
)


def _rasterize_backward(variant: str, given: dict[str, Any]) -> dict[str, Any]:
    leaves, images = _under_way.pop(given["rendered"])
    drawn = {name: image for name, image in images.items() if f"grad_{name}" in given and image.requires_grad}
    upstream = [given[f"grad_{name}"].reshape(image.shape) for name, image in drawn.items()]
    result = torch.autograd.grad(list(drawn.values()), list(leaves.values()), upstream, allow_unused=True)
    gradients: dict[str, Any] = {
        name: torch.zeros_like(leaf) if gradient is None else gradient
        for (name, leaf), gradient in zip(leaves.items(), result, strict=True)
    }
    screen = gradients.get("means2D", EMPTY)
    gradients.update(means2D_abs=screen.abs(), scores=torch.zeros(len(screen), 1))
    for name in ("colors", "cov3D", "sh", "dc", "scales", "rotations", "view2gaussian_precomp", "all_map"):
        gradients.setdefault(name, EMPTY)
    return gradients


def _triangles(variant: str, given: dict[str, Any]) -> dict[str, Any]:
    """Not triangles: a Gaussian at the centre of each. Enough for calls and gradients; nothing is held against it."""
    from splatfix.kernels import rasterizer

    names = ("triangles_points", "colors", "opacities", "sh", "sigma")
    leaves = {name: _leaf(given[name]) for name in names if given[name].numel()}
    count = len(given["num_points_per_triangle"])
    leaves["means2D"] = torch.zeros(count, 3, requires_grad=True)
    settings = _settings(given)
    with torch.enable_grad():
        corners = leaves["triangles_points"].reshape(count, -1, 3)
        spread = (corners - corners.mean(1, keepdim=True)).norm(dim=2).mean(1, keepdim=True)
        scales = (0.5 * spread * leaves["sigma"].reshape(-1, 1)).expand(-1, 3)
        rotations = torch.tensor([[1.0, 0.0, 0.0, 0.0]]).expand(count, -1)
        colored = (leaves["opacities"], leaves.get("sh"), leaves.get("colors"))
        drawn = rasterizer.rasterize(
            settings, corners.mean(1), leaves["means2D"], *colored, scales, rotations
        )
        images = {"color": drawn.color, "depth": drawn.depth}
    plain = {name: image.detach() for name, image in images.items()}
    plain.update(dict.fromkeys(("geometry", "binning", "image"), EMPTY), radii=drawn.radii)
    plain.update(scaling=given["scaling"], density_factor=given["density_factor"])
    return dict(plain, max_blending=torch.zeros(count), rendered=_keep(leaves, images))


def _mark_visible(variant: str, given: dict[str, Any]) -> dict[str, Any]:
    view = given["viewmatrix"]
    return {"visible": given["positions"] @ view[:3, 2] + view[3, 2] > 0.2}


def _filter(variant: str, given: dict[str, Any]) -> dict[str, Any]:
    count = len(given["means3D"])
    more = {"bg": torch.zeros(3), "colors": torch.zeros(count, 3), "opacities": torch.ones(count, 1)}
    more.update(sh=EMPTY, campos=torch.zeros(3))
    return _rasterize(variant, {**given, **more, "sh_degree": 0})


def _relocation(variant: str, given: dict[str, Any]) -> dict[str, Any]:
    from splatfix.kernels.helpers import compute_relocation

    keys = ("opacity_old", "scale_old", "N", "binoms", "n_max")
    opacity, scale = compute_relocation(*(given[key] for key in keys))
    return {"opacity": opacity, "scale": scale}


def _adam(variant: str, given: dict[str, Any]) -> dict[str, Any]:
    from splatfix.kernels.helpers import sparse_adam_step

    keys = ("param", "param_grad", "exp_avg", "exp_avg_sq", "visible", "lr", "b1", "b2", "eps")
    sparse_adam_step(*(given[key] for key in keys))
    return {}


def _knn(variant: str, given: dict[str, Any]) -> dict[str, Any]:
    from splatfix.kernels.knn import distCUDA2

    return {"distances": distCUDA2(given["points"])}


def _ssim_map(first: Tensor, second: Tensor, c1: float, c2: float) -> Tensor:
    """SSIM of every pixel, [B, C, H, W] (Wang et al. 2004): 11 taps of sigma 1.5, zero padding."""
    taps = torch.exp(-((torch.arange(11.0) - 5) ** 2) / 4.5)
    taps = taps / taps.sum()
    window = (taps[:, None] * taps).expand(first.shape[1], 1, 11, 11)

    def mean(image: Tensor) -> Tensor:
        return torch.nn.functional.conv2d(image, window, padding=5, groups=first.shape[1])

    m1, m2 = mean(first), mean(second)
    v1, v2 = mean(first * first) - m1 * m1, mean(second * second) - m2 * m2
    v12 = mean(first * second) - m1 * m2
    return (2 * m1 * m2 + c1) * (2 * v12 + c2) / ((m1 * m1 + m2 * m2 + c1) * (v1 + v2 + c2))


def _ssim(variant: str, given: dict[str, Any]) -> dict[str, Any]:
    result = _ssim_map(given["img1"], given["img2"], given["C1"], given["C2"])
    blank = torch.zeros_like(result) if given["train"] else EMPTY
    return {"map": result, "dm_dmu1": blank, "dm_dsigma1_sq": blank, "dm_dsigma12": blank}


def _ssim_backward(variant: str, given: dict[str, Any]) -> dict[str, Any]:
    first = _leaf(given["img1"])
    with torch.enable_grad():
        result = _ssim_map(first, given["img2"], given["C1"], given["C2"])
    return {"img1": torch.autograd.grad(result, first, given["grad_map"])[0]}


FUNCTIONS = {
    "rasterize_gaussians": _rasterize,
    "rasterize_gaussians_backward": _rasterize_backward,
    "rasterize_aussians_filter": _filter,
    "rasterize_triangles": _triangles,
    "rasterize_triangles_backward": _rasterize_backward,
    "mark_visible": _mark_visible,
    "compute_relocation": _relocation,
    "adamUpdate": _adam,
    "distCUDA2": _knn,
    "fusedssim": _ssim,
    "fusedssim_backward": _ssim_backward,
}
