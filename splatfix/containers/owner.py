"""Whose a container or an image on an engine is: a label with the process that made it, and whether that is dead."""

import os
import platform
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

OWNER_LABEL = "org.splatfix.owner"


def owner_label() -> dict[str, str]:
    """The label of what belongs to this process: without quotation marks, which Podman keeps with their backslashes."""
    return {OWNER_LABEL: urlencode({**_here(), "process": os.getpid()})}


def is_dead(label: str) -> bool:
    """The process that wrote the label ran here and is gone; unknown is alive."""
    owner, here = dict(parse_qsl(label)), _here()
    if os.name != "posix" or owner.get("host") != here["host"]:
        return False
    if owner.get("boot", here["boot"]) != here["boot"]:
        return True
    try:
        os.kill(int(owner["process"]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError, KeyError, ValueError):  # the first: another user's
        pass
    return False


def _here() -> dict[str, str]:
    """Name this machine and its start, with what tells process numbers of its containers apart."""
    host, boot = platform.node(), ""
    with suppress(OSError):
        host += f" {Path('/proc/self/ns/pid').readlink()}"
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return {"host": host, "boot": boot}
