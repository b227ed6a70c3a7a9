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


def pip(facts: Facts, verb: str, what: str) -> Remedy:
    """``pip VERB WHAT`` for the target environment, by the road that works there.

    An environment made by uv has no pip of its own. A system's Python refuses every installation (PEP 668), so there it is
    prose: a person has to make an environment first.
    """
    python = facts.environment.interpreter.value
    if python is None:
        return Remedy(f"pip {verb} {what}")
    have = {item.name.lower() for item in facts.environment.distributions.value or ()}
    if python.externally_managed:
        return prose(
            f"This Python belongs to the system, and pip changes nothing in it (PEP 668). Make an environment first: "
            f'"{python.executable}" -m venv FOLDER. Then: "FOLDER/bin/python" -m pip {verb} {what}'
        )
    if python.kind == "uv" and "pip" not in have:
        return Remedy(f'uv pip {verb} --python "{python.executable}" {what}')
    return Remedy(f'"{python.executable}" -m pip {verb} {what}')


def naming_python(facts: Facts) -> str:
    """`` --python "/env/bin/python"``; "" where the interpreter did not answer."""
    return f" --python {python_of(facts)}" if facts.environment.interpreter.value else ""
