"""The verbs of densification: each changes parameters, Adam's moments and the strategy's state together.

`model` holds one parameter tensor per group with one row per Gaussian, `state` a dict of tensors [P] that a strategy
keeps beside them. A mask is a boolean tensor [P].
"""

from __future__ import annotations

from typing import Any, Dict, Sequence

import torch
from torch import Tensor

from smoke_trainer.backends import to_device
from smoke_trainer.model import GROUPS, Gaussians, logit
from splatfix.kernels import projection
from splatfix.kernels.helpers import binomial_table, compute_relocation

State = Dict[str, Tensor]
MOMENTS = ("exp_avg", "exp_avg_sq")
SPLIT_INTO = 2
SPLIT_SHRINK = 0.8 * SPLIT_INTO  # the scales of a split Gaussian are divided by this, as in the reference
RESET_OPACITY = 0.01
MAX_RATIO = 51  # copies at one position that `compute_relocation` distinguishes, as in the reference
ALL, NONE = slice(None), slice(0)
NOISE_STEEPNESS, NOISE_CENTER = 100.0, 0.995


def keep_and_add(model: Gaussians, state: State, kept: Any, added: Dict[str, Tensor]) -> None:
    """Keep the Gaussians of a mask, and add others by raw parameters per group; their moments and state start at zero."""
    count = len(added["xyz"])

    def fill(rows: Tensor) -> Tensor:
        return torch.cat([rows[kept], rows.new_zeros((count, *rows.shape[1:]))])

    for group in model.optimizer.param_groups:
        name, old = group["name"], group["params"][0]
        new = torch.cat([old.detach()[kept], added[name]]).requires_grad_(True)
        moments = model.optimizer.state.pop(old, None)
        if moments:
            moments.update({key: fill(moments[key]) for key in MOMENTS})
            model.optimizer.state[new] = moments
        group["params"][0] = new
        model.params[name] = new
    for key, rows in state.items():
        state[key] = fill(rows)


def rows_of(model: Gaussians, rows: Any) -> Dict[str, Tensor]:
    """The raw parameters of some Gaussians, by a mask, indices or a slice."""
    return {name: model.params[name].detach()[rows] for name in GROUPS}


def remove(model: Gaussians, state: State, mask: Tensor) -> int:
    """Remove the Gaussians of a mask; returns how many."""
    removed = int(mask.sum())
    if removed:
        keep_and_add(model, state, ~mask, rows_of(model, NONE))
    return removed


def clone(model: Gaussians, state: State, mask: Tensor) -> int:
    """Add a copy of every Gaussian of a mask; returns how many."""
    count = int(mask.sum())
    if count:
        keep_and_add(model, state, ALL, rows_of(model, mask))
    return count


def split(model: Gaussians, state: State, mask: Tensor, generator: torch.Generator) -> int:
    """Replace every Gaussian of a mask by two smaller ones drawn from its own distribution; returns how many."""
    count = int(mask.sum())
    if count:
        chosen = rows_of(model, mask)
        halves = {name: rows.repeat(SPLIT_INTO, *([1] * (rows.dim() - 1))) for name, rows in chosen.items()}
        offsets = sample_offsets(halves["scaling"].exp(), halves["rotation"], generator)
        halves["xyz"] = halves["xyz"] + offsets
        halves["scaling"] = halves["scaling"] - torch.log(torch.tensor(SPLIT_SHRINK)).item()
        keep_and_add(model, state, ~mask, halves)
    return count


def reset_opacity(model: Gaussians) -> None:
    """Lower all opacities to RESET_OPACITY at most, and clear their moments."""
    parameter = model.params["opacity"]
    with torch.no_grad():
        parameter.copy_(logit(torch.clamp(model.opacities().detach(), max=RESET_OPACITY)))
    _clear_moments(model, ("opacity",))


def relocate(model: Gaussians, dead: Tensor, min_opacity: float, generator: torch.Generator) -> int:
    """MCMC: move the Gaussians of the mask `dead` onto live ones, drawn in proportion to opacity; returns how many."""
    count = int(dead.sum())
    if count == 0 or count == len(model):
        return 0
    sources = _draw_to_share(model, torch.nonzero(~dead)[:, 0], count, min_opacity, generator)
    with torch.no_grad():
        for name, rows in rows_of(model, sources).items():
            model.params[name][dead] = rows
    return count


def sample_add(
    model: Gaussians, state: State, count: int, min_opacity: float, generator: torch.Generator
) -> int:
    """MCMC: add `count` Gaussians at the positions of existing ones, drawn in proportion to opacity; returns how many."""
    if count <= 0:
        return 0
    everyone = torch.arange(len(model), device=model.device)
    sources = _draw_to_share(model, everyone, count, min_opacity, generator)
    keep_and_add(model, state, ALL, rows_of(model, sources))
    return count


def _draw_to_share(
    model: Gaussians, candidates: Tensor, count: int, min_opacity: float, generator: torch.Generator
) -> Tensor:
    """Draw Gaussians whose positions others will share: indices [count], with replacement, in proportion to opacity.

    Their opacity and scale are corrected for how many there will be, so that the image stays the same; moments start anew.
    """
    weights = model.opacities().detach()[candidates, 0]
    picks = torch.multinomial(weights.cpu(), count, replacement=True, generator=generator)
    sources = candidates[picks.to(weights.device)]
    ratio = torch.bincount(sources, minlength=len(model))[sources] + 1
    opacity, scales = compute_relocation(
        model.opacities().detach()[sources],
        model.scales().detach()[sources],
        ratio.clamp(max=MAX_RATIO),
        binomial_table(MAX_RATIO, sources.device),
        MAX_RATIO,
    )
    opacity = opacity.clamp(min_opacity, 1.0 - torch.finfo(torch.float32).eps)
    with torch.no_grad():
        model.params["opacity"][sources] = logit(opacity)
        model.params["scaling"][sources] = torch.log(scales)
    _clear_moments(model, GROUPS, sources)
    return sources


def inject_noise(model: Gaussians, strength: float, generator: torch.Generator) -> None:
    """MCMC: move positions by covariance times normal noise, weighted by sigmoid(100 ((1 - opacity) - 0.995))."""
    weight = torch.sigmoid(NOISE_STEEPNESS * ((1.0 - model.opacities().detach()) - NOISE_CENTER))
    rotation = rotation_matrices(model.params["rotation"].detach())
    axes = rotation * model.scales().detach()[:, None, :]
    normal = to_device(torch.randn(len(model), 3, generator=generator), model.device)
    step = torch.einsum("nij,nkj,nk->ni", axes, axes, normal * weight)
    with torch.no_grad():
        model.params["xyz"] += strength * step


def sample_offsets(scales: Tensor, rotations: Tensor, generator: torch.Generator) -> Tensor:
    """One displacement [N, 3] drawn from each Gaussian (scales [N, 3], quaternions [N, 4])."""
    normal = torch.randn(scales.shape, generator=generator).to(scales.device)
    return torch.einsum("nij,nj->ni", rotation_matrices(rotations), normal * scales)


def rotation_matrices(quaternions: Tensor) -> Tensor:
    """Rotations [N, 3, 3] of quaternions (w, x, y, z) [N, 4], which are normalised first."""
    unit = torch.nn.functional.normalize(quaternions, dim=1)
    return projection.rotation_matrices(unit.t()).permute(2, 0, 1).contiguous()


def _clear_moments(model: Gaussians, groups: Sequence[str], rows: Any = slice(None)) -> None:
    for name in groups:
        moments = model.optimizer.state.get(model.params[name])
        if moments:
            for key in MOMENTS:
                moments[key][rows] = 0.0
