"""Commands as findings and options advise them: for the environment and the GPUs that were looked at."""

from __future__ import annotations

from collections.abc import Iterable

from splatfix.context.readings import is_windows, python_of
from splatfix.core.step import Step, run, say
from splatfix.facts import Facts, Installer
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
    """``pip VERB WHAT`` for the target environment, by what installs there.

    A Python that others manage (a system's, one of uv's own) refuses every installation (PEP 668): there a person has to
    make an environment first.
    """
    python = facts.environment.interpreter.value
    if python is None:
        return run("pip", verb, *what, text=text)
    if python.externally_managed:
        windows = is_windows(facts)
        make = run(python.executable, "-m", "venv", "FOLDER").line(windows=windows)
        then = run("FOLDER/bin/python", "-m", "pip", verb, *what).line(windows=windows)
        return say(
            "This Python is managed by the system or by uv, and refuses installations (PEP 668). Make an environment "
            f"first: {make}. Then: {then}"
        )
    # a uv elsewhere has made it, when none was found
    installer = installer_of(facts) or (Installer("uv", "uv") if python.kind == "uv" else Installer())
    return run(*installer.command(python.executable, verb, *what), text=text)


def installer_of(facts: Facts) -> Installer | None:
    """What installs in the target environment; None when nothing was found that does."""
    inside = any(item.name.lower() == "pip" for item in facts.environment.distributions.value or ())
    return facts.environment.installer.value or (Installer() if inside else None)


def removed_by(facts: Facts) -> str:
    """What of the environment's project removes again what its lock file does not name; "" where nothing does.

    uv 0.13 and Poetry 2.5 were tried: `uv run` and `poetry install` leave it alone.
    """
    python = facts.environment.interpreter.value
    name = python.lock_file.replace("\\", "/").rpartition("/")[2] if python else ""
    return {"uv.lock": "uv sync", "poetry.lock": "poetry sync"}.get(name, "")


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
