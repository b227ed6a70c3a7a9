"""gsplat's functions on our CUDA kernels: the same names and arguments as in `gsplat_csrc.py`, where the rules are told.

gsplat.h says what each kernel does. The host waits for the GPU where only it knows a size: in `intersect_tile`, in the packed
projection and in `rasterize_to_indices_3dgs`, once each. The alphas of an image are float64 (see gsplat_pixels.cu); gsplat rounds
what its caller sees.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from splatfix.kernels.nvrtc import NoKernels, module
from splatfix.kernels.rasterizer_cuda import blocks, plain

__all__ = ["KERNELS", "refusal"]

KERNELS: Dict[str, Callable[..., Any]] = {}
"""By the name of the function. Each raises `NoKernels` for a call that it does not serve."""

_PINHOLE, _ORTHOGRAPHIC = 0, 1  # of CameraModelType
_MOST_CHANNELS = 16  # of a launch: with the ways 40 KB of shared memory of 48
_MOST_OF_SURFELS = 4  # the same, 43 KB
_MOST = 2**31 - 1  # of what has a thread: the kernels count with 32 bits
_MOST_PAIRS = 2**31 - 512  # the kernels count them with 32 bits, in steps of 256
_MOST_ROWS = 2**16 - 1  # of blocks, and of images: of a launch
_SUMS = 18  # per surfel; see gsplat_surfels.cu
_SIGN = -(2**31)
_POINTS, _PROJECTION, _PIXELS, _SURFELS = (
    f"gsplat_{name}.cu" for name in ("points", "projection", "pixels", "surfels")
)


def refusal(name: str, *arguments: Any) -> str:
    """Why the kernels do not serve this call, as far as its name tells; empty where they may."""
    if name not in KERNELS:
        return f"there is no CUDA kernel for {name}"
    return ""


def _served(function: Callable[..., Any]) -> Callable[..., Any]:
    KERNELS[function.__name__] = function
    return function


def _launch(
    file: str, kernel: str, count: int, arguments: Sequence[Any], like: Tensor, threads: int = 256
) -> None:
    """A thread for every one of `count`; of surfels by the code that most images are drawn by."""
    if count > _MOST:
        raise NoKernels(f"{count} threads of {kernel} are more than the CUDA kernels count")
    if count:
        defines = {"COLORS": _MOST_OF_SURFELS} if file == _SURFELS else {}
        module(file, defines, like).launch(kernel, blocks(count, threads), threads, arguments)


def _zeros(tensors: Sequence[Tensor]) -> List[Tensor]:
    return [torch.zeros_like(tensor) for tensor in tensors]


# ---------------------------------------------------------------------------------------------------------------------
# Gaussians by themselves
# ---------------------------------------------------------------------------------------------------------------------


@_served
def quat_scale_to_covar_preci_fwd(
    quats: Tensor, scales: Tensor, compute_covar: bool, compute_preci: bool, triu: bool
) -> List[Optional[Tensor]]:
    shape = (*scales.shape[:-1], *((6,) if triu else (3, 3)))
    made = [scales.new_empty(shape) if wanted else None for wanted in (compute_covar, compute_preci)]
    count = scales.numel() // 3
    _launch(_POINTS, "gsplat_shapes", count, [*plain((quats, scales)), count, int(triu), *made], scales)
    return made


@_served
def quat_scale_to_covar_preci_bwd(
    quats: Tensor, scales: Tensor, triu: bool, v_covars: Optional[Tensor], v_precis: Optional[Tensor]
) -> List[Tensor]:
    made, count = [torch.empty_like(quats), torch.empty_like(scales)], scales.numel() // 3
    given = [*plain((quats, scales, v_covars, v_precis)), count, int(triu)]
    _launch(_POINTS, "gsplat_shapes_backward", count, [*given, *made], scales)
    return made


@_served
def spherical_harmonics_fwd(degree: int, dirs: Tensor, coeffs: Tensor, masks: Optional[Tensor]) -> Tensor:
    colors, count = torch.empty_like(dirs), dirs.numel() // 3
    given = [*plain((dirs, coeffs, masks)), count, degree, coeffs.shape[-2], colors]
    _launch(_POINTS, "gsplat_harmonics", count, given, dirs)
    return colors


@_served
def spherical_harmonics_bwd(
    bands: int,
    degree: int,
    dirs: Tensor,
    coeffs: Tensor,
    masks: Optional[Tensor],
    v_colors: Tensor,
    compute_v_dirs: bool,
) -> Tuple[Tensor, Optional[Tensor]]:
    v_coeffs, v_dirs = _zeros((coeffs, dirs))
    to_dirs, count = v_dirs if compute_v_dirs else None, dirs.numel() // 3
    given = [*plain((dirs, coeffs, masks, v_colors)), count, degree, bands, v_coeffs, to_dirs]
    _launch(_POINTS, "gsplat_harmonics_backward", count, given, dirs)
    return v_coeffs, to_dirs


@_served
def relocation(opacities: Tensor, scales: Tensor, ratios: Tensor, binoms: Tensor, n_max: int) -> List[Tensor]:
    made, count = [torch.empty_like(opacities), torch.empty_like(scales)], opacities.numel()
    given = [*plain((opacities, scales, ratios, binoms)), count, n_max]
    _launch(_POINTS, "gsplat_relocate", count, [*given, *made], scales)
    return made


@_served
def adam(
    param: Tensor, grad: Tensor, mean: Tensor, square: Tensor, valid: Optional[Tensor], *numbers: float
) -> None:
    """A step in place."""
    state = [param.detach(), mean, square]
    if not all(tensor.is_contiguous() for tensor in state):
        raise NoKernels("a step in place of a tensor that is not contiguous has no CUDA kernel here")
    rows = None if valid is None else valid.to(torch.bool)
    given = [*plain((grad, rows)), param.numel(), param[:1].numel(), *(float(number) for number in numbers)]
    _launch(_POINTS, "gsplat_adam", param.numel(), [*given, *state], param)


# ---------------------------------------------------------------------------------------------------------------------
# Into the image
# ---------------------------------------------------------------------------------------------------------------------


def _sizes(means: Tensor, viewmats: Tensor) -> Tuple[int, int, int]:
    """Gaussians of a batch, cameras of a batch, and Gaussians seen by cameras in all."""
    count, cameras = means.shape[-2], viewmats.shape[-3]
    entries = viewmats.numel() // 16 * count
    if entries > _MOST:
        raise NoKernels(f"{entries} Gaussians seen by cameras are more than the CUDA kernels count")
    return count, cameras, entries


def _orthographic(camera_model: Any) -> int:
    if camera_model not in (_PINHOLE, _ORTHOGRAPHIC):
        raise NoKernels("cameras but pinhole and orthographic (fisheye, f-theta) have no CUDA kernel here")
    return int(camera_model == _ORTHOGRAPHIC)


def _project(
    arguments: Sequence[Any], picked: Optional[Tensor] = None, radii_alone: bool = False
) -> List[Optional[Tensor]]:
    """Radii, means2d, depths, conics, compensations (or None) of every entry, or of the picked ones: [E] or [E, D].

    Args:
        arguments: of `projection_ewa_3dgs_fused_fwd`.
    """
    inputs, (width, height, *numbers) = arguments[:7], arguments[7:13]
    compensated, camera_model, isotropic = (*arguments[13:], False)[:3]
    means, viewmats = inputs[0], inputs[5]
    count, cameras, entries = _sizes(means, viewmats)
    if picked is not None:
        entries = picked.numel()
    radii = torch.empty(entries, 2, dtype=torch.int32, device=means.device)
    made: List[Optional[Tensor]] = [None] * 4
    if not radii_alone:
        made = [means.new_empty(entries, *size) for size in ((2,), (), (3,))]
        made.append(means.new_empty(entries) if compensated else None)
    options = [int(compensated), _orthographic(camera_model), int(isotropic)]
    given = [*plain(inputs), picked, entries, count, cameras, width, height, *map(float, numbers), *options]
    _launch(_PROJECTION, "gsplat_project", entries, [*given, radii, *made], means)
    return [radii, *made]


@_served
def projection_ewa_3dgs_fused_fwd(*arguments: Any) -> List[Optional[Tensor]]:
    means, viewmats = arguments[0], arguments[5]
    shape = (*viewmats.shape[:-2], means.shape[-2])
    return [item if item is None else item.view(*shape, *item.shape[1:]) for item in _project(arguments)]


@_served
def projection_ewa_3dgs_packed_fwd(*arguments: Any) -> List[Optional[Tensor]]:
    count, cameras, _ = _sizes(arguments[0], arguments[5])
    radii = _project(arguments, radii_alone=True)[0]
    assert radii is not None
    visible = (radii > 0).all(1)
    picked = visible.nonzero().flatten()  # the one wait
    per_image = visible.view(-1, count).sum(1)
    indptr = torch.cat([per_image.new_zeros(1), per_image.cumsum(0)]).int()
    image = picked.div(count, rounding_mode="floor")
    ids = [image.div(cameras, rounding_mode="floor"), image % cameras, picked % count]
    return [indptr, *ids, *_project(arguments, picked)]


def _project_backward(
    inputs: Sequence[Optional[Tensor]],
    image: Sequence[Any],
    picked: Optional[Tensor],
    kept: Sequence[Optional[Tensor]],
    with_views: bool,
) -> List[Optional[Tensor]]:
    """Gradients of means, covars, quats, scales and viewmats (None where there is nothing), [rows, D] but the last.

    Args:
        inputs: means, covars, quats, scales, viewmats, Ks.
        image: width, height, eps2d, camera model.
        kept: radii (None with `picked`), conics, compensations, and the gradients that come back.
    """
    means, covars, _, _, viewmats, _ = inputs
    assert means is not None and viewmats is not None
    width, height, blur, camera_model = image
    count, cameras, _ = _sizes(means, viewmats)
    rows = means.numel() // 3 if picked is None else picked.numel()
    widths = (3, 0, 4, 3) if covars is None else (3, 6, 0, 0)
    made: List[Optional[Tensor]] = [means.new_empty(rows, size) if size else None for size in widths]
    made.append(torch.zeros_like(viewmats) if with_views else None)
    numbers = [rows, count, cameras, width, height, float(blur), _orthographic(camera_model)]
    given = [*plain(inputs), picked, *plain(kept), *numbers]
    _launch(_PROJECTION, "gsplat_project_backward", rows, [*given, *made], means, threads=128)
    return made


@_served
def projection_ewa_3dgs_fused_bwd(*arguments: Any) -> List[Optional[Tensor]]:
    inputs, image, kept, with_views = arguments[:6], arguments[6:10], arguments[10:17], arguments[17]
    *made, v_viewmats = _project_backward(inputs, image, None, kept, with_views)
    shaped = [None if item is None else item.view_as(like) for item, like in zip(made, inputs)]
    return [*shaped, v_viewmats]


@_served
def projection_ewa_3dgs_packed_bwd(*arguments: Any) -> List[Optional[Tensor]]:
    inputs, image, (batches, seen_by, gaussians) = arguments[:6], arguments[6:10], arguments[10:13]
    kept, with_views, sparse = (None, *arguments[13:19]), arguments[19], arguments[20]
    count, cameras, _ = _sizes(inputs[0], inputs[4])
    picked = (batches * cameras + seen_by) * count + gaussians
    *made, v_viewmats = _project_backward(inputs, image, picked, kept, with_views)
    if sparse:
        return [*made, v_viewmats]
    summed: List[Optional[Tensor]] = []
    for item, like in zip(made, inputs):
        whole = None
        if item is not None:
            whole = torch.zeros_like(like)
            whole.view(-1, item.shape[1]).index_add_(0, batches * count + gaussians, item)
        summed.append(whole)
    return [*summed, v_viewmats]


@_served
def projection_2dgs_fused_fwd(*arguments: Any) -> List[Tensor]:
    inputs, (width, height, _, *planes), isotropic = arguments[:5], arguments[5:11], arguments[11:]
    means, viewmats = inputs[0], inputs[3]
    count, cameras, entries = _sizes(means, viewmats)
    shape = (*viewmats.shape[:-2], count)
    radii = torch.empty(*shape, 2, dtype=torch.int32, device=means.device)
    made = [radii, *(means.new_empty(*shape, *size) for size in ((2,), (), (3, 3), (3,)))]
    numbers = [entries, count, cameras, width, height, *map(float, planes), int(any(isotropic))]
    given = [*plain(inputs), *numbers, *made]
    _launch(_SURFELS, "gsplat_project_surfels", entries, given, means, threads=128)
    return made


@_served
def projection_2dgs_fused_bwd(*arguments: Any) -> List[Optional[Tensor]]:
    means, quats, scales, viewmats, intrinsics, _, _, radii, _, *upstream, with_views = arguments
    count, cameras, _ = _sizes(means, viewmats)
    rows = means.numel() // 3
    made: List[Optional[Tensor]] = [*map(torch.empty_like, (means, quats, scales))]
    made.append(torch.zeros_like(viewmats) if with_views else None)
    v_means2d, v_depths, v_normals, v_transforms = upstream
    inputs = plain(
        (means, quats, scales, viewmats, intrinsics, radii, v_means2d, v_depths, v_transforms, v_normals)
    )
    given = [*inputs, rows, count, cameras, *made]
    _launch(_SURFELS, "gsplat_project_surfels_backward", rows, given, means, threads=128)
    return made


# ---------------------------------------------------------------------------------------------------------------------
# Tiles
# ---------------------------------------------------------------------------------------------------------------------


@_served
def intersect_tile(*arguments: Any) -> Tuple[Tensor, Tensor, Tensor]:
    means2d, radii, depths, image_ids, _, images, tile_size, columns, rows, sort, _ = arguments
    if means2d.dim() > 2:
        image_ids = None
    entries, count_of_tiles = depths.numel(), columns * rows
    boxes = torch.empty(entries, 4, dtype=torch.int32, device=depths.device)
    counts = torch.empty(depths.shape, dtype=torch.int32, device=depths.device)
    given = [*plain((means2d, radii, image_ids)), entries, depths.shape[-1], float(tile_size), columns, rows]
    _launch(_PROJECTION, "gsplat_boxes", entries, [*given, boxes, counts], depths)
    bits = depths.detach().float().contiguous().view(torch.int32).flatten()
    order = torch.arange(entries, device=depths.device)
    if sort:  # as numbers without sign
        order = torch.sort(bits ^ _SIGN, stable=True)[1]
    ends = counts.flatten().index_select(0, order).cumsum(0, dtype=torch.int64)
    total = int(ends[-1]) if entries else 0  # the one wait
    if total > _MOST_PAIRS:
        raise RuntimeError(
            f"The images take {total} pairs of a Gaussian and a tile, and 32 bits count {_MOST_PAIRS}: "
            "render fewer at a time, or at a lower resolution."
        )
    key, key_type = "int", torch.int32
    if count_of_tiles * images < 1 << 15:  # half the bytes to sort
        key, key_type = "short", torch.int16
    tiles = torch.empty(total, dtype=key_type, device=depths.device)
    flatten_ids = torch.empty_like(tiles, dtype=torch.int32)
    isect_ids = torch.empty_like(tiles, dtype=torch.int64)
    if not total:
        return counts, isect_ids, flatten_ids
    given = [boxes, order, ends, counts, entries, columns, tiles, flatten_ids]
    module("binning.cu", {"KEY": key}, depths).launch("list_boxes", blocks(entries), 256, given)
    if sort:
        tiles, by_tile = torch.sort(tiles, stable=True)
        flatten_ids = flatten_ids.index_select(0, by_tile)
    numbers = [total, count_of_tiles, count_of_tiles.bit_length()]
    given = [tiles.int(), flatten_ids, bits, *numbers, isect_ids]
    _launch(_PROJECTION, "gsplat_pair_ids", total, given, depths)
    return counts, isect_ids, flatten_ids


# ---------------------------------------------------------------------------------------------------------------------
# Pixels
# ---------------------------------------------------------------------------------------------------------------------


class _Frame(NamedTuple):
    """Images, and the pairs of their tiles: the arguments that all who go through pixels share, in gsplat's order."""

    backgrounds: Optional[Tensor]  # [..., D]
    masks: Optional[Tensor]  # [..., tile_height, tile_width]
    width: int
    height: int
    tile_size: int
    offsets: Tensor  # [..., tile_height, tile_width]
    pairs: Tensor  # [n_isects]

    @property
    def shape(self) -> Tuple[int, ...]:
        """Of the images, without channels."""
        return (*self.offsets.shape[:-2], self.height, self.width)

    def launch(
        self,
        file: str,
        kernel: str,
        defines: Dict[str, object],
        inputs: Sequence[Optional[Tensor]],
        arguments: Sequence[Any],
        like: Tensor,
    ) -> None:
        """A block for every 16 x 16 pixels, or 8 x 8: one of gsplat's tiles has a whole number of them."""
        if self.tile_size % 8:
            raise NoKernels(f"tiles of {self.tile_size} pixels, no multiple of 8, have no CUDA kernel here")
        side = 16
        if self.tile_size % 16:
            side, defines = 8, {**defines, "TILE": 8}
        grid = (-(-self.width // side), -(-self.height // side), math.prod(self.offsets.shape[:-2]))
        if max(grid[1:]) > _MOST_ROWS:
            raise NoKernels(f"{grid[2]} images of {self.height} rows are more than the CUDA kernels count")
        rows, columns = self.offsets.shape[-2:]
        tiles = [self.pairs.numel(), self.tile_size, columns, rows]
        given = [*plain((self.offsets, self.pairs, self.masks)), *inputs, *tiles, *arguments]
        if all(grid):
            module(file, defines, like).launch(kernel, grid, side**2, given)


def _passes(channels: int, most: int, absolute: bool = False) -> List[Tuple[int, Dict[str, object]]]:
    """(first channel, options) of each launch."""
    if absolute and channels > most:
        raise NoKernels(f"absolute gradients of more than {most} channels have no CUDA kernel here")
    size = channels
    if channels > 4:
        size = min(most, 8 if channels <= 8 else most)
    defines: Dict[str, object] = {"COLORS": size}
    if size != channels:
        defines["PART"] = 1
    if absolute:
        defines["ABSOLUTE"] = 1
    return [(first, defines) for first in range(0, channels, size)]


@_served
def rasterize_to_pixels_3dgs_fwd(*arguments: Any) -> Tuple[Tensor, Tensor, Tensor]:
    (means2d, conics, colors, opacities), frame = arguments[:4], _Frame(*arguments[4:])
    channels = colors.shape[-1]
    image = colors.new_empty(*frame.shape, channels)
    alphas = colors.new_empty(*frame.shape, 1, dtype=torch.float64)
    lasts = colors.new_empty(frame.shape, dtype=torch.int32)
    inputs = plain((means2d, conics, opacities, colors, frame.backgrounds))
    for first, defines in _passes(channels, _MOST_CHANNELS):
        others = [channels, first, frame.width, frame.height, image, alphas, lasts]
        frame.launch(_PIXELS, "gsplat_blend", defines, inputs, others, colors)
    return image, alphas, lasts


@_served
def rasterize_to_pixels_3dgs_bwd(*arguments: Any) -> Tuple[Optional[Tensor], ...]:
    (means2d, conics, colors, opacities), frame = arguments[:4], _Frame(*arguments[4:11])
    alphas, lasts, v_colors, v_alphas, absgrad = arguments[11:]
    absolute = torch.zeros_like(means2d) if absgrad else None
    by_means2d, by_conics, by_colors, by_opacities = _zeros((means2d, conics, colors, opacities))
    given = plain((means2d, conics, opacities, colors, frame.backgrounds, alphas.double(), lasts, v_colors))
    (v_alphas,) = plain((v_alphas,))
    for first, defines in _passes(colors.shape[-1], _MOST_CHANNELS, absgrad):
        inputs = [*given, v_alphas if first == 0 else None]
        made = [by_means2d, absolute, by_conics, by_opacities, by_colors]
        others = [colors.shape[-1], first, frame.width, frame.height, *made]
        frame.launch(_PIXELS, "gsplat_blend_backward", defines, inputs, others, colors)
    return absolute, by_means2d, by_conics, by_colors, by_opacities


@_served
def rasterize_to_indices_3dgs(*arguments: Any) -> Tuple[Tensor, Tensor]:
    (first, end, left, *shapes), frame = arguments[:6], _Frame(None, None, *arguments[6:])
    counts = torch.zeros(left.shape, dtype=torch.int32, device=left.device)
    inputs = plain((*shapes, left))
    turns = [min(int(turn), 2**31 - 1) for turn in (first, end)]
    others = [shapes[0].shape[-2], *turns, frame.width, frame.height, counts]
    options: Dict[str, object] = {"COLORS": 1}
    frame.launch(_PIXELS, "gsplat_takers", options, [*inputs, None], [*others, None, None], left)
    ends = counts.flatten().cumsum(0, dtype=torch.int64)
    total = int(ends[-1]) if ends.numel() else 0  # the one wait
    gaussians, pixels = (torch.empty(total, dtype=torch.int64, device=left.device) for _ in range(2))
    if total:
        others += [gaussians, pixels]
        frame.launch(_PIXELS, "gsplat_takers", options, [*inputs, ends], others, left)
    return gaussians, pixels


def _surfels(frame: _Frame, means2d: Tensor, given: Sequence[Optional[Tensor]], like: Tensor) -> Tensor:
    """As they are blended, [P, 16]; `given` are means2d, ray_transforms, opacities and colors."""
    count = math.prod(means2d.shape[:-1])
    surfels = like.new_empty(count, 16)
    arguments = [*given, count, like.shape[-1], frame.width, frame.height, surfels]
    _launch(_SURFELS, "gsplat_surfels", count, arguments, like)
    return surfels


@_served
def rasterize_to_pixels_2dgs_fwd(*arguments: Any) -> List[Tensor]:
    (means2d, transforms, colors, opacities, normals), frame = arguments[:5], _Frame(*arguments[5:])
    channels = colors.shape[-1]
    image, to_normals, distortion, median = (
        colors.new_empty(*frame.shape, size) for size in (channels, 3, 1, 1)
    )
    alphas = colors.new_empty(*frame.shape, 1, dtype=torch.float64)
    lasts, medians = (colors.new_empty(frame.shape, dtype=torch.int32) for _ in range(2))
    shapes = plain((means2d, transforms, opacities, colors))
    inputs = [_surfels(frame, means2d, shapes, colors), *plain((colors, normals, frame.backgrounds))]
    made = [image, alphas, to_normals, distortion, median, lasts, medians]
    for first, defines in _passes(channels, _MOST_OF_SURFELS):
        others = [channels, first, frame.width, frame.height, *made]
        frame.launch(_SURFELS, "gsplat_blend_surfels", defines, inputs, others, colors)
    return made


@_served
def rasterize_to_pixels_2dgs_bwd(*arguments: Any) -> Tuple[Optional[Tensor], ...]:
    means2d, transforms, colors, opacities, normals, _ = arguments[:6]
    frame, absgrad = _Frame(*arguments[6:13]), arguments[22]
    image, alphas, lasts, medians, *upstream = arguments[13:22]
    absolute = torch.zeros_like(means2d) if absgrad else None
    by_means2d, by_transforms, by_colors, by_opacities, by_normals, by_densify = _zeros(arguments[:6])
    count, channels = means2d.numel() // 2, colors.shape[-1]
    sums = colors.new_zeros(count, _SUMS)
    shapes = plain((means2d, transforms, opacities, colors))
    kept = plain((colors, normals, frame.backgrounds, image, alphas.double(), lasts, medians, *upstream))
    inputs = [_surfels(frame, means2d, shapes, colors), *kept]
    for first, defines in _passes(channels, _MOST_OF_SURFELS, absgrad):
        others = [channels, first, frame.width, frame.height, sums, by_colors]
        frame.launch(_SURFELS, "gsplat_blend_surfels_backward", defines, inputs, others, colors)
    made = [by_means2d, by_transforms, by_opacities, by_normals, by_colors, absolute, by_densify]
    given = [*shapes[:2], sums, count, channels, frame.width, frame.height, *made]
    _launch(_SURFELS, "gsplat_surfels_backward", count, given, colors, threads=128)
    return absolute, by_means2d, by_transforms, by_colors, by_opacities, by_normals, by_densify
