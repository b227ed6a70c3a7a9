"""How long the phases of an iteration take."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Tuple

import torch


class StepTimer:
    """Times the phases of one iteration: by the clock on a CPU, by events on a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self.marks: List[Tuple[str, Any]] = []

    def start(self) -> None:
        self.marks = [("start", self._now())]

    def lap(self, name: str) -> None:
        self.marks.append((name, self._now()))

    def milliseconds(self, marks: List[Tuple[str, Any]]) -> Dict[str, float]:
        """Duration of each phase, given the `marks` of an iteration; on a GPU only after a synchronisation."""
        durations = {}
        for (_, begin), (name, end) in zip(marks, marks[1:]):
            if self._cuda:
                durations[name] = begin.elapsed_time(end)
            else:
                durations[name] = 1e3 * (end - begin)
        return durations

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call, unused-ignore]
        event.record()
        return event
