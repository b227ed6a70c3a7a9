"""From Gaussians and surfels in the world to the image, for `gsplat_csrc.py`, where the rules are told."""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from splatfix.kernels.gsplat_dispatch import gradients, served
from splatfix.kernels.gsplat_points import rotations
from splatfix.kernels.projection import Gaussians, covariance_2d, geometry_dtype, with_gradient_of
from splatfix.kernels.scene import ALPHA_MIN
from splatfix.kernels.surfels import disc_box

__all__ = [
    "projection_2dgs_fused_bwd",
    "projection_2dgs_fused_fwd",
    "projection_ewa_3dgs_fused_bwd",
    "projection_ewa_3dgs_fused_fwd",
    "projection_ewa_3dgs_packed_bwd",
    "projection_ewa_3dgs_packed_fwd",
    "projection_ewa_simple_bwd",
    "projection_ewa_simple_fwd",
]


_SIGMAS = 3.33  # half a Gaussian's box, where its opacity does not make it smaller
_MARGIN = 0.15  # of the image's size, around it: where the Jacobian is still taken as it is
_ORTHO, _FISHEYE, _FTHETA = 1, 2, 3  # of CameraModelType
_LARGEST = 2147483520.0  # fits int32, and is exact in float32
_TINY = 1e-7  # gsplat's guard of fisheye's divisions


class _Lens(NamedTuple):
    """What all cameras of a call share."""

    width: int
    height: int
    model: Any = 0
    eps2d: float = 0.0


class _Seen(NamedTuple):
    """Gaussians in an image, in the precision of the geometry; the first four are differentiable."""

    center: Tensor  # [P, 2] pixels
    depth: Tensor  # [P]
    conic: Tensor  # [P, 3]
    compensation: Tensor  # [P]
    variances: Tensor  # [2, P] diagonal of the blurred covariance, pixels^2
    determinant: Tensor  # [P], of the blurred covariance


def _jacobian(
    lens: _Lens, intrinsics: Tensor, x: Tensor, y: Tensor, z: Tensor
) -> Tuple[Tensor, Tensor, List[Tensor], List[Tensor]]:
    """Pixel x and y of points in view space, and the two rows of the Jacobian. `intrinsics` [3, 3, ...] broadcast to them."""
    fx, fy, cx, cy = intrinsics[0, 0], intrinsics[1, 1], intrinsics[0, 2], intrinsics[1, 2]
    nothing = torch.zeros_like(z)
    if lens.model == _ORTHO:
        return fx * x + cx, fy * y + cy, [fx + nothing, nothing, nothing], [nothing, fy + nothing, nothing]
    if lens.model == _FISHEYE:
        return _fisheye(fx, fy, cx, cy, x, y, z)
    if lens.model == _FTHETA:
        raise NotImplementedError(
            "splatfix's module for gsplat has no projection for camera_model='ftheta': undistort the images to "
            "pinhole ones, or compile gsplat itself, which brings it."
        )
    clamped = []
    for along, focal, middle, edge in ((x, fx, cx, lens.width), (y, fy, cy, lens.height)):
        margin = _MARGIN * edge / focal
        ratio = torch.maximum(along / z, -middle / focal - margin)
        clamped.append(torch.minimum(ratio, (edge - middle) / focal + margin))
    rows = [fx / z, nothing, -fx * clamped[0] / z], [nothing, fy / z, -fy * clamped[1] / z]
    return fx * x / z + cx, fy * y / z + cy, *rows


def _fisheye(
    fx: Tensor, fy: Tensor, cx: Tensor, cy: Tensor, x: Tensor, y: Tensor, z: Tensor
) -> Tuple[Tensor, Tensor, List[Tensor], List[Tensor]]:
    """The angle to the axis is the distance from the middle (OpenCV's without distortion)."""
    across = torch.sqrt(x * x + y * y + _TINY * _TINY) + _TINY
    angle = torch.atan2(across, z)
    xx, yy = x * x + _TINY, y * y
    flat = xx + yy
    around = angle / across / flat
    outward = z / ((flat + z * z) * flat)
    mixed = x * y * (outward - around)
    last = -1.0 / (flat + z * z)
    first = [fx * (xx * outward + yy * around), fx * mixed, fx * x * last]
    second = [fy * mixed, fy * (yy * outward + xx * around), fy * y * last]
    reach = torch.atan2(across, z + _TINY) / across
    return fx * x * reach + cx, fy * y * reach + cy, first, second


