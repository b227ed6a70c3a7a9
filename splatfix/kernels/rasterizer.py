"""Differentiable Gaussian rasterizer in plain PyTorch, with the interface and results of `diff_gaussian_rasterization`.

With projection.py, binning.py, scene.py and blending.py beside it self-contained: standard library and torch >= 1.13,
Python >= 3.8, float32 and float64. It is written for CPU, CUDA and MPS tensors, and tuned on CPUs; float32 on CUDA is
handed to the kernels of rasterizer_cuda.py where they can be had.

Contract (Inria v1, the EWA splatting of Kerbl et al. 2023, and the options of its family)
------------------------------------------------------------------------------------------
Projection   matrices are passed transposed (row vectors); only `z_view <= 0.2` (in float32) is culled; `1 / (w + 1e-7)`;
             quaternions (w, x, y, z) are used as given, not normalized; `t.x / t.z` is clamped to +-1.3 tan(fov / 2)
             for the Jacobian only; 0.3 is added to the diagonal of the 2D covariance; `det == 0` is skipped.
Extent       radius = ceil(3 sqrt(largest eigenvalue)); a Gaussian reaches only the 16x16-pixel tiles that the square
             of that radius touches, although the ellipse of an opaque one is a little larger. `radii` is 0 where culled.
Pixel        centers at integers; alpha = min(0.99, opacity e^power); skipped where power > 0 or alpha < 1/255;
             a pixel stops *before* the contribution that would take its transmittance below 1e-4.
Order        by depth in the precision of the input, ties by index.
antialiasing opacity times sqrt(max(2.5e-5, det / det_blurred)) (Inria 2024).
kernel_size  None is v1's 0.3. A number replaces 0.3 and, as in mip-splatting, multiplies the opacity by
             sqrt(det / (det_blurred + 1e-6) + 1e-6), both at least 1e-6, 0 where one is not above that.
subpixel_offset  [H, W, 2] (x, y), added to the pixel centers (mip-splatting).
compact_box  None is v1's square. A number m replaces it, as FastGS's `mult` does: a Gaussian reaches every pixel of the 16x16
             tiles [16 i, 16 i + 16) x [16 j, 16 j + 16) that the ellipse power = -m ln(255 opacity) touches, and no other.
Gradients    as v1: the 0.99 cap passes the gradient straight through; a color clamped at 0 gets none; where t.x (t.y)
             is clamped, x (y) gets none and z is differentiated as if the clamped value were a constant, which is what
             v1 does and not what autograd would do; the gradient through the conic is damped by det^2 / (det^2 + 1e-7).
             `means2D` takes no part in the forward pass: its gradient [:, :2] is dL/d(pixel position) times
             (W / 2, H / 2), the densification statistic; with `kernel_size` its third column holds the sum over pixels
             of |gx| + |gy| in the same units, and a `means2D` of four columns (FastGS) gets the sums of |gx| and of |gy| in
             the last two. No gradient to the background or the camera.

Deviations, all deliberate: projection runs in float64 where the device has it, so thin and distant Gaussians come out
closer to the formulas than v1's float32; sums have a fixed order on the CPU, so results repeat bit for bit; no Gaussians
at all give the background (v1: black); a Gaussian with a NaN or an infinity is skipped, with radius 0 and zero
gradient (with `debug=True` it is an error); SH bands above 3 are ignored, as in v1.

Algorithm
---------
Pairs (Gaussian, 8x8-pixel tile) are listed for the exact alpha >= 1/255 ellipse inside v1's tile rectangle, which leaves
the image unchanged, and sorted by tile. Tiles are processed in chunks of at most `budget_bytes`, a block of depth at a
time, until all their pixels have stopped. In a chunk the power is a matrix product of six coefficients per pair
with six monomials of the pixel position (relative to the tile, so that float32 is enough), color is a batched
product of weights and features, and only the running transmittance is a loop over depth. The backward pass recomputes
alpha from per-block transmittance checkpoints and walks the blocks back to front. Time is linear in the number of pairs.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Sequence

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from splatfix.kernels.binning import AREA, TILE, to_image, to_tiles
from splatfix.kernels.blending import (
    Alpha,
    Chunk,
    PairGradients,
    add_rows,
    blend,
    blend_backward,
    chunk_cells,
    full_precision,
    untraced,
)
from splatfix.kernels.projection import (
    NEAR,
    GaussianRasterizationSettings,
    Gaussians,
    camera_of,
    colors_of,
    moves_pixels,
    project,
    view_depth,
)
from splatfix.kernels.scene import LOG2E, ProjectedScene, arrange

__all__ = ["GaussianRasterizationSettings", "GaussianRasterizer", "Rendered", "rasterize"]


class Rendered(NamedTuple):
    """The result of `rasterize`; all but `radii` are differentiable.

    Attributes:
        color: [C, H, W], background included.
        radii: [P] int32, pixels; 0 where culled.
        invdepth: [1, H, W], sum of alpha T / z.
        alpha: [1, H, W], sum of alpha T.
        depth: [1, H, W], sum of z alpha T (not divided by alpha).
    """

    color: Tensor
    radii: Tensor
    invdepth: Tensor
    alpha: Tensor
    depth: Tensor


class _Plan(NamedTuple):
    """Data for the backward pass besides the inputs."""

    settings: GaussianRasterizationSettings
    order: Tensor  # [V] visible Gaussians, front to back
    scene: ProjectedScene
    chunks: list[Chunk]
    tiles: tuple[int, int]  # rows, columns


class _Rasterize(torch.autograd.Function):
    """`Gaussians` -> color, radii, 1/depth, alpha, depth. Leaves a `_Plan` in `ctx` if a gradient may be asked for."""

    @staticmethod
    def forward(
        ctx: Any,
        settings: GaussianRasterizationSettings,
        budget_bytes: int,
        used: Optional[Tensor],
        *inputs: Any,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        given = Gaussians(*inputs)
        means3D = given.means3D
        height, width = int(settings.image_height), int(settings.image_width)
        differentiable = any(ctx.needs_input_grad)
        with full_precision(means3D.device):
            _, radius, order, scene, count = arrange(settings, given)
            pixels = scene.features.new_zeros(1, scene.features.shape[0])

            def count_pixels(chosen: Tensor, state: Alpha, weights: Tensor) -> None:
                blended = (weights > 0).view(-1, chosen.numel(), AREA) * scene.inside.index_select(0, chosen)
                add_rows(pixels, state.rows, blended.sum(-1).view(1, -1))

            cells = chunk_cells(budget_bytes, means3D)
            visit = None if used is None else count_pixels
            sums, chunks = blend(scene, scene.features.shape[1], cells, differentiable, visit)
        if used is not None:
            used.index_copy_(0, order, (pixels[0, :-1] > 0).to(used.dtype))

        tiles = ((height + TILE - 1) // TILE, (width + TILE - 1) // TILE)
        image = to_image(sums, tiles, scene.pairs.tile, height, width)
        depth, invdepth, alpha = image[count : count + 1], image[count + 1 : count + 2], image[count + 2 :]
        background = settings.bg.detach().to(means3D).reshape(-1, 1, 1)
        color = image[:count] + (1.0 - alpha) * background
        if differentiable:
            ctx.save_for_backward(*given)
            ctx.plan = _Plan(settings, order, scene, chunks, tiles)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(radius)
        # of views of one tensor autograd lets nobody edit one in place
        return color, radius, invdepth.clone(), alpha.clone(), depth.clone()

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,
        color: Optional[Tensor],
        _radii: Optional[Tensor],
        invdepth: Optional[Tensor],
        alpha: Optional[Tensor],
        depth: Optional[Tensor],
    ) -> tuple[Optional[Tensor], ...]:
        plan: _Plan = ctx.plan
        scene, settings = plan.scene, plan.settings
        inputs = Gaussians(*ctx.saved_tensors)
        means2D, needed = inputs.means2D, ctx.needs_input_grad[3:]
        count = scene.features.shape[1] - 3
        size = int(settings.image_height), int(settings.image_width)
        if color is None:
            color = scene.features.new_zeros(count, *size)
        parts, extras = [color], (depth, invdepth, alpha)
        if any(extra is not None for extra in extras):
            parts += [color.new_zeros(1, *size) if extra is None else extra for extra in extras]
        with full_precision(plan.order.device):
            upstream = to_tiles(torch.cat(parts), plan.tiles, scene.pairs.tile)
            background = settings.bg.detach().to(scene.features).reshape(-1, 1)
            behind = (upstream[:, :count] * background).sum(1)
            absolute = settings.kernel_size is not None or (means2D is not None and means2D.shape[1] > 3)
            pulled = blend_backward(scene, plan.chunks, upstream, behind, with_absolute=absolute)
            gradients = _pull_through_projection(plan, inputs, needed, pulled)
            if means2D is not None and needed[1]:
                gradients[1] = _screen_gradient(plan, pulled, means2D)
        return (None, None, None, *gradients)


def _pull_through_projection(
    plan: _Plan, inputs: Gaussians, needed: Sequence[bool], pulled: PairGradients
) -> list[Optional[Tensor]]:
    """Gradients of the inputs, by running the projection of the visible Gaussians again under autograd."""
    settings = plan.settings
    leaves = inputs.rows(plan.order)
    differentiated = [
        k for k, need in enumerate(needed) if need and k != 1
    ]  # 1: means2D, which takes no part
    with torch.enable_grad():
        for k in differentiated:
            leaf = leaves[k]
            assert leaf is not None
            leaf.requires_grad_(True)
        splats = project(camera_of(settings, leaves.means3D), settings, leaves)
        colors = colors_of(settings, leaves)
        conic = splats.c / splats.det, -splats.b / splats.det, splats.a / splats.det

    conic_a, conic_b, conic_c = (entry.detach() for entry in conic)
    m0, mx, my, mxx, mxy, myy = pulled.moments.unbind(0)
    damping = splats.det.detach() ** 2
    damping = damping / (damping + 1e-7)
    count = colors.shape[1]
    flow = [
        # in pixels: power = -(A dx^2 + C dy^2) / 2 - B dx dy
        (splats.x, -(conic_a * mx + conic_b * my)),
        (splats.y, -(conic_c * my + conic_b * mx)),
        (conic[0], -0.5 * mxx * damping),
        (conic[1], -mxy * damping),
        (conic[2], -0.5 * myy * damping),
        (splats.opacity, m0 / splats.opacity.detach()),
        (colors, pulled.features[:count].t()),
    ]
    if pulled.features.shape[0] > count:
        z = splats.z.detach()
        flow.append((splats.z, pulled.features[count] - pulled.features[count + 1] / (z * z)))
    flow = [(output, gradient.to(output.dtype)) for output, gradient in flow if output.requires_grad]
    gradients: list[Optional[Tensor]] = [None] * len(leaves)
    if flow:
        targets = [leaf for leaf in leaves if leaf is not None and leaf.requires_grad]
        outputs, upstream = [o for o, _ in flow], [g for _, g in flow]
        pulled_back = torch.autograd.grad(outputs, targets, upstream, allow_unused=True)
        for k, gradient in zip(differentiated, pulled_back):
            source = inputs[k]
            if gradient is not None and source is not None:
                gradients[k] = torch.zeros_like(source).index_copy_(0, plan.order, gradient)
    return gradients


def _screen_gradient(plan: _Plan, pulled: PairGradients, means2D: Tensor) -> Tensor:
    """The gradient of `means2D`: pixel gradients in NDC units, v1's densification statistic."""
    geometry = plan.scene.geometry[:-1]
    half = (0.5 * int(plan.settings.image_width), 0.5 * int(plan.settings.image_height))
    aa, bb, cc = geometry[:, 2] / LOG2E, geometry[:, 3] / LOG2E, geometry[:, 4] / LOG2E
    _, mx, my, _, _, _ = pulled.moments.unbind(0)
    columns = [(2 * aa * mx + bb * my) * half[0], (2 * cc * my + bb * mx) * half[1]]
    if pulled.absolute is not None and means2D.shape[1] > 2:
        both = [pulled.absolute[0] * half[0], pulled.absolute[1] * half[1]]
        columns += both if means2D.shape[1] > 3 else [both[0] + both[1]]
    gradient = torch.zeros_like(means2D)
    columns += [torch.zeros_like(columns[0])] * (means2D.shape[1] - len(columns))
    return gradient.index_copy_(0, plan.order, torch.stack(columns, dim=1).to(means2D.dtype))


