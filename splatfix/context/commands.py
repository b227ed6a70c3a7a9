"""Commands as findings and options advise them: for the environment and the GPUs that were looked at."""

from __future__ import annotations

from collections.abc import Iterable

from splatfix.context.readings import is_windows, python_of
from splatfix.core.step import Step, run, say
from splatfix.facts import Facts
from splatfix.knowledge import Arch

SOURCE = "SOURCE"
"""Stands where only the person knows the source folder."""


def install_source(facts: Facts, archs: Iterable[Arch], source: str = SOURCE, *, text: str = "") -> Step:
    """``splatfix install SOURCE --python ... --target sm_120``; a command only where nothing of it is left to a person.

    ``--target`` is ``ARCH`` where no architecture is given.
    """
    names = [arch.sm for arch in dict.fromkeys(archs)]
    targets = (word for name in names or ("ARCH",) for word in ("--target", name))
    step = run("splatfix", "install", source, *python_option(facts), *targets, text=text)
    if names and source != SOURCE and not source.startswith("path/to/"):
        return step
    line = step.line(windows=is_windows(facts))
    return say(line if names else f"{line} (ARCH: the GPU it is for, such as sm_120)")


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


def pip_anywhere(facts: Facts, *what: str) -> Step:
    """``pip install WHAT`` for the target environment; where that is the system's own, for one that is still to be made."""
    step = pip(facts, "install", *what)
    return step if step.command else run("FOLDER/bin/python", "-m", "pip", "install", *what)


def conda_toolkit(prefix: str, cuda: str, text: str = "") -> Step:
    """Put a toolkit (``12.1``) into a conda environment, from NVIDIA's channel of that release alone."""
    channel = f"nvidia/label/cuda-{cuda}.0"
    return run("conda", "install", "-p", prefix, "-c", channel, "cuda-toolkit", text=text)


def remove_command(facts: Facts, path: str, text: str = "", *, folder: bool = False) -> Step:
    """The command that removes a file, or a folder with what is in it, in this machine's shell."""
    if is_windows(facts):
        verb = ("rmdir", "/s") if folder else ("del",)
        return run(*verb, path.replace("/", "\\"), text=text)
    return run("rm", *(("-r",) if folder else ()), path, text=text)
