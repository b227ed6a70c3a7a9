"""Whose a container or an image on an engine is: a label with the process that made it, and whether that is dead."""

import os
import platform
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

OWNER_LABEL = "org.splatfix.owner"


def owner_label() -> dict[str, str]:
    """The label of what belongs to this process: without quotation marks, which Podman keeps with their backslashes."""
    pid = os.getpid()
    return {OWNER_LABEL: urlencode({"place": _machine(), "pid": pid, "started": _started(pid)})}


def is_dead(label: str) -> bool:
    """The process that wrote the label ran here and is gone; unknown is alive."""
    owner = dict(parse_qsl(label))
    pid, started = owner.get("pid", ""), owner.get("started", "")
    if not pid.isdecimal() or not started or owner.get("place") != _machine():
        return False
    return _started(int(pid)) != started


def _started(pid: int) -> str:
    """When a process started, in the kernel's own count; "" when it is gone, and everywhere but on Linux."""
    try:
        # field 22 of proc(5) stat; the name in brackets before may hold blanks
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _machine() -> str:
    """Tells this machine since it was started, or this container, from another."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{platform.node()} {boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return platform.node()
