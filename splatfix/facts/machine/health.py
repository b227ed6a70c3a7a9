"""What shows a node at its end before a program does: errors that the driver wrote into the kernel's log, and full disks."""

import re
from collections import Counter

from splatfix.facts.system.live import System
from splatfix.model import Disk, Fact, Xid, unknown

_TIMEOUT = 5.0
# Folders where builds, caches and logs go; a home may be on a network, where asking can hang.
_FOLDERS = ("/", "/tmp", "/var/tmp")  # asked for their size alone  # nosec B108
# The log holds names of devices and users: nothing but these lines leaves the shell.
_LINES = ("sh", "-c", "dmesg | grep -F 'NVRM: Xid'")


def xids(system: System) -> Fact[tuple[Xid, ...]]:
    """The driver's errors since the machine started, as far as its log goes back: ``NVRM: Xid (PCI:0000:10:1c): 63, ...``.

    Most systems let only root read the log: then it is unknown.
    """
    if not system.exists("/proc/driver/nvidia"):
        return unknown("no NVIDIA kernel module is loaded")
    done = system.run(_LINES, _TIMEOUT)
    if done.returncode is None or done.stderr.strip():
        return unknown(f"dmesg: {done.stderr.strip() or done.why()}")
    rows = re.findall(r"NVRM: Xid \((?:PCI:)?([0-9a-f:.]{1,16})\): ([0-9]{1,4})\b", done.stdout)
    counts = Counter((bus, int(code)) for bus, code in rows)
    return Fact(tuple(Xid(bus, code, count) for (bus, code), count in counts.items()), "dmesg")


def disks(system: System) -> Fact[tuple[Disk, ...]]:
    """The file systems that builds and temporary files are on (df, in POSIX's format)."""
    folders = [folder for folder in _FOLDERS if system.exists(folder)]
    done = system.run(("df", "-Pk", *folders), _TIMEOUT)
    rows = re.findall(
        r"^\S.*?\s(\d{1,15})\s+\d{1,15}\s+(\d{1,15})\s+\d{1,3}%\s+(/.*)$", done.stdout, re.MULTILINE
    )
    by_mount = {point: Disk(point, int(total) << 10, int(free) << 10) for total, free, point in rows}
    if not by_mount:
        return unknown(f"df: {done.why() or 'no readable answer'}")
    return Fact(tuple(by_mount.values()), "df")
