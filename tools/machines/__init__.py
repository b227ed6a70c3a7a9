"""Simulated machines: raw answers put together from public formats. None was recorded on real hardware.

A machine is a file of ``data/``: its ``source``, the parts it has (driver, toolkit, Python, ...), and under ``files``,
``exists``, ``env`` and ``commands`` what only this one says. :mod:`tools.machines.parts` knows the parts.
"""

from functools import cache
from pathlib import Path
from typing import Any

from splatfix.core.toml import parse_toml
from splatfix.facts.system.playback import RawMachine
from tools.machines.parts import simulate

__all__ = ["description", "raw_machines"]

DATA = Path(__file__).parent / "data"


@cache
def raw_machines() -> dict[str, RawMachine]:
    """The raw answers of every simulated machine, by its name."""
    return {path.stem: simulate(description(path.stem)) for path in sorted(DATA.glob("*.toml"))}


def description(name: str) -> dict[str, Any]:
    """A machine's file; one with a ``base`` says what it has more than that, or otherwise."""
    own = parse_toml((DATA / f"{name}.toml").read_text(encoding="utf-8"))
    if "base" not in own:
        return own
    merged = description(own.pop("base"))
    for key, value in own.items():
        if isinstance(value, dict):
            merged[key] = merged.get(key, {}) | value
        elif isinstance(value, list):
            merged[key] = merged.get(key, []) + value
        else:
            merged[key] = value
    return merged
