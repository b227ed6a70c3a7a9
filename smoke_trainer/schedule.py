"""The learning-rate schedule: positions decay exponentially, everything else keeps its rate."""

from __future__ import annotations

import math

import torch

from smoke_trainer.config import LearningRates


def position_rate(rates: LearningRates, extent: float, iteration: int, iterations: int) -> float:
    """Log-linear from the first to the last rate over the run, times the scene's extent (the paper, section 7.1)."""
    progress = min(max(iteration / max(iterations, 1), 0.0), 1.0)
    log_rate = (1.0 - progress) * math.log(rates.xyz_first) + progress * math.log(rates.xyz_last)
    return math.exp(log_rate) * extent


def set_position_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Write the rate into the optimizer's `xyz` group."""
    for group in optimizer.param_groups:
        if group["name"] == "xyz":
            group["lr"] = rate
