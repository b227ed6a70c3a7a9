"""What works on each Gaussian by itself, for `gsplat_csrc.py`: covariances, spherical harmonics, relocation, Adam."""

from __future__ import annotations

from typing import List, Optional

import torch
from torch import Tensor, nn

from splatfix.kernels.gsplat_dispatch import gradients, served
from splatfix.kernels.helpers import compute_relocation, sparse_adam_step
from splatfix.kernels.projection import geometry_dtype, rotation_matrices, sh_basis

_TRIANGLE = (0, 1, 2, 4, 5, 8)


def _covariances(
    quats: Tensor, scales: Tensor, compute_covar: bool, compute_preci: bool, triu: bool
) -> List[Tensor]:
    """Of the covariances and the precisions those that are asked for."""
    turn = rotations(quats.reshape(-1, 4))
    lengths = scales.reshape(-1, 3).to(turn.dtype).t()
    made = []
    for wanted, axes in ((compute_covar, lengths), (compute_preci, 1.0 / lengths)):
        if wanted:
            half = (turn * axes).permute(2, 0, 1)
            full = half @ half.transpose(1, 2)
            flat = full.flatten(1)[:, _TRIANGLE] if triu else full
            made.append(flat.to(quats.dtype).view(*quats.shape[:-1], *flat.shape[1:]))
    return made


def rotations(quats: Tensor) -> Tensor:
    """[P, 4] (w, x, y, z) of any length but 0 -> [3, 3, P] in the precision of the geometry."""
    unit = nn.functional.normalize(quats.to(geometry_dtype(quats)), dim=1, eps=0.0)
    return rotation_matrices(unit.t())


def _rows(masks: Optional[Tensor], like: Tensor) -> Optional[Tensor]:
    """The rows to compute; None where these are all."""
    return None if masks is None else masks.reshape(-1).nonzero().view(-1).to(like.device)


def _some(values: Tensor, rows: Optional[Tensor]) -> Tensor:
    return values if rows is None else values.index_select(0, rows)


def _all(values: Tensor, rows: Optional[Tensor], count: int) -> Tensor:
    """The inverse of `_some`, 0 elsewhere."""
    if rows is None:
        return values
    return values.new_zeros(count, *values.shape[1:]).index_copy_(0, rows, values)


def _colors(degree: int, dirs: Tensor, coeffs: Tensor) -> Tensor:
    basis = sh_basis(degree, nn.functional.normalize(dirs, dim=-1))
    return (basis[:, :, None] * coeffs[:, : basis.shape[1]]).sum(1)


@served
def quat_scale_to_covar_preci_fwd(
    quats: Tensor, scales: Tensor, compute_covar: bool, compute_preci: bool, triu: bool
) -> tuple[Optional[Tensor], Optional[Tensor]]:
    """[..., 4], [..., 3] -> covariances and precisions [..., 3, 3] or, with `triu`, [..., 6]."""
    made = _covariances(quats, scales, compute_covar, compute_preci, triu)
    return made[0] if compute_covar else None, made[-1] if compute_preci else None


@served
def quat_scale_to_covar_preci_bwd(
    quats: Tensor, scales: Tensor, triu: bool, v_covars: Optional[Tensor], v_precis: Optional[Tensor]
) -> tuple[Tensor, Tensor]:
    """Gradients of `quats` and `scales`."""
    given = [gradient for gradient in (v_covars, v_precis) if gradient is not None]
    flags = (v_covars is not None, v_precis is not None, triu)
    v_quats, v_scales = gradients(lambda q, s: _covariances(q, s, *flags), (quats, scales), given)
    assert v_quats is not None and v_scales is not None
    return v_quats, v_scales


@served
def spherical_harmonics_fwd(
    degrees_to_use: int, dirs: Tensor, coeffs: Tensor, masks: Optional[Tensor]
) -> Tensor:
    """[..., 3] directions, [..., K, 3] coefficients -> [..., 3]; 0 where `masks` [...] is False."""
    rows = _rows(masks, dirs)
    colors = _colors(degrees_to_use, _some(dirs.reshape(-1, 3), rows), _some(coeffs.flatten(0, -3), rows))
    return _all(colors, rows, dirs.numel() // 3).view(dirs.shape)


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
    rows = _rows(masks, dirs)
    flat = (_some(dirs.reshape(-1, 3), rows), _some(coeffs.flatten(0, -3), rows))
    v_dirs, v_coeffs = gradients(
        lambda d, c: (_colors(degrees_to_use, d, c),),
        flat,
        (_some(v_colors.reshape(-1, 3), rows),),
        needed=(compute_v_dirs, True),
    )
    assert v_coeffs is not None
    count = dirs.numel() // 3
    v_coeffs = _all(v_coeffs, rows, count).view(coeffs.shape)
    return v_coeffs, None if v_dirs is None else _all(v_dirs, rows, count).view(dirs.shape)


@served
def relocation(
    opacities: Tensor, scales: Tensor, ratios: Tensor, binoms: Tensor, n_max: int
) -> tuple[Tensor, Tensor]:
    """[N] opacities and [N, 3] scales of each of the `ratios` [N] int32 Gaussians that take the place of one."""
    return compute_relocation(opacities, scales, ratios, binoms, n_max)


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
    if valid is None:
        valid = torch.ones(param.shape[:1], dtype=torch.bool, device=param.device)
    sparse_adam_step(param, param_grad, exp_avg, exp_avg_sq, valid.reshape(-1), lr, b1, b2, eps)
