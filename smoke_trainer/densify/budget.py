"""Density control towards a fixed number of Gaussians (the idea of "Taming 3DGS", Mallick et al. 2024).

- The count follows a curve from the initial number to the budget; each round may add only what the curve allows.
- Of all Gaussians that want to grow, those with the highest score are drawn, at random but in proportion to it:
  average screen-space gradient, opacity and size on screen. (The paper's scores also use edges and per-pixel
  weights of sampled cameras, which need a rasterizer that returns them.)
"""

from __future__ import annotations

from typing import Tuple

import torch
from torch import Tensor

from smoke_trainer.densify.default import DefaultStrategy
from smoke_trainer.model import Gaussians

MULTIPLIER_BELOW = 100.0  # a smaller budget multiplies the initial count


class BudgetStrategy(DefaultStrategy):
    """The default strategy with growth limited to a curve and chosen by score."""

    @property
    def final_count(self) -> int:
        """How many Gaussians the run may end with."""
        budget = self.config.budget
        return int(budget * self.initial_count) if budget < MULTIPLIER_BELOW else int(budget)

    def target(self, iteration: int) -> int:
        """The count allowed at an iteration: a concave quadratic that reaches the budget at the last densification."""
        span = max(1, self.config.last - self.config.first)
        progress = min(max((iteration - self.config.first) / span, 0.0), 1.0)
        return int(self.initial_count + (self.final_count - self.initial_count) * progress * (2.0 - progress))

    def _densify(self, iteration: int, model: Gaussians) -> Tuple[int, int]:
        allowed = max(0, self.target(iteration) - len(model))
        score = self._score(model)
        wanting = int((score > 0).sum())
        chosen = torch.zeros(len(model), dtype=torch.bool, device=model.device)
        if min(allowed, wanting) > 0:
            picks = torch.multinomial(score.cpu(), min(allowed, wanting), generator=self.generator)
            chosen[picks.to(model.device)] = True
        return self.grow(model, chosen)

    def _score(self, model: Gaussians) -> Tensor:
        """[P], zero for those that do not want to grow."""
        gradient = self.average_gradient()
        wants = gradient >= self.config.gradient_threshold
        radius = self.state["max_radius"] / self.state["max_radius"].max().clamp_min(1.0)
        score = gradient / gradient.mean().clamp_min(1e-12) + model.opacities().detach()[:, 0] + radius
        return torch.where(wants, score, torch.zeros_like(score))
