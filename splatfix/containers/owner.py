"""Whose a container or an image on an engine is: a label with the process that made it, and whether that is dead."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

OWNER_LABEL = "org.splatfix.owner"


def owner_label() -> dict[str, str]:
    """The label of what belongs to this process."""
    return {
        OWNER_LABEL: json.dumps({"place": _place(), "pid": os.getpid(), "started": _started(os.getpid())})
    }


def is_dead(label: str) -> bool:
    """The process that wrote the label ran here and is gone; unknown is alive."""
    try:
        said = json.loads(label)
        place, pid, started = said["place"], int(said["pid"]), said["started"]
    except (ValueError, KeyError, TypeError):
        return False
    return bool(started) and place == _place() and _started(pid) != started


def _started(pid: int) -> str:
    """When a process started, in the kernel's own count; "" when it is gone, and everywhere but on Linux."""
    try:
        # field 22 of proc(5) stat; the name in brackets before may hold blanks
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _place() -> str:
    """Tells this machine since it was started, or this container, from another."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{platform.node()} {boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return platform.node()
