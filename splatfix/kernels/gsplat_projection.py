"""From Gaussians and surfels in the world to the image, for `gsplat_csrc.py`, where the rules are told."""

from __future__ import annotations

from typing import Any, Optional

from torch import Tensor

from splatfix.kernels.gsplat_dispatch import served

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


@served
def projection_ewa_simple_fwd(
    means: Tensor, covars: Tensor, Ks: Tensor, width: int, height: int, camera_model: Any
) -> tuple[Tensor, Tensor]:
    """[..., C, N, 3] centers, [..., C, N, 3, 3] covariances in view space -> [..., C, N, 2], [..., C, N, 2, 2] in pixels."""
    raise NotImplementedError


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
    raise NotImplementedError


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
    raise NotImplementedError


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
    raise NotImplementedError


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
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Optional[Tensor]]:
    """The visible pairs: indptr [B C + 1] int32; batch, camera and Gaussian [nnz] int64; radii and what follows, [nnz, D]."""
    raise NotImplementedError


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
    raise NotImplementedError


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
    raise NotImplementedError


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
    raise NotImplementedError
