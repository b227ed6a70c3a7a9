"""What a trainer learns, by hooks on ``Tensor.backward`` and ``Optimizer.__init__``: losses, gradients, counts, time and memory.

Each backward pass is one line of ``metrics.jsonl``. Imports torch: loaded once the trainer has imported it.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

import torch

from smoke_trainer.record import GaussianCounts, GroupGradients, Implementation, TrainLoss
from smoke_trainer.updates import ReachCheck, UpdateCheck
from splatfix.certify.inside.cuda_on_cpu import replace_call
from splatfix.certify.inside.importing import file_of
from splatfix.certify.inside.phases import Phases

if TYPE_CHECKING:
    from splatfix.certify.inside.observer import Record

POSITIONS = ("xyz", "means", "anchor", "means3d", "positions", "points")
"""Parameter groups whose rows are Gaussians (or Scaffold's anchors), by the names that trainers give them."""
EVERY = 2.0
"""Seconds between two writings of the record."""
FOLLOWED = frozenset((2, 10, 30, 100, 300, 1000, 3000, 10_000, 29_999))
"""Steps of an optimizer after which it is looked whether every group moved."""
SMOOTHED_OVER = 10
"""Iterations at either end of a run, whose losses are averaged; as the smoke trainer's."""


class Training:
    """Backward passes and the parameter groups of every optimizer."""

    def __init__(self, record: Record, *, rehearsed: bool) -> None:
        self._record = record
        self.phases = Phases(on_gpu=not rehearsed and torch.cuda.is_available())
        self._losses: list[Optional[float]] = []
        self._counts: list[int] = []
        """Of the Gaussians, at each change."""
        self._groups: dict[str, dict[str, Any]] = {}
        self._reached = ReachCheck()
        self._optimizers: list[Any] = []
        self._steps: Counter[type] = Counter()
        """By class of optimizer."""
        self._updates = UpdateCheck()
        self._lines: Optional[Any] = None
        self._written = 0.0
        self._hook()

    def fields(self) -> dict[str, Any]:
        """Return the fields of a record that the training fills in."""
        counts = GaussianCounts()
        changes = [after - before for before, after in zip(self._counts, self._counts[1:])]
        if self._counts:
            counts = GaussianCounts(
                initial=self._counts[0],
                final=self._counts[-1],
                peak=max(self._counts),
                added=sum(change for change in changes if change > 0),
                removed=-sum(change for change in changes if change < 0),
            )
        optimizers = {}
        for kind, steps in self._steps.items():
            file, sha256 = file_of(getattr(sys.modules.get(kind.__module__), "__file__", None))
            name = f"{kind.__module__}.{kind.__qualname__}"
            optimizers[f"optimizer {name}"] = Implementation(name=name, file=file, sha256=sha256, calls=steps)
        return {
            "iterations": len(self._losses),
            "implementations": {**self._record.implementations, **optimizers},
            "train_loss": TrainLoss(
                _mean(self._losses[:SMOOTHED_OVER]), _mean(self._losses[-SMOOTHED_OVER:])
            ),
            "gaussians": counts,
            "gradients": {name: GroupGradients(**row) for name, row in self._groups.items()},
            "reached": self._reached.summary(),
            "updates": self._updates.summary(),
            **self.phases.fields(),
        }

    def _hook(self) -> None:
        inside = False

        def backward_seen(backward: Any, this: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if inside:  # torch hands a call on to its own wrapped name where a mode is active
                return backward(this, *args, **kwargs)
            inside = True
            self.phases.enter("backward")
            try:
                done = backward(this, *args, **kwargs)
            finally:
                inside = False
            with torch.no_grad():
                self._passed(this.detach())
            return done

        def begin_seen(begin: Any, this: Any, *args: Any, **kwargs: Any) -> None:
            begin(this, *args, **kwargs)
            # held by nothing of ours: a trainer may make another optimizer, and drop this one with its parameters
            self._optimizers.append(weakref.ref(this))
            this.register_step_pre_hook(lambda stepped, *_: self._before_step(stepped))
            this.register_step_post_hook(lambda stepped, *_: self._after_step(type(stepped)))

        replace_call(torch.Tensor, "backward", backward_seen)
        replace_call(torch.optim.Optimizer, "__init__", begin_seen)

    def _before_step(self, optimizer: Any) -> None:
        self.phases.enter("optimizer")
        if self._steps[type(optimizer)] + 1 not in FOLLOWED:
            return
        try:
            for name, group in _named([optimizer]):
                if group.get("lr", 1.0):  # else held on purpose, as Scaffold-GS holds its anchors
                    for parameter in group["params"][:2]:
                        self._updates.before(name, parameter)
        except Exception:
            self._record.not_observed()

    def _after_step(self, kind: type) -> None:
        self.phases.enter("other")
        self._steps[kind] += 1
        if self._steps[kind] in FOLLOWED:
            self._updates.after()

    def _passed(self, root: torch.Tensor) -> None:
        """One backward pass ended: its loss, the gradients of every group, and the number of Gaussians."""
        loss: Optional[float] = None
        if root.numel() == 1 and root.isfinite():
            loss = float(root)
        self._losses.append(loss)
        alive = [item for item in (reference() for reference in self._optimizers) if item is not None]
        groups: dict[str, list[torch.Tensor]] = {}
        for name, group in _named(alive):
            groups.setdefault(name, []).extend(group["params"])
        # a degree of harmonics that is 0 leaves a group of no numbers
        filled = {name: params for name, params in groups.items() if any(map(torch.numel, params))}
        norms = {name: self._norm(name, params) for name, params in filled.items()}
        positions = [params[0] for name, params in groups.items() if name.lstrip("_") in POSITIONS and params]
        grown = False
        if positions:
            count = len(positions[0])
            grown = bool(self._counts) and self._counts[-1] != count
            if grown or not self._counts:
                self._counts.append(count)
            self._reached.add(positions[0].grad)
        spent, held = self.phases.passed(grown=grown)
        line: dict[str, Any] = {
            "iteration": len(self._losses),
            "loss": loss,
            "gaussians": self._counts[-1] if self._counts else None,
            "ms": spent,
            "gradients": norms,
            **held,
        }
        if self._lines is None:
            path = os.path.join(self._record.out, "metrics.jsonl")
            self._lines = open(path, "a", encoding="utf-8", buffering=1)
        self._lines.write(json.dumps(line) + "\n")
        if time.monotonic() - self._written > EVERY:
            self._record.write()
            self._written = time.monotonic()

    def _norm(self, name: str, params: list[torch.Tensor]) -> Union[float, str, None]:
        """Return the norm over a group's gradients, None where none of it has one; add it to what the group showed so far.

        As JSON takes it, which has no infinity.
        """
        row = self._groups.setdefault(
            name,
            {"steps": 0, "zero_steps": 0, "none_steps": 0, "non_finite_steps": 0, "max": 0.0, "last_step": 0},
        )
        row["steps"] += 1
        grads = [param.grad.detach() for param in params if param.grad is not None]
        if not grads:
            row["zero_steps"] += 1
            row["none_steps"] += 1
            return None
        # summed as float64 without a copy of that type, which a GPU may have no room for
        squares = 0.0
        for grad in grads:
            values = grad.coalesce().values() if grad.is_sparse else grad
            squares += float(torch.linalg.vector_norm(values, dtype=torch.float64)) ** 2
        norm = math.sqrt(squares)
        if not math.isfinite(norm):
            row["non_finite_steps"] += 1
            return str(norm)
        if norm == 0.0:
            row["zero_steps"] += 1
        else:
            row["last_step"] = len(self._losses)
            row["max"] = max(row["max"], norm)
        return norm


def _named(optimizers: Sequence[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every parameter group with the name that its trainer gave it, or by its place."""
    for position, optimizer in enumerate(optimizers, 1):
        for number, group in enumerate(optimizer.param_groups, 1):
            yield str(group.get("name") or f"optimizer {position} group {number}"), group


def _mean(losses: Sequence[Optional[float]]) -> Optional[float]:
    """Average losses; None where there is none, or one of them is not finite."""
    finite = [loss for loss in losses if loss is not None]
    if not finite or len(finite) < len(losses):
        return None
    return sum(finite) / len(finite)
