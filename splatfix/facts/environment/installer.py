"""What installs packages in an environment: its own pip, else uv, else the pip beside splatfix (pip 22.3 and newer)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from splatfix.facts.model.environment import Installer
from splatfix.facts.model.fact import Fact, unknown
from splatfix.facts.system.live import System, which_all

_TIMEOUT = 20.0


def find_installer(system: System, python: str, *, pip_inside: bool) -> Fact[Installer]:
    """The program that installs for the interpreter ``python``; uv and Poetry make environments without a pip.

    Args:
        pip_inside: the environment has a pip of its own, or sees one.
    """
    if pip_inside:
        return Fact(Installer(), "pip in the environment")
    for program, via in _uv_programs(system, python):
        said = re.match(r"uv (\d\S*)", system.run([program, "--version"], _TIMEOUT).stdout)
        if said:
            return Fact(Installer("uv", program, said.group(1)), via)
    # pip asks the other Python whether it can work on it, so an answer means that it can
    own = system.run([system.python, "-m", "pip", "--python", python, "--version"], _TIMEOUT)
    if own.ok and (said := re.match(r"pip (\d\S*)", own.stdout)):
        return Fact(Installer("pip", system.python, said.group(1)), "the Python of splatfix")
    return unknown("no pip inside, no uv found, and splatfix's own Python has no pip 22.3 or newer", python)


def _uv_programs(system: System, python: str) -> Iterator[tuple[str, str]]:
    """uv on PATH by its name; then where ``uv run`` says it is, beside both Pythons, and where its installer puts it."""
    ending = ".exe" if system.name == "windows" else ""
    if which_all(system, "uv"):
        yield "uv", "PATH"
    home = system.env.get("USERPROFILE" if ending else "HOME", "")
    folders = {
        "beside the target Python": re.split(r"[\\/][^\\/]*$", python)[0],
        "beside splatfix's Python": re.split(r"[\\/][^\\/]*$", system.python)[0],
        "uv's installer": f"{home}/.local/bin",
        "cargo": f"{home}/.cargo/bin",
    }
    given = system.env.get("UV", "")
    places = {"UV": given} if re.match(r"/|[A-Za-z]:[\\/]", given) else {}
    for via, path in (places | {via: f"{folder}/uv{ending}" for via, folder in folders.items()}).items():
        if system.exists(path):
            yield path, via
