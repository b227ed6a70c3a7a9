"""Which host compilers a build uses: the first that nvcc and torch both take; else which one to install."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from splatfix.context.model import Choice, Rejected
from splatfix.core.errors import Problem
from splatfix.core.step import Step, run, say
from splatfix.core.versions import release
from splatfix.core.words import few
from splatfix.facts import Compiler, Facts, Toolkit, Torch
from splatfix.knowledge.breakages import breakage
from splatfix.knowledge.cpp_extension import compiler_verdict
from splatfix.knowledge.host_compilers import library_unreadable, limits, oldest_gcc_of_torch


@dataclass(frozen=True)
class HostCompilers:
    """The C and C++ compilers a build takes."""

    cc: str
    cxx: str
    version: str
    why: str


def choose_compilers(
    facts: Facts, torch: Torch, toolkit: Toolkit, version: tuple[int, ...]
) -> Choice[HostCompilers]:
    """A pair of host compilers inside nvcc's limits (its own host_config.h) and torch's table.

    CC and CXX as the person set them come first, then the plain names, then the newest versioned pair.
    Where none fits, the problem is ``no-host-compiler`` with every candidate and why it was rejected.
    """
    rejected: list[Rejected] = []
    found = facts.machine.compilers.value or ()
    for cxx in sorted((item for item in found if item.kind in ("g++", "clang++", "cl")), key=_preference):
        objection = _compiler_objection(cxx, torch, toolkit, version) or _glibc_objection(facts, cxx, toolkit)
        cc = cxx.path if cxx.kind == "cl" else _partner(cxx, found)
        if objection is None and cc is None:
            objection = "the C compiler of the same version is not there"
        if objection is None and cc is not None:
            why = f"{cxx.kind} {cxx.version}, inside nvcc's and torch's limits; found via {', '.join(cxx.found_via)}"
            return Choice(HostCompilers(cc, cxx.path, cxx.version or "", why), tuple(rejected))
        rejected.append(Rejected(f"compiler {cxx.path}", objection or ""))
    problem = _no_compiler(facts, torch, toolkit, version, rejected)
    return Choice(None, tuple(rejected), problem)


def _preference(compiler: Compiler) -> tuple[int, list[int], str]:
    by_variable = "CXX" in compiler.found_via
    plain = compiler.path.replace("\\", "/").rsplit("/", 1)[-1] in ("g++", "g++.exe", "cl.exe", "cl")
    rank = 0 if by_variable else 1 if plain else 2 if compiler.kind == "g++" else 3
    return rank, [-n for n in release(compiler.version)], compiler.path


def _compiler_objection(
    compiler: Compiler, torch: Torch, toolkit: Toolkit, version: tuple[int, ...]
) -> str | None:
    numbers = release(compiler.version)
    if not numbers:
        return compiler.error or "it does not say its version"
    if compiler.kind == "cl":
        bounds = limits(version)
        code = numbers[0] * 100 + numbers[1] if len(numbers) > 1 else 0
        fits = bounds.accepts("msvc", code) if bounds else None
        return f"nvcc {toolkit.version} does not accept _MSC_VER {code}" if fits is False else None
    family = "gcc" if compiler.kind == "g++" else "clang"
    most = toolkit.gcc_max if family == "gcc" else toolkit.clang_max
    if most is not None and numbers[0] > most:
        return f"{family} {compiler.version}: nvcc {toolkit.version} accepts up to {family} {most}"
    if family == "gcc" and library_unreadable(version, numbers[0]):
        return f"gcc {compiler.version}: nvcc {toolkit.version} cannot read its C++ library (std_function.h)"
    oldest = oldest_gcc_of_torch(torch.version) if family == "gcc" else None
    if oldest and numbers[0] < oldest:
        return f"gcc {compiler.version}: the headers of torch {torch.version} need gcc {oldest} or newer"
    verdict = compiler_verdict("gcc" if family == "gcc" else "clang", numbers, version, torch.version)
    if verdict in ("too-new", "too-old"):
        return f"{family} {compiler.version} is {verdict.replace('-', ' ')} for torch {torch.version} with CUDA {toolkit.version}"
    return None


def _glibc_objection(facts: Facts, compiler: Compiler, toolkit: Toolkit) -> str | None:
    """Only a compiler with an older glibc of its own helps a toolkit whose headers clash with the machine's."""
    if brings_own_glibc(compiler) or not glibc_clash(facts, toolkit):
        return None
    return f"with it nvcc {toolkit.version} meets the headers of glibc {facts.machine.glibc}, which clash with its own"


def _partner(cxx: Compiler, found: Iterable[Compiler]) -> str | None:
    """The C compiler beside this C++ compiler: same folder and version, name without the pluses."""
    folder, _, name = cxx.path.replace("\\", "/").rpartition("/")
    kind = {"g++": "gcc", "clang++": "clang"}[cxx.kind]
    wanted = f"{folder}/{name.replace(cxx.kind, kind)}"
    same = [item for item in found if item.kind == kind and item.version == cxx.version]
    exact = [item.path for item in same if item.path.replace("\\", "/") == wanted]
    return next(iter(exact + [item.path for item in same]), None)


