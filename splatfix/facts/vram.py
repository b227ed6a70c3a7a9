"""What a process and its children use right now: GPU memory and utilisation through NVML, memory and time through /proc.

It stands among the facts because it only reads; :mod:`splatfix.certify.monitor` asks it again and again and judges nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Protocol

from splatfix.facts.nvml import as_text, attempt, start_nvml
from splatfix.facts.parallel import within
from splatfix.facts.system import System

_TIMEOUT = 10.0  # seconds until a driver that hangs is given up
_PAGE = 4096 if os.name == "nt" else os.sysconf("SC_PAGE_SIZE")
_TICKS = 100 if os.name == "nt" else os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class GpuUse:
    """One GPU at one moment; what the driver does not answer is None.

    ``processes`` maps process ids to bytes; a process whose share the driver hides (Windows, WSL) maps to None.
    """

    index: int
    name: str
    total: int | None
    used: int | None
    utilisation: int | None
    """Per cent of the last sampling period in which a kernel ran."""
    processes: dict[int, int | None]


@dataclass(frozen=True)
class HostUse:
    """Resident memory (bytes) and processor time (seconds) of a process with all its living children."""

    rss: int
    cpu_seconds: float
    processes: tuple[int, ...]


class GpuMeter(Protocol):
    """The seam to NVML; tests hand in recorded answers."""

    def read(self) -> tuple[GpuUse, ...]:
        """Every GPU now; () where nothing can be measured."""
        ...

    @property
    def problem(self) -> str:
        """Why nothing can be measured, in words; "" when it can."""
        ...


class NvmlMeter:
    """NVML, started once and asked many times."""

    def __init__(self, timeout: float = _TIMEOUT) -> None:
        self._timeout = timeout
        self._nvml: Any = None
        started, problem = within(timeout, self._start)
        self._problem = problem or (started or "")

    @property
    def problem(self) -> str:
        """See :class:`GpuMeter`."""
        return self._problem

    def read(self) -> tuple[GpuUse, ...]:
        """See :class:`GpuMeter`. A driver that stops answering is not asked again."""
        if self._problem:
            return ()
        gpus, problem = within(self._timeout, self._read)
        if gpus is None:
            self._problem = f"NVML: {problem}"
            return ()
        return gpus

    def _start(self) -> str:
        import pynvml

        try:
            start_nvml(pynvml)
        except pynvml.NVMLError as error:
            return f"NVML: {error}"
        self._nvml = pynvml
        return ""

    def _read(self) -> tuple[GpuUse, ...]:
        count = attempt(self._nvml, self._nvml.nvmlDeviceGetCount) or 0
        return tuple(_gpu(self._nvml, index) for index in range(count))


def _gpu(nvml: Any, index: int) -> GpuUse:
    handle = attempt(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return GpuUse(index, "unknown", None, None, None, {})
    memory = attempt(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    rates = attempt(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    processes: dict[int, int | None] = {}
    # A process that computes and draws is in both lists with the same figure.
    for listing in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses):
        for item in attempt(nvml, listing, handle) or ():
            processes[int(item.pid)] = None if item.usedGpuMemory is None else int(item.usedGpuMemory)
    return GpuUse(
        index,
        as_text(attempt(nvml, nvml.nvmlDeviceGetName, handle)) or "unknown",
        int(memory.total) if memory else None,
        int(memory.used) if memory else None,
        int(rates.gpu) if rates else None,
        processes,
    )


def host_use(system: System, pid: int) -> HostUse | None:
    """Memory and processor time of ``pid`` and its descendants, from /proc; None when it is gone or there is no /proc."""
    table = {int(name): _stat(system, name) for name in system.listdir("/proc") if name.isdigit()}
    alive = {number: stat for number, stat in table.items() if stat is not None and stat.state not in "ZX"}
    if pid not in alive:
        return None
    family = [pid]
    for member in family:  # grows while it is walked
        family += [number for number, stat in alive.items() if stat.parent == member and number not in family]
    return HostUse(
        rss=sum(alive[number].rss for number in family),
        cpu_seconds=sum(alive[number].cpu_seconds for number in family),
        processes=tuple(family),
    )


def alive(system: System, pid: int) -> bool:
    """Whether /proc knows the process and it has not ended (a zombie has)."""
    stat = _stat(system, str(pid))
    return stat is not None and stat.state not in "ZX"


@dataclass(frozen=True)
class _Stat:
    state: str
    parent: int
    cpu_seconds: float
    rss: int


def _stat(system: System, pid: str) -> _Stat | None:
    """/proc/PID/stat (proc(5)): after the name in brackets come state, parent, ... utime (14th), stime, ... rss (24th)."""
    content = system.read(f"/proc/{pid}/stat")
    fields = content.rpartition(")")[2].split() if content else []
    try:
        ticks = int(fields[11]) + int(fields[12])
        return _Stat(fields[0], int(fields[1]), ticks / _TICKS, int(fields[21]) * _PAGE)
    except (IndexError, ValueError):  # it ended while it was read
        return None
