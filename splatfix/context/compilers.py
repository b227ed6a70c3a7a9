"""Which host compilers a build uses: the first that nvcc and torch both take; else which one to install."""

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from splatfix.context.model import Choice, NotHere, looked_at, rejected_all
from splatfix.core.codec import to_json
from splatfix.core.step import Step, run, say
from splatfix.core.versions import major_minor, release
from splatfix.knowledge.breakages import breakage
from splatfix.knowledge.cpp_extension import compiler_verdict
from splatfix.knowledge.host_compilers import library_unreadable, limits, oldest_gcc_of_torch
from splatfix.model import Compiler, Facts, Toolkit, Torch

Family = Literal["gcc", "clang", "cl"]
_FAMILIES: Mapping[str, Family] = {
    "gcc": "gcc",
    "g++": "gcc",
    "clang": "clang",
    "clang++": "clang",
    "cl": "cl",
}


class HostCompilers(Struct, frozen=True):
    """The C and C++ compilers a build takes."""

    cc: str
    cxx: str
    version: str
    why: str


def choose_compilers(facts: Facts, torch: Torch, toolkit: Toolkit) -> Choice[HostCompilers]:
    """Choose a pair of host compilers inside nvcc's limits (its own host_config.h) and torch's table.

    CC and CXX as the person set them come first, then the plain names, then the newest versioned pair.
    Where none fits, the problem is ``no-host-compiler`` with every candidate and why it was rejected.
    """
    objections: dict[str, str] = {}
    compilers = facts.machine.compilers.value or ()
    candidates = [item for item in compilers if item.kind in ("g++", "clang++", "cl")]
    for cxx in sorted(candidates, key=_preference):
        objection = _compiler_objection(cxx, torch, toolkit)
        # only a compiler with an older glibc of its own helps a toolkit whose headers clash with the machine's
        if objection is None and not brings_own_glibc(cxx) and glibc_clash(facts, toolkit):
            headers = f"the headers of glibc {facts.machine.glibc}, which clash with its own"
            objection = f"with it nvcc {toolkit.version} meets {headers}"
        cc = _partner(cxx, compilers)
        if objection is None and cc is None:
            objection = "the C compiler of the same version is not there"
        if objection is None and cc is not None:
            via = ", ".join(cxx.found_via)
            reason = f"{cxx.kind} {cxx.version}, inside nvcc's and torch's limits; found via {via}"
            chosen = HostCompilers(cc, cxx.path, cxx.version or "", reason)
            return Choice(chosen, rejected_all("compiler", objections))
        objections[cxx.path] = objection or ""
    rejected = rejected_all("compiler", objections)
    problem = NotHere.of(
        "context.no-host-compiler",
        nvcc=toolkit.version,
        candidates=looked_at(facts.machine.compilers, objections, 4),
        todo=compiler_to_install(facts, torch, toolkit),
        details={"rejected": to_json(rejected)},
    )
    return Choice(None, rejected, problem)


def _preference(compiler: Compiler) -> tuple[int, list[int], str]:
    name = compiler.path.replace("\\", "/").rsplit("/", 1)[-1]
    if "CXX" in compiler.found_via:
        rank = 0
    elif name in ("g++", "g++.exe", "cl.exe", "cl"):
        rank = 1
    elif compiler.kind == "g++":
        rank = 2
    else:
        rank = 3  # PyTorch compiles its own wheels with gcc
    newest_first = [-number for number in release(compiler.version)]
    return rank, newest_first, compiler.path


def _compiler_objection(compiler: Compiler, torch: Torch, toolkit: Toolkit) -> str | None:
    numbers, version = release(compiler.version), release(toolkit.version)
    nvcc = f"nvcc {toolkit.version}"
    if not numbers:
        return compiler.error or "it does not say its version"
    family = _FAMILIES[compiler.kind]
    if family == "cl":
        bounds, number = limits(version), msc_version(compiler)
        if bounds is not None and bounds.accepts("msvc", number) is False:
            return f"{nvcc} does not accept _MSC_VER {number}"
        return None
    newest = newest_for_nvcc(toolkit, family)
    if newest is not None and numbers[0] > newest:
        return f"{family} {compiler.version}: {nvcc} accepts up to {family} {newest}"
    if family == "gcc":
        if library_unreadable(version, numbers[0]):
            return f"gcc {compiler.version}: {nvcc} cannot read its C++ library (std_function.h)"
        oldest = oldest_gcc_of_torch(torch.version)
        if oldest and numbers[0] < oldest:
            return f"gcc {compiler.version}: the headers of torch {torch.version} need gcc {oldest} or newer"
    verdict = compiler_verdict(family, numbers, version, torch.version)
    if verdict in ("too-new", "too-old"):
        rule = f"torch {torch.version} with CUDA {toolkit.version}"
        return f"{family} {compiler.version} is {verdict.replace('-', ' ')} for {rule}"
    return None


