"""Resources of a build or a run: cores, memory, disk, limits, and what a process tree uses."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from splatfix.core.codec import parse_json
from splatfix.facts.machine import mac
from splatfix.facts.model.machine import Resources
from splatfix.facts.system.live import System, captured, whole_number

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
    limit, used = _memory_of_control_group(system)
    if limit is not None and total is not None and limit < total:
        total = limit
        if used is not None:
            available = min(available or total, max(0, total - used))
    quota = _cores_of_control_group(system)
    if quota is not None and cores:
        cores = max(1, min(cores, round(quota)))
    return Resources(cores, total, available, swap)


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
        values = mac.sysctl(system)
        return whole_number(values.get("hw.logicalcpu")), whole_number(values.get("hw.memsize")), None, None
    if system.name == "windows":
        reply = windows_system(system)
        total, free = reply.get("TotalVisibleMemorySize"), reply.get("FreePhysicalMemory")
        cores = whole_number(system.env.get("NUMBER_OF_PROCESSORS"))
        return cores, _kibibytes(total), _kibibytes(free), None
    memory = _meminfo(system.read("/proc/meminfo") or "")
    return _cores(system), memory.get("MemTotal"), memory.get("MemAvailable"), memory.get("SwapTotal")


def _meminfo(text: str) -> Mapping[str, int]:
    """Bytes by name from /proc/meminfo, whose unit is KiB."""
    lines = re.findall(r"^(\w+):\s+([0-9]{1,15}) kB", text, re.MULTILINE)
    return {name: int(size) * 1024 for name, size in lines}


def _cores(system: System) -> int | None:
    """Cores that this process may run on, by its CPU mask."""
    status = system.read("/proc/self/status") or ""
    mask = captured(r"^Cpus_allowed:\s+([0-9a-f,]+)$", status, re.MULTILINE).replace(",", "")
    return bin(int(mask or "0", 16)).count("1") or None


def _memory_of_control_group(system: System) -> tuple[int | None, int | None]:
    """(limit, bytes used) of the tightest control group that this process is in."""
    if _is_version_2(system):
        controller, limit_file, usage_file = "", "memory.max", "memory.current"
    else:
        controller, limit_file, usage_file = "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
    limit, used = None, None
    for folder in _control_groups(system, controller):
        group_limit = whole_number(system.read(f"{folder}/{limit_file}"))
        if group_limit is not None and (limit is None or group_limit < limit):
            limit, used = group_limit, whole_number(system.read(f"{folder}/{usage_file}"))
    return limit, used


def _cores_of_control_group(system: System) -> float | None:
    """Cores that the tightest control group of this process allows."""
    version_2 = _is_version_2(system)
    least: float | None = None
    for folder in _control_groups(system, "" if version_2 else "cpu"):
        if version_2:  # both numbers in one file
            text = system.read(f"{folder}/cpu.max") or ""
        else:
            files = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            text = " ".join(system.read(f"{folder}/{name}") or "" for name in files)
        cores = _ratio(text.split())
        if cores is not None and (least is None or cores < least):
            least = cores
    return least


def _is_version_2(system: System) -> bool:
    return system.exists(f"{_CGROUPS}/cgroup.controllers")


def _control_groups(system: System, controller: str) -> list[str]:
    """The folder of this process's group, and every folder above it, which limits too.

    Inside a container the group's files are at the mount itself; outside they are in the folder that /proc/self/cgroup names.
    """
    path = "/"
    for line in (system.read("/proc/self/cgroup") or "").splitlines():
        fields = line.split(":", 2)  # number, controllers ("" for version 2), folder
        if len(fields) == 3 and controller in fields[1].split(","):
            path = fields[2]
    mount = f"{_CGROUPS}/{controller}".rstrip("/")
    parts = [part for part in path.split("/") if part and part != ".."]
    return ["/".join([mount, *parts[:count]]) for count in range(len(parts), -1, -1)]


def _ratio(pair: list[str]) -> float | None:
    """Cores from a quota and its period in microseconds; None for ``max`` and ``-1``, which mean no limit."""
    if len(pair) == 2 and all(re.fullmatch("[0-9]{1,15}", text) for text in pair) and int(pair[1]) > 0:
        return int(pair[0]) / int(pair[1])
    return None


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
