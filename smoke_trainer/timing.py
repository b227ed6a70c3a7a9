"""How long the phases of an iteration take, and whether iterations take the same from first to last."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Any, Container, Dict, List, Optional, Sequence, Tuple

import torch

AROUND = 10  # iterations on either side whose median an iteration is compared with
SLOW = 2.5  # times that median: no view of one scene costs so much more than its neighbours
SHORTEST_TAIL = 20  # iterations without densification that can be compared half by half


class OtherPrograms:
    """Processor time that other programs take of the cores that this process may use: they slow it down where it waits for
    none of them, because cores share caches and threads that wait for one another spin. Known on Linux, also of a host's."""

    def __init__(self) -> None:
        # iterations so far; seconds since the last sample; of these, what others took
        self.samples: List[Tuple[int, float, float]] = []
        self._last = self._now()

    def sample(self, iterations: int) -> None:
        """Take what passed since the last time."""
        before, self._last = self._last, self._now()
        if before is not None and self._last is not None:
            clock, own, busy = (now - then for now, then in zip(self._last, before))
            self.samples.append((iterations, clock, busy - own))

    def cores(self, after: int) -> Optional[float]:
        """Cores that others kept busy behind that iteration; None where that is not known."""
        seconds, busy = 0.0, 0.0
        for iterations, clock, others in self.samples:
            if iterations > after:
                seconds += clock
                busy += others
        if not seconds:
            return None
        return max(0.0, busy / seconds)

    def _now(self) -> Optional[Tuple[float, float, float]]:
        busy = _busy_seconds()
        if busy is None:
            return None
        return time.perf_counter(), time.process_time(), busy


def _busy_seconds() -> Optional[float]:
    """Of the cores that this process may use, by all programs, since the system started; None where it does not tell."""
    try:
        mine = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        rows = [line.split() for line in Path("/proc/stat").read_text(encoding="ascii").splitlines()]
        # proc(5): user, nice, system, irq, softirq, steal; the other columns are idle, or part of these
        ticks = [int(row[column]) for row in rows if row and row[0] in mine for column in (1, 2, 3, 6, 7, 8)]
        ticks_per_second = os.sysconf("SC_CLK_TCK")
    except (AttributeError, OSError, ValueError, IndexError):
        return None
    if not ticks:
        return None
    return sum(ticks) / ticks_per_second


class StepTimer:
    """Times the phases of one iteration: by the clock on a CPU, by events on a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._marks: List[Tuple[str, Any]] = []
        self._processor = 0.0

    def start(self) -> None:
        self._processor = time.process_time()
        self._marks = [("start", self._now())]

    def lap(self, name: str) -> None:
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
        """What this iteration took of the processor's time so far, without its waits for other programs; None on a GPU."""
        if self._cuda:
            return None
        return 1e3 * (time.process_time() - self._processor)

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call, unused-ignore]
        event.record()
        return event


def steadiness(
    costs: Sequence[float],
    changed: int,
    warm_up: int,
    others: Optional[OtherPrograms] = None,
    eventful: Container[int] = (),
) -> Dict[str, Any]:
    """How even the iterations were.

    Args:
        costs: milliseconds of each.
        changed: the last iteration that added or removed Gaussians; from there on all cost the same.
        warm_up: iterations at the start that are left out.
        others: the load of other programs, where that was sampled.
        eventful: indices of those that had more to do, which is no stall: Gaussians were added, a photo was decoded, or a
            kernel was used for the first time, which CUDA loads only then.

    Returns:
        `slow`: iterations that took SLOW times the median of those around them; `lost`: the share of the time that they
        took beyond it; `drift`: the median of the second half of the iterations after `changed` by that of the first, None
        where they are too few; `others`: cores that other programs kept busy, the larger of all and of that second half,
        None where it is not known.
    """
    slow, excess, total = [], 0.0, 0.0
    for index in range(warm_up, len(costs)):
        usual = statistics.median(costs[max(warm_up, index - AROUND) : index + AROUND + 1])
        total += costs[index]
        if costs[index] > SLOW * usual and index not in eventful:
            slow.append(index + 1)
            excess += costs[index] - usual
    lost = None
    if total:
        lost = excess / total

    tail = costs[max(changed, warm_up) :]
    half, drift = len(tail) // 2, None
    busy_from = [warm_up]
    if len(tail) >= SHORTEST_TAIL:
        drift = statistics.median(tail[half:]) / max(statistics.median(tail[:half]), 1e-9)
        # An idle start must not hide a load at the end, which would look like a drift of our own.
        busy_from.append(len(costs) - len(tail) + half)
    busy: List[float] = []
    if others is not None:
        busy = [cores for cores in map(others.cores, busy_from) if cores is not None]
    return {"slow": slow[:20], "lost": lost, "drift": drift, "others": max(busy, default=None)}
