"""Simulated machines: raw answers put together from public formats. None was recorded on real hardware."""

from __future__ import annotations

from functools import cache

from splatfix.facts.system.playback import RawMachine
from tools.machines.catalogue import MACHINES

__all__ = ["raw_machines"]


@cache
def raw_machines() -> dict[str, RawMachine]:
    """The raw answers of every simulated machine, by its name."""
    return {machine.name: machine.raw() for machine in (make() for make in MACHINES)}
