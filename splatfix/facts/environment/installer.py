"""What installs packages in an environment: its own pip, else uv, else the pip beside splatfix (pip 22.3 and newer)."""

import re
from collections.abc import Iterator

from splatfix.facts.system.live import System, captured, folder_of, which_all
from splatfix.model import Fact, Installer, unknown

_TIMEOUT = 20.0


def find_installer(system: System, python: str, *, pip_inside: bool) -> Fact[Installer]:
    """The program that installs for the interpreter ``python``; uv and Poetry make environments without a pip.

    Args:
        pip_inside: the environment has a pip of its own, or sees one.
    """
    if pip_inside:
        return Fact(Installer(), "pip in the environment")
    for program, via in _uv_programs(system, python):
        version = captured(r"\Auv (\d\S*)", system.run([program, "--version"], _TIMEOUT).stdout)
        if version:
            return Fact(Installer("uv", program, version), via)
    # pip asks the other Python whether it can work on it, so an answer means that it can
    done = system.run([system.python, "-m", "pip", "--python", python, "--version"], _TIMEOUT)
    version = captured(r"\Apip (\d\S*)", done.stdout)
    if done.ok and version:
        return Fact(Installer("pip", system.python, version), "the Python of splatfix")
    return unknown("no pip inside, no uv found, and splatfix's own Python has no pip 22.3 or newer", python)


def _uv_programs(system: System, python: str) -> Iterator[tuple[str, str]]:
    """uv on PATH by its name; then where ``uv run`` says it is, beside both Pythons, and where its installer puts it."""
    if which_all(system, "uv"):
        yield "uv", "PATH"
    uv, home = "uv", system.env.get("HOME", "")
    if system.name == "windows":
        uv, home = "uv.exe", system.env.get("USERPROFILE", "")
    named = system.env.get("UV", "")
    for path, via in (
        (named if re.match(r"/|[A-Za-z]:[\\/]", named) else "", "UV"),
        (f"{folder_of(python)}/{uv}", "beside the target Python"),
        (f"{folder_of(system.python)}/{uv}", "beside splatfix's Python"),
        (f"{home}/.local/bin/{uv}", "uv's installer"),
        (f"{home}/.cargo/bin/{uv}", "cargo"),
    ):
        if path and system.exists(path):
            yield path, via
