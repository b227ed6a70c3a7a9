"""From a 3D Gaussian to an ellipse in the image: camera, covariance, colors. The rules are told in `rasterizer.py`.

Plain differentiable torch; the backward pass runs it again under autograd.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

NEAR = 0.20000000298023224  # float32(0.2): view-space depth at or below which v1 drops a Gaussian
_FRUSTUM_MARGIN = 1.3  # times tan(fov / 2): clamp of t.x / t.z in the Jacobian
_BLUR = 0.3  # v1's low-pass, pixels^2
# Real spherical harmonics up to degree 4 in the sign convention of the 3DGS family.
_SH0 = 0.28209479177387814
_SH1 = 0.4886025119029199
_SH2 = (1.0925484305920792, -1.0925484305920792, 0.31539156525252005, -1.0925484305920792, 0.5462742152960396)
_SH3 = (
    -0.5900435899266435,
    2.890611442640554,
    -0.4570457994644658,
    0.3731763325901154,
    -0.4570457994644658,
    1.445305721320277,
    -0.5900435899266435,
)
_SH4 = (
    2.5033429417967046,
    -1.7701307697799304,
    0.9461746957575601,
    -0.6690465435572892,
    0.10578554691520431,
    -0.6690465435572892,
    0.47308734787878004,
    -1.7701307697799304,
    0.6258357354491761,
)


class GaussianRasterizationSettings(NamedTuple):
    """One camera and the options of the rasterizer family; the first twelve fields are v1's.

    Attributes:
        image_height, image_width: pixels.
        tanfovx, tanfovy: tangents of half the field of view.
        bg: [C] background color.
        scale_modifier: factor on `scales`.
        viewmatrix, projmatrix: [4, 4] world-to-view and world-to-clip, transposed (for row vectors).
        sh_degree: active SH degree.
        campos: [3] camera center, for the SH direction.
        prefiltered: asserts that no Gaussian is behind the camera; otherwise an error, as in v1.
        debug: raise for non-finite inputs instead of skipping those Gaussians.
        antialiasing: the 2024 opacity compensation.
        kernel_size: mip-splatting's low-pass in pixels^2 with its compensation; None is v1.
        subpixel_offset: [H, W, 2] offsets of the pixel centers.
        compact_box: FastGS's factor on the squared extent that chooses tiles; None is v1's square of 3 sigma.
        upstream_gradients: the CUDA kernels' gradients also where they are not the derivative (see the module's text).
    """

    image_height: int
    image_width: int
    tanfovx: float
    tanfovy: float
    bg: Tensor
    scale_modifier: float
    viewmatrix: Tensor
    projmatrix: Tensor
    sh_degree: int
    campos: Tensor
    prefiltered: bool
    debug: bool
    antialiasing: bool = False
    kernel_size: Optional[float] = None
    subpixel_offset: Optional[Tensor] = None
    compact_box: Optional[float] = None
    upstream_gradients: bool = False


class Gaussians(NamedTuple):
    """What is drawn, in the order of the family's autograd node; of colors and of shapes one kind, the other None."""

    means3D: Tensor  # [P, 3] world
    means2D: Optional[Tensor]  # [P, 2 to 4], only receives the densification statistic
    opacities: Tensor  # [P, 1] or [P]
    shs: Optional[Tensor]  # [P, M, 3]
    colors: Optional[Tensor]  # [P, C]
    scales: Optional[Tensor]  # [P, 3], of surfels [P, 2]
    rotations: Optional[Tensor]  # [P, 4] (w, x, y, z)
    shapes: Optional[Tensor]  # [P, 6] covariances, of surfels [P, 9] transforms

    def rows(self, index: Tensor) -> Gaussians:
        taken: list[Any] = [None if item is None else item.index_select(0, index) for item in self]
        return Gaussians(*taken)


class ViewCamera(NamedTuple):
    """The camera, in the precision of the geometry."""

    width: int
    height: int
    tan: tuple[float, float]
    rotation: Tensor  # [3, 3], row vectors: p_view = p @ rotation + translation
    translation: Tensor  # [3]
    projection: Tensor  # [4, 3], columns x, y, w of the clip matrix
    blur: float
    scale_modifier: float
    compact_box: Optional[float]


class Ellipses(NamedTuple):
    """Projected Gaussians, each field [P] in the precision of the geometry."""

    x: Tensor  # pixel position
    y: Tensor
    z: Tensor  # view-space depth
    a: Tensor  # blurred 2D covariance [[a, b], [b, c]], pixels^2
    b: Tensor
    c: Tensor
    det: Tensor
    opacity: Tensor  # compensated


def geometry_dtype(means: Tensor) -> torch.dtype:
    """Double precision, where the device has it."""
    return torch.float32 if means.device.type == "mps" else torch.float64


