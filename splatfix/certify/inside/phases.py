"""What a trainer's time goes to, told from outside of its code: by its backward passes, optimizer steps and drawn pictures.

Between two backward passes lie, in whatever order the trainer has: the step of its optimizers, evaluation, densification, the
next picture. A picture that is drawn between a backward pass and the step after it, or with autograd off, is evaluated; any other
is the forward pass. What is left of an iteration in which the number of Gaussians changed is called densify, of others other.

A GPU works on while Python goes ahead: there the clock is read after it has finished, in every tenth iteration and around
evaluation only, and the other iterations count for their length alone. Imports torch.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Any, Optional

import torch

from smoke_trainer.memory import peak_rss, resident, under_wsl
from smoke_trainer.record import CudaMemory, CudaPeak, HostPeaks, Memory, TrainingMachine

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
        self._held: dict[str, int] = {}
        """Bytes in ``train`` and ``eval``: of the GPU where there is one, else of this process."""
        self._peak = 0
        self._cuda = CudaMemory()
        self._machine = TrainingMachine()
        # Windows' driver moves memory to the host where others refuse
        self._spills = sys.platform == "win32" or under_wsl()

    def fields(self) -> dict[str, Any]:
        """Return the fields of a record for time and memory; seconds of phases by the iterations that were timed."""
        phases = {name: round(spent * self._passes / self._timed, 3) for name, spent in self._sums.items()}
        if phases and self._evaluation:
            phases["evaluation"] = round(self._evaluation, 3)
        seconds = {"setup": self._load, "train": self._train, "eval": round(self._evaluation, 4)}
        rss, cuda = peak_rss(), None
        host = HostPeaks(train=rss)
        if not self.on_gpu:
            host = replace(host, eval=self._held.get("eval") or None)
        elif self._held:
            train = replace(self._cuda.train, allocated=self._held.get("train"))
            cuda = replace(self._cuda, train=train, eval=CudaPeak(self._held.get("eval")))
        memory = Memory(rss=rss, host=host, cuda=cuda)
        return {"phases": phases, "seconds": seconds, "memory": memory, "machine": self._machine}

    def enter(self, phase: str) -> None:
        """A phase begins, and with it the one before ends."""
        self._mark()
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
        """What went by since the last mark belongs to the phase that ends, and what was held since: of the GPU the peak, to the
        phase that raised it, of this process what it holds."""
        part = "eval" if self._phase == "evaluation" else "train"
        if not self.on_gpu:
            self._hold(part, resident() or 0)
        else:
            if self._is_timed() or part == "eval":
                torch.cuda.synchronize()
            peak = int(torch.cuda.max_memory_allocated())
            if peak > self._peak:
                self._peak = self._held[part] = peak
            elif part == "eval":
                # lower than what training took before: how high is not known, only what is left of it
                self._hold(part, int(torch.cuda.memory_allocated()))
            if self._is_timed():
                self._look_at_gpu()
        now = time.perf_counter()
        self._spent[self._phase] = self._spent.get(self._phase, 0.0) + now - self._last
        self._last = now

    def _hold(self, part: str, size: int) -> None:
        self._held[part] = max(size, self._held.get(part, 0))

    def _look_at_gpu(self) -> None:
        """How full the GPU is, by all programs."""
        free, total = torch.cuda.mem_get_info()
        about: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
        integrated = bool(getattr(about, "is_integrated", False))
        self._machine = TrainingMachine(gpu=str(about.name), gpu_memory=int(total), gpu_integrated=integrated)
        spill = None
        if self._spills:
            # at least: what is reserved beyond all that the GPU has in use, by other programs too
            spill = max(0, int(torch.cuda.memory_reserved()) - int(total - free), self._cuda.spill or 0)
        self._cuda = CudaMemory(
            train=CudaPeak(reserved=int(torch.cuda.max_memory_reserved())),
            used_share=max(1.0 - free / total, self._cuda.used_share or 0.0),
            spill=spill,
        )
