"""What installs where there is no pip: uv wherever it is, else the pip beside splatfix, else nothing."""

from collections.abc import Mapping
from typing import Any

import pytest

from splatfix.core.codec import from_json
from splatfix.facts import find_installer
from splatfix.facts.system.playback import PlaybackSystem, RawMachine
from splatfix.model import Installer
from tests.tables import data

TABLE = data(__file__)

PYTHON, OWN = "/env/bin/python", "/own/bin/python"
UV = {"stdout": "uv 0.13.9 (x86_64-unknown-linux-gnu)\n", "returncode": 0}


def machine(*exists: str, said: Mapping[str, Any] | None = None, **env: str) -> PlaybackSystem:
    commands = [{"argv": argv.split(), **answer} for argv, answer in (said or {}).items()]
    named = {"system": "linux", "machine": "x86_64", "python": PYTHON, "own_python": OWN}
    env = {"PATH": "/usr/bin", "HOME": "/home/me", **env}
    document = {"machine": named, "env": env, "paths": {"exists": exists}, "commands": commands}
    return PlaybackSystem(from_json(RawMachine, document))


@pytest.mark.parametrize(("place", "env", "program", "via"), TABLE["uv-wherever-it-is"])
def test_uv_wherever_it_is(place: str, env: dict[str, str], program: str, via: str) -> None:
    system = machine(place, said={f"{program} --version": UV}, **env)
    found = find_installer(system, PYTHON, pip_inside=False)
    assert found.value == Installer("uv", program, "0.13.9") and found.found_via == via


def test_a_uv_that_does_not_answer_or_is_relative_is_none() -> None:
    silent = {"stdout": "", "returncode": 127}
    for given in ("/opt/uv", "./uv", ""):
        said = {"/opt/uv --version": silent, "./uv --version": UV}
        system = machine("/opt/uv", "./uv", said=said, UV=given)
        assert find_installer(system, PYTHON, pip_inside=False).value is None


def test_pip_inside_comes_first_and_that_beside_splatfix_last() -> None:
    found = find_installer(machine("/usr/bin/uv", said={"uv --version": UV}), PYTHON, pip_inside=True).value
    assert found == Installer() and found.command(PYTHON, "list") == (PYTHON, "-m", "pip", "list")
    argv = (OWN, "-m", "pip", "--python", PYTHON, "--version")
    assert find_installer(machine(), PYTHON, pip_inside=False).error
    said = {" ".join(argv): {"stdout": "pip 26.3 from /own/lib (python 3.11)\n", "returncode": 0}}
    found = find_installer(machine(said=said), PYTHON, pip_inside=False).value
    assert found == Installer("pip", OWN, "26.3")
    assert found.command(PYTHON, "install", "x") == (*argv[:-1], "install", "x")