def camera_of(settings: GaussianRasterizationSettings, means: Tensor) -> ViewCamera:
    """The camera of the settings, on the device of `means` and in the precision of the geometry."""

    def put(matrix: Tensor) -> Tensor:
        return matrix.detach().to(device=means.device, dtype=geometry_dtype(means))

    view, clip = put(settings.viewmatrix), put(settings.projmatrix)
    return ViewCamera(
        width=int(settings.image_width),
        height=int(settings.image_height),
        tan=(float(settings.tanfovx), float(settings.tanfovy)),
        rotation=view[:3, :3],
        translation=view[3, :3],
        # columns 0, 1 and 3; by their numbers, these would have to reach the GPU first
        projection=torch.cat([clip[:, :2], clip[:, 3:]], dim=1),
        blur=_BLUR if settings.kernel_size is None else float(settings.kernel_size),
        scale_modifier=float(settings.scale_modifier),
        compact_box=None if settings.compact_box is None else float(settings.compact_box),
    )


def _clamp_to_frustum(along: Tensor, z: Tensor, limit: float) -> Tensor:
    """`along` (x or y in view space), its ratio to z clamped; the clamped value counts as a constant (v1's gradient)."""
    ratio = along / z
    inside = ratio.abs() <= limit
    return torch.where(inside, along, (ratio.clamp(-limit, limit) * z).detach())


def with_gradient_of(other: Tensor, value: Tensor) -> Tensor:
    """`value`, differentiated as if it were `other`."""
    return value.detach() + (other - other.detach())


def rotation_matrices(quaternions: Tensor) -> Tensor:
    """[4, P] (w, x, y, z), used as given -> [3, 3, P]."""
    w, x, y, z = quaternions.unbind(0)
    entries = [
        1 - 2 * (y * y + z * z),
        2 * (x * y - w * z),
        2 * (x * z + w * y),
        2 * (x * y + w * z),
        1 - 2 * (x * x + z * z),
        2 * (y * z - w * x),
        2 * (x * z - w * y),
        2 * (y * z + w * x),
        1 - 2 * (x * x + y * y),
    ]
    return torch.stack(entries).view(3, 3, -1)


