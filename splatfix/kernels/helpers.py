"""The small kernels of 3DGS extensions in plain PyTorch: sparse Adam and MCMC relocation.

They replace `adamUpdate` (taming-3dgs, FastGS, gsplat's SelectiveAdam) and `compute_relocation` (3dgs-mcmc). Any device, float32
and float64. This file needs torch >= 1.13 and nothing else.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Iterable, Optional, Tuple

import torch
from torch import Tensor

__all__ = [
    "SparseGaussianAdam",
    "binomial_table",
    "compute_relocation",
    "sparse_adam_step",
]

# ---------------------------------------------------------------------------------------------------------------------
# Sparse Adam
# ---------------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def sparse_adam_step(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    visible: Tensor,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-15,
) -> None:
    """One Adam step in place, for the visible rows only and without bias correction.

    ``m = b1 m + (1 - b1) g``, ``v = b2 v + (1 - b2) g^2``, ``param -= lr m / (sqrt(v) + eps)``; rows that are not visible keep
    their value and both moments. (The kernel of taming-3dgs; plain Adam would let the moments of hidden rows decay.) The host
    waits for no GPU.

    Args:
        param, grad, exp_avg, exp_avg_sq: [N, ...], one shape.
        visible: [N], bool, or radii where > 0 means visible.
    """
    if visible.dtype != torch.bool:
        visible = visible > 0
    if visible.shape != param.shape[:1]:
        raise ValueError(
            f"visible has shape {tuple(visible.shape)}; it needs one entry for each of the {param.shape[0]} rows."
        )
    if param.is_cuda:
        # all rows, and the others keep what they had: for the number of visible ones the host would wait
        mask = visible.view(-1, *(1 for _ in param.shape[1:]))
        m = exp_avg.copy_(torch.where(mask, torch.lerp(grad, exp_avg, beta1), exp_avg))
        v = exp_avg_sq.copy_(torch.where(mask, torch.lerp(grad * grad, exp_avg_sq, beta2), exp_avg_sq))
        param.sub_(torch.where(mask, lr * m / (v.sqrt() + eps), torch.zeros_like(param)))
        return
    rows = visible.nonzero().view(-1)
    g = grad.index_select(0, rows)
    m = exp_avg.index_select(0, rows).mul_(beta1).add_(g, alpha=1 - beta1)
    v = exp_avg_sq.index_select(0, rows).mul_(beta2).addcmul_(g, g, value=1 - beta2)
    exp_avg.index_copy_(0, rows, m)
    exp_avg_sq.index_copy_(0, rows, v)
    param.index_add_(0, rows, m.div_(v.sqrt_().add_(eps)).mul_(-lr))


class SparseGaussianAdam(torch.optim.Adam):
    """Adam over per-Gaussian parameters whose `step` takes the visibility of each Gaussian.

    As in the taming-3dgs rasterizer: one parameter per group, [N, ...] each, betas 0.9 and 0.999 unless given, and
    no bias correction.
    The state has torch's names ("exp_avg", "exp_avg_sq"), so that densification code that edits them keeps working.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        eps: float = 1e-15,
        betas: Tuple[float, float] = (0.9, 0.999),
    ) -> None:
        super().__init__(params, lr=lr, eps=eps, betas=betas)

    @torch.no_grad()
    def step(self, visibility: Tensor, N: int) -> None:  # type: ignore[override]
        """Update the rows where `visibility` [N] is true (or a radius > 0); parameters without a gradient keep their values."""
        if visibility.numel() != N:
            raise ValueError(
                f"visibility has {visibility.numel()} entries for N = {N} Gaussians; pass one per Gaussian."
            )
        for group in self.param_groups:
            if len(group["params"]) != 1:
                raise ValueError(
                    "SparseGaussianAdam takes one parameter per group, as the 3DGS trainers build them."
                )
            param = group["params"][0]
            if param.grad is None:
                continue
            state = self.state[param]
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32)
                state["exp_avg"] = torch.zeros_like(param)
                state["exp_avg_sq"] = torch.zeros_like(param)
            state["step"] += 1
            beta1, beta2 = group["betas"]
            sparse_adam_step(
                param,
                param.grad,
                state["exp_avg"],
                state["exp_avg_sq"],
                visibility.view(-1),
                float(group["lr"]),
                beta1,
                beta2,
                group["eps"],
            )


# ---------------------------------------------------------------------------------------------------------------------
# MCMC relocation
# ---------------------------------------------------------------------------------------------------------------------


def binomial_table(n_max: int = 51, device: Optional[torch.device] = None) -> Tensor:
    """[n_max, n_max] float32 with C(n, k) at [n, k] and 0 for k > n, as `compute_relocation` takes it."""
    return _exact_binomials(n_max).to(torch.float32).to(device)


@functools.lru_cache(maxsize=4)
def _exact_binomials(n_max: int) -> Tensor:
    """The same in float64, which holds C(n, k) exactly up to n = 56."""
    table = [[float(math.comb(n, k)) for k in range(n_max)] for n in range(n_max)]
    return torch.tensor(table, dtype=torch.float64)


@torch.no_grad()
def compute_relocation(
    opacity_old: Tensor, scale_old: Tensor, N: Tensor, binoms: Tensor, n_max: int
) -> Tuple[Tensor, Tensor]:
    """Opacity and scale that N copies of one Gaussian need so that together they render as it did.

    ``o' = 1 - (1 - o)^(1/N)`` and
    ``s' = s o / sum_{i=1..N} sum_{k=0..i-1} C(i-1, k) (-1)^k o'^(k+1) / sqrt(k+1)``
    (Kheradmand et al., "3D Gaussian Splatting as Markov Chain Monte Carlo", eq. 9). The alternating sum is done in float64,
    and a float32 table of binomials is replaced by exact values: for 50 copies its rounding costs 1e-4.

    Args:
        opacity_old: [P] or [P, 1] in (0, 1); scale_old: [P, 3]; N: [P] or [P, 1], integers in 1 ... n_max.
        binoms: [n_max, n_max] or flat, C(n, k) at [n, k]; see `binomial_table`.

    Returns:
        new_opacity of the shape of `opacity_old`, new_scale [P, 3]; clamping them is left to the caller, as in the extension.
    """
    if binoms.numel() != n_max * n_max:
        raise ValueError(f"binoms has {binoms.numel()} entries; n_max = {n_max} needs {n_max * n_max}.")
    ratio = N.reshape(-1).to(torch.int64)
    if ratio.numel() and (int(ratio.min()) < 1 or int(ratio.max()) > n_max):
        raise ValueError(f"N must lie between 1 and n_max = {n_max}; clamp it first.")
    old = opacity_old.reshape(-1).double()
    # 1 - (1 - o)^(1/N) without losing the digits of a small o.
    new = -torch.expm1(torch.log1p(-old) / ratio)
    k = torch.arange(n_max, dtype=torch.float64, device=old.device)
    terms = new.unsqueeze(1) ** (k + 1) * (1 - 2 * (k % 2)) / torch.sqrt(k + 1)
    # weights[N - 1, k] = sum over i = 1..N of C(i - 1, k); C is 0 for k > i - 1.
    table = binoms.view(n_max, n_max)
    exact = _exact_binomials(n_max).to(old.device)
    weights = torch.where(table == exact.to(table.dtype), exact, table.double()).cumsum(0)
    denominator = (weights.index_select(0, ratio - 1) * terms).sum(1)
    scale = scale_old * (old / denominator).unsqueeze(1).to(scale_old.dtype)
    return new.to(opacity_old.dtype).view(opacity_old.shape), scale