def _simple(means: Tensor, covars: Tensor, Ks: Tensor, lens: _Lens) -> Tuple[Tensor, Tensor]:
    """Points in view space and their covariances to pixels."""
    geometry = geometry_dtype(means)
    intrinsics = Ks.to(geometry).movedim((-2, -1), (0, 1))[..., None]
    x, y, first, second = _jacobian(lens, intrinsics, *means.to(geometry).unbind(-1))
    rows = torch.stack([torch.stack(first, dim=-1), torch.stack(second, dim=-1)], dim=-2)
    covars2d = rows @ covars.to(geometry) @ rows.transpose(-1, -2)
    return torch.stack([x, y], dim=-1).to(means.dtype), covars2d.to(means.dtype)


def _see(
    lens: _Lens,
    intrinsics: Tensor,
    viewmat: Tensor,
    means: Tensor,
    covars: Optional[Tensor],
    quats: Optional[Tensor],
    scales: Optional[Tensor],
) -> _Seen:
    """Gaussians in the world to ellipses in the image of one camera."""
    geometry = geometry_dtype(means)
    turn, shift = viewmat[:3, :3].to(geometry), viewmat[:3, 3:].to(geometry)
    x, y, z = (turn @ means.to(geometry).t() + shift).unbind(0)
    pixel_x, pixel_y, *jacobian = _jacobian(lens, intrinsics.to(geometry), x, y, z)
    first, second = (turn.t() @ torch.stack(row) for row in jacobian)
    if quats is not None:
        assert scales is not None
        axes = rotations(quats) * scales.to(geometry).t()
        across, down = (axes * first[:, None]).sum(0), (axes * second[:, None]).sum(0)
        sharp_a, b, sharp_c = (across * across).sum(0), (across * down).sum(0), (down * down).sum(0)
    else:
        shapes = Gaussians(means, None, means, None, None, None, None, covars)
        sharp_a, b, sharp_c = covariance_2d((first, second), shapes, 1.0, False)
    a, c = sharp_a + lens.eps2d, sharp_c + lens.eps2d
    determinant = a * c - b * b
    ratio = ((sharp_a * sharp_c - b * b) / determinant).clamp_min(0.0)
    compensation = torch.sqrt(ratio.detach())
    compensation = with_gradient_of(0.5 / (compensation + 1e-6) * ratio, compensation)
    conic = torch.stack([c / determinant, -b / determinant, a / determinant], dim=1)
    center = torch.stack([pixel_x, pixel_y], dim=1)
    return _Seen(center, z, conic, compensation, torch.stack([a, c]).detach(), determinant.detach())


def _radii(seen: _Seen, opacity: Optional[Tensor], isotropic: bool) -> Tensor:
    """[P, 2] whole pixels."""
    if isotropic:
        middle = 0.5 * seen.variances.sum(0)
        longest = middle + torch.sqrt((middle * middle - seen.determinant).clamp_min(0.01))
        return torch.ceil(3.0 * torch.sqrt(longest)).clamp_max(_LARGEST)[:, None].expand(-1, 2)
    extent = torch.full_like(seen.depth, _SIGMAS)
    if opacity is not None:
        extent = extent.minimum(torch.sqrt(2.0 * torch.log(opacity / ALPHA_MIN).clamp_min(0.0)))
    return torch.ceil(extent * torch.sqrt(seen.variances)).clamp_max(_LARGEST).t()


