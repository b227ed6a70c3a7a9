"""Every host compiler on the machine with its version, and the other tools a build uses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from splatfix.facts.model import Compiler, Fact
from splatfix.facts.system import System, which_all

_TIMEOUT = 8.0
_VERSIONED = re.compile(r"^(gcc|g\+\+|clang|clang\+\+)(-\d+(\.\d+)?)?$")
_CONDA = re.compile(r"-conda-linux-gnu-(gcc|g\+\+)$")

_TOOLS: Mapping[str, tuple[list[str], str]] = {
    "ninja": (["--version"], r"^([\d.]+)"),
    "cmake": (["--version"], r"cmake version ([\d.]+)"),
    "git": (["--version"], r"git version ([\d.]+)"),
    "docker": (["--version"], r"Docker version ([\d.]+)"),
    "ccache": (["--version"], r"ccache version ([\d.]+)"),
    "sccache": (["--version"], r"sccache ([\d.]+)"),
}


def probe(system: System) -> Fact[tuple[Compiler, ...]]:
    """All host compilers: those on PATH under any versioned name, and those the environment variables name."""
    roads: dict[str, list[str]] = {}
    for path, via in _candidates(system):
        roads.setdefault(path, [])
        if via not in roads[path]:
            roads[path].append(via)
    with ThreadPoolExecutor(max_workers=4) as pool:
        found = pool.map(lambda item: _describe(system, item[0], tuple(item[1])), roads.items())
    return Fact(tuple(item for item in found if item is not None), "PATH, CC, CXX, CUDAHOSTCXX, NVCC_CCBIN")


def tools(system: System) -> dict[str, str]:
    """Version of each build tool that is there."""

    def ask(name: str) -> tuple[str, str] | None:
        if not which_all(system, name):
            return None
        arguments, pattern = _TOOLS[name]
        match = re.search(pattern, system.run([name, *arguments], _TIMEOUT).stdout)
        return (name, match.group(1)) if match else None

    with ThreadPoolExecutor(max_workers=4) as pool:
        return dict(item for item in pool.map(ask, _TOOLS) if item)


def _candidates(system: System) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for variable in ("CC", "CXX", "CUDAHOSTCXX", "NVCC_CCBIN"):
        words = system.env.get(variable, "").split()
        if words:
            # a compiler cache may stand in front: "ccache g++-13"
            program = words[-1] if words[0].endswith(("ccache", "sccache")) else words[0]
            resolved = (
                program
                if "/" in program or "\\" in program
                else next(iter(which_all(system, program)), program)
            )
            found.append((resolved, variable))
    if system.name == "windows":
        return found + [(path, "PATH") for path in which_all(system, "cl")]
    seen: set[str] = set()  # /bin is often a link to /usr/bin
    for folder in filter(None, system.env.get("PATH", "").split(":")):
        real = system.realpath(folder)
        if real in seen:
            continue
        seen.add(real)
        for name in system.listdir(folder):
            if _VERSIONED.match(name) or _CONDA.search(name):
                found.append((f"{folder}/{name}", "PATH"))
    return found


def _describe(system: System, path: str, found_via: tuple[str, ...]) -> Compiler | None:
    name = path.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".exe")
    if name == "cl":
        said = system.run([path], _TIMEOUT)
        match = re.search(r"Version (\d+\.\d+)", said.stderr + said.stdout)
        return Compiler("cl", path, match.group(1) if match else None, found_via, "" if match else said.why())
    kind = re.sub(r"^.*conda-linux-gnu-|-[\d.]+$", "", name)
    if kind not in ("gcc", "g++", "clang", "clang++"):
        return None
    said = system.run([path, "--version"], _TIMEOUT)
    first = (said.stdout.splitlines() or [""])[0]
    match = re.search(r"(?:clang version |\) )(\d+(?:\.\d+)+)", first)
    if "clang" in first and kind in ("gcc", "g++"):
        kind = {"gcc": "clang", "g++": "clang++"}[kind]  # macOS names clang gcc
    return Compiler(
        kind, path, match.group(1) if match else None, found_via, "" if match else said.why() or first
    )
