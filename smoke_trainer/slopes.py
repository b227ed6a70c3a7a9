"""Whether the loss of a view changes as its gradients say: central differences along the gradient of each parameter group."""

from __future__ import annotations

import math
from typing import Callable, Dict, Optional

import torch
from torch import Tensor

from smoke_trainer.model import Gaussians

STEP = 0.01  # of the loss, which each move is to change by so much: less drowns in what thresholds cut
FAR = 5e-4  # of the norm of quaternions: of round ones and of needles the loss is no straight line beyond
LEAST_STEP = 3e-4  # of the loss, for rotations; below it is rounding


def slopes_of(model: Gaussians, loss: Callable[[], Tensor]) -> Dict[str, Optional[float]]:
    """By group: the change of the loss along its gradient, as a share of what the gradient says; 1 where that is right, None
    where it is no number. A group without a gradient is left out, and rotations that turn nothing."""
    model.optimizer.zero_grad(set_to_none=True)
    value = loss()
    value.backward()  # type: ignore[no-untyped-call, unused-ignore]
    full, slopes = float(value.detach()), {}
    with torch.no_grad():
        for name, parameter in model.params.items():
            grad = parameter.grad
            if grad is None or not bool(grad.any()):
                continue
            length = float(grad.norm())
            start, ends = parameter.clone(), []
            change = STEP * full
            if name == "rotation":
                straight = FAR * float(start.norm()) * length
                if LEAST_STEP * full > 100 * straight:
                    continue  # of Gaussians that are round: rounding alone
                change = max(LEAST_STEP * full, min(change, straight))
            try:
                for way in (change, -change):
                    parameter.copy_(start + way / length * (grad / length))
                    ends.append(float(loss()))
            finally:  # what is saved is what was trained, also where memory ran out
                parameter.copy_(start)
            slope = (ends[0] - ends[1]) / (2.0 * change)
            slopes[name] = slope if math.isfinite(slope) else None
    model.optimizer.zero_grad(set_to_none=True)
    return slopes
