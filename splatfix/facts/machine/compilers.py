"""Every host compiler on the machine with its version, and the other tools a build uses."""

import re
from collections.abc import Iterator

from splatfix.core.codec import parse_json
from splatfix.facts.system.live import System, captured, which_all
from splatfix.facts.system.parallel import each
from splatfix.facts.tables import TABLES
from splatfix.model import Compiler, Fact

_VERSIONED = re.compile(r"^(gcc|g\+\+|clang|clang\+\+)(-\d+(\.\d+)?)?$")
_CONDA = re.compile(r"-conda-linux-gnu-(gcc|g\+\+|clang|clang\+\+)$")
_VARIABLES = ("CC", "CXX", "CUDAHOSTCXX", "NVCC_CCBIN")
_FLAG_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
_CCBIN = re.compile(r"(?:-ccbin|--compiler-bindir)[= ](\S+)")
_VSWHERE = "Microsoft Visual Studio/Installer/vswhere.exe"
# cl prints its version among words that are translated, and to either stream.
_CL_VERSION = re.compile(r"\b([0-9]{2}\.[0-9]{2})\.[0-9]{4,6}\b")
_CL_TOOLSET = re.compile(r"[\\/]MSVC[\\/]14\.(\d{2})\d*\.")
_GNU_VERSION = re.compile(r"(?:clang version |\) )([0-9]{1,6}(?:\.[0-9]{1,6})+)")

_TOOLS: dict[str, str] = TABLES["tools"]


def probe(system: System, environment: str = "") -> Fact[tuple[Compiler, ...]]:
    """All host compilers: on PATH under any versioned name, named by variables, conda's, and Visual Studio's.

    Args:
        environment: the target environment's folder; a conda environment may hold compilers of its own.
    """
    found_via: dict[str, dict[str, None]] = {}
    for path, via in (*_named(system), *_on_path(system, environment), *_of_visual_studio(system)):
        found_via.setdefault(path, {})[via] = None
    described = each(lambda item: _describe(system, item[0], tuple(item[1])), found_via.items())
    others = "Visual Studio's own list" if system.name == "windows" else "conda"
    return Fact(tuple(filter(None, described)), f"PATH, {', '.join(_VARIABLES)}, {others}")


def tools(system: System) -> dict[str, str]:
    """Return the version of each build tool that is there."""
    there = [name for name in _TOOLS if which_all(system, name)]
    versions = each(lambda name: captured(_TOOLS[name], system.run([name, "--version"]).stdout), there)
    return {name: version for name, version in zip(there, versions, strict=True) if version}


def _named(system: System) -> Iterator[tuple[str, str]]:
    """The compilers that environment variables name; ``nvcc -ccbin`` flags count as well."""
    programs = []
    for variable in _VARIABLES:
        command = system.env.get(variable, "").split()
        # a compiler cache may stand in front: "ccache g++-13"
        if len(command) > 1 and command[0].endswith("ccache"):
            del command[0]
        programs += [(program, variable) for program in command[:1]]
    for variable in _FLAG_VARIABLES:
        programs.append((captured(_CCBIN, system.env.get(variable, "")), f"{variable} -ccbin"))
    for program, via in programs:
        if "/" in program or "\\" in program:
            yield program, via
        elif program:
            yield next(iter(which_all(system, program)), program), via


def _on_path(system: System, environment: str) -> Iterator[tuple[str, str]]:
    if system.name == "windows":
        for path in which_all(system, "cl"):
            yield path, "PATH"
        return
    visited: set[str] = set()  # /bin is often a link to /usr/bin
    for folder in filter(None, system.env.get("PATH", "").split(":")):
        real = system.realpath(folder)
        if real in visited:
            continue
        visited.add(real)
        for name in system.listdir(folder):
            if _VERSIONED.match(name) or _CONDA.search(name):
                yield f"{folder}/{name}", "PATH"
    # conda's compilers carry the target in their name and may be off PATH, in an environment not activated
    folder = f"{environment}/bin"
    is_conda = bool(environment) and system.exists(f"{environment}/conda-meta")
    if is_conda and folder not in system.env.get("PATH", "").split(":"):
        for name in filter(_CONDA.search, system.listdir(folder)):
            yield f"{folder}/{name}", "the conda environment"


def _of_visual_studio(system: System) -> Iterator[tuple[str, str]]:
    """cl of every Visual Studio with C++ tools, newest toolset of each; vswhere is the installer's own list."""
    if system.name != "windows":
        return
    programs = system.env.get("ProgramFiles(x86)") or "C:/Program Files (x86)"
    done = system.run([f"{programs}/{_VSWHERE}", "-products", "*", "-format", "json", "-utf8"])
    try:
        studios = {
            item["installationPath"]: f"{item['displayName']} {item['catalog']['productDisplayVersion']}"
            for item in parse_json(done.stdout)
        }
    except (ValueError, TypeError, KeyError):
        return
    for folder, product in studios.items():
        base = f"{folder}\\VC\\Tools\\MSVC"
        toolsets = sorted(system.listdir(base), key=lambda name: [int(n) for n in re.findall(r"\d+", name)])
        if toolsets:
            yield f"{base}\\{toolsets[-1]}\\bin\\Hostx64\\x64\\cl.exe", f"vswhere: {product}"


def _describe(system: System, path: str, found_via: tuple[str, ...]) -> Compiler | None:
    name = path.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".exe")
    if name.lower() == "cl":
        done = system.run([path])
        # toolset 14.40 holds compiler 19.40 (Microsoft's numbering of both since 2015)
        minor = captured(_CL_TOOLSET, path)
        version = captured(_CL_VERSION, done.stderr + done.stdout)
        if version:
            return Compiler("cl", path, version, found_via)
        return Compiler("cl", path, f"19.{minor}" if minor else None, found_via, done.why())
    kind = re.sub(r"^.*conda-linux-gnu-|-[\d.]+$", "", name)
    if kind not in ("gcc", "g++", "clang", "clang++"):
        return None
    done = system.run([path, "--version"])
    first_line = (done.stdout.splitlines() or [""])[0]
    if "clang" in first_line:
        kind = {"gcc": "clang", "g++": "clang++"}.get(kind, kind)  # macOS names clang gcc
    version = captured(_GNU_VERSION, first_line)
    if version:
        return Compiler(kind, path, version, found_via)
    return Compiler(kind, path, None, found_via, done.why() or first_line)
