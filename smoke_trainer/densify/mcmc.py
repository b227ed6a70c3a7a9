"""3DGS as Markov chain Monte Carlo (Kheradmand et al. 2024).

- Dead Gaussians (nearly transparent) move onto live ones, drawn in proportion to opacity.
- The count grows by 5 % a round up to a cap; new ones are born on live ones.
- Wherever n Gaussians come to share a place, opacity and scale are corrected so that the picture stays the same.
- Noise shaped like each Gaussian, strong where opacity is low, lets them explore.
- Small penalties on opacity and scale make useless ones die.
"""

from __future__ import annotations

import math
from typing import Dict, Tuple

import torch
from torch import Tensor

from smoke_trainer.densify import ops
from smoke_trainer.densify.strategy import DensifyEvent, Strategy
from smoke_trainer.model import GROUPS, Gaussians, logit

MAX_SHARE = 51  # Gaussians on one place that the correction distinguishes, as in the reference
GROWTH = 1.05
NOISE_STEEPNESS, NOISE_CENTER = 100.0, 0.995


class McmcStrategy(Strategy):
    """No state beside the parameters."""

    def penalty(self, model: Gaussians) -> Tensor:
        """Mean opacity and mean scale, weighted."""
        return (
            self.config.opacity_penalty * model.opacities().mean()
            + self.config.scale_penalty * model.scales().mean()
        )

    def update(self, iteration: int, model: Gaussians, position_rate: float) -> DensifyEvent:
        """Relocate and grow on schedule; add noise after every step."""
        born, moved = 0, 0
        due = self.config.first < iteration <= self.config.last and iteration % self.config.every == 0
        if due:
            moved = self._relocate(model)
            born = self._grow(model)
        add_noise(model, self.config.noise_rate * position_rate, self.generator)
        return DensifyEvent(cloned=born, pruned=moved)

    def _relocate(self, model: Gaussians) -> int:
        dead = model.opacities().detach()[:, 0] <= self.config.min_opacity
        count = int(dead.sum())
        if count == 0 or count == len(model):
            return 0
        alive = torch.nonzero(~dead)[:, 0]
        sources = alive[self._draw(model.opacities().detach()[alive, 0], count)]
        self._share(model, sources)
        for name in GROUPS:
            values = model.params[name].detach().clone()
            values[dead] = values[sources]
            with torch.no_grad():
                model.params[name].copy_(values)
        _forget_moments(model, sources)
        return count

    def _grow(self, model: Gaussians) -> int:
        wanted = min(self.config.max_gaussians, int(GROWTH * len(model))) - len(model)
        if wanted <= 0:
            return 0
        sources = self._draw(model.opacities().detach()[:, 0], wanted)
        self._share(model, sources)
        _forget_moments(model, sources)
        rows: Dict[str, Tensor] = {name: model.params[name].detach()[sources] for name in GROUPS}
        return ops.append(model, self.state, rows)

    def _draw(self, weights: Tensor, count: int) -> Tensor:
        picks = torch.multinomial(weights.cpu(), count, replacement=True, generator=self.generator)
        return picks.to(weights.device)

    def _share(self, model: Gaussians, sources: Tensor) -> None:
        """Correct opacity and scale of the sources for the number that will share each place."""
        share = torch.bincount(sources, minlength=len(model))[sources] + 1
        opacity, scales = relocated(
            model.opacities().detach()[sources], model.scales().detach()[sources], share
        )
        opacity = opacity.clamp(self.config.min_opacity, 1.0 - torch.finfo(torch.float32).eps)
        with torch.no_grad():
            model.params["opacity"][sources] = logit(opacity)
            model.params["scaling"][sources] = torch.log(scales)


def relocated(opacity: Tensor, scales: Tensor, share: Tensor) -> Tuple[Tensor, Tensor]:
    """Opacity [N, 1] and scales [N, 3] of one of `share` [N] equal Gaussians that together look like the given one.

    Equation 9 of the paper: o' = 1 - (1 - o)^(1/n), s' = s o / sum_{i=1..n} sum_{k<i} C(i-1, k) (-1)^k o'^(k+1) / sqrt(k+1),
    summed in float64 because the binomials alternate.
    """
    n = share.clamp(max=MAX_SHARE)
    single = 1.0 - (1.0 - opacity[:, 0].double()) ** (1.0 / n)
    weights = torch.zeros(MAX_SHARE + 1, MAX_SHARE, dtype=torch.float64)
    for i in range(1, MAX_SHARE + 1):
        row = [math.comb(i - 1, k) * (-1.0) ** k / math.sqrt(k + 1) for k in range(i)]
        weights[i, :i] = torch.tensor(row, dtype=torch.float64)
    coefficients = weights.cumsum(dim=0).to(opacity.device)[n]
    powers = single[:, None] ** torch.arange(1, MAX_SHARE + 1, device=opacity.device)
    denominator = (coefficients * powers).sum(dim=1)
    factor = opacity[:, 0].double() / denominator
    return single[:, None].to(opacity.dtype), scales * factor[:, None].to(scales.dtype)


def add_noise(model: Gaussians, strength: float, generator: torch.Generator) -> None:
    """Move positions by covariance times normal noise, weighted by sigmoid(100 ((1 - opacity) - 0.995))."""
    weight = torch.sigmoid(NOISE_STEEPNESS * ((1.0 - model.opacities().detach()) - NOISE_CENTER))
    rotation = ops.rotation_matrices(model.params["rotation"].detach())
    axes = rotation * model.scales().detach()[:, None, :]
    normal = torch.randn(len(model), 3, generator=generator).to(model.device)
    step = torch.einsum("nij,nkj,nk->ni", axes, axes, normal * weight)
    with torch.no_grad():
        model.params["xyz"] += strength * step


def _forget_moments(model: Gaussians, rows: Tensor) -> None:
    for name in GROUPS:
        moments = model.optimizer.state.get(model.params[name])
        if moments:
            for key in ops.MOMENTS:
                moments[key][rows] = 0.0
