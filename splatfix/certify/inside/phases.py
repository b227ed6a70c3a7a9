"""What a trainer's time goes to, told from outside of its code: by its backward passes, optimizer steps and drawn pictures.

Between two backward passes lie, in whatever order the trainer has: the step of its optimizers, evaluation, densification, the
next picture. A picture that is drawn between a backward pass and the step after it, or with autograd off, is evaluated; any other
is the forward pass. What is left of an iteration in which the number of Gaussians changed is called densify, of others other.

A GPU works on while Python goes ahead: there the clock is read after it has finished, in every tenth iteration and around
evaluation only, and the other iterations count for their length alone. Imports torch.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Optional

import torch

from smoke_trainer.memory import PeakMemory
from smoke_trainer.record import TrainingMachine

EVERY_ON_GPU = 10


class Phases:
    """The clock of one process, and what it held meanwhile."""

    def __init__(self, *, on_gpu: bool) -> None:
        self.on_gpu = on_gpu
        self._started = self._last = time.perf_counter()
        self._load: Optional[float] = None
        """Seconds up to the first picture."""
        self._train: Optional[float] = None
        """Seconds from there to the end of the last backward pass."""
        self._evaluation = 0.0
        self._spent: dict[str, float] = {}
        """Seconds of this iteration, by phase."""
        self._timed = 0
        """Iterations in which phases were told apart."""
        self._sums: dict[str, float] = {}
        """Of their seconds, by phase."""
        self._phase, self._after_backward, self._passes = "other", False, 0
        self._memory = PeakMemory(torch.device("cuda" if on_gpu else "cpu"))
        self._memory.enter("train")

    def fields(self) -> dict[str, Any]:
        """Return the fields of a record for time and memory; seconds of phases by the iterations that were timed."""
        phases = {name: round(spent * self._passes / self._timed, 3) for name, spent in self._sums.items()}
        if phases and self._evaluation:
            phases["evaluation"] = round(self._evaluation, 3)
        seconds = {"setup": self._load, "train": self._train, "eval": round(self._evaluation, 4)}
        machine = TrainingMachine()
        if self.on_gpu:
            about: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
            integrated = bool(getattr(about, "is_integrated", False))
            machine = TrainingMachine(
                gpu=str(about.name), gpu_memory=int(about.total_memory), gpu_integrated=integrated
            )
        memory = replace(self._memory.summary(), growth=None)  # told from the series
        return {"phases": phases, "seconds": seconds, "memory": memory, "machine": machine}

    def enter(self, phase: str) -> None:
        """A phase begins, and with it the one before ends."""
        self._mark()
        if phase != self._phase and "evaluation" in (phase, self._phase):
            self._memory.enter("eval" if phase == "evaluation" else "train")
        self._phase = phase
        if phase == "optimizer":
            self._after_backward = False

    def drawing(self) -> None:
        """A rasterizer is called."""
        evaluates = self._after_backward or not torch.is_grad_enabled()
        self.enter("evaluation" if evaluates else "forward")
        if self._passes == 0 and self._load is None:
            self._load = round(self._last - self._started, 3)

    def drawn(self) -> None:
        """It has returned: what follows belongs to it, up to the next mark."""
        if self._phase == "evaluation":
            self._mark()

    def passed(self, *, grown: bool) -> dict[str, float]:
        """End a backward pass, and with it an iteration; return milliseconds by phase, of ``iteration`` alone where not timed."""
        self.enter("other")
        timed = self._is_timed()
        if self.on_gpu and timed:
            self._memory.sample(self._passes, 0)  # how full the GPU is, by all programs
        spent, self._spent = self._spent, {}
        self._after_backward = True
        self._passes += 1
        self._train = round(self._last - self._started - (self._load or 0.0), 3)
        if grown and "other" in spent:
            spent["densify"] = spent.pop("other")
        self._evaluation += spent.get("evaluation", 0.0)
        if not timed:
            return {"iteration": round(1000 * sum(spent.values()), 3)}
        if self._passes > 1:  # the first has waited for the scene
            self._timed += 1
            for name, seconds in spent.items():
                self._sums[name] = self._sums.get(name, 0.0) + seconds
        return {name: round(1000 * seconds, 3) for name, seconds in spent.items()}

    def _is_timed(self) -> bool:
        return not self.on_gpu or self._passes % EVERY_ON_GPU == 0

    def _mark(self) -> None:
        """What went by since the last mark belongs to the phase that ends."""
        if self.on_gpu and (self._is_timed() or self._phase == "evaluation"):
            torch.cuda.synchronize()
        now = time.perf_counter()
        self._spent[self._phase] = self._spent.get(self._phase, 0.0) + now - self._last
        self._last = now
