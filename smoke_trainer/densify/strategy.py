"""What a densification strategy is: two hooks that the training loop calls, and the counts that they return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Optional

import torch
from torch import Tensor

from smoke_trainer.config import DensifyConfig
from smoke_trainer.errors import UsageError
from smoke_trainer.model import Gaussians
from smoke_trainer.renderers.base import RenderOutput

NAMES = ("default", "mcmc", "budget")


@dataclass(frozen=True)
class DensifyEvent:
    """What one call changed."""

    cloned: int = 0
    split: int = 0
    pruned: int = 0
    opacity_reset: bool = False


class Strategy:
    """Watches training and changes the set of Gaussians.

    `state` holds one row per Gaussian in every tensor, so that adding and removing can keep it in step; it is part of
    a checkpoint. Random numbers come from `generator`, on the CPU, so that a run repeats on any device.
    """

    def __init__(
        self, config: DensifyConfig, extent: float, initial_count: int, generator: torch.Generator
    ) -> None:
        self.config = config
        self.extent = extent
        self.initial_count = initial_count
        self.generator = generator
        self.state: Dict[str, Tensor] = {}

    def penalty(self, model: Gaussians) -> Optional[Tensor]:
        """A scalar to add to the loss, or None."""
        return None

    def observe(self, iteration: int, model: Gaussians, output: RenderOutput) -> None:
        """After backward: learn from the gradients of this view."""

    def update(self, iteration: int, model: Gaussians, position_rate: float) -> DensifyEvent:
        """After the optimizer's step: add, remove, reset."""
        raise NotImplementedError


def make_strategy(
    name: str, config: DensifyConfig, extent: float, initial_count: int, generator: torch.Generator
) -> Strategy:
    """The strategy of that name."""
    from smoke_trainer.densify.budget import BudgetStrategy
    from smoke_trainer.densify.default import DefaultStrategy
    from smoke_trainer.densify.mcmc import McmcStrategy

    kinds = {"default": DefaultStrategy, "mcmc": McmcStrategy, "budget": BudgetStrategy}
    if name not in kinds:
        raise UsageError(f"there is no strategy called {name!r}", remedy=f"choose one of: {', '.join(NAMES)}")
    return kinds[name](config, extent, initial_count, generator)
