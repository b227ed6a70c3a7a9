"""What a container was started with, apart from its GPUs: shared memory, limits, a root that cannot be written, its user."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from splatfix.facts.machine.resources import limits
from splatfix.facts.system.live import System, captured, whole_number
from splatfix.facts.tables import TABLES
from splatfix.model import Confinement, Fact, unknown

MOUNTS = "/proc/self/mountinfo"
# Places on the machine that is looked at; nothing is written there.
_SHM = "/dev/shm"  # nosec B108
_TEMPORARY = ("/tmp", "/var/tmp")  # nosec B108


class _Mount(NamedTuple):
    """A line of mountinfo; see proc(5)."""

    point: str
    options: list[str]
    kind: str
    more: list[str]
    root: str
    """Which folder of the file system is mounted."""


def probe(system: System) -> Fact[Confinement]:
    """What the kernel says of the mounts, the control group and the user of this process; only for a container."""
    mounts = tuple(_mounts(system.read(MOUNTS) or ""))
    if not mounts:
        return unknown(f"{MOUNTS} cannot be read")
    at = {mount.point: mount for mount in mounts}  # the last one mounted at a place is the one in sight
    root, shm = at.get("/"), at.get(_SHM)
    status = system.read("/proc/self/status") or ""
    uid = whole_number(captured(r"^Uid:\s+(\d+)", status, re.MULTILINE))
    size = None
    if shm:  # the kernel writes the size of a tmpfs in KiB, and none where it has no limit
        size = whole_number(captured(r"(?m)^size=(\d+)k$", "\n".join(shm.more)))
    closed: list[str] = []
    if uid:
        # find asks the kernel, which also knows of groups and access lists
        files = ("find", "/dev", "-maxdepth", "1", "-name", "nvidia*", "-type", "c")
        done = system.run([*files, "!", "(", "-readable", "-writable", ")"])
        closed = sorted(line for line in done.stdout.splitlines() if line.startswith("/dev/nvidia"))
    confinement = Confinement(
        shm=size and size * 1024,
        processes=min((limit for limit, _ in limits(system, "pids")), default=None),
        memory=min((limit for limit, _ in limits(system, "memory")), default=None),
        read_only=None if root is None else "ro" in root.options,
        writable=tuple(path for path in _TEMPORARY if path in at and "rw" in at[path].options),
        user=uid,
        closed_devices=tuple(closed),
        wsl_device=system.exists("/dev/dxg"),
    )
    return Fact(confinement, MOUNTS)


def kind_by_mounts(system: System) -> str | None:
    """Which engine the root file system and the files mounted into it come from; None where they name none."""
    sources = []
    for mount in _mounts(system.read(MOUNTS) or ""):
        if mount.point == "/" and mount.kind == "overlay":
            sources += [option for option in mount.more if "dir=" in option]
        elif mount.point in ("/etc/resolv.conf", "/etc/hostname", "/etc/hosts"):
            sources.append(mount.root)
    marks: dict[str, str] = TABLES["container_mounts"]
    return next((kind for mark, kind in marks.items() if any(mark in source for source in sources)), None)


def _mounts(text: str) -> Iterator[_Mount]:
    for line in text.splitlines():
        here, _, there = line.partition(" - ")
        fields, others = here.split(), there.split()
        if len(fields) > 5 and len(others) > 2:
            yield _Mount(fields[4], fields[5].split(","), others[0], others[2].split(","), fields[3])
