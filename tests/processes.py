"""The end of processes that are no children of the tests."""

import os
import time
from pathlib import Path


def is_gone(process: int) -> bool:
    """It has ended: also one that nobody has buried yet, as a container may have no one who does, or only now and then."""
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except ProcessLookupError:
        return True
    except FileNotFoundError:  # it ended just now, or there is no /proc
        return Path("/proc/self").exists()


def assert_gone(processes: str, seconds: float = 20.0) -> None:
    """They end soon: who kills one does not wait until a busy machine has ended it."""
    until = time.monotonic() + seconds
    while alive := [number for number in map(int, processes.split()) if not is_gone(number)]:
        assert time.monotonic() < until, f"{alive} live on"
        time.sleep(0.02)
