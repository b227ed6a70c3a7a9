"""The paper's adaptive density control (section 5).

- Where the position on screen wants to move (average gradient above a threshold), the image lacks detail:
  a small Gaussian is cloned, a large one is split in two.
- Nearly transparent Gaussians are pruned.
- From time to time all opacities are reset; what the images do not need stays transparent and is pruned.
- After the first reset, Gaussians too large on screen or in the world are pruned as well.
"""

from __future__ import annotations

from typing import Tuple

import torch
from torch import Tensor

from smoke_trainer.densify import ops
from smoke_trainer.densify.strategy import DensifyEvent, Strategy
from smoke_trainer.model import Gaussians
from smoke_trainer.renderers.base import RenderOutput


class DefaultStrategy(Strategy):
    """State: `gradient_sum` and `seen` (to average), `max_radius` in pixels."""

    def observe(self, iteration: int, model: Gaussians, output: RenderOutput) -> None:
        """Add this view's screen-space gradients and radii, for the Gaussians that it shows."""
        if iteration > self.config.last:
            return
        if not self.state:
            self._forget(model)
        gradient = output.screen_gradient()
        if gradient is None:
            return
        shown = output.radii > 0
        self.state["gradient_sum"] += torch.where(shown, gradient, torch.zeros_like(gradient))
        self.state["seen"] += shown
        self.state["max_radius"] = torch.where(
            shown, torch.maximum(self.state["max_radius"], output.radii.float()), self.state["max_radius"]
        )

    def update(self, iteration: int, model: Gaussians, position_rate: float) -> DensifyEvent:
        """Densify and prune on schedule, then reset opacity on its own schedule."""
        config, cloned, halved, pruned = self.config, 0, 0, 0
        if iteration > config.last:
            return DensifyEvent()
        if iteration > config.first and iteration % config.every == 0 and self.state:
            cloned, halved = self._densify(iteration, model)
            pruned = self._prune(model, after_reset=iteration > config.opacity_reset_every)
            self._forget(model)
        reset = iteration % config.opacity_reset_every == 0 and iteration < config.last
        if reset:
            ops.reset_opacity(model)
        return DensifyEvent(cloned, halved, pruned, reset)

    def _densify(self, iteration: int, model: Gaussians) -> Tuple[int, int]:
        candidates = self.average_gradient() >= self.config.gradient_threshold
        return self.grow(model, candidates)

    def average_gradient(self) -> Tensor:
        """Mean norm [P] over the views that showed each Gaussian; 0 where none did."""
        return self.state["gradient_sum"] / self.state["seen"].clamp_min(1.0)

    def grow(self, model: Gaussians, candidates: Tensor) -> Tuple[int, int]:
        """Clone the small and split the large of a mask [P]; returns both counts. Large is what is longer than
        `percent_dense` of the scene's extent."""
        large = model.scales().detach().amax(dim=1) > self.config.percent_dense * self.extent
        cloned = ops.clone(model, self.state, candidates & ~large)
        # Clones stand at the end and are not split in the same round.
        halved = torch.cat([candidates & large, candidates.new_zeros(cloned)])
        return cloned, ops.split(model, self.state, halved, self.generator)

    def _prune(self, model: Gaussians, after_reset: bool) -> int:
        doomed = model.opacities().detach()[:, 0] < self.config.min_opacity
        if after_reset:
            doomed |= self.state["max_radius"] > self.config.max_screen_size
            doomed |= model.scales().detach().amax(dim=1) > self.config.max_world_size * self.extent
        return ops.keep(model, self.state, ~doomed)

    def _forget(self, model: Gaussians) -> None:
        for key in ("gradient_sum", "seen", "max_radius"):
            self.state[key] = torch.zeros(len(model), device=model.device)
