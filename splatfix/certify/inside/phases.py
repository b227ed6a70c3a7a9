"""What a trainer's time goes to, told from outside of its code: by its backward passes, optimizer steps and drawn pictures.

Between two backward passes lie, in whatever order the trainer has: the step of its optimizers, evaluation, densification, the
next picture. A picture that is drawn between a backward pass and the step after it, or with autograd off, is evaluated; any other
is the forward pass. What is left of an iteration in which the number of Gaussians changed is called densify, of others other.

A GPU works on while Python goes ahead: there the clock is read after it has finished, in every tenth iteration and around
evaluation only, and the other iterations count for their length alone.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Optional

EVERY_ON_GPU = 10
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def _on_windows() -> bool:
    """Also under WSL2, whose kernel names Microsoft."""
    if sys.platform == "win32":
        return True
    try:
        with open("/proc/version", encoding="utf-8") as file:
            return "microsoft" in file.read().lower()
    except OSError:
        return False


_SPILLS = _on_windows()
"""Windows' driver moves memory to the host where others refuse."""


class Phases:
    """The clock of one process. ``state`` goes into its record."""

    def __init__(self, torch: Any, on_gpu: bool) -> None:
        self.torch, self.on_gpu = torch, on_gpu
        self.state: dict[str, Any] = {
            "load": None,
            "timed": 0,
            "seconds": {},
            "evaluation": 0.0,
            "memory": {},
        }
        self._started = self._last = time.perf_counter()
        self._now: dict[str, float] = {}
        self._phase = "other"
        self._after_backward = False
        self._passes = 0
        self._peak = 0

    def drawing(self) -> None:
        """A rasterizer is called."""
        self._mark(self._phase)
        if self._passes == 0 and self.state["load"] is None:
            self.state["load"] = round(time.perf_counter() - self._started, 3)
        self._phase = "forward"
        if self._after_backward or not self.torch.is_grad_enabled():
            self._phase = "evaluation"

    def drawn(self) -> None:
        """It has returned: what follows belongs to it, up to the next mark."""
        if self._phase == "evaluation":
            self._mark("evaluation")

    def backward(self) -> None:
        """A backward pass begins."""
        self._mark(self._phase)
        self._phase = "backward"

    def stepping(self) -> None:
        """A step of an optimizer begins."""
        self._mark(self._phase)
        self._phase = "optimizer"
        self._after_backward = False

    def stepped(self) -> None:
        """It has ended."""
        self._mark("optimizer")
        self._phase = "other"

    def passed(self, grown: bool) -> dict[str, float]:
        """End a backward pass, and with it an iteration; return milliseconds by phase, of ``iteration`` alone where not timed."""
        timed = self._is_timed()
        self._mark("backward")
        spent, self._now = self._now, {}
        self._phase, self._after_backward = "other", True
        self._passes += 1
        self.state["train"] = round(self._last - self._started - (self.state["load"] or 0.0), 3)
        if grown and "other" in spent:
            spent["densify"] = spent.pop("other")
        self.state["evaluation"] = round(self.state["evaluation"] + spent.get("evaluation", 0.0), 4)
        if not timed:
            return {"iteration": round(1000 * sum(spent.values()), 3)}
        if self._passes > 1:  # the first has waited for the scene
            self.state["timed"] += 1
            sums = self.state["seconds"]
            for name, seconds in spent.items():
                sums[name] = round(sums.get(name, 0.0) + seconds, 6)
        return {name: round(1000 * seconds, 3) for name, seconds in spent.items()}

    def _is_timed(self) -> bool:
        return not self.on_gpu or self._passes % EVERY_ON_GPU == 0

    def _mark(self, phase: str) -> None:
        """What went by since the last mark belongs to that phase."""
        if self.on_gpu and (self._is_timed() or phase == "evaluation"):
            self.torch.cuda.synchronize()
        self._hold(phase)
        now = time.perf_counter()
        self._now[phase] = self._now.get(phase, 0.0) + now - self._last
        self._last = now

    def _hold(self, phase: str) -> None:
        """What was held up to now: of the GPU the peak, by the phase that raised it, of this process what it holds."""
        memory = self.state["memory"]
        name = "eval" if phase == "evaluation" else "train"
        if not self.on_gpu:
            held = _resident_now()
            memory[name] = max(held, memory.get(name, 0))
            return
        cuda = self.torch.cuda
        peak = int(cuda.max_memory_allocated())
        if peak > self._peak:
            self._peak = memory[name] = peak
        elif name == "eval":
            # lower than what training took before: how high is not known, only what is left of it
            memory[name] = max(int(cuda.memory_allocated()), memory.get(name, 0))
        if self._is_timed():
            free, total = cuda.mem_get_info()
            memory["total"] = int(total)
            about = cuda.get_device_properties(cuda.current_device())
            memory["integrated"] = bool(getattr(about, "is_integrated", False))
            memory["used_share"] = max(1.0 - free / total, memory.get("used_share", 0.0))
            memory["reserved"] = int(cuda.max_memory_reserved())
            if _SPILLS:
                spilled = int(cuda.memory_reserved()) - int(total - free)
                memory["spill"] = max(0, spilled, memory.get("spill", 0))


def _resident_now() -> int:
    """Bytes of this process in memory; 0 where the system does not tell."""
    if not sys.platform.startswith("linux"):
        return 0
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * _PAGE


def of_a_run(state: dict[str, Any], passes: int) -> Optional[dict[str, float]]:
    """Seconds of each phase in so many iterations, from those that were timed; None where none was."""
    timed = state.get("timed")
    if not timed:
        return None
    seconds = {name: round(spent * passes / timed, 3) for name, spent in state["seconds"].items()}
    if state["evaluation"]:
        seconds["evaluation"] = round(state["evaluation"], 3)
    return seconds
