"""Resources of a build or a run: cores, memory, disk, limits, and what a process tree uses."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from splatfix.core.codec import parse_json
from splatfix.facts.machine.gpu import SYSCTL_NAMES
from splatfix.facts.model.machine import Resources
from splatfix.facts.system.live import System

_TIMEOUT = 8.0
_CGROUPS = "/sys/fs/cgroup"
# one call, because starting PowerShell costs most of it
WINDOWS_QUESTION = (
    "powershell",
    "-NoProfile",
    "-Command",
    "Get-CimInstance Win32_OperatingSystem | Select-Object Caption,Version,TotalVisibleMemorySize,"
    "FreePhysicalMemory,TotalVirtualMemorySize | ConvertTo-Json -Compress",
)
_PAGE = 4096 if os.name == "nt" else os.sysconf("SC_PAGE_SIZE")
_TICKS = 100 if os.name == "nt" else os.sysconf("SC_CLK_TCK")


def probe(system: System) -> Resources:
    """The resources of this process, within its control group."""
    cores, total, available, swap = _of_the_system(system)
    limit, used, quota = _control_group(system)
    if limit is not None and total is not None and limit < total:
        total = limit
        available = min(available or total, max(0, total - used)) if used is not None else available
    if quota is not None and cores:
        cores = max(1, min(cores, round(quota)))
    return Resources(
        cores=cores,
        memory_total=total,
        memory_available=available,
        swap_total=swap,
    )


def windows_system(system: System) -> dict[str, object]:
    """Windows' own words about itself (``Win32_OperatingSystem``); empty when it does not answer."""
    try:
        reply = parse_json(system.run(WINDOWS_QUESTION, _TIMEOUT).stdout)
    except ValueError:
        return {}
    return reply if isinstance(reply, dict) else {}


def _of_the_system(system: System) -> tuple[int | None, int | None, int | None, int | None]:
    """Cores, memory, available memory and swap before any control group (bytes)."""
    if system.name == "darwin":
        said = dict(
            re.findall(r"^([\w.]+): (.*)$", system.run(["sysctl", *SYSCTL_NAMES], _TIMEOUT).stdout, re.M)
        )
        return _int(said.get("hw.logicalcpu")), _int(said.get("hw.memsize")), None, None
    if system.name == "windows":
        reply = windows_system(system)
        total, free = reply.get("TotalVisibleMemorySize"), reply.get("FreePhysicalMemory")
        cores = _int(system.env.get("NUMBER_OF_PROCESSORS"))
        return cores, _kibibytes(total), _kibibytes(free), None
    memory = _meminfo(system.read("/proc/meminfo") or "")
    return _cores(system), memory.get("MemTotal"), memory.get("MemAvailable"), memory.get("SwapTotal")


def _meminfo(text: str) -> Mapping[str, int]:
    """Bytes by name from /proc/meminfo, whose unit is KiB."""
    return {
        name: int(size) * 1024 for name, size in re.findall(r"^(\w+):\s+([0-9]{1,15}) kB", text, re.MULTILINE)
    }


def _cores(system: System) -> int | None:
    """Cores that this process may run on, by its CPU mask."""
    mask = re.search(r"^Cpus_allowed:\s+([0-9a-f,]+)$", system.read("/proc/self/status") or "", re.MULTILINE)
    digits = mask.group(1).replace(",", "") if mask else ""
    return (bin(int(digits, 16)).count("1") or None) if digits else None


def _control_group(system: System) -> tuple[int | None, int | None, float | None]:
    """(memory limit, memory used, cores allowed) of the tightest control group this process is in.

    Inside a container the group's files are at the mount itself; outside they are in the folder that
    /proc/self/cgroup names, and every folder above it limits too.
    """
    lines = [line.split(":", 2) for line in (system.read("/proc/self/cgroup") or "").splitlines()]
    folders = {name: parts[2] for parts in lines if len(parts) == 3 for name in (parts[1].split(",") or [""])}
    if system.exists(f"{_CGROUPS}/cgroup.controllers"):
        memory = cpu = _upwards(_CGROUPS, folders.get("", "/"))
        names = ("memory.max", "memory.current", "cpu.max")
    else:
        memory = _upwards(f"{_CGROUPS}/memory", folders.get("memory", "/"))
        cpu = _upwards(f"{_CGROUPS}/cpu", folders.get("cpu", "/"))
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "cpu.cfs_quota_us")
    limit, used, quota = None, None, None
    for folder in memory:
        here = _int(system.read(f"{folder}/{names[0]}"))
        if here is not None and (limit is None or here < limit):
            limit, used = here, _int(system.read(f"{folder}/{names[1]}"))
    for folder in cpu:
        # version 2 writes both numbers into one file
        pair = [system.read(f"{folder}/{name}") or "" for name in (names[2], "cpu.cfs_period_us")]
        quota = _least(quota, _ratio(" ".join(pair).split()))
    return limit, used, quota


def _upwards(mount: str, path: str) -> list[str]:
    """``/a/b`` below a mount: the folder itself, the one above, and the mount."""
    parts = [part for part in path.split("/") if part and part != ".."]
    return ["/".join([mount, *parts[:n]]) for n in range(len(parts), -1, -1)]


def _ratio(pair: list[str]) -> float | None:
    """Cores from a quota and its period in microseconds; None for ``max`` and ``-1``, which mean no limit."""
    if len(pair) == 2 and all(re.fullmatch("[0-9]{1,15}", text) for text in pair) and int(pair[1]) > 0:
        return int(pair[0]) / int(pair[1])
    return None


def _least(first: float | None, second: float | None) -> float | None:
    return min((value for value in (first, second) if value is not None), default=None)


def _int(text: str | None) -> int | None:
    digits = (text or "").strip()
    return int(digits) if re.fullmatch("[0-9]{1,19}", digits) else None


def _kibibytes(value: object) -> int | None:
    return value * 1024 if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass(frozen=True)
class HostUse:
    """Resident memory (bytes) and processor time (seconds) of a process with all its living children."""

    rss: int
    cpu_seconds: float
    processes: tuple[int, ...]


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
