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

_Maybe = Optional[Tensor]
_SIGMAS = 3.33  # half a Gaussian's box, where its opacity does not make it smaller
_OLDER_SIGMAS = 3.0  # in gsplat 1.4.0
_MARGIN = 0.15  # of the image's size, around it: where the Jacobian is still taken as it is
_ORTHO, _FISHEYE, _FTHETA = 1, 2, 3  # of CameraModelType
_LARGEST = 2147483520.0  # fits int32, and is exact in float32
_TINY = 1e-7  # gsplat's guard of fisheye's divisions


class _Lens(NamedTuple):
    """What all cameras of a call share, in the order of gsplat's arguments."""

    width: int
    height: int
    eps2d: float = 0.0
    near: float = 0.0
    far: float = 0.0
    radius_clip: float = 0.0
    calc_compensations: bool = False
    model: Any = 0
    isotropic: bool = False  # the radius of gsplat 1.4.0: 3 sigma of the longer axis in both directions


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
        return torch.ceil(_OLDER_SIGMAS * torch.sqrt(longest)).clamp_max(_LARGEST)[:, None].expand(-1, 2)
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


def _within(lens: _Lens, center: Tensor, radii: Tensor) -> Tensor:
    """[P] bool: a box that is in the image, and not too small to be drawn."""
    size = center.new_tensor([lens.width, lens.height])
    inside = ((center + radii > 0) & (center - radii < size)).all(1)
    return inside & (radii > lens.radius_clip).any(1) & (radii > 0).all(1) & torch.isfinite(radii).all(1)


def _kept(drawn: Tensor, fields: Sequence[Tensor]) -> List[Tensor]:
    """The fields [P, ...] of an image, zero where it does not draw them, [P] bool."""
    masks = [drawn.view(-1, *(1 for _ in field.shape[1:])) for field in fields]
    return [torch.where(mask, field, torch.zeros_like(field)) for mask, field in zip(masks, fields)]


def _stacked(images: Sequence[Sequence[Tensor]], means: Tensor, viewmats: Tensor) -> List[Tensor]:
    """Radii and other fields of every image -> [..., C, N, D] in the types of gsplat."""
    shape = viewmats.shape[:-2]
    radii, *others = (torch.stack(field).view(*shape, *field[0].shape) for field in zip(*images))
    return [radii.to(torch.int32), *(field.to(means.dtype) for field in others)]


def _visible(radii: Tensor, fields: Sequence[_Maybe]) -> Tuple[Tuple[Tensor, Tensor], List[_Maybe]]:
    """Image and Gaussian [nnz] of the visible pairs, and their rows of [..., C, N, D]."""
    drawn = (radii > 0).all(-1).flatten(0, -2)
    rows = [
        None if field is None else field.reshape(*drawn.shape, *field.shape[radii.dim() - 1 :])[drawn]
        for field in fields
    ]
    image, gaussian = drawn.nonzero().unbind(1)
    return (image, gaussian), rows


def _ellipses(lens: _Lens) -> Callable[..., Sequence[Tensor]]:
    return lambda *view: _see(lens, *view)[:4]


def _pull(
    see: Callable[..., Sequence[Tensor]],
    shapes: Sequence[Optional[Tensor]],
    viewmats: Tensor,
    Ks: Tensor,
    visible: Tuple[Tensor, Tensor],
    upstream: Sequence[_Maybe],
    with_viewmats: bool,
    sparse: bool = False,
) -> Tuple[_Maybe, ...]:
    """Gradients of the shapes [..., N, D], each then of the size of its input or, `sparse`, [nnz, D]; and of viewmats (or None).

    Args:
        see: makes of intrinsics, view matrix and rows of the shapes what has the gradients `upstream`, [nnz, ...].
        visible: image and Gaussian [nnz] of every visible pair.
    """
    image, gaussian = visible
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
            [None if field is None else field.index_select(0, pairs) for field in upstream],
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
    return (*whole, v_viewmats if with_viewmats else None)


