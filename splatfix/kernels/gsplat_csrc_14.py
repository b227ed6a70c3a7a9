"""The module of compiled functions that gsplat 1.4.0 asks for (nerfstudio 1.1.5 pins it): 1.5.3's under the older names.

Its rules are those of `gsplat_csrc.py`, but for the radius, ceil(3 sigma) of the longer axis in both directions, whatever the
opacity; `radii` have one number.
"""

from __future__ import annotations

from typing import Any, Optional

from torch import Tensor

from splatfix.kernels.gsplat_csrc import (
    FISHEYE,
    ORTHO,
    PINHOLE,
    CameraModelType,
    intersect_offset,
    intersect_tile,
    projection_2dgs_fused_bwd,
    projection_2dgs_fused_fwd,
    projection_2dgs_packed_bwd,
    projection_2dgs_packed_fwd,
    projection_ewa_3dgs_fused_bwd,
    projection_ewa_3dgs_fused_fwd,
    projection_ewa_3dgs_packed_bwd,
    projection_ewa_3dgs_packed_fwd,
    projection_ewa_simple_bwd,
    projection_ewa_simple_fwd,
    quat_scale_to_covar_preci_fwd,
    rasterize_to_indices_2dgs,
    rasterize_to_indices_3dgs,
    rasterize_to_pixels_2dgs_bwd,
    rasterize_to_pixels_2dgs_fwd,
    rasterize_to_pixels_3dgs_bwd,
    rasterize_to_pixels_3dgs_fwd,
    relocation,
    spherical_harmonics_bwd,
    spherical_harmonics_fwd,
)
from splatfix.kernels.gsplat_csrc import quat_scale_to_covar_preci_bwd as covariances_bwd
from splatfix.kernels.gsplat_dispatch import gradients

__all__ = [
    "FISHEYE",
    "ORTHO",
    "PINHOLE",
    "CameraModelType",
    "compute_relocation",
    "compute_sh_bwd",
    "compute_sh_fwd",
    "fully_fused_projection_bwd",
    "fully_fused_projection_bwd_2dgs",
    "fully_fused_projection_fwd",
    "fully_fused_projection_fwd_2dgs",
    "fully_fused_projection_packed_bwd",
    "fully_fused_projection_packed_bwd_2dgs",
    "fully_fused_projection_packed_fwd",
    "fully_fused_projection_packed_fwd_2dgs",
    "isect_offset_encode",
    "isect_tiles",
    "proj_bwd",
    "proj_fwd",
    "quat_scale_to_covar_preci_bwd",
    "quat_scale_to_covar_preci_fwd",
    "rasterize_to_indices_in_range",
    "rasterize_to_indices_in_range_2dgs",
    "rasterize_to_pixels_bwd",
    "rasterize_to_pixels_bwd_2dgs",
    "rasterize_to_pixels_fwd",
    "rasterize_to_pixels_fwd_2dgs",
    "world_to_cam_bwd",
    "world_to_cam_fwd",
]

compute_sh_fwd = spherical_harmonics_fwd
compute_sh_bwd = spherical_harmonics_bwd
compute_relocation = relocation
proj_fwd = projection_ewa_simple_fwd
proj_bwd = projection_ewa_simple_bwd
isect_offset_encode = intersect_offset
rasterize_to_pixels_fwd = rasterize_to_pixels_3dgs_fwd
rasterize_to_pixels_bwd = rasterize_to_pixels_3dgs_bwd
rasterize_to_indices_in_range = rasterize_to_indices_3dgs
rasterize_to_pixels_fwd_2dgs = rasterize_to_pixels_2dgs_fwd
rasterize_to_pixels_bwd_2dgs = rasterize_to_pixels_2dgs_bwd
rasterize_to_indices_in_range_2dgs = rasterize_to_indices_2dgs
fully_fused_projection_packed_fwd_2dgs = projection_2dgs_packed_fwd
fully_fused_projection_packed_bwd_2dgs = projection_2dgs_packed_bwd


