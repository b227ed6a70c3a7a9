"""Commands as findings and options advise them: for the environment and the GPUs that were looked at."""

from collections.abc import Iterable
from pathlib import PureWindowsPath

from splatfix.context.installed import Inventory
from splatfix.core.step import Step, run, say
from splatfix.model import Facts, Installer, Interpreter

BY_RELEASE = {"gsplat": "1.5.3"}
"""Extensions that ``splatfix install`` takes by their release on PyPI, and the one to name where none is asked for: their
wheel compiles at the first import, so the source is fetched and built ahead of that."""
TRAINING_NEEDS = ("torch", "numpy", "pillow")
"""Distributions that ``splatfix certify`` needs in the target environment to train."""


def sources_of(facts: Facts, distributions: Iterable[str | None]) -> tuple[str, ...]:
    """Return what ``splatfix install`` takes to build all of these distributions again; () where that of one is not known.

    Of each its release on PyPI, or the folder that it was installed from.
    """
    known: dict[str | None, str] = {}
    for item in facts.environment.distributions.value or ():
        is_released = item.name.lower() in BY_RELEASE
        # the first on the path is the one that is imported
        known.setdefault(item.name, f"{item.name}=={item.version}" if is_released else item.source)
    sources = tuple(known.get(name, "") for name in distributions)
    if not all(sources):
        return ()
    return sources


def pip(facts: Facts, verb: str, *arguments: str, text: str = "") -> Step:
    """Build ``pip VERB ARGUMENTS`` for the target environment, by what installs there.

    A Python that others manage (a system's, one of uv's own) refuses every installation (PEP 668): there a person has to
    make an environment first.
    """
    python = facts.environment.interpreter.value
    if python is None:
        return run("pip", verb, *arguments, text=text)
    if python.externally_managed:
        windows = facts.machine.system == "windows"
        make = make_environment(python).line(windows=windows)
        install = run(*Installer().command(python_to_be(facts), verb, *arguments)).line(windows=windows)
        return say(f"This Python refuses installations (PEP 668). {make}. Then: {install}")
    installer = installer_of(facts)
    if installer is None:
        installer = Installer()
        # a uv elsewhere has made it, when none was found
        if python.kind == "uv":
            installer = Installer("uv", "uv")
    return run(*installer.command(python.executable, verb, *arguments), text=text)


def make_environment(python: Interpreter) -> Step:
    """Build the command that makes an environment of a Python's own in the current folder, where splatfix then finds it."""
    return run(python.executable, "-m", "venv", ".venv", text="Make an environment")


def python_to_be(facts: Facts) -> str:
    """Return the interpreter in the environment of :func:`make_environment`."""
    if facts.machine.system == "windows":
        return r".venv\Scripts\python.exe"
    return ".venv/bin/python"


def installer_of(facts: Facts) -> Installer | None:
    """Return what installs in the target environment; None when nothing was found that does."""
    if facts.environment.installer.value:
        return facts.environment.installer.value
    # where nobody asked (facts of an earlier splatfix), a pip that is listed counts
    names = {item.name.lower() for item in facts.environment.distributions.value or ()}
    if "pip" not in names:
        return None
    return Installer()


def removed_by(facts: Facts) -> str:
    """Name what of the environment's project removes again what its lock file does not name; "" where nothing does.

    uv 0.13 and Poetry 2.5 were tried: `uv run` and `poetry install` leave it alone.
    """
    python = facts.environment.interpreter.value
    if python is None:
        return ""
    name = PureWindowsPath(python.lock_file).name
    return {"uv.lock": "uv sync", "poetry.lock": "poetry sync"}.get(name, "")


def python_option(facts: Facts) -> tuple[str, ...]:
    """Return ``--python /env/bin/python``; () where the interpreter did not answer."""
    python = facts.environment.interpreter.value
    if python is None:
        return ()
    return ("--python", python.executable)


def lacking(facts: Facts, needs: Iterable[str]) -> list[str]:
    """List which of these distributions the target environment does not have."""
    here, has_torch = Inventory(facts), facts.environment.torch_installed.value
    return [name for name in needs if not (here.distribution(name) or (name == "torch" and has_torch))]


def training_steps(facts: Facts, *options: str) -> tuple[Step, ...]:
    """Give the command that tests training, behind the one that installs what it needs and the environment lacks."""
    text = "Next: test training"
    missing = lacking(facts, TRAINING_NEEDS)
    if not missing:
        return (run("splatfix", "certify", *options, text=text),)
    install = pip(facts, "install", *missing, text=f"{text}, which needs {' and '.join(missing)}")
    return install, run("splatfix", "certify", *options)


def conda_toolkit(prefix: str, cuda: str, text: str = "") -> Step:
    """Put a toolkit (``12.1``) into a conda environment, from NVIDIA's channel of that release alone."""
    channel = f"nvidia/label/cuda-{cuda}.0"
    return run("conda", "install", "-p", prefix, "-c", channel, "cuda-toolkit", text=text)


def remove_command(facts: Facts, path: str, *, folder: bool = False) -> Step:
    """Build the command that removes a file, or a folder with what is in it, in this machine's shell."""
    if facts.machine.system == "windows":
        # cmd.exe takes a slash for the beginning of an option
        path = path.replace("/", "\\")
        if folder:
            return run("rmdir", "/s", path)
        return run("del", path)
    return run("rm", *(["-r"] if folder else []), path)