def _no_compiler(
    facts: Facts, torch: Torch, toolkit: Toolkit, version: tuple[int, ...], rejected: Sequence[Rejected]
) -> Problem:
    compilers = facts.machine.compilers
    seen = (
        few([f"{item.what.removeprefix('compiler ')}: {item.why}" for item in rejected], 4, "; ")
        if rejected
        else "none was found"
        if compilers.value is not None
        else f"which are here is not known ({compilers.error})"
    )
    return Problem(
        "no-host-compiler",
        f"No host compiler fits nvcc {toolkit.version} and torch: {seen}.",
        meaning="nvcc hands the C++ half of every file to a host compiler, and both nvcc and torch limit its version.",
        todo=compiler_to_install(facts, torch, toolkit, version),
        details={"rejected": [{"what": item.what, "why": item.why} for item in rejected]},
    )


def compiler_to_install(
    facts: Facts, torch: Torch, toolkit: Toolkit, version: tuple[int, ...]
) -> tuple[Step, ...]:
    """Which host compiler to get for a toolkit and a torch."""
    if facts.machine.system == "windows":
        return (say(_visual_studio(facts, toolkit, version)),)
    majors = [
        major
        for major in range(oldest_gcc_of_torch(torch.version) or 7, (toolkit.gcc_max or 13) + 1)
        if compiler_verdict("gcc", (major,), version, torch.version) not in ("too-new", "too-old")
        and not library_unreadable(version, major)
    ]
    if not majors:
        return (
            say(
                f"No gcc suits both nvcc {toolkit.version} and torch {torch.version}: use another CUDA toolkit."
            ),
        )
    best = majors[-1]
    ways = [say(f"Install gcc {best} (at least gcc {majors[0]}).")]
    interpreter = facts.environment.interpreter.value
    if interpreter and interpreter.kind == "conda":
        # no root, and an older glibc comes along
        package = f"gxx_linux-{'aarch64' if facts.machine.machine in ('aarch64', 'arm64') else '64'}"
        ways.append(
            run("conda", "install", "-p", interpreter.prefix, "-c", "conda-forge", f"{package}={best}")
        )
    elif glibc_clash(facts, toolkit):
        ways = [say(f"Install conda's gcc {best}, which brings an older glibc, and name it with CC and CXX.")]
    elif re.search(r"Red Hat|Rocky|Alma|CentOS|Oracle", facts.machine.distribution):
        ways.append(run("sudo", "dnf", "install", f"gcc-toolset-{best}-gcc-c++"))
        ways.append(run("source", f"/opt/rh/gcc-toolset-{best}/enable", text="Then enable it"))
    elif re.search(r"Debian|Ubuntu|Mint", facts.machine.distribution) or not facts.machine.distribution:
        ways.append(run("sudo", "apt-get", "install", f"g++-{best}", text="On Debian and Ubuntu"))
    return tuple(ways)


def _visual_studio(facts: Facts, toolkit: Toolkit, version: tuple[int, ...]) -> str:
    """What to get of Visual Studio: an older toolset beside one that is too new, or all of it."""
    most = toolkit.msvc_max or next((b.msvc[1] for b in (limits(version),) if b and b.msvc), None)
    if any(item.kind == "cl" for item in facts.machine.compilers.value or ()):
        which = f' ("MSVC v143 C++ x64 build tools", toolset 14.{most % 100} at most)' if most else ""
        return f"Add an older toolset in the Visual Studio Installer{which}, or use a newer CUDA toolkit."
    limit = f" (toolset 14.{most % 100} at most)" if most else ""
    return f'Install the Build Tools for Visual Studio with "Desktop development with C++"{limit}.'


def family_of(compiler: Compiler) -> str:
    """``gcc``, ``clang`` or ``cl``."""
    return {"g++": "gcc", "clang++": "clang"}.get(compiler.kind, compiler.kind)


def glibc_clash(facts: Facts, toolkit: Toolkit) -> str:
    """How this toolkit's math headers clash with those of the machine's glibc; "" where they do not, or nothing tells.

    A distribution's own package, whose root is ``/usr``, is patched to fit.
    """
    known = breakage("glibc-noexcept")
    versions = {"glibc": release(facts.machine.glibc)[:2], "cuda": release(toolkit.version)[:2]}
    if toolkit.root == "/usr" or not known.when.holds(versions):
        return ""
    return known.symptom


def brings_own_glibc(compiler: Compiler) -> bool:
    """It is conda's, which compiles against the older glibc that comes with it."""
    return "conda" in f"{compiler.path} {' '.join(compiler.found_via)}"
