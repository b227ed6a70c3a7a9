"""The simulated machines of ``tools/machines`` as facts, as folders, and with their reviewed goldens."""

import tempfile
from functools import cache
from pathlib import Path

from splatfix.facts.collect import playback
from splatfix.model import Facts
from tools.machines import raw_machines

__all__ = ["HERE", "NAMES", "facts_of", "folder", "raw_machines"]

HERE = Path(__file__).parent
"""Holds the reviewed goldens: ``NAME/findings.json`` and ``NAME/plans.json``."""


NAMES = sorted(raw_machines())


@cache
def facts_of(name: str) -> Facts:
    """The facts about a simulated machine."""
    return playback(raw_machines()[name])


@cache
def _session_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="splatfix-machines-")


@cache
def folder(name: str) -> Path:
    """A simulated machine on disk, for ``--facts``; it is removed when the tests end."""
    place = Path(_session_folder().name) / name
    raw_machines()[name].write(place)
    return place
