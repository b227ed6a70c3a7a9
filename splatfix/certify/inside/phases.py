"""What a trainer's time goes to, told from outside of its code: by its backward passes, optimizer steps and drawn pictures.

Between two backward passes lie, in whatever order the trainer has: the step of its optimizers, evaluation, densification, the
next picture. A picture that is drawn between a backward pass and the step after it, or with autograd off, is evaluated; any other
is the forward pass. What is left of an iteration in which the number of Gaussians changed is called densify, of others other.

A GPU works on while Python goes ahead: there the moments are CUDA events, as in the smoke trainer's monitor, and it is waited for
only at the end of a backward pass, where its gradients are read anyway. Imports torch.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from typing import Any, DefaultDict, Optional

import torch

from smoke_trainer.memory import PeakMemory
from smoke_trainer.record import TrainingMachine

SAMPLED_EVERY = 10
"""Iterations between two looks at memory."""
LEAST_ITERATIONS = 100
"""With one number of Gaussians, from which on growth is told."""


class Phases:
    """The clock of one process, and what it held meanwhile."""

    def __init__(self, *, on_gpu: bool) -> None:
        self.on_gpu = on_gpu
        self._started = time.perf_counter()
        self._load: Optional[float] = None
        """Seconds up to the first picture, or where none was seen to the first backward pass."""
        self._train: Optional[float] = None
        """Seconds from there to the end of the last backward pass."""
        self._marks: list[tuple[str, Any]] = []
        """The phases of this iteration, and when each began."""
        self._seconds: DefaultDict[str, float] = defaultdict(float)
        """By phase."""
        self._after_backward, self._passes, self._grown = False, 0, 0
        self._memory = PeakMemory(torch.device("cuda" if on_gpu else "cpu"))
        self._memory.enter("train")

    def fields(self) -> dict[str, Any]:
        """Return the fields of a record for time and memory."""
        phases = {name: round(seconds, 3) for name, seconds in self._seconds.items()}
        seconds = {"setup": self._load, "train": self._train, "eval": phases.get("evaluation", 0.0)}
        machine = TrainingMachine()
        if self.on_gpu:
            about: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
            integrated = bool(getattr(about, "is_integrated", False))
            machine = TrainingMachine(
                gpu=str(about.name), gpu_memory=int(about.total_memory), gpu_integrated=integrated
            )
        memory = self._memory.summary()
        if self._passes - self._grown < LEAST_ITERATIONS:
            memory = replace(memory, growth=None)
        return {"phases": phases, "seconds": seconds, "memory": memory, "machine": machine}

    def enter(self, phase: str) -> None:
        """A phase begins, and with it the one before ends."""
        if self._load is None:
            self._load = round(time.perf_counter() - self._started, 3)
        before = self._marks[-1][0] if self._marks else "other"
        if phase != before and "evaluation" in (phase, before):
            self._memory.enter("eval" if phase == "evaluation" else "train")
        if phase == "optimizer":
            self._after_backward = False
        moment: Any = time.perf_counter()
        if self.on_gpu:
            moment = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call, unused-ignore]
            moment.record()
        self._marks.append((phase, moment))

    def draw(self) -> None:
        """A rasterizer is called; what follows belongs to its picture, up to the next phase."""
        evaluates = self._after_backward or not torch.is_grad_enabled()
        self.enter("evaluation" if evaluates else "forward")

    def passed(self, *, grown: bool) -> tuple[dict[str, float], dict[str, float]]:
        """End a backward pass, and with it an iteration; return milliseconds by phase, and now and then the memory held."""
        self.enter("other")
        if self.on_gpu:
            torch.cuda.synchronize()
        self._after_backward = True
        self._train = round(time.perf_counter() - self._started - (self._load or 0.0), 3)
        spent: DefaultDict[str, float] = defaultdict(float)
        for (phase, begin), (_, end) in zip(self._marks, self._marks[1:]):
            name = "densify" if grown and phase == "other" else phase
            seconds = begin.elapsed_time(end) / 1000 if self.on_gpu else end - begin
            spent[name] += seconds
            self._seconds[name] += seconds
        self._marks = self._marks[-1:]
        held: dict[str, float] = {}
        if grown:
            # growth is that since the number of Gaussians changed last
            self._memory.unexplained.clear()
            self._grown = self._passes
        if self._passes % SAMPLED_EVERY == 0:
            held = self._memory.sample(self._passes + 1, 0)
        self._passes += 1
        return {name: round(1000 * seconds, 3) for name, seconds in spent.items()}, held
