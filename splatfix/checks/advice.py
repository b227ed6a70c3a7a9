"""splatfix's own commands as a finding advises them: for the environment and the GPUs that were looked at."""

from __future__ import annotations

from splatfix.checks._common import Target, is_windows, python_of, targets
from splatfix.checks.model import Goal
from splatfix.core.step import Step, run, say
from splatfix.facts import Facts

SOURCE = "path/to/source"
"""Stands where only the person knows the source folder."""


def install_words(facts: Facts, goal: Goal, source: str = SOURCE, *, wanted: tuple[Target, ...] = ()) -> str:
    """``splatfix install SOURCE --python ... --target sm_120`` for the middle of a sentence.

    ``wanted``: only these of the GPUs. ``--target`` is ``ARCH`` where neither the goal nor a GPU of this machine says
    for which GPU to build.
    """
    return _install(facts, goal, source, wanted).line(windows=is_windows(facts))


def install(facts: Facts, goal: Goal, folder: str, text: str = "") -> Step:
    """Build a source folder; without a command where a person must say first for which GPU."""
    step = _install(facts, goal, folder, (), text)
    if targets(facts, goal):
        return step
    return say(f"{step.line(windows=is_windows(facts))} (ARCH: the GPU it is for, such as sm_120)")


def pip(facts: Facts, verb: str, *what: str, text: str = "") -> Step:
    """``pip VERB WHAT`` for the target environment, the way that works there.

    An environment made by uv has no pip of its own. A system's Python refuses every installation (PEP 668): there a
    person has to make an environment first.
    """
    python = facts.environment.interpreter.value
    if python is None:
        return run("pip", verb, *what, text=text)
    have = {item.name.lower() for item in facts.environment.distributions.value or ()}
    if python.externally_managed:
        windows = is_windows(facts)
        make = run(python.executable, "-m", "venv", "FOLDER").line(windows=windows)
        then = run("FOLDER/bin/python", "-m", "pip", verb, *what).line(windows=windows)
        return say(
            "This Python belongs to the system, and pip changes nothing in it (PEP 668). Make an environment first: "
            f"{make}. Then: {then}"
        )
    if python.kind == "uv" and "pip" not in have:
        return run("uv", "pip", verb, "--python", python.executable, *what, text=text)
    return run(python.executable, "-m", "pip", verb, *what, text=text)


def python_option(facts: Facts) -> tuple[str, ...]:
    """``--python /env/bin/python``; () where the interpreter did not answer."""
    return ("--python", python_of(facts)) if facts.environment.interpreter.value else ()


def _install(facts: Facts, goal: Goal, source: str, wanted: tuple[Target, ...], text: str = "") -> Step:
    archs = dict.fromkeys(item.arch.sm for item in wanted or targets(facts, goal))
    named = (word for name in archs or ("ARCH",) for word in ("--target", name))
    return run("splatfix", "install", source, *python_option(facts), *named, text=text)