def quat_scale_to_covar_preci_bwd(
    quats: Tensor, scales: Tensor, v_covars: Optional[Tensor], v_precis: Optional[Tensor], triu: bool
) -> Any:
    """Gradients of `quats` and `scales`."""
    return covariances_bwd(quats, scales, triu, v_covars, v_precis)


def fully_fused_projection_fwd(
    means: Tensor, covars: Optional[Tensor], quats: Optional[Tensor], scales: Optional[Tensor], *camera: Any
) -> Any:
    """`radii` [C, N], and the other results of `projection_ewa_3dgs_fused_fwd`."""
    radii, *others = projection_ewa_3dgs_fused_fwd(means, covars, quats, scales, None, *camera, True)
    return (radii[..., 0].contiguous(), *others)


def fully_fused_projection_bwd(*arguments: Any) -> Any:
    """As `projection_ewa_3dgs_fused_bwd`; `radii`, the eleventh argument, have one number."""
    return projection_ewa_3dgs_fused_bwd(*arguments[:10], _both(arguments[10]), *arguments[11:])


def fully_fused_projection_packed_fwd(
    means: Tensor, covars: Optional[Tensor], quats: Optional[Tensor], scales: Optional[Tensor], *camera: Any
) -> Any:
    """As `projection_ewa_3dgs_packed_fwd`, without batches."""
    indptr, _, cameras, gaussians, radii, *others = projection_ewa_3dgs_packed_fwd(
        means, covars, quats, scales, None, *camera, True
    )
    assert radii is not None
    return (indptr, cameras, gaussians, radii[..., 0].contiguous(), *others)


def fully_fused_projection_packed_bwd(*arguments: Any) -> Any:
    """As `projection_ewa_3dgs_packed_bwd`, without batches."""
    batches = arguments[10].new_zeros(arguments[10].shape)
    return projection_ewa_3dgs_packed_bwd(*arguments[:10], batches, *arguments[10:])


def fully_fused_projection_fwd_2dgs(*arguments: Any) -> Any:
    """`radii` [C, N], and the other results of `projection_2dgs_fused_fwd`."""
    radii, *others = projection_2dgs_fused_fwd(*arguments, True)
    return (radii[..., 0].contiguous(), *others)


def fully_fused_projection_bwd_2dgs(*arguments: Any) -> Any:
    """As `projection_2dgs_fused_bwd`; `radii`, the eighth argument, have one number."""
    return projection_2dgs_fused_bwd(*arguments[:7], _both(arguments[7]), *arguments[8:])


def isect_tiles(means2d: Tensor, radii: Tensor, *others: Any) -> Any:
    """As `intersect_tile`; the last argument chose a way to sort, which changes nothing."""
    return intersect_tile(means2d, _both(radii), *others[:-1], False)


def world_to_cam_fwd(means: Tensor, covars: Tensor, viewmats: Tensor) -> tuple[Tensor, Tensor]:
    """[N, 3], [N, 3, 3], [C, 4, 4] -> centers [C, N, 3] and covariances [C, N, 3, 3] in view space."""
    return _to_camera(means, covars, viewmats)


def world_to_cam_bwd(
    means: Tensor,
    covars: Tensor,
    viewmats: Tensor,
    v_means_c: Tensor,
    v_covars_c: Tensor,
    means_requires_grad: bool,
    covars_requires_grad: bool,
    viewmats_requires_grad: bool,
) -> tuple[Optional[Tensor], Optional[Tensor], Optional[Tensor]]:
    """Gradients of `means`, `covars`, `viewmats`."""
    needed = (means_requires_grad, covars_requires_grad, viewmats_requires_grad)
    found = gradients(_to_camera, (means, covars, viewmats), (v_means_c, v_covars_c), needed)
    return found[0], found[1], found[2]


def _both(radii: Tensor) -> Tensor:
    """One radius for x and y."""
    return radii[..., None].expand(*radii.shape, 2).contiguous()


def _to_camera(means: Tensor, covars: Tensor, viewmats: Tensor) -> tuple[Tensor, Tensor]:
    turn = viewmats[:, None, :3, :3]
    means_c = (turn @ means[..., None])[..., 0] + viewmats[:, None, :3, 3]
    return means_c, turn @ covars @ turn.transpose(-1, -2)
