"""Whether an optimizer moves each parameter group as its formula says: some rows, at some steps, computed again in float64.

Adam by Kingma and Ba 2015, algorithm 1; AdamW by Loshchilov and Hutter 2019; the Adam of rows that a view shows (Inria's
SparseGaussianAdam, gsplat's SelectiveAdam) leaves the correction of the bias out. Everything stays on the device until
`summary`: no GPU is waited for. Imports torch only, for a stack's own trainer is watched by it too; Python 3.7.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

ROWS = 512  # of each parameter, spread over all
SPREAD = 2_654_435_761  # a prime beyond any number of rows: of rows that a fault takes in turn, some are met
NEGLIGIBLE = 1e-30  # a squared gradient of single precision that has hardly any digits left
MOMENTS = ("exp_avg", "exp_avg_sq")


class AdamRule(NamedTuple):
    """What a step of Adam's family depends on; `step` counts from 1, this one included."""

    lr: Any
    step: Any
    betas: Tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-15
    weight_decay: float = 0.0
    decoupled: bool = False  # AdamW
    corrected: bool = True  # of the bias of the first steps


class UpdateReport(NamedTuple):
    """One group: in how many sampled steps it had to move; how far it moved as a share of what the formula says, where
    that was furthest from 1; the largest errors of an element's move and of its moments, relative to the largest."""

    steps: int
    moved: Optional[float]
    error: Optional[float]
    moments_error: Optional[float]


class _Sample(NamedTuple):
    name: str
    parameter: Tensor
    state: Any
    rows: Any
    start: Tensor
    move: Tensor
    moments: Tuple[Tensor, Tensor]
    judged: Tensor


def rule_of(optimizer: Any, group: Dict[str, Any], state: Any) -> Optional[AdamRule]:
    """How an optimizer moves a group; None outside Adam's family, and for what is not followed here."""
    name, module = type(optimizer).__name__, type(optimizer).__module__
    own = module.partition(".")[0] == "torch" and name in ("Adam", "AdamW")
    sparse = name in ("SparseGaussianAdam", "SelectiveAdam")
    if not (own or sparse) or group.get("amsgrad") or group.get("maximize"):
        return None
    if getattr(optimizer, "grad_scale", None) is not None:
        return None
    return AdamRule(
        lr=group["lr"],
        step=state.get("step", 0) + 1 if own else 1,
        betas=group["betas"],
        eps=group["eps"],
        weight_decay=group.get("weight_decay", 0.0),
        decoupled=name == "AdamW" or bool(group.get("decoupled_weight_decay")),
        corrected=own,
    )


class UpdateCheck:
    """Follows some steps of an optimizer: `before` for every parameter, then the step, then `after`."""

    def __init__(self) -> None:
        self._samples: List[_Sample] = []
        self._measured: Dict[str, List[Tensor]] = {}

    @torch.no_grad()
    def before(self, name: str, parameter: Tensor, state: Any, rule: AdamRule) -> None:
        """A parameter that has a gradient is about to be stepped; `state` is the optimizer's of this parameter."""
        grad = parameter.grad
        if grad is None or grad.is_sparse or not parameter.numel():
            return
        rows = _rows(parameter)
        start, slope = _numbers(parameter, rows), _numbers(grad, rows)
        decay = 0.0
        if rule.decoupled:
            decay = rule.lr * rule.weight_decay
        elif rule.weight_decay:
            slope = slope + rule.weight_decay * start
        first, second = (
            _numbers(state[key], rows) if key in state else torch.zeros_like(start) for key in MOMENTS
        )
        beta1, beta2 = rule.betas
        first = beta1 * first + (1.0 - beta1) * slope
        second = beta2 * second + (1.0 - beta2) * slope**2
        correction1, correction2 = 1.0, 1.0
        if rule.corrected:
            correction1, correction2 = 1.0 - beta1**rule.step, (1.0 - beta2**rule.step) ** 0.5
        move = -rule.lr / correction1 * first / (second.sqrt() / correction2 + rule.eps) - decay * start
        untouched = (slope == 0) & (first == 0) & (second == 0)
        judged = torch.isfinite(slope) & ((second > NEGLIGIBLE) | untouched)
        if not rule.corrected:  # rows that the view does not show stay, whatever their moments
            judged = judged & (slope != 0)
        self._samples.append(_Sample(name, parameter, state, rows, start, move, (first, second), judged))

    @torch.no_grad()
    def after(self) -> None:
        """The step was made: what moved, beside what had to."""
        for sample in self._samples:
            end = _numbers(sample.parameter, sample.rows)
            judged = sample.judged
            move, moved = (
                sample.move.where(judged, _zero(end)),
                (end - sample.start).where(judged, _zero(end)),
            )
            # single precision is as exact as the larger number of a sum, and AdamW multiplies before
            rounding = (
                2 * torch.finfo(sample.parameter.dtype).eps * torch.maximum(sample.start.abs(), end.abs())
            )
            excess = ((moved - move).abs() - rounding).clamp_min(0.0)
            largest = move.abs().max()
            errors = [_zero(end)]
            for key, expected in zip(MOMENTS, sample.moments):
                if key in sample.state:
                    gap = (_numbers(sample.state[key], sample.rows) - expected).where(judged, _zero(end))
                    errors.append(gap.abs().max() / expected.where(judged, _zero(end)).abs().max())
                else:
                    errors.append(torch.full_like(largest, math.inf))
            share = (moved * move).sum() / (move * move).sum()
            row = torch.stack([largest, share, excess.max() / largest, torch.stack(errors).max()])
            self._measured.setdefault(sample.name, []).append(row)
        self._samples = []

    def summary(self) -> Dict[str, UpdateReport]:
        """By group; the device is read here."""
        return {name: _summarized(torch.stack(rows).tolist()) for name, rows in self._measured.items()}


def _summarized(rows: List[List[float]]) -> UpdateReport:
    moving = [row for row in rows if row[0] > 0]
    if not moving:
        return UpdateReport(0, None, None, None)
    _, shares, errors, moments_errors = zip(*moving)
    worst = max(shares, key=lambda share: abs(share - 1.0))
    return UpdateReport(len(moving), _largest([worst]), _largest(errors), _largest(moments_errors))


def _largest(numbers: Sequence[float]) -> Optional[float]:
    """None where one is infinite or no number: JSON has neither."""
    return max(numbers) if all(map(math.isfinite, numbers)) else None


def _rows(parameter: Tensor) -> Any:
    """All where they are few, else :data:`ROWS` of them, at no regular distance."""
    if not parameter.dim() or len(parameter) <= ROWS:
        return slice(None)
    return torch.arange(ROWS, device=parameter.device) * SPREAD % len(parameter)


def _numbers(tensor: Tensor, rows: Any) -> Tensor:
    """A copy of some rows in float64; of Metal, which has no such numbers, on the CPU."""
    part = tensor.detach()
    if part.dim():
        part = part[rows]
    if part.device.type == "mps":
        part = part.cpu()
    return part.to(torch.float64, copy=True)


def _zero(like: Tensor) -> Tensor:
    return torch.zeros((), dtype=like.dtype, device=like.device)
