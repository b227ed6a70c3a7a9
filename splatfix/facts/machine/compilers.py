"""Every host compiler on the machine with its version, and the other tools a build uses."""

from __future__ import annotations

import re
from collections.abc import Mapping

from splatfix.core.codec import parse_json
from splatfix.facts.model.fact import Fact
from splatfix.facts.model.machine import Compiler
from splatfix.facts.system.live import System, which_all
from splatfix.facts.system.parallel import each

_TIMEOUT = 8.0
_VERSIONED = re.compile(r"^(gcc|g\+\+|clang|clang\+\+)(-\d+(\.\d+)?)?$")
_CONDA = re.compile(r"-conda-linux-gnu-(gcc|g\+\+|clang|clang\+\+)$")
_VARIABLES = ("CC", "CXX", "CUDAHOSTCXX", "NVCC_CCBIN")
_VSWHERE = "Microsoft Visual Studio/Installer/vswhere.exe"

_TOOLS: Mapping[str, tuple[list[str], str]] = {
    "ninja": (["--version"], r"^([\d.]+)"),
    "cmake": (["--version"], r"cmake version ([\d.]+)"),
    "git": (["--version"], r"git version ([\d.]*\d)"),
    "docker": (["--version"], r"Docker version ([\d.]+)"),
    "ccache": (["--version"], r"ccache version ([\d.]+)"),
    "sccache": (["--version"], r"sccache ([\d.]+)"),
    "colmap": (["help"], r"COLMAP ([\d.]+)"),
}


def probe(system: System, environment: str = "") -> Fact[tuple[Compiler, ...]]:
    """All host compilers: on PATH under any versioned name, named by variables, conda's, and Visual Studio's.

    Args:
        environment: the target environment's folder; a conda environment may hold compilers of its own.
    """
    found_via: dict[str, list[str]] = {}
    candidates = [*_named(system), *_on_path(system), *_conda(system, environment), *_visual_studio(system)]
    for path, via in candidates:
        if via not in found_via.setdefault(path, []):
            found_via[path].append(via)
    found = each(lambda item: _describe(system, item[0], tuple(item[1])), found_via.items())
    searched = f"PATH, {', '.join(_VARIABLES)}"
    searched += ", Visual Studio's own list" if system.name == "windows" else ", conda"
    return Fact(tuple(item for item in found if item is not None), searched)


def tools(system: System) -> dict[str, str]:
    """Version of each build tool that is there."""

    def ask(name: str) -> tuple[str, str] | None:
        if not which_all(system, name):
            return None
        arguments, pattern = _TOOLS[name]
        match = re.search(pattern, system.run([name, *arguments], _TIMEOUT).stdout)
        return (name, match.group(1)) if match else None

    return dict(item for item in each(ask, _TOOLS) if item)


def _named(system: System) -> list[tuple[str, str]]:
    """The compilers that environment variables name; ``nvcc -ccbin`` flags count as well."""
    found: list[tuple[str, str]] = []
    wanted = [(variable, system.env.get(variable, "").split()) for variable in _VARIABLES]
    for variable in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"):
        match = re.search(r"(?:-ccbin|--compiler-bindir)[= ](\S+)", system.env.get(variable, ""))
        wanted.append((f"{variable} -ccbin", [match.group(1)] if match else []))
    for variable, words in wanted:
        if not words:
            continue
        # a compiler cache may stand in front: "ccache g++-13"
        program = words[-1] if words[0].endswith(("ccache", "sccache")) else words[0]
        given = "/" in program or "\\" in program
        found.append((program if given else next(iter(which_all(system, program)), program), variable))
    return found


def _on_path(system: System) -> list[tuple[str, str]]:
    if system.name == "windows":
        return [(path, "PATH") for path in which_all(system, "cl")]
    found: list[tuple[str, str]] = []
    seen: set[str] = set()  # /bin is often a link to /usr/bin
    for folder in filter(None, system.env.get("PATH", "").split(":")):
        real = system.realpath(folder)
        if real in seen:
            continue
        seen.add(real)
        found += [
            (f"{folder}/{name}", "PATH")
            for name in system.listdir(folder)
            if _VERSIONED.match(name) or _CONDA.search(name)
        ]
    return found


def _conda(system: System, environment: str) -> list[tuple[str, str]]:
    """conda's compilers carry the target in their name and may be off PATH, in an environment not activated."""
    if system.name == "windows" or not environment or not system.exists(f"{environment}/conda-meta"):
        return []
    folder = f"{environment}/bin"
    if folder in system.env.get("PATH", "").split(":"):
        return []  # found there already
    return [
        (f"{folder}/{name}", "the conda environment")
        for name in system.listdir(folder)
        if _CONDA.search(name)
    ]


def _visual_studio(system: System) -> list[tuple[str, str]]:
    """cl of every Visual Studio with C++ tools, newest toolset of each; vswhere is the installer's own list."""
    if system.name != "windows":
        return []
    programs = system.env.get("ProgramFiles(x86)") or "C:/Program Files (x86)"
    done = system.run([f"{programs}/{_VSWHERE}", "-products", "*", "-format", "json", "-utf8"], _TIMEOUT)
    try:
        instances = parse_json(done.stdout)
    except ValueError:
        return []
    found = []
    for item in instances if isinstance(instances, list) else ():
        root = item.get("installationPath") if isinstance(item, dict) else None
        if not isinstance(root, str):
            continue
        base = f"{root}\\VC\\Tools\\MSVC"
        toolsets = sorted(system.listdir(base), key=lambda name: [int(n) for n in re.findall(r"\d+", name)])
        if toolsets:
            catalog = item.get("catalog")
            shown = catalog.get("productDisplayVersion", "") if isinstance(catalog, dict) else ""
            name = f"{item.get('displayName', 'Visual Studio')} {shown}".strip()
            found.append((f"{base}\\{toolsets[-1]}\\bin\\Hostx64\\x64\\cl.exe", f"vswhere: {name}"))
    return found


def _describe(system: System, path: str, found_via: tuple[str, ...]) -> Compiler | None:
    name = path.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".exe")
    if name.lower() == "cl":
        said = system.run([path], _TIMEOUT)
        match = re.search(
            r"\b([0-9]{2}\.[0-9]{2})\.[0-9]{4,6}\b", said.stderr + said.stdout
        )  # the words around it are translated
        toolset = re.search(r"[\\/]MSVC[\\/]14\.(\d{2})\d*\.", path)
        if match:
            return Compiler("cl", path, match.group(1), found_via)
        # toolset 14.40 holds compiler 19.40 (Microsoft's numbering of both since 2015)
        return Compiler("cl", path, f"19.{toolset.group(1)}" if toolset else None, found_via, said.why())
    kind = re.sub(r"^.*conda-linux-gnu-|-[\d.]+$", "", name)
    if kind not in ("gcc", "g++", "clang", "clang++"):
        return None
    said = system.run([path, "--version"], _TIMEOUT)
    first = (said.stdout.splitlines() or [""])[0]
    match = re.search(r"(?:clang version |\) )([0-9]{1,6}(?:\.[0-9]{1,6})+)", first)
    if "clang" in first and kind in ("gcc", "g++"):
        kind = {"gcc": "clang", "g++": "clang++"}[kind]  # macOS names clang gcc
    return Compiler(
        kind, path, match.group(1) if match else None, found_via, "" if match else said.why() or first
    )
