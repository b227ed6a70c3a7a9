"""The rasterizer of `splatfix.kernels.rasterizer` on its CUDA kernels: allocation, sorting, launches, and the autograd node.

gaussians.h says what each kernel does. The host waits for the GPU once a call, for the number of (Gaussian, tile) pairs. How far
sub-pixel offsets (Mip-Splatting's) move is read along with it; lists that were made for less are made again, which waits twice.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from splatfix.kernels.nvrtc import NoKernels, module

_TILE = 16
_THREADS = 256
_SUMS = 8  # per Gaussian, before the features; see blending.cu
_AT_ONCE = 8  # channels of a launch: with the extras 35 KB of shared memory of 48, and 2 registers for each
_MOST_ROWS = 2**16 - 1  # of tiles: of the blocks of a launch
_MOST_TILES = 2**30 - 1  # the kernels count the ends of their lists with 32 bits, two of a tile
_ROOM = 0.005  # pixels by which a Gaussian is counted wider than listed: more than rounding can add
_MOST_PAIRS = 2**31 - 512  # the kernels count them with 32 bits, in steps of 256
_MODE_V1, _MODE_ANTIALIASING, _MODE_KERNEL_SIZE = 0, 1, 2
_BLUR = 0.3
_moved = 0.0  # pixels that offsets are taken to move until they are read: what the last image's did, in half pixels


def refusal(settings: Any, means2D: Tensor) -> str:
    """Why this call needs the pure-PyTorch rasterizer; empty where the kernels serve it."""
    mode = _MODE_KERNEL_SIZE
    if settings.kernel_size is None:
        mode = _MODE_V1
    if settings.bg.numel() > _AT_ONCE and _with_absolute(mode, means2D) and means2D.requires_grad:
        return f"absolute gradients of more than {_AT_ONCE} channels have no CUDA kernel here"
    return ""


def _with_absolute(mode: int, means2D: Tensor) -> bool:
    """Whether the densification statistic has a part of absolute gradients."""
    return means2D.shape[1] > 3 or (means2D.shape[1] == 3 and mode == _MODE_KERNEL_SIZE)


class Frame(NamedTuple):
    """What a camera gives the kernels; numbers of Python but for the tensors."""

    camera: Tensor  # [35] view, projection, center
    background: Tensor  # [C]
    offsets: Optional[Tensor]  # [H, W, 2]
    moved: float  # pixels, at least the largest of the offsets; where it is 0 they are left out
    width: int
    height: int
    tan: Tuple[float, float]
    modifier: float
    blur: float
    mode: int
    degree: int
    compact: float  # FastGS's factor; 0 where there is none
    upstream_gradients: bool

    @property
    def tiles(self) -> Tuple[int, int]:
        """Columns, rows."""
        return (self.width + _TILE - 1) // _TILE, (self.height + _TILE - 1) // _TILE

    @property
    def grid(self) -> Tuple[int, int, int]:
        return (*self.tiles, 1)

    @property
    def slack(self) -> float:
        """Pixels by which a Gaussian's tiles are wider than its ellipse: rounding, and offsets."""
        return 0.01 + self.moved

    @property
    def used_offsets(self) -> Optional[Tensor]:
        """None where all are 0."""
        return self.offsets if self.moved else None

    def projection(self) -> List[Any]:
        """The arguments that `project` and `project_backward` share."""
        size = [self.width, self.height, float(self.tan[0]), float(self.tan[1])]
        channels = self.background.numel()
        return [*size, float(self.modifier), float(self.blur), self.mode, channels]

    def passes(self, extras: int) -> List[Tuple[int, int, int]]:
        """(first channel, number of channels, extras) of each launch of a blending kernel."""
        channels = self.background.numel()
        size = -(-channels // -(-channels // _AT_ONCE))
        return [(first, size, 0 if first else extras) for first in range(0, channels, size)]


def frame_of(settings: Any, like: Tensor) -> Frame:
    """The camera on the device and in the precision of `like`.

    Raises:
        NoKernels: the image has more tiles than the kernels count.
    """

    def put(tensor: Tensor) -> Tensor:
        return tensor.to(like).reshape(-1)

    blur, mode = _BLUR, _MODE_V1
    if settings.kernel_size is not None:
        blur, mode = settings.kernel_size, _MODE_KERNEL_SIZE
    elif settings.antialiasing:
        mode = _MODE_ANTIALIASING
    offsets = settings.subpixel_offset
    frame = Frame(
        camera=torch.cat([put(settings.viewmatrix), put(settings.projmatrix), put(settings.campos)]),
        background=put(settings.bg).contiguous(),
        offsets=None if offsets is None else put(offsets).contiguous(),
        moved=0.0 if offsets is None else _moved,
        width=int(settings.image_width),
        height=int(settings.image_height),
        tan=(float(settings.tanfovx), float(settings.tanfovy)),
        modifier=float(settings.scale_modifier),
        blur=float(blur),
        mode=mode,
        degree=min(int(settings.sh_degree), 3),
        compact=float(settings.compact_box or 0.0),
        upstream_gradients=bool(settings.upstream_gradients),
    )
    columns, rows = frame.tiles
    if rows > _MOST_ROWS or columns * rows > _MOST_TILES:
        raise NoKernels(
            f"an image of {frame.width} x {frame.height} pixels is more than {_MOST_ROWS} rows or {_MOST_TILES} tiles "
            f"of {_TILE} x {_TILE} pixels, which the CUDA kernels count"
        )
    return frame


class _Pairs(NamedTuple):
    """What the way back needs of the way there."""

    splats: Tensor  # [P, 8]
    features: Tensor  # [P, F]
    radii: Tensor  # [P] int32
    gaussians: Tensor  # [E] int32, by tile, then depth
    ranges: Tensor  # [tiles, 2] int32


def plain(tensors: Sequence[Optional[Tensor]]) -> Tuple[Optional[Tensor], ...]:
    """As a kernel reads them: in one piece of memory, and where four numbers are one load."""
    pieces: List[Optional[Tensor]] = []
    for tensor in tensors:
        if tensor is not None:
            tensor = tensor.contiguous()
            if tensor.data_ptr() % (
                4 * tensor.element_size()
            ):  # a view into another tensor, from anywhere on
                tensor = tensor.clone()
        pieces.append(tensor)
    return tuple(pieces)


def copies(drawn: Sequence[Tensor]) -> Tuple[Tensor, ...]:
    """For a caller, who may edit them in place: the way back reads what was drawn."""
    return tuple(item.clone() for item in drawn)


def like_each(inputs: Sequence[Optional[Tensor]]) -> List[Optional[Tensor]]:
    """For the gradients, of which the kernels write every number."""
    return [None if tensor is None else torch.empty_like(tensor) for tensor in inputs]


def columns_of(means2D: Optional[Tensor]) -> int:
    """Of the densification statistic, 2 to 4; 0 where nobody asks for it."""
    return 0 if means2D is None else means2D.shape[1]


def bands_of(shs: Optional[Tensor]) -> int:
    """How many coefficients of spherical harmonics there are for each channel."""
    return 0 if shs is None else shs.shape[1]


def blocks(count: int, threads: int = _THREADS) -> Tuple[int, int, int]:
    """The grid in which every one of `count` has a thread."""
    return (count + threads - 1) // threads, 1, 1


def _blending(
    frame: Frame, colors: int, extras: int, absolute: bool, like: Tensor, used: bool = False
) -> Any:
    defines: Dict[str, object] = {"COLORS": colors, "EXTRAS": extras, "ABSOLUTE": int(absolute)}
    if colors < frame.background.numel():
        defines["PART"] = 1
    if frame.moved:
        defines["OFFSETS"] = 1
    if used:
        defines["USED"] = 1
    return module("blending.cu", defines, like)


def by_tile(
    depths: Tensor,
    counts: Tensor,
    shape: Tuple[int, int],
    listing: Callable[..., None],
    numbers: Sequence[Tensor] = (),
) -> Tuple[Tensor, Tensor, List[float]]:
    """Numbers of Gaussians by tile and then depth, [E], and the first and end of each tile, [tiles, 2]: both int32.

    Args:
        depths: [P], positive.
        counts: [P] int32, tiles that each covers.
        shape: columns and rows of tiles.
        listing: called with the kernels of binning.cu, the order of depth, the running sum of the counts in it, and the
            arrays of tiles and Gaussians, which it fills; a tile behind the last stands for one counted and not listed.
        numbers: more to read from the device in the same wait; they come back third.
    """
    # depths are positive, so their bits sort as they do, and integers sort faster
    bits = depths.view(torch.int32 if depths.dtype == torch.float32 else torch.int64)
    order = torch.sort(bits, stable=True)[1]
    ends = counts.index_select(0, order).cumsum(0, dtype=torch.int64)
    read = ends[-1:]
    if numbers:
        read = torch.stack([item.double() for item in (ends[-1], *numbers)])
    count, *others = read.tolist()  # the one wait
    total = int(count)
    if total > _MOST_PAIRS:
        raise RuntimeError(
            f"The image takes {total} pairs of a Gaussian and a tile, and 32 bits count {_MOST_PAIRS}: "
            "render it in parts, or at a lower resolution."
        )
    key, key_type = "int", torch.int32
    if shape[0] * shape[1] < 1 << 15:  # half the bytes to sort
        key, key_type = "short", torch.int16
    tiles = torch.empty(total, dtype=key_type, device=depths.device)
    gaussians = torch.empty(total, dtype=torch.int32, device=depths.device)
    ranges = torch.zeros(shape[0] * shape[1], 2, dtype=torch.int32, device=depths.device)
    if total:
        kernels = module("binning.cu", {"KEY": key}, depths)
        listing(kernels, order, ends, tiles, gaussians)
        tiles, by_number = torch.sort(tiles, stable=True)
        gaussians = gaussians.index_select(0, by_number)
        kernels.launch("find_ranges", blocks(total), _THREADS, [tiles, total, shape[0] * shape[1], ranges])
    return gaussians, ranges, others


def arrange(frame: Frame, inputs: Sequence[Optional[Tensor]]) -> Tuple[Frame, _Pairs]:
    """Project and list; the frame comes back with how far its offsets move.

    Raises:
        ValueError: offsets that are not finite.
    """
    global _moved
    means, _, opacities, shs, colors, scales, rotations, covariances = inputs
    assert means is not None
    count, channels = means.shape[0], frame.background.numel()
    splats = means.new_empty(count, 8)
    features = means.new_empty(count, channels + 3)
    depths = means.new_empty(count)
    radii = torch.empty(count, dtype=torch.int32, device=means.device)
    counts = torch.empty_like(radii)
    bands = bands_of(shs)
    module("projection.cu", {}, means).launch(
        "project",
        blocks(count),
        _THREADS,
        [
            *(means, opacities, scales, rotations, covariances, shs, colors, frame.camera, count),
            *frame.projection(),
            *(frame.degree, bands, frame.slack + _ROOM, frame.compact),
            *(splats, features, depths, radii, counts),
        ],
    )

    def listing(kernels: Any, order: Tensor, ends: Tensor, tiles: Tensor, gaussians: Tensor) -> None:
        given = [splats, order, ends, counts, count, frame.width, frame.height, frame.slack, frame.compact]
        kernels.launch("list_pairs", blocks(count), _THREADS, [*given, tiles, gaussians])

    farthest = [] if frame.offsets is None else [frame.offsets.abs().max()]
    gaussians, ranges, moved = by_tile(depths, counts, frame.tiles, listing, farthest)
    for pixels in moved:
        if not math.isfinite(pixels):
            raise ValueError("`subpixel_offset` holds NaN or infinite values.")
        _moved = math.ceil(2 * pixels) / 2
        if pixels > frame.moved:
            return arrange(frame._replace(moved=_moved), inputs)
    return frame, _Pairs(splats, features, radii, gaussians, ranges)


def harmonics_backward(
    frame: Frame, inputs: Sequence[Any], radii: Tensor, sums: Tensor, first: int, gradients: Sequence[Any]
) -> None:
    """The gradients of the colors, columns `first` and on of `sums`, pulled through the harmonics; adds to that of the means."""
    means, shs, by_means, by_shs = inputs[0], inputs[3], gradients[0], gradients[3]
    count = means.shape[0]
    numbers = (count, frame.degree, shs.shape[1], sums.shape[1], first)
    arguments = [means, shs, frame.camera, radii, sums, *numbers, by_means, by_shs]
    module("projection.cu", {}, means).launch("harmonics_backward", blocks(count), _THREADS, arguments)


class _RasterizeOnCuda(torch.autograd.Function):
    """The inputs of `rasterize` -> color, radii, depth, inverse depth, alpha: copies where backward reads them."""

    @staticmethod
    def forward(
        ctx: Any, settings: Any, used: Optional[Tensor], *inputs: Optional[Tensor]
    ) -> Tuple[Tensor, ...]:
        inputs = plain(inputs)
        means = inputs[0]
        assert means is not None
        frame = frame_of(settings, means)
        channels = frame.background.numel()
        ctx.set_materialize_grads(False)
        image = means.new_empty(channels, frame.height, frame.width)
        extras = means.new_empty(3, frame.height, frame.width)
        if not means.shape[0]:
            image[:] = frame.background.view(-1, 1, 1)
            ctx.frame = None
            ctx.save_for_backward(*inputs)
            radii = torch.empty(0, dtype=torch.int32, device=means.device)
            return (image, radii, *copies([extras[:1].zero_()] * 3))
        frame, pairs = arrange(frame, inputs)
        lasts = torch.empty(frame.height, frame.width, dtype=torch.int32, device=means.device)
        for first, colors, more in frame.passes(3):
            given = (pairs.ranges, pairs.gaussians, pairs.splats, pairs.features, frame.background)
            size = (frame.used_offsets, channels, first, frame.width, frame.height)
            counted = None if first else used
            arguments = [*given, *size, image, extras if more else None, lasts, counted]
            kernels = _blending(frame, colors, more, False, means, used=counted is not None)
            kernels.launch("blend", frame.grid, _THREADS, arguments)
        if used is not None:
            used.clamp_(max=1)
        drawn: Tuple[Tensor, ...] = (image, pairs.radii, extras[:1], extras[1:2], extras[2:])
        if not any(ctx.needs_input_grad):
            return drawn
        ctx.frame = frame
        ctx.save_for_backward(*inputs, image, extras, lasts, *pairs)
        drawn = copies(drawn)
        ctx.mark_non_differentiable(drawn[1])
        return drawn

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, upstream: Optional[Tensor], _radii: Optional[Tensor], *of_extras: Optional[Tensor]
    ) -> Tuple[Optional[Tensor], ...]:
        inputs, kept = ctx.saved_tensors[:8], ctx.saved_tensors[8:]
        frame: Optional[Frame] = ctx.frame
        if frame is None:
            return (None, None, *like_each(inputs))
        means, means2D, opacities, shs, _, scales, rotations, covariances = inputs
        image, extras, lasts, pairs = kept[0], kept[1], kept[2], _Pairs(*kept[3:])
        count, channels = means.shape[0], frame.background.numel()
        more, upstream_extras = 0, None
        if any(item is not None for item in of_extras):
            more = 3
            nothing = extras.new_zeros(1, frame.height, frame.width)
            upstream_extras = torch.cat([nothing if item is None else item for item in of_extras])
        absolute = means2D is not None and _with_absolute(frame.mode, means2D)
        sums = means.new_zeros(count, _SUMS + channels + more)
        pulled = plain((upstream, upstream_extras))
        for first, colors, with_extras in frame.passes(more):
            if first and upstream is None:
                break
            given = (pairs.ranges, pairs.gaussians, pairs.splats, pairs.features, frame.used_offsets)
            size = (channels, first, sums.shape[1], frame.width, frame.height)
            arguments = [*given, image, extras, *pulled, lasts, *size, sums]
            kernels = _blending(frame, colors, with_extras, absolute, means)
            kernels.launch("blend_backward", frame.grid, _THREADS, arguments)
        gradients = like_each(inputs)
        by_means, by_means2D, by_opacities, _, by_colors, by_scales, by_rotations, by_covariances = gradients
        module("projection.cu", {}, means).launch(
            "project_backward",
            blocks(count, 128),
            128,
            [
                *(means, opacities, scales, rotations, covariances),
                *(frame.camera, pairs.radii, sums, count),
                *frame.projection(),
                *(more, int(frame.upstream_gradients), columns_of(means2D)),
                *(by_means, by_means2D, by_opacities, by_scales, by_rotations, by_covariances, by_colors),
            ],
        )
        if shs is not None:
            harmonics_backward(frame, inputs, pairs.radii, sums, _SUMS, gradients)
        return (None, None, *gradients)


def rasterize(
    settings: Any, *inputs: Optional[Tensor], used: Optional[Tensor] = None
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Color [C, H, W], radii [P], inverse depth, alpha and depth [1, H, W], from checked inputs on one GPU, float32.

    `inputs` are means3D, means2D, opacities, shs, colors_precomp, scales, rotations, cov3D_precomp; `used` is [P] int32 zeros,
    which get 1 where a Gaussian took part in a pixel.
    """
    apply: Any = _RasterizeOnCuda.apply
    image, radii, depth, invdepth, alpha = apply(settings, used, *inputs)
    return image, radii, invdepth, alpha, depth
