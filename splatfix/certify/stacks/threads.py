"""How many threads a trainer gets on a CPU: OpenMP threads that wait for one another lose their time slices to other programs."""

import os
from collections.abc import Mapping

from msgspec import Struct

from splatfix.core.words import counted
from splatfix.model import Facts

VARIABLE = "OMP_NUM_THREADS"
MOST = 8
"""A rehearsal's tensors, of some thousand Gaussians at 128 px, keep no more busy."""
SHARE = 2
"""Of so many idle cores one thread: two threads on two cores that others use too took 5 to 25 times as long as one, and on idle
ones 0.8 of its time (torch 2.13, measured)."""


class Threads(Struct, frozen=True):
    """The number, and the reason for it."""

    count: int
    reason: str


def threads_for(
    facts: Facts, variables: Mapping[str, str] = os.environ, load: float | None = None
) -> Threads:
    """Return as many as OMP_NUM_THREADS says; else by the cores that nobody used in the last minute."""
    # nested parallelism is given as a list, of which the first is the outer one
    count = variables.get(VARIABLE, "").partition(",")[0].strip()
    if count.isascii() and count.isdigit() and int(count):
        return Threads(int(count), VARIABLE)
    cores = facts.machine.resources.cores or os.cpu_count() or 1
    if load is None:
        load = 0.0
        if hasattr(os, "getloadavg"):  # not on Windows
            load = os.getloadavg()[0]
    idle = max(0.0, cores - load)
    return Threads(
        max(1, min(MOST, int(idle / SHARE))),
        f"{counted(cores, 'core')}, {idle:.1f} of them idle at the start",
    )
