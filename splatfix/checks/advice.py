"""splatfix's own commands as a finding advises them: for the environment and the GPUs that were looked at."""

from __future__ import annotations

from splatfix.checks._common import Target, python_of, targets
from splatfix.checks.model import Goal, Remedy, prose
from splatfix.facts import Facts

SOURCE = "path/to/source"
"""Stands where only the person knows the source folder."""


def install_words(facts: Facts, goal: Goal, source: str = SOURCE, *, wanted: tuple[Target, ...] = ()) -> str:
    """``splatfix install SOURCE --python "..." --target sm_120``, for the middle of a sentence.

    ``wanted``: only these of the GPUs. ``--target`` is ``ARCH`` where neither the goal nor a GPU of this machine says
    for which GPU to build.
    """
    archs = dict.fromkeys(item.arch.sm for item in wanted or targets(facts, goal))
    named = "".join(f" --target {name}" for name in archs or ("ARCH",))
    return f"splatfix install {source}{naming_python(facts)}{named}"


def install(facts: Facts, goal: Goal, folder: str) -> Remedy:
    """The command that builds a source folder; prose where a person must say first for which GPU."""
    words = install_words(facts, goal, f'"{folder}"')
    if targets(facts, goal):
        return Remedy(words)
    return prose(f"{words} (ARCH: the GPU it is for, such as sm_120)")


def naming_python(facts: Facts) -> str:
    """`` --python "/env/bin/python"``; "" where the interpreter did not answer."""
    return f" --python {python_of(facts)}" if facts.environment.interpreter.value else ""
