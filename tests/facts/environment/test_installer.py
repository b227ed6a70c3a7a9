"""What installs where there is no pip: uv wherever it is, else the pip beside splatfix, else nothing."""

from __future__ import annotations

from typing import Any

import pytest

from splatfix.facts import Installer, find_installer
from splatfix.facts.system.playback import PlaybackSystem, RawMachine

PYTHON, OWN = "/env/bin/python", "/own/bin/python"
UV = {"stdout": "uv 0.13.9 (x86_64-unknown-linux-gnu)\n", "returncode": 0}


def machine(exists: tuple[str, ...] = (), env: dict[str, str] | None = None, **said: Any) -> PlaybackSystem:
    commands = [{"argv": [program, "--version"], **answer} for program, answer in said.items()]
    named = {"system": "linux", "machine": "x86_64", "python": PYTHON, "own_python": OWN}
    return PlaybackSystem(
        RawMachine(
            named, {"PATH": "/usr/bin", "HOME": "/home/me", **(env or {})}, {"exists": list(exists)}, commands
        )
    )


@pytest.mark.parametrize(
    ("place", "env", "program", "via"),
    [
        ("/usr/bin/uv", {}, "uv", "PATH"),
        ("/opt/uv", {"UV": "/opt/uv"}, "/opt/uv", "UV"),
        ("/env/bin/uv", {}, "/env/bin/uv", "beside the target Python"),
        ("/own/bin/uv", {}, "/own/bin/uv", "beside splatfix's Python"),
        ("/home/me/.local/bin/uv", {}, "/home/me/.local/bin/uv", "uv's installer"),
    ],
)
def test_uv_wherever_it_is(place: str, env: dict[str, str], program: str, via: str) -> None:
    found = find_installer(machine((place,), env, **{program: UV}), PYTHON, pip_inside=False)
    assert found.value == Installer("uv", program, "0.13.9") and found.found_via == via


def test_a_uv_that_does_not_answer_or_is_relative_is_none() -> None:
    silent = {"stdout": "", "returncode": 127}
    for given in ("/opt/uv", "./uv", ""):
        system = machine(("/opt/uv", "./uv"), {"UV": given}, **{"/opt/uv": silent, "./uv": UV})
        assert find_installer(system, PYTHON, pip_inside=False).value is None


def test_the_pip_beside_splatfix_is_asked_whether_it_can() -> None:
    system = machine()
    argv = (OWN, "-m", "pip", "--python", PYTHON, "--version")
    assert find_installer(system, PYTHON, pip_inside=False).error
    said = {"argv": list(argv), "stdout": "pip 26.3 from /own/lib (python 3.11)\n", "returncode": 0}
    system = PlaybackSystem(RawMachine(system.raw.machine, commands=[said]))
    found = find_installer(system, PYTHON, pip_inside=False).value
    assert found == Installer("pip", OWN, "26.3")
    assert found.command(PYTHON, "install", "x") == (*argv[:-1], "install", "x")


def test_a_pip_inside_comes_first() -> None:
    found = find_installer(machine(("/usr/bin/uv",), uv=UV), PYTHON, pip_inside=True).value
    assert found == Installer() and found.command(PYTHON, "list") == (PYTHON, "-m", "pip", "list")
