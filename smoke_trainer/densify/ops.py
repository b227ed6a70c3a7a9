"""The verbs of densification: each changes parameters, Adam's moments and the strategy's rows together."""

from __future__ import annotations

from typing import Callable, Dict

import torch
from torch import Tensor

from smoke_trainer.model import GROUPS, Gaussians, logit

State = Dict[str, Tensor]
MOMENTS = ("exp_avg", "exp_avg_sq")
SPLIT_INTO = 2
SPLIT_SHRINK = 0.8 * SPLIT_INTO  # each half of a split is this much smaller (the reference's factor)


def replace_rows(
    model: Gaussians, state: State, change: Callable[[str, Tensor], Tensor], fill: Callable[[Tensor], Tensor]
) -> None:
    """Put changed tensors in place of all parameters.

    `change(name, parameter)` gives the new rows; `fill(rows)` those of Adam's moments and of the strategy's state.
    """
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


def keep(model: Gaussians, state: State, mask: Tensor) -> int:
    """Keep the Gaussians of a mask [P]; returns how many were removed."""
    removed = int((~mask).sum())
    if removed:
        replace_rows(model, state, lambda _, rows: rows[mask], lambda rows: rows[mask])
    return removed


def append(model: Gaussians, state: State, rows: Dict[str, Tensor]) -> int:
    """Add Gaussians given by raw parameters per group; their moments and state start at zero."""
    count = len(rows["xyz"])
    if count:
        replace_rows(
            model,
            state,
            lambda name, old: torch.cat([old, rows[name]]),
            lambda old: torch.cat([old, old.new_zeros((count, *old.shape[1:]))]),
        )
    return count


def clone(model: Gaussians, state: State, mask: Tensor) -> int:
    """Add a copy of every Gaussian of a mask [P]: more where too little is covered."""
    return append(model, state, {name: model.params[name].detach()[mask] for name in GROUPS})


def split(model: Gaussians, state: State, mask: Tensor, generator: torch.Generator) -> int:
    """Put two smaller Gaussians, drawn from its own shape, in place of every one of a mask [P]."""
    chosen = {name: model.params[name].detach()[mask] for name in GROUPS}
    count = len(chosen["xyz"])
    if not count:
        return 0
    halves = {name: rows.repeat(SPLIT_INTO, *([1] * (rows.dim() - 1))) for name, rows in chosen.items()}
    offsets = sample_offsets(halves["scaling"].exp(), halves["rotation"], generator)
    halves["xyz"] = halves["xyz"] + offsets
    halves["scaling"] = halves["scaling"] - torch.log(torch.tensor(SPLIT_SHRINK)).item()
    keep(model, state, ~mask)
    append(model, state, halves)
    return count


def sample_offsets(scales: Tensor, rotations: Tensor, generator: torch.Generator) -> Tensor:
    """Draw one displacement [N, 3] from each Gaussian (scales [N, 3], quaternions [N, 4])."""
    normal = torch.randn(scales.shape, generator=generator).to(scales.device)
    return torch.einsum("nij,nj->ni", rotation_matrices(rotations), normal * scales)


def rotation_matrices(quaternions: Tensor) -> Tensor:
    """Rotations [N, 3, 3] of quaternions (w, x, y, z) [N, 4], normalised here."""
    w, x, y, z = torch.nn.functional.normalize(quaternions, dim=1).unbind(1)
    rows = [
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
    return torch.stack(rows, dim=1).reshape(-1, 3, 3)


def overwrite(model: Gaussians, name: str, values: Tensor) -> None:
    """Write new values [P, ...] into one group and forget its moments."""
    parameter = model.params[name]
    with torch.no_grad():
        parameter.copy_(values)
    moments = model.optimizer.state.get(parameter)
    if moments:
        for key in MOMENTS:
            moments[key].zero_()


def reset_opacity(model: Gaussians, ceiling: float = 0.01) -> None:
    """Make everything nearly transparent, so that only what the images need becomes opaque again."""
    faint = torch.clamp(model.opacities().detach(), max=ceiling)
    overwrite(model, "opacity", logit(faint))
