"""What works on each Gaussian by itself, for `gsplat_csrc.py`: covariances, spherical harmonics, relocation, Adam."""

from __future__ import annotations

from typing import Optional

from torch import Tensor

from splatfix.kernels.gsplat_dispatch import served

__all__ = [
    "adam",
    "quat_scale_to_covar_preci_bwd",
    "quat_scale_to_covar_preci_fwd",
    "relocation",
    "spherical_harmonics_bwd",
    "spherical_harmonics_fwd",
]


@served
def quat_scale_to_covar_preci_fwd(
    quats: Tensor, scales: Tensor, compute_covar: bool, compute_preci: bool, triu: bool
) -> tuple[Optional[Tensor], Optional[Tensor]]:
    """[..., 4], [..., 3] -> covariances and precisions [..., 3, 3] or, with `triu`, [..., 6]."""
    raise NotImplementedError


@served
def quat_scale_to_covar_preci_bwd(
    quats: Tensor, scales: Tensor, triu: bool, v_covars: Optional[Tensor], v_precis: Optional[Tensor]
) -> tuple[Tensor, Tensor]:
    """Gradients of `quats` and `scales`."""
    raise NotImplementedError


@served
def spherical_harmonics_fwd(
    degrees_to_use: int, dirs: Tensor, coeffs: Tensor, masks: Optional[Tensor]
) -> Tensor:
    """[..., 3] directions, [..., K, 3] coefficients -> [..., 3]; 0 where `masks` [...] is False."""
    raise NotImplementedError


@served
def spherical_harmonics_bwd(
    K: int,
    degrees_to_use: int,
    dirs: Tensor,
    coeffs: Tensor,
    masks: Optional[Tensor],
    v_colors: Tensor,
    compute_v_dirs: bool,
) -> tuple[Tensor, Optional[Tensor]]:
    """Gradients of `coeffs` and `dirs` (or None)."""
    raise NotImplementedError


@served
def relocation(
    opacities: Tensor, scales: Tensor, ratios: Tensor, binoms: Tensor, n_max: int
) -> tuple[Tensor, Tensor]:
    """[N] opacities and [N, 3] scales of each of the `ratios` [N] int32 Gaussians that take the place of one."""
    raise NotImplementedError


@served
def adam(
    param: Tensor,
    param_grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    valid: Optional[Tensor],
    lr: float,
    b1: float,
    b2: float,
    eps: float,
) -> None:
    """A step in place of the rows [N, ...] that are `valid` [N] bool, without bias correction."""
    raise NotImplementedError
