"""Watch whether an optimizer moves each parameter group: some elements that have a gradient, at some steps; and which Gaussians
a gradient reaches.

Everything stays on the device until `summary`: no GPU is waited for. Imports torch and the record only, for a stack's own
trainer is watched by it too.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor

from smoke_trainer.record import GroupUpdates, Reached

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


class ReachCheck:
    """Gathers which Gaussians have a gradient, until their number changes: new rows stand for others than the old ones."""

    def __init__(self) -> None:
        self._rows: Optional[Tensor] = None
        self._steps = 0

    @torch.no_grad()
    def add(self, *grads: Optional[Tensor]) -> None:
        """After a backward pass: the gradients of groups that have a row for each Gaussian; no GPU is waited for."""
        dense = [grad for grad in grads if grad is not None and not grad.is_sparse and len(grad)]
        if not dense:
            return
        now = torch.stack([(grad != 0).reshape(len(grad), -1).any(dim=1) for grad in dense]).any(dim=0)
        if self._rows is None or len(self._rows) != len(now):
            self._rows, self._steps = torch.zeros_like(now), 0
        self._rows = now | self._rows
        self._steps += 1

    def summary(self) -> Reached:
        """Return the share of the Gaussians that a gradient reached in the last steps, in which their number stood."""
        if self._rows is None:
            return Reached()
        return Reached(float(self._rows.float().mean()), self._steps)
