"""What macOS says of a Mac: its chip, cores, memory and displays."""

import re

from splatfix.core.runner import Completed
from splatfix.facts.system.live import System

# One question for all, because probes overlap and each answer is kept.
_SYSCTL = ("sysctl", "hw.memsize", "hw.logicalcpu", "machdep.cpu.brand_string")
DISPLAYS = ("system_profiler", "SPDisplaysDataType")


def sysctl(system: System) -> dict[str, str]:
    """The kernel's values by name: ``hw.memsize``, ``hw.logicalcpu``, ``machdep.cpu.brand_string``."""
    return dict(re.findall(r"^([\w.]+): (.*)$", system.run(_SYSCTL).stdout, re.MULTILINE))


def displays(system: System) -> tuple[list[tuple[str, str]], Completed]:
    """Name and description of each GPU, and the answer of system_profiler that they were read from."""
    done = system.run(DISPLAYS)
    blocks = re.split(r"^\s+Chipset Model:", done.stdout, flags=re.MULTILINE)[1:]
    return [(block.splitlines()[0].strip(), block) for block in blocks], done