def check_inputs(
    settings: GaussianRasterizationSettings, given: Gaussians, sizes: tuple[int, int] = (3, 6)
) -> None:
    """Raise for what v1 rejects, and for invalid shapes and types. `sizes`: of `scales` and `shapes`."""
    means3D, _, opacities, shs, colors, scales, rotations, shapes = given
    if (shs is None) == (colors is None):
        raise ValueError(
            "Please provide exactly one of either SHs or precomputed colors: `shs` or `colors_precomp`."
        )
    pair = scales is not None or rotations is not None
    if pair == (shapes is not None) or (pair and (scales is None or rotations is None)):
        raise ValueError(
            "Please provide exactly one of either scale/rotation pair or precomputed 3D covariance: "
            "`scales` with `rotations`, or `cov3D_precomp`."
        )
    if settings.antialiasing and settings.kernel_size is not None:
        raise ValueError(
            "`antialiasing` and `kernel_size` are two different compensations: choose one of them."
        )
    if settings.compact_box is not None and (not settings.compact_box > 0 or moves_pixels(settings)):
        raise ValueError(
            "`compact_box` is a factor above 0, and FastGS, whose it is, knows no `subpixel_offset`."
        )
    if means3D.dim() != 2 or means3D.shape[1] != 3:
        raise ValueError(f"`means3D` must have dimensions (num_points, 3), not {tuple(means3D.shape)}.")
    if means3D.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"`means3D` must be float32 or float64, not {means3D.dtype}: convert it, e.g. with .float()."
        )
    points = means3D.shape[0]
    channels = settings.bg.numel()
    needed_sh = (min(int(settings.sh_degree), 3) + 1) ** 2
    expected = (
        ("means2D", given.means2D, (points, None)),
        ("opacities", opacities[:, None] if opacities.dim() == 1 else opacities, (points, 1)),
        ("shs", shs, (points, None, 3)),
        ("colors_precomp", colors, (points, channels)),
        ("scales", scales, (points, sizes[0])),
        ("rotations", rotations, (points, 4)),
        ("cov3D_precomp", shapes, (points, sizes[1])),
    )
    dtype, device = means3D.dtype, means3D.device
    for name, tensor, shape in expected:
        if tensor is None:
            continue
        if tensor.shape != shape and not (
            tensor.dim() == len(shape)
            and all(want in (None, have) for have, want in zip(tensor.shape, shape))
        ):
            written = ", ".join("any" if w is None else str(w) for w in shape)
            raise ValueError(f"`{name}` must have the shape ({written}), not {tuple(tensor.shape)}.")
        if tensor.dtype is not dtype or tensor.device != device:
            raise TypeError(
                f"`{name}` is {tensor.dtype} on {tensor.device}, `means3D` is {dtype} on {device}: "
                "all inputs need one dtype and one device."
            )
    if shs is not None and (shs.shape[1] < needed_sh or channels != 3):
        raise ValueError(
            f"SH degree {settings.sh_degree} needs {needed_sh} coefficients and a background of 3 numbers."
        )
    offset = settings.subpixel_offset
    size = (int(settings.image_height), int(settings.image_width), 2)
    if offset is not None and tuple(offset.shape) != size:
        raise ValueError(f"`subpixel_offset` must have the shape {size}, not {tuple(offset.shape)}.")


