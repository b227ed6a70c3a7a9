"""Whether the loss of a view changes as its gradients say: central differences along the gradient of each parameter group."""

from __future__ import annotations

import math
from typing import Callable, Dict, Optional

import torch
from torch import Tensor

from smoke_trainer.model import Gaussians

# Of the loss, which each move is to change by so much: less drowns in what thresholds cut.
STEPS = (0.01, 0.001)
NEAR = 0.3  # of 1; a slope further away is looked at once more, a smaller step away: positions are cut and change places
FAR = 5e-4  # of the norm of quaternions: of round ones and of needles the loss is no straight line beyond
LEAST_STEP = 3e-4  # of the loss, for rotations; below it is rounding


def slopes_of(model: Gaussians, loss: Callable[[], Tensor]) -> Dict[str, Optional[float]]:
    """By group: the change of the loss along its gradient, as a share of what the gradient says; 1 where that is right, None
    where it is no number. A group without a gradient is left out, and rotations that turn nothing."""
    model.optimizer.zero_grad(set_to_none=True)
    value = loss()
    value.backward()  # type: ignore[no-untyped-call, unused-ignore]
    full = float(value.detach())
    slopes: Dict[str, Optional[float]] = {}
    with torch.no_grad():
        for name, parameter in model.params.items():
            grad = parameter.grad
            if grad is None or not bool(grad.any()):
                continue
            length, straight = float(grad.norm()), math.inf
            if name == "rotation":
                straight = FAR * float(parameter.norm()) * length
                if LEAST_STEP * full > 100 * straight:
                    continue  # of Gaussians that are round: rounding alone
            slopes[name] = None
            for step in STEPS:
                change = max(LEAST_STEP * full, min(step * full, straight))
                slope = _slope(parameter, change / length * (grad / length), loss) / change
                before = slopes[name]
                if math.isfinite(slope) and (before is None or abs(slope - 1.0) < abs(before - 1.0)):
                    slopes[name] = slope
                if abs(slope - 1.0) < NEAR:
                    break
    model.optimizer.zero_grad(set_to_none=True)
    return slopes


def _slope(parameter: Tensor, move: Tensor, loss: Callable[[], Tensor]) -> float:
    """Half of the difference of the loss between a move up and one down."""
    start, ends = parameter.clone(), []
    try:
        for way in (move, -move):
            parameter.copy_(start + way)
            ends.append(float(loss()))
    finally:  # what is saved is what was trained, also where memory ran out
        parameter.copy_(start)
    return (ends[0] - ends[1]) / 2.0
