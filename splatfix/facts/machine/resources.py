"""Resources of a build or a run: cores, memory, disk, limits, and what a process tree uses."""

import os
import re
from operator import itemgetter
from typing import NamedTuple

from msgspec import Struct

from splatfix.core.codec import fitting, json_object
from splatfix.facts.machine import mac
from splatfix.facts.system.live import System, captured, whole_number
from splatfix.model import Resources

_CGROUPS = "/sys/fs/cgroup"
# Of each controller in version 1 of control groups and in version 2; ``max`` and ``-1`` are no numbers and mean no limit.
_LIMITS = {
    "memory": ("memory.limit_in_bytes memory.usage_in_bytes", "memory.max memory.current"),
    "cpu": ("cpu.cfs_quota_us cpu.cfs_period_us", "cpu.max"),
    "pids": ("pids.max", "pids.max"),
}
# Version 1 writes the largest multiple of a page below 2**63 for none.
_NO_LIMIT = 2**60
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
    memory = limits(system, "memory")
    if memory and total is not None:
        limit, used = min(memory, key=itemgetter(0))
        if limit < total:
            total = limit
            available = available if used is None else min(available or total, max(0, total - used))
    for quota, period in limits(system, "cpu"):
        if cores and period:
            cores = max(1, min(cores, round(quota / period)))
    return Resources(cores, total, available, swap)


class WindowsSystem(Struct, frozen=True):
    """Windows' own words about itself (``Win32_OperatingSystem``), by its own names; sizes in KiB."""

    Caption: str = ""
    Version: str = ""
    TotalVisibleMemorySize: int = 0
    FreePhysicalMemory: int = 0


def windows_system(system: System) -> WindowsSystem:
    """What Windows says of itself; empty when it does not answer."""
    return fitting(WindowsSystem, json_object(system.run(WINDOWS_QUESTION).stdout))


def _of_the_system(system: System) -> tuple[int | None, int | None, int | None, int | None]:
    """Cores, memory, available memory and swap before any control group (bytes)."""
    if system.name == "darwin":
        values = mac.sysctl(system)
        return whole_number(values.get("hw.logicalcpu")), whole_number(values.get("hw.memsize")), None, None
    if system.name == "windows":
        reply = windows_system(system)
        total, free = reply.TotalVisibleMemorySize * 1024, reply.FreePhysicalMemory * 1024
        return whole_number(system.env.get("NUMBER_OF_PROCESSORS")), total or None, free or None, None
    sizes = re.findall(r"^(\w+):\s+([0-9]{1,15}) kB", system.read("/proc/meminfo") or "", re.MULTILINE)
    memory = {name: int(size) * 1024 for name, size in sizes}
    status = system.read("/proc/self/status") or ""
    mask = captured(r"^Cpus_allowed:\s+([0-9a-f,]+)$", status, re.MULTILINE).replace(",", "")
    allowed = bin(int(mask or "0", 16)).count("1") or None
    return allowed, memory.get("MemTotal"), memory.get("MemAvailable"), memory.get("SwapTotal")


def limits(system: System, controller: str) -> list[tuple[int, int | None]]:
    """Return what limits this process: the first two numbers of its control group, and of every group above it, with a limit.

    They are bytes and the bytes used of ``memory``, a quota and its period in microseconds of ``cpu``, the limit of ``pids``.
    Inside a container the group's files are at the mount itself; outside they are in the folder that /proc/self/cgroup names.
    """
    folder, (files, files_of_version_2) = controller, _LIMITS[controller]
    if system.exists(f"{_CGROUPS}/cgroup.controllers"):
        folder, files = "", files_of_version_2
    path = "/"
    for line in (system.read("/proc/self/cgroup") or "").splitlines():
        fields = line.split(":", 2)  # number, controllers ("" for version 2), folder
        if len(fields) == 3 and folder in fields[1].split(","):
            path = fields[2]
    parts = [part for part in path.split("/") if part and part != ".."]
    rows: list[tuple[int, int | None]] = []
    for count in range(len(parts), -1, -1):
        group = "/".join(filter(None, (_CGROUPS, folder, *parts[:count])))
        words = " ".join(system.read(f"{group}/{name}") or "" for name in files.split()).split()
        number, other, *_ = *map(whole_number, words), None, None
        if number is not None and number < _NO_LIMIT:
            rows.append((number, other))
    return rows


class HostUse(Struct, frozen=True):
    """Resident memory (bytes) and processor time (seconds) of a process with all its living children."""

    rss: int
    cpu_seconds: float
    processes: tuple[int, ...]


def host_use(system: System, pid: int) -> HostUse | None:
    """Memory and processor time of ``pid`` and its descendants, from /proc; None when it is gone or there is no /proc."""
    table = {int(name): _stat(system, name) for name in system.listdir("/proc") if name.isdigit()}
    living = {number: stat for number, stat in table.items() if stat is not None}
    if pid not in living:
        return None
    family = [pid]
    for member in family:  # grows while it is walked
        family += [
            number for number, stat in living.items() if stat.parent == member and number not in family
        ]
    stats = [living[number] for number in family]
    rss, seconds = sum(stat.rss for stat in stats), sum(stat.cpu_seconds for stat in stats)
    return HostUse(rss, seconds, tuple(family))


def alive(system: System, pid: int) -> bool:
    """Tell whether /proc knows the process and it has not ended."""
    return _stat(system, str(pid)) is not None


class _Stat(NamedTuple):
    parent: int
    cpu_seconds: float
    rss: int


def _stat(system: System, pid: str) -> _Stat | None:
    """/proc/PID/stat (proc(5)): after the name in brackets come state, parent, ... utime (14th), stime, ... rss (24th).

    None for a process that has ended; a zombie has.
    """
    fields = (system.read(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    if len(fields) < 22 or fields[0] in "ZX":
        return None
    return _Stat(int(fields[1]), (int(fields[11]) + int(fields[12])) / _TICKS, int(fields[21]) * _PAGE)
