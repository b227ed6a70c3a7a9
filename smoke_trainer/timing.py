"""How long the phases of an iteration take, and whether iterations take the same from first to last."""

from __future__ import annotations

import statistics
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

AROUND = 10  # iterations on either side whose median an iteration is compared with
SLOW = 2.5  # times that median: no view of one scene costs so much more than its neighbours
SHORTEST_TAIL = 20  # iterations without densification that can be compared half by half


class StepTimer:
    """Times the phases of one iteration: by the clock on a CPU, by events on a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._marks: List[Tuple[str, Any]] = []
        self._processor = 0.0

    def start(self) -> None:
        """Start an iteration."""
        self._processor = time.process_time()
        self._marks = [("start", self._now())]

    def lap(self, name: str) -> None:
        """End the phase of that name."""
        self._marks.append((name, self._now()))

    def marks(self) -> List[Tuple[str, Any]]:
        """Everything since `start`, for `milliseconds`."""
        return self._marks

    def milliseconds(self, marks: List[Tuple[str, Any]]) -> Dict[str, float]:
        """Duration of each phase; on a GPU only after a synchronisation."""
        pairs = zip(marks, marks[1:])
        if self._cuda:
            return {name: begin.elapsed_time(end) for (_, begin), (name, end) in pairs}
        return {name: 1e3 * (end - begin) for (_, begin), (name, end) in pairs}

    def processor_ms(self) -> Optional[float]:
        """What this iteration took of the processor's time so far, other programs left out; None on a GPU."""
        return None if self._cuda else 1e3 * (time.process_time() - self._processor)

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call, unused-ignore]
        event.record()
        return event


def steadiness(costs: Sequence[float], changed: int, warm_up: int) -> Dict[str, Any]:
    """How even the iterations were.

    Args:
        costs: milliseconds of each.
        changed: the last iteration that added or removed Gaussians; from there on all cost the same.
        warm_up: iterations at the start that are left out.

    Returns:
        `slow`: iterations that took SLOW times the median of those around them; `lost`: the share of the time that they
        took beyond it; `drift`: the median of the second half of the iterations after `changed` by that of the first, None
        where they are too few.
    """
    slow, lost, total = [], 0.0, 0.0
    for place in range(warm_up, len(costs)):
        usual = statistics.median(costs[max(warm_up, place - AROUND) : place + AROUND + 1])
        total += costs[place]
        if costs[place] > SLOW * usual:
            slow.append(place + 1)
            lost += costs[place] - usual
    tail = costs[max(changed, warm_up) :]
    half, drift = len(tail) // 2, None
    if len(tail) >= SHORTEST_TAIL:
        drift = statistics.median(tail[half:]) / max(statistics.median(tail[:half]), 1e-9)
    return {"slow": slow[:20], "lost": lost / total if total else None, "drift": drift}
