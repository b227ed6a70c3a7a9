"""The verbs of densification: each changes parameters, Adam's moments and the strategy's state together.

`model` holds one parameter tensor per group with one row per Gaussian, `state` a dict of tensors [P] that a strategy
keeps beside them. A mask is a boolean tensor [P].
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Sequence

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
NOISE_STEEPNESS, NOISE_CENTER = 100.0, 0.995


def remove(model: Gaussians, state: State, mask: Tensor) -> int:
    """Remove the Gaussians of a mask; returns how many."""
    removed = int(mask.sum())
    if removed:
        kept = ~mask
        _replace_rows(model, state, lambda _, rows: rows[kept], lambda rows: rows[kept])
    return removed


def append(model: Gaussians, state: State, rows: Dict[str, Tensor]) -> int:
    """Add Gaussians given by raw parameters per group; their moments and state start at zero. Returns how many."""
    count = len(rows["xyz"])
    if count:
        _replace_rows(
            model,
            state,
            lambda name, old: torch.cat([old, rows[name]]),
            lambda old: torch.cat([old, old.new_zeros((count, *old.shape[1:]))]),
        )
    return count


def clone(model: Gaussians, state: State, mask: Tensor) -> int:
    """Add a copy of every Gaussian of a mask; returns how many."""
    return append(model, state, {name: model.params[name].detach()[mask] for name in GROUPS})


def split(model: Gaussians, state: State, mask: Tensor, generator: torch.Generator) -> int:
    """Replace every Gaussian of a mask by two smaller ones drawn from its own distribution; returns how many."""
    chosen = {name: model.params[name].detach()[mask] for name in GROUPS}
    count = len(chosen["xyz"])
    if not count:
        return 0
    halves = {name: rows.repeat(SPLIT_INTO, *([1] * (rows.dim() - 1))) for name, rows in chosen.items()}
    offsets = sample_offsets(halves["scaling"].exp(), halves["rotation"], generator)
    halves["xyz"] = halves["xyz"] + offsets
    halves["scaling"] = halves["scaling"] - torch.log(torch.tensor(SPLIT_SHRINK)).item()
    remove(model, state, mask)
    append(model, state, halves)
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
    alive = torch.nonzero(~dead)[:, 0]
    sources = alive[_draw(model.opacities().detach()[alive, 0], count, generator)]
    _share_position(model, sources, min_opacity)
    for name in GROUPS:
        values = model.params[name].detach().clone()
        values[dead] = values[sources]
        with torch.no_grad():
            model.params[name].copy_(values)
    _clear_moments(model, GROUPS, sources)
    return count


def sample_add(
    model: Gaussians, state: State, count: int, min_opacity: float, generator: torch.Generator
) -> int:
    """MCMC: add `count` Gaussians at the positions of existing ones, drawn in proportion to opacity; returns how many."""
    if count <= 0:
        return 0
    sources = _draw(model.opacities().detach()[:, 0], count, generator)
    _share_position(model, sources, min_opacity)
    _clear_moments(model, GROUPS, sources)
    return append(model, state, {name: model.params[name].detach()[sources] for name in GROUPS})


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


def _replace_rows(
    model: Gaussians, state: State, change: Callable[[str, Tensor], Tensor], fill: Callable[[Tensor], Tensor]
) -> None:
    """Replace all parameters: `change(group, rows)` gives the new rows, `fill(rows)` those of moments and state."""
    for group in model.optimizer.param_groups:
        name, old = group["name"], group["params"][0]
        new = change(name, old.detach()).requires_grad_(True)
        moments = model.optimizer.state.pop(old, None)
        if moments:
            moments.update({key: fill(moments[key]) for key in MOMENTS})
            model.optimizer.state[new] = moments
        group["params"][0] = new
        model.params[name] = new
    for key, rows in state.items():
        state[key] = fill(rows)


def _draw(weights: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Indices [count], drawn with replacement in proportion to weights [N]."""
    picks = torch.multinomial(weights.cpu(), count, replacement=True, generator=generator)
    return picks.to(weights.device)


def _share_position(model: Gaussians, sources: Tensor, min_opacity: float) -> None:
    """Correct opacity and scale of the source rows [N] for the number of Gaussians that will share each position."""
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


def _clear_moments(model: Gaussians, groups: Sequence[str], rows: Any = slice(None)) -> None:
    for name in groups:
        moments = model.optimizer.state.get(model.params[name])
        if moments:
            for key in MOMENTS:
                moments[key][rows] = 0.0