@served
def projection_ewa_simple_fwd(
    means: Tensor, covars: Tensor, Ks: Tensor, width: int, height: int, camera_model: Any
) -> tuple[Tensor, Tensor]:
    """[..., C, N, 3] centers, [..., C, N, 3, 3] covariances in view space -> [..., C, N, 2], [..., C, N, 2, 2] in pixels."""
    return _simple(means, covars, Ks, _Lens(width, height, model=camera_model))


@served
def projection_ewa_simple_bwd(
    means: Tensor, covars: Tensor, Ks: Tensor, width: int, height: int, camera_model: Any, *upstream: Tensor
) -> tuple[_Maybe, ...]:
    """Gradients of `means` and `covars`, from those of what the other gives."""
    lens = _Lens(width, height, model=camera_model)
    return tuple(gradients(lambda m, c: _simple(m, c, Ks, lens), (means, covars), upstream))


@served
def projection_ewa_3dgs_fused_fwd(
    means: Tensor,
    covars: _Maybe,
    quats: _Maybe,
    scales: _Maybe,
    opacities: _Maybe,
    viewmats: Tensor,
    Ks: Tensor,
    *settings: Any,
) -> tuple[Any, ...]:
    """[..., N, D] Gaussians seen by [..., C, 4, 4] cameras -> radii, means2d, depths, conics, compensations, [..., C, N, D].

    All zero where a Gaussian is culled; compensations may be None.

    Args:
        settings: image_width, image_height, eps2d, near_plane, far_plane, radius_clip, calc_compensations, camera_model, and
            whether the radius is that of gsplat 1.4.0.
    """
    lens = _Lens(*settings)
    images = []
    for batch, view, intrinsics in _views(viewmats, Ks):
        shapes = [_of_batch(item, batch) for item in (means, covars, quats, scales)]
        seen = _see(lens, intrinsics, view, *shapes)
        opacity = _of_batch(opacities, batch, dim=1)
        if opacity is not None:
            opacity = opacity.to(seen.depth.dtype)
            if lens.calc_compensations:
                opacity = opacity * seen.compensation
        radii = _radii(seen, opacity, lens.isotropic)
        depth = seen.depth.to(means.dtype)
        drawn = _within(lens, seen.center, radii) & (seen.determinant > 0)
        drawn &= (depth >= lens.near) & (depth <= lens.far)
        if opacity is not None:
            drawn &= opacity >= ALPHA_MIN
        images.append(_kept(drawn, (radii, *seen[:4])))
    *fields, compensations = _stacked(images, means, viewmats)
    return (*fields, compensations if lens.calc_compensations else None)


@served
def projection_ewa_3dgs_fused_bwd(
    means: Tensor, covars: _Maybe, quats: _Maybe, scales: _Maybe, viewmats: Tensor, Ks: Tensor, *others: Any
) -> tuple[_Maybe, ...]:
    """Gradients of means, covars (or None), quats, scales (or None), viewmats (or None).

    Args:
        others: image_width, image_height, eps2d, camera_model, radii, conics, compensations, gradients of means2d, depths, conics
            and compensations (or None), and whether those of viewmats are wanted.
    """
    width, height, eps2d, camera_model, radii, _, _, *upstream, with_viewmats = others
    lens = _Lens(width, height, eps2d, model=camera_model)
    pairs, rows = _visible(radii, upstream)
    return _pull(_ellipses(lens), (means, covars, quats, scales), viewmats, Ks, pairs, rows, with_viewmats)