def refuse_values(settings: GaussianRasterizationSettings, given: Gaussians) -> None:
    """Raise where `debug` or `prefiltered` forbid what the numbers are."""
    if settings.debug:
        names = (
            "means3D",
            "means2D",
            "opacities",
            "shs",
            "colors_precomp",
            "scales",
            "rotations",
            "cov3D_precomp",
        )
        for name, tensor in zip(names, given):
            if name != "means2D" and tensor is not None and not bool(torch.isfinite(tensor.detach()).all()):
                raise ValueError(
                    f"`{name}` holds NaN or infinite values. Without `debug` those Gaussians are left out."
                )
    if settings.prefiltered and bool((view_depth(settings, given.means3D) <= NEAR).any()):
        raise RuntimeError("A point is behind the near plane although `prefiltered` promises that none is.")


@untraced
def rasterize(
    settings: GaussianRasterizationSettings,
    means3D: Tensor,
    means2D: Optional[Tensor],
    opacities: Tensor,
    shs: Optional[Tensor] = None,
    colors_precomp: Optional[Tensor] = None,
    scales: Optional[Tensor] = None,
    rotations: Optional[Tensor] = None,
    cov3D_precomp: Optional[Tensor] = None,
    *,
    used: Optional[Tensor] = None,
    budget_bytes: int = 256 << 20,
) -> Rendered:
    """Render Gaussians: color, depth, inverse depth and alpha.

    Args:
        settings: camera and options.
        means3D: [P, 3] world positions, float32 or float64; every other tensor has the same dtype and device.
        means2D: [P, 3] (or [P, 2], or FastGS's [P, 4]) leaf that only receives the densification statistic, or None.
        opacities: [P, 1] or [P], after the sigmoid.
        shs: [P, M, 3] SH coefficients, M >= (sh_degree + 1)^2; or
        colors_precomp: [P, C] colors, with a background of C numbers.
        scales, rotations: [P, 3] after exp, [P, 4] quaternions (w, x, y, z), normalized by the caller; or
        cov3D_precomp: [P, 6] upper triangles xx, xy, xz, yy, yz, zz.
        used: [P] int32 zeros, which get 1 where a Gaussian took part in the color of any pixel (3dgs-mcmc).
        budget_bytes: bound on the temporary pixel buffers of a pass. On a CPU less than the default is used anyway.

    Raises:
        ValueError, TypeError: conflicting arguments or other shapes, non-finite inputs with `debug`.
        RuntimeError: with `prefiltered`, a Gaussian behind the near plane.
    """
    given = Gaussians(means3D, means2D, opacities, shs, colors_precomp, scales, rotations, cov3D_precomp)
    check_inputs(settings, given)
    refuse_values(settings, given)
    if means2D is None:
        given = given._replace(means2D=means3D.new_zeros(means3D.shape))
    on_gpu = _by_cuda_kernels(settings, given, used)
    if on_gpu is not None:
        return on_gpu
    apply: Any = _Rasterize.apply
    return Rendered(*apply(settings, budget_bytes, used, *given))