def _see_disc(
    intrinsics: Tensor, viewmat: Tensor, means: Tensor, quats: Tensor, scales: Tensor
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """Surfels to the image of one camera: centers [P, 2], depths [P], transforms [P, 3, 3], normals [P, 3] towards the camera."""
    geometry = geometry_dtype(means)
    turn, shift = viewmat[:3, :3].to(geometry), viewmat[:3, 3].to(geometry)
    in_view = means.to(geometry) @ turn.t() + shift
    axes = turn @ rotations(quats).permute(2, 0, 1)
    lengths = scales.to(geometry)[:, None, :2]
    to_camera = torch.cat([axes[:, :, :2] * lengths, in_view[:, :, None]], dim=2)
    pinhole = torch.zeros_like(intrinsics, dtype=geometry)
    pinhole[0, 0], pinhole[1, 1], pinhole[:2, 2] = intrinsics[0, 0], intrinsics[1, 1], intrinsics[:2, 2]
    pinhole[2, 2] = 1.0
    transform = pinhole @ to_camera
    normal = axes[:, :, 2]
    away = ((normal * in_view).sum(1, keepdim=True) >= 0).detach()
    center = disc_box(transform.transpose(1, 2), 1.0)[0]
    return center, in_view[:, 2], transform, torch.where(away, -normal, normal)


# ---------------------------------------------------------------------------------------------------------------------
# Batches and cameras
# ---------------------------------------------------------------------------------------------------------------------


def _views(viewmats: Tensor, Ks: Tensor) -> List[Tuple[int, Tensor, Tensor]]:
    """Of every image: its batch, its view matrix [4, 4] and its intrinsics [3, 3]."""
    cameras = viewmats.shape[-3]
    both = zip(viewmats.reshape(-1, 4, 4), Ks.reshape(-1, 3, 3))
    return [(image // cameras, view, intrinsics) for image, (view, intrinsics) in enumerate(both)]


def _of_batch(values: Optional[Tensor], batch: int, dim: int = 2) -> Any:
    """[..., N, D] or, with `dim` 1, [..., N] -> those of a batch."""
    if values is None:
        return None
    if values.dim() == dim:
        return values
    return values.flatten(0, -dim - 1)[batch]


def _within(lens: _Lens, center: Tensor, radii: Tensor, radius_clip: float) -> Tensor:
    """[P] bool: a box that is in the image, and not too small to be drawn."""
    size = center.new_tensor([lens.width, lens.height])
    inside = ((center + radii > 0) & (center - radii < size)).all(1)
    return inside & (radii > radius_clip).any(1) & (radii > 0).all(1) & torch.isfinite(radii).all(1)


def _stacked(images: Sequence[Tuple[Tensor, ...]], means: Tensor, viewmats: Tensor) -> List[Tensor]:
    """Of every image [P] bool what is drawn, radii and fields -> [..., C, N, D], zero where it is not drawn."""
    stacked = []
    for k, field in enumerate(
        zip(
            *(
                [
                    torch.where(drawn.view(-1, *(1 for _ in item.shape[1:])), item, torch.zeros_like(item))
                    for item in items
                ]
                for drawn, *items in images
            )
        )
    ):
        whole = torch.stack(field).view(*viewmats.shape[:-2], *field[0].shape)
        stacked.append(whole.to(means.dtype if k else torch.int32))
    return stacked


def _pull_ellipses(
    lens: _Lens, *arguments: Any
) -> Tuple[Tensor, Optional[Tensor], Optional[Tensor], Optional[Tensor], Optional[Tensor]]:
    """Gradients of means, covars, quats, scales and viewmats."""
    found = _pull(lambda *view: _see(lens, *view)[:4], *arguments)
    v_means, v_covars, v_quats, v_scales, v_viewmats = found
    assert v_means is not None
    return v_means, v_covars, v_quats, v_scales, v_viewmats


def _pull(
    see: Callable[..., Sequence[Tensor]],
    shapes: Sequence[Optional[Tensor]],
    viewmats: Tensor,
    Ks: Tensor,
    image: Tensor,
    gaussian: Tensor,
    upstream: Sequence[Tensor],
    with_viewmats: bool,
    sparse: bool = False,
) -> List[Optional[Tensor]]:
    """Gradients of the shapes [..., N, D], each then of the size of its input or, `sparse`, [nnz, D]; and of viewmats (or None).

    Args:
        see: makes of intrinsics, view matrix and rows of the shapes what has the gradients `upstream`, [nnz, ...].
        image, gaussian: [nnz] of every visible pair.
    """
    flat = [None if item is None else item.reshape(-1, item.shape[-1]) for item in shapes]
    totals = [
        None if item is None else item.new_zeros(len(image) if sparse else len(item), item.shape[1])
        for item in flat
    ]
    v_viewmats = torch.zeros_like(viewmats)
    count = shapes[0].shape[-2] if shapes[0] is not None else 0
    for number, (batch, view, intrinsics) in enumerate(_views(viewmats, Ks)):
        pairs = (image == number).nonzero().view(-1)
        rows = gaussian.index_select(0, pairs) + batch * count
        of_rows = [None if item is None else item.index_select(0, rows) for item in flat]
        found = gradients(
            lambda seen_from, *of: see(intrinsics, seen_from, *of),  # noqa: B023
            (view, *of_rows),
            [field.index_select(0, pairs) for field in upstream],
            needed=(with_viewmats, *(True for _ in of_rows)),
        )
        if found[0] is not None:
            v_viewmats.view(-1, 4, 4)[number] = found[0]
        for total, gradient in zip(totals, found[1:]):
            if total is not None and gradient is not None:
                total.index_add_(0, pairs if sparse else rows, gradient)
    whole: List[Optional[Tensor]] = [
        total if total is None or item is None or sparse else total.view(item.shape)
        for total, item in zip(totals, shapes)
    ]
    return [*whole, v_viewmats if with_viewmats else None]


@served
def projection_ewa_simple_fwd(
    means: Tensor, covars: Tensor, Ks: Tensor, width: int, height: int, camera_model: Any
) -> tuple[Tensor, Tensor]:
    """[..., C, N, 3] centers, [..., C, N, 3, 3] covariances in view space -> [..., C, N, 2], [..., C, N, 2, 2] in pixels."""
    return _simple(means, covars, Ks, _Lens(width, height, camera_model))


@served
def projection_ewa_simple_bwd(
    means: Tensor,
    covars: Tensor,
    Ks: Tensor,
    width: int,
    height: int,
    camera_model: Any,
    v_means2d: Tensor,
    v_covars2d: Tensor,
) -> tuple[Tensor, Tensor]:
    """Gradients of `means` and `covars`."""
    lens = _Lens(width, height, camera_model)
    v_means, v_covars = gradients(
        lambda m, c: _simple(m, c, Ks, lens), (means, covars), (v_means2d, v_covars2d)
    )
    assert v_means is not None and v_covars is not None
    return v_means, v_covars


@served
def projection_ewa_3dgs_fused_fwd(
    means: Tensor,
    covars: Optional[Tensor],
    quats: Optional[Tensor],
    scales: Optional[Tensor],
    opacities: Optional[Tensor],
    viewmats: Tensor,
    Ks: Tensor,
    image_width: int,
    image_height: int,
    eps2d: float,
    near_plane: float,
    far_plane: float,
    radius_clip: float,
    calc_compensations: bool,
    camera_model: Any,
    isotropic: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Optional[Tensor]]:
    """[..., N, D] Gaussians seen by [..., C, 4, 4] cameras -> radii, means2d, depths, conics, compensations, [..., C, N, D].

    All zero where a Gaussian is culled.

    Args:
        isotropic: the radius of gsplat 1.4.0, 3 sigma of the longer axis in both directions.
    """
    lens = _Lens(image_width, image_height, camera_model, eps2d)
    images = []
    for batch, view, intrinsics in _views(viewmats, Ks):
        shapes = [_of_batch(item, batch) for item in (means, covars, quats, scales)]
        seen = _see(lens, intrinsics, view, *shapes)
        opacity = _of_batch(opacities, batch, dim=1)
        if opacity is not None:
            opacity = opacity.to(seen.depth.dtype)
            if calc_compensations:
                opacity = opacity * seen.compensation
        radii = _radii(seen, opacity, isotropic)
        depth = seen.depth.to(means.dtype)
        drawn = _within(lens, seen.center, radii, radius_clip) & (seen.determinant > 0)
        drawn &= (depth >= near_plane) & (depth <= far_plane)
        if opacity is not None:
            drawn &= opacity >= ALPHA_MIN
        images.append((drawn, radii, *seen[:4]))
    radii, means2d, depths, conics, compensations = _stacked(images, means, viewmats)
    return radii, means2d, depths, conics, compensations if calc_compensations else None


@served
def projection_ewa_3dgs_fused_bwd(
    means: Tensor,
    covars: Optional[Tensor],
    quats: Optional[Tensor],
    scales: Optional[Tensor],
    viewmats: Tensor,
    Ks: Tensor,
    image_width: int,
    image_height: int,
    eps2d: float,
    camera_model: Any,
    radii: Tensor,
    conics: Tensor,
    compensations: Optional[Tensor],
    v_means2d: Tensor,
    v_depths: Tensor,
    v_conics: Tensor,
    v_compensations: Optional[Tensor],
    viewmats_requires_grad: bool,
) -> tuple[Tensor, Optional[Tensor], Optional[Tensor], Optional[Tensor], Optional[Tensor]]:
    """Gradients of means, covars (or None), quats, scales (or None), viewmats (or None)."""
    lens = _Lens(image_width, image_height, camera_model, eps2d)
    drawn = (radii > 0).all(-1).flatten(0, -2)
    image, gaussian = drawn.nonzero().unbind(1)
    upstream = [
        v_means2d.reshape(*drawn.shape, 2)[drawn],
        v_depths.reshape(drawn.shape)[drawn],
        v_conics.reshape(*drawn.shape, 3)[drawn],
    ]
    if v_compensations is not None:
        upstream.append(v_compensations.reshape(drawn.shape)[drawn])
    return _pull_ellipses(
        lens, (means, covars, quats, scales), viewmats, Ks, image, gaussian, upstream, viewmats_requires_grad
    )


@served
def projection_ewa_3dgs_packed_fwd(
    means: Tensor,
    covars: Optional[Tensor],
    quats: Optional[Tensor],
    scales: Optional[Tensor],
    opacities: Optional[Tensor],
    viewmats: Tensor,
    Ks: Tensor,
    image_width: int,
    image_height: int,
    eps2d: float,
    near_plane: float,
    far_plane: float,
    radius_clip: float,
    calc_compensations: bool,
    camera_model: Any,
    isotropic: bool = False,
) -> tuple[Optional[Tensor], ...]:
    """The visible pairs: indptr [B C + 1] int32; batch, camera and Gaussian [nnz] int64; radii and what follows, [nnz, D]."""
    fields = projection_ewa_3dgs_fused_fwd(
        means,
        covars,
        quats,
        scales,
        opacities,
        viewmats,
        Ks,
        image_width,
        image_height,
        eps2d,
        near_plane,
        far_plane,
        radius_clip,
        calc_compensations,
        camera_model,
        isotropic,
    )
    radii, cameras = fields[0], viewmats.shape[-3]
    drawn = (radii > 0).all(-1).flatten(0, -2)
    image, gaussian = drawn.nonzero().unbind(1)
    ends = drawn.sum(1).cumsum(0)
    indptr = torch.cat([ends.new_zeros(1), ends]).to(torch.int32)
    packed = [
        None if field is None else field.reshape(*drawn.shape, *field.shape[radii.dim() - 1 :])[drawn]
        for field in fields
    ]
    batch = torch.div(image, cameras, rounding_mode="floor")
    return (indptr, batch, image % cameras, gaussian, *packed)


@served
def projection_ewa_3dgs_packed_bwd(
    means: Tensor,
    covars: Optional[Tensor],
    quats: Optional[Tensor],
    scales: Optional[Tensor],
    viewmats: Tensor,
    Ks: Tensor,
    image_width: int,
    image_height: int,
    eps2d: float,
    camera_model: Any,
    batch_ids: Tensor,
    camera_ids: Tensor,
    gaussian_ids: Tensor,
    conics: Tensor,
    compensations: Optional[Tensor],
    v_means2d: Tensor,
    v_depths: Tensor,
    v_conics: Tensor,
    v_compensations: Optional[Tensor],
    viewmats_requires_grad: bool,
    sparse_grad: bool,
) -> tuple[Tensor, Optional[Tensor], Optional[Tensor], Optional[Tensor], Optional[Tensor]]:
    """As `projection_ewa_3dgs_fused_bwd`; with `sparse_grad` one row for each pair, [nnz, D], but of viewmats."""
    lens = _Lens(image_width, image_height, camera_model, eps2d)
    upstream = [item for item in (v_means2d, v_depths, v_conics, v_compensations) if item is not None]
    image = batch_ids * viewmats.shape[-3] + camera_ids
    return _pull_ellipses(
        lens,
        (means, covars, quats, scales),
        viewmats,
        Ks,
        image,
        gaussian_ids,
        upstream,
        viewmats_requires_grad,
        sparse_grad,
    )


@served
def projection_2dgs_fused_fwd(
    means: Tensor,
    quats: Tensor,
    scales: Tensor,
    viewmats: Tensor,
    Ks: Tensor,
    image_width: int,
    image_height: int,
    eps2d: float,
    near_plane: float,
    far_plane: float,
    radius_clip: float,
    isotropic: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Surfels -> radii, means2d, depths, ray_transforms [..., C, N, 3, 3], normals [..., C, N, 3]; zero where culled."""
    lens = _Lens(image_width, image_height)
    images = []
    for batch, view, intrinsics in _views(viewmats, Ks):
        shapes = [_of_batch(item, batch) for item in (means, quats, scales)]
        center, depth, transform, normal = _see_disc(intrinsics, view, *shapes)
        _, squares, denominator = disc_box(transform.transpose(1, 2), 1.0)
        if isotropic:
            squares = squares.amax(1, keepdim=True).expand_as(squares)
        radii = torch.ceil((3.0 if isotropic else _SIGMAS) * torch.sqrt(squares.clamp_min(1e-4))).clamp_max(
            _LARGEST
        )
        depth = depth.to(means.dtype)
        drawn = _within(lens, center, radii, radius_clip) & (denominator != 0)
        drawn &= (depth > near_plane) & (depth < far_plane)
        images.append((drawn, radii, center, depth, transform, normal))
    radii, means2d, depths, ray_transforms, normals = _stacked(images, means, viewmats)
    return radii, means2d, depths, ray_transforms, normals


@served
def projection_2dgs_fused_bwd(
    means: Tensor,
    quats: Tensor,
    scales: Tensor,
    viewmats: Tensor,
    Ks: Tensor,
    image_width: int,
    image_height: int,
    radii: Tensor,
    ray_transforms: Tensor,
    v_means2d: Tensor,
    v_depths: Tensor,
    v_normals: Tensor,
    v_ray_transforms: Tensor,
    viewmats_requires_grad: bool,
) -> tuple[Tensor, Tensor, Tensor, Optional[Tensor]]:
    """Gradients of means, quats, scales and viewmats (or None)."""
    drawn = (radii > 0).all(-1).flatten(0, -2)
    image, gaussian = drawn.nonzero().unbind(1)
    upstream = (
        v_means2d.reshape(*drawn.shape, 2)[drawn],
        v_depths.reshape(drawn.shape)[drawn],
        v_ray_transforms.reshape(*drawn.shape, 3, 3)[drawn],
        v_normals.reshape(*drawn.shape, 3)[drawn],
    )
    shapes = (means, quats, scales)
    found = _pull(_see_disc, shapes, viewmats, Ks, image, gaussian, upstream, viewmats_requires_grad)
    v_means, v_quats, v_scales, v_viewmats = found
    assert v_means is not None and v_quats is not None and v_scales is not None
    return v_means, v_quats, v_scales, v_viewmats