@served
def projection_ewa_3dgs_packed_fwd(*arguments: Any) -> tuple[Any, ...]:
    """The visible pairs: indptr [B C + 1] int32; batch, camera and Gaussian [nnz] int64; radii and what follows, [nnz, D].

    Args:
        arguments: those of `projection_ewa_3dgs_fused_fwd`.
    """
    fields, cameras = projection_ewa_3dgs_fused_fwd(*arguments), arguments[5].shape[-3]
    (image, gaussian), packed = _visible(fields[0], fields)
    images = arguments[5].numel() // 16
    ends = torch.bincount(image, minlength=images).cumsum(0)
    indptr = torch.cat([ends.new_zeros(1), ends]).to(torch.int32)
    return (indptr, torch.div(image, cameras, rounding_mode="floor"), image % cameras, gaussian, *packed)


@served
def projection_ewa_3dgs_packed_bwd(
    means: Tensor, covars: _Maybe, quats: _Maybe, scales: _Maybe, viewmats: Tensor, Ks: Tensor, *others: Any
) -> tuple[_Maybe, ...]:
    """As `projection_ewa_3dgs_fused_bwd`; with sparse_grad one row for each pair, [nnz, D], but of viewmats.

    Args:
        others: image_width, image_height, eps2d, camera_model, batch_ids, camera_ids, gaussian_ids, conics, compensations,
            gradients as there, whether those of viewmats are wanted, sparse_grad.
    """
    width, height, eps2d, camera_model, batch, camera, gaussian, _, _, *upstream, with_viewmats, sparse = (
        others
    )
    lens = _Lens(width, height, eps2d, model=camera_model)
    pairs = batch * viewmats.shape[-3] + camera, gaussian
    shapes = (means, covars, quats, scales)
    return _pull(_ellipses(lens), shapes, viewmats, Ks, pairs, upstream, with_viewmats, sparse)


@served
def projection_2dgs_fused_fwd(
    means: Tensor, quats: Tensor, scales: Tensor, viewmats: Tensor, Ks: Tensor, *settings: Any
) -> tuple[Any, ...]:
    """Surfels -> radii, means2d, depths, ray_transforms [..., C, N, 3, 3], normals [..., C, N, 3]; zero where culled.

    Args:
        settings: image_width, image_height, eps2d, near_plane, far_plane, radius_clip, and whether the radius is 1.4.0's.
    """
    lens = _Lens(*settings[:6])._replace(isotropic=any(settings[6:]))
    images = []
    for batch, view, intrinsics in _views(viewmats, Ks):
        shapes = [_of_batch(item, batch) for item in (means, quats, scales)]
        center, depth, transform, normal = _see_disc(intrinsics, view, *shapes)
        _, squares, denominator = disc_box(transform.transpose(1, 2), 1.0)
        if lens.isotropic:
            squares = squares.amax(1, keepdim=True).expand_as(squares)
        sigmas = _OLDER_SIGMAS if lens.isotropic else _SIGMAS
        radii = torch.ceil(sigmas * torch.sqrt(squares.clamp_min(1e-4))).clamp_max(_LARGEST)
        depth = depth.to(means.dtype)
        drawn = _within(lens, center, radii) & (denominator != 0)
        drawn &= (depth > lens.near) & (depth < lens.far)
        images.append(_kept(drawn, (radii, center, depth, transform, normal)))
    return tuple(_stacked(images, means, viewmats))


@served
def projection_2dgs_fused_bwd(
    means: Tensor, quats: Tensor, scales: Tensor, viewmats: Tensor, Ks: Tensor, *others: Any
) -> tuple[_Maybe, ...]:
    """Gradients of means, quats, scales and viewmats (or None).

    Args:
        others: image_width, image_height, radii, ray_transforms, gradients of means2d, depths, normals and ray_transforms, and
            whether those of viewmats are wanted.
    """
    _, _, radii, _, v_means2d, v_depths, v_normals, v_ray_transforms, with_viewmats = others
    pairs, rows = _visible(radii, (v_means2d, v_depths, v_ray_transforms, v_normals))
    return _pull(_see_disc, (means, quats, scales), viewmats, Ks, pairs, rows, with_viewmats)
