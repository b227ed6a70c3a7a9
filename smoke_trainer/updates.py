"""Watch whether an optimizer moves each parameter group: some elements that have a gradient, at some steps.

Everything stays on the device until `summary`: no GPU is waited for. Imports torch and the record only, for a stack's own
trainer is watched by it too.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import torch
from torch import Tensor

from smoke_trainer.record import GroupUpdates

ROWS = 512  # of each parameter, spread over all
SPREAD = 2_654_435_761  # a prime beyond any number of rows: of rows that a fault takes in turn, some are met


class UpdateCheck:
    """Follows some steps of an optimizer: `before` for every parameter, then the step, then `after`."""

    def __init__(self) -> None:
        self._samples: List[Tuple[str, Tensor, Any, Tensor, Tensor]] = []
        self._measured: Dict[str, List[Tensor]] = {}

    @torch.no_grad()
    def before(self, name: str, parameter: Tensor) -> None:
        """Keep where some rows of a parameter are, and which of their elements have a gradient."""
        grad = parameter.grad
        if grad is None or grad.is_sparse or not parameter.dim() or not len(parameter):
            return
        rows: Any = slice(None)
        if len(parameter) > ROWS:
            rows = torch.arange(ROWS, device=parameter.device) * SPREAD % len(parameter)
        self._samples.append((name, parameter, rows, parameter.detach()[rows].clone(), grad[rows] != 0))

    @torch.no_grad()
    def after(self) -> None:
        """Compare with where they are after the step."""
        for name, parameter, rows, start, pulled in self._samples:
            moved = (parameter.detach()[rows] != start) & pulled
            self._measured.setdefault(name, []).append(torch.stack([pulled.any(), moved.any()]))
        self._samples = []

    def summary(self) -> Dict[str, GroupUpdates]:
        """Return the counts by group; the device is read here."""
        return {
            name: GroupUpdates(*torch.stack(rows).sum(0).tolist()) for name, rows in self._measured.items()
        }