def covariance_2d(
    rows: tuple[Tensor, Tensor], given: Gaussians, modifier: float, upstream_gradients: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Entries (a, b, c) of J Sigma J^T before the low-pass; `rows` are the two rows [3, P] of J, world to pixel."""
    first, second = rows
    if given.shapes is not None:
        xx, xy, xz, yy, yz, zz = given.shapes.to(first.dtype).t().unbind(0)
        sigma = torch.stack([xx, xy, xz, xy, yy, yz, xz, yz, zz]).view(3, 3, -1)
        left_x, left_y = (sigma * first[:, None]).sum(0), (sigma * second[:, None]).sum(0)
        return (left_x * first).sum(0), (left_x * second).sum(0), (left_y * second).sum(0)
    assert given.scales is not None and given.rotations is not None
    axes = rotation_matrices(given.rotations.to(first.dtype).t())
    scales = given.scales.to(first.dtype).t()
    lengths = modifier * scales
    if upstream_gradients:
        lengths = with_gradient_of(scales, lengths)
    x, y = (axes * first[:, None]).sum(0) * lengths, (axes * second[:, None]).sum(0) * lengths
    return (x * x).sum(0), (x * y).sum(0), (y * y).sum(0)


def positions_in_view(camera: ViewCamera, means: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """View-space x, y, z and pixel position x, y of each Gaussian, [P] in the precision of the geometry."""
    world = means.to(camera.rotation.dtype).t().contiguous()
    view_x, view_y, z = (camera.rotation.t() @ world + camera.translation[:, None]).unbind(0)
    clip_x, clip_y, clip_w = (camera.projection[:3].t() @ world + camera.projection[3][:, None]).unbind(0)
    inverse_w = 1.0 / (clip_w + 1e-7)
    x = ((clip_x * inverse_w + 1.0) * camera.width - 1.0) * 0.5
    y = ((clip_y * inverse_w + 1.0) * camera.height - 1.0) * 0.5
    return view_x, view_y, z, x, y


def project(camera: ViewCamera, settings: GaussianRasterizationSettings, given: Gaussians) -> Ellipses:
    """Gaussians in the world to ellipses in the image (v1's preprocess, EWA). Vectors are [3, P] here, for speed."""
    view_x, view_y, z, x, y = positions_in_view(camera, given.means3D)
    tan_x, tan_y = camera.tan
    edge_x = _clamp_to_frustum(view_x, z, _FRUSTUM_MARGIN * tan_x)
    edge_y = _clamp_to_frustum(view_y, z, _FRUSTUM_MARGIN * tan_y)
    focal_z_x = camera.width / (2.0 * tan_x) / z
    focal_z_y = camera.height / (2.0 * tan_y) / z
    right, down, forward = camera.rotation.t()[:, :, None].unbind(0)  # the view axes in the world, [3, 1]
    rows = (
        focal_z_x * right - (focal_z_x * edge_x / z) * forward,
        focal_z_y * down - (focal_z_y * edge_y / z) * forward,
    )
    upstream = settings.upstream_gradients
    sharp_a, b, sharp_c = covariance_2d(rows, given, camera.scale_modifier, upstream)
    a, c = sharp_a + camera.blur, sharp_c + camera.blur
    det = a * c - b * b
    opacity = given.opacities.to(det.dtype).reshape(-1)
    if settings.kernel_size is not None:
        sharp_det = sharp_a * sharp_c - b * b
        shared = torch.sqrt(sharp_det.clamp_min(1e-6) / (det.clamp_min(1e-6) + 1e-6) + 1e-6)
        if upstream:
            known, sharp, blurred = shared.detach(), sharp_det.detach(), det.detach()
            change = sharp_det / (blurred + 1e-6) - sharp / (blurred * blurred + 1e-6) * det
            shared = with_gradient_of(0.5 * known / (known + 1e-6) ** 2 * change, shared)
        opacity = opacity * torch.where((sharp_det > 1e-6) & (det > 1e-6), shared, torch.zeros_like(shared))
    elif settings.antialiasing:
        sharp_det = sharp_a * sharp_c - b * b
        ratio = sharp_det / det
        if upstream:
            shifted = det / ((a + camera.blur) * (c + camera.blur) - b * b)
            ratio = with_gradient_of(shifted, ratio)
        opacity = opacity * torch.sqrt(ratio.clamp_min(2.5e-5))
    return Ellipses(x, y, z, a, b, c, det, opacity)


def sh_basis(degree: int, direction: Tensor) -> Tensor:
    """[P, 3] unit vectors -> [P, (degree + 1)^2] basis values."""
    x, y, z = direction.unbind(-1)
    terms: list[Tensor] = [torch.full_like(x, _SH0)]
    if degree > 0:
        terms += [-_SH1 * y, _SH1 * z, -_SH1 * x]
    if degree > 1:
        xx, yy, zz = x * x, y * y, z * z
        terms += [_SH2[0] * x * y, _SH2[1] * y * z, _SH2[2] * (2 * zz - xx - yy), _SH2[3] * x * z]
        terms += [_SH2[4] * (xx - yy)]
    if degree > 2:
        terms += [_SH3[0] * y * (3 * xx - yy), _SH3[1] * x * y * z, _SH3[2] * y * (4 * zz - xx - yy)]
        terms += [_SH3[3] * z * (2 * zz - 3 * xx - 3 * yy), _SH3[4] * x * (4 * zz - xx - yy)]
        terms += [_SH3[5] * z * (xx - yy), _SH3[6] * x * (xx - 3 * yy)]
    if degree > 3:
        terms += [_SH4[0] * x * y * (xx - yy), _SH4[1] * y * z * (3 * xx - yy)]
        terms += [_SH4[2] * x * y * (7 * zz - 1), _SH4[3] * y * z * (7 * zz - 3)]
        terms += [_SH4[4] * (zz * (35 * zz - 30) + 3), _SH4[5] * x * z * (7 * zz - 3)]
        terms += [_SH4[6] * (xx - yy) * (7 * zz - 1), _SH4[7] * x * z * (xx - 3 * yy)]
        terms += [_SH4[8] * (xx * (xx - 3 * yy) - yy * (3 * xx - yy))]
    return torch.stack(terms, dim=-1)


def colors_of(settings: GaussianRasterizationSettings, given: Gaussians) -> Tensor:
    """[P, C] colors: the precomputed ones, or SH towards the camera + 0.5, at least 0."""
    if given.colors is not None:
        return given.colors
    shs, means = given.shs, given.means3D
    assert shs is not None
    degree = min(int(settings.sh_degree), 3)
    if degree == 0:
        return (_SH0 * shs[:, 0] + 0.5).clamp_min(0.0)
    offset = means - settings.campos.detach().to(means).reshape(1, 3)
    direction = offset / offset.norm(dim=-1, keepdim=True)
    basis = sh_basis(degree, direction)
    return ((basis[:, :, None] * shs[:, : basis.shape[1]]).sum(1) + 0.5).clamp_min(0.0)


def moves_pixels(settings: GaussianRasterizationSettings) -> bool:
    """Whether `subpixel_offset` moves any pixel center."""
    return settings.subpixel_offset is not None and bool((settings.subpixel_offset != 0).any())


def view_depth(settings: GaussianRasterizationSettings, positions: Tensor) -> Tensor:
    """[P, 3] positions -> [P] depths in the view, in their own precision."""
    view = settings.viewmatrix.detach().to(device=positions.device, dtype=geometry_dtype(positions))
    return (positions.detach().to(view.dtype) @ view[:3, 2] + view[3, 2]).to(positions.dtype)