def _partner(cxx: Compiler, compilers: Iterable[Compiler]) -> str | None:
    """Return the C compiler beside this C++ compiler: same folder and version, name without the pluses; cl is both."""
    if cxx.kind == "cl":
        return cxx.path
    folder, _, name = cxx.path.replace("\\", "/").rpartition("/")
    kind = {"g++": "gcc", "clang++": "clang"}[cxx.kind]
    beside = f"{folder}/{name.replace(cxx.kind, kind)}"
    paths = [item.path for item in compilers if item.kind == kind and item.version == cxx.version]
    for path in paths:
        if path.replace("\\", "/") == beside:
            return path
    # a compiler that is a link or a wrapper may have its partner in another folder
    return next(iter(paths), None)


def compiler_to_install(facts: Facts, torch: Torch, toolkit: Toolkit) -> tuple[Step, ...]:
    """Say which host compiler to get for a toolkit and a torch."""
    version = release(toolkit.version)
    if facts.machine.system == "windows":
        bounds = limits(version)
        newest = toolkit.msvc_max
        if not newest and bounds and bounds.msvc:
            newest = bounds.msvc[1]
        component, limit = "", ""
        if newest:
            toolset = f"toolset 14.{newest % 100} at most"  # _MSC_VER 1939 is toolset 14.39
            component, limit = f' ("MSVC v143 C++ x64 build tools", {toolset})', f" ({toolset})"
        text = f'Install the Build Tools for Visual Studio with "Desktop development with C++"{limit}.'
        # an older toolset goes beside one that is too new
        if any(item.kind == "cl" for item in facts.machine.compilers.value or ()):
            add = f"Add an older toolset in the Visual Studio Installer{component}"
            text = f"{add}, or use a newer CUDA toolkit."
        return (say(text),)
    majors = []
    for major in range(oldest_gcc_of_torch(torch.version) or 7, (toolkit.gcc_max or 13) + 1):
        verdict = compiler_verdict("gcc", (major,), version, torch.version)
        if verdict not in ("too-new", "too-old") and not library_unreadable(version, major):
            majors.append(major)
    if not majors:
        tools = f"nvcc {toolkit.version} and torch {torch.version}"
        return (say(f"No gcc suits both {tools}: use another CUDA toolkit."),)
    best = majors[-1]
    steps = [say(f"Install gcc {best} (at least gcc {majors[0]}).")]
    interpreter, distribution = facts.environment.interpreter.value, facts.machine.distribution
    if interpreter and interpreter.kind == "conda":
        # no root, and an older glibc comes along
        package = f"gxx_linux-64={best}"
        if facts.machine.machine in ("aarch64", "arm64"):
            package = f"gxx_linux-aarch64={best}"
        steps.append(run("conda", "install", "-p", interpreter.prefix, "-c", "conda-forge", package))
    elif glibc_clash(facts, toolkit):
        steps = [
            say(f"Install conda's gcc {best}, which brings an older glibc, and name it with CC and CXX.")
        ]
    elif re.search(r"Red Hat|Rocky|Alma|CentOS|Oracle", distribution):
        steps.append(run("sudo", "dnf", "install", f"gcc-toolset-{best}-gcc-c++"))
        steps.append(run("source", f"/opt/rh/gcc-toolset-{best}/enable", text="Then enable it"))
    elif re.search(r"Debian|Ubuntu|Mint", distribution) or not distribution:
        steps.append(run("sudo", "apt-get", "install", f"g++-{best}", text="On Debian and Ubuntu"))
    return tuple(steps)


def family_of(compiler: Compiler) -> str:
    """Return ``gcc``, ``clang`` or ``cl``; for one that no table has (icpx) its own name."""
    return _FAMILIES.get(compiler.kind, compiler.kind)


def newest_for_nvcc(toolkit: Toolkit, family: str) -> int | None:
    """Return the last major of gcc or clang that nvcc accepts, by its own host_config.h; None where that is not known."""
    return {"gcc": toolkit.gcc_max, "clang": toolkit.clang_max, "cl": None}.get(family)


def msc_version(compiler: Compiler) -> int:
    """Return the _MSC_VER of a cl: 1940 of 19.40."""
    major, minor = major_minor(compiler.version) or (0, 0)
    return major * 100 + minor


def glibc_clash(facts: Facts, toolkit: Toolkit) -> str:
    """Say how this toolkit's math headers clash with those of the machine's glibc; "" where they do not, or nothing tells.

    A distribution's own package, whose root is ``/usr``, is patched to fit.
    """
    known = breakage("glibc-noexcept")
    versions = {"glibc": release(facts.machine.glibc)[:2], "cuda": release(toolkit.version)[:2]}
    if toolkit.root == "/usr" or not known.when.holds(versions):
        return ""
    return known.symptom


def brings_own_glibc(compiler: Compiler) -> bool:
    """Tell whether it is conda's, which compiles against the older glibc that comes with it."""
    return "conda" in f"{compiler.path} {' '.join(compiler.found_via)}"