def _by_cuda_kernels(
    settings: GaussianRasterizationSettings, given: Gaussians, used: Optional[Tensor]
) -> Optional[Rendered]:
    """The same by CUDA kernels, where they lie beside this file and serve these settings and tensors; else None."""
    means2D = given.means2D
    if means2D is None or not given.means3D.is_cuda:
        return None
    try:
        from splatfix.kernels.nvrtc import by_kernels
        from splatfix.kernels.rasterizer_cuda import rasterize as draw
        from splatfix.kernels.rasterizer_cuda import refusal
    except ImportError:  # a copy without them
        return None
    drawn = by_kernels(
        "rasterizer",
        given.means3D,
        lambda: draw(settings, *given, used=used),
        lambda: refusal(settings, means2D),
    )
    if drawn is None:
        return None
    return Rendered(*drawn)


class GaussianRasterizer(nn.Module):
    """The class of `diff_gaussian_rasterization`, with the same calls."""

    def __init__(self, raster_settings: GaussianRasterizationSettings) -> None:
        super().__init__()
        self.raster_settings = raster_settings

    def markVisible(self, positions: Tensor) -> Tensor:
        """[P, 3] positions -> [P] bool, in front of v1's near plane (v1's only culling)."""
        with torch.no_grad():
            return view_depth(self.raster_settings, positions) > NEAR

    def forward(
        self,
        means3D: Tensor,
        means2D: Tensor,
        opacities: Tensor,
        shs: Optional[Tensor] = None,
        colors_precomp: Optional[Tensor] = None,
        scales: Optional[Tensor] = None,
        rotations: Optional[Tensor] = None,
        cov3D_precomp: Optional[Tensor] = None,
    ) -> tuple[Tensor, Tensor]:
        """v1's call: color [C, H, W] and radii [P] int32. Arguments as for `rasterize`, by whose names callers tell variants."""
        given = (means3D, means2D, opacities, shs, colors_precomp, scales, rotations, cov3D_precomp)
        rendered = rasterize(self.raster_settings, *given)
        return rendered.color, rendered.radii
