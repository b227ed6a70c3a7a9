"""Which toolkit and which host compilers a build uses: the first that nvcc, torch and the target GPU all agree on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from splatfix.core.errors import SplatfixError
from splatfix.facts import Compiler, Facts, Toolkit, Torch
from splatfix.knowledge import Arch, cubin_runs_on, toolkit_supports
from splatfix.knowledge.archs import arch_info
from splatfix.knowledge.cpp_extension import compiler_verdict
from splatfix.knowledge.host_compilers import limits
from splatfix.knowledge.torch_releases import builds_for_arch, pip_command
from splatfix.resolve.plan import RoadNotTaken


@dataclass(frozen=True)
class ToolkitDecision:
    """The toolkit a build takes, what it compiles for with it, and what was looked at beside it."""

    toolkit: Toolkit
    version: tuple[int, ...]
    build_archs: tuple[Arch, ...]
    """What to compile for so that every target is served: the targets, or for some an older arch they run."""
    why: str
    rejected: tuple[RoadNotTaken, ...]


@dataclass(frozen=True)
class CompilerDecision:
    """The C and C++ compilers a build takes."""

    cc: str
    cxx: str
    version: str
    why: str
    rejected: tuple[RoadNotTaken, ...]


def choose_toolkit(
    facts: Facts, torch: Torch, targets: Sequence[Arch], cuda_home: str | None, *, any_major: bool = False
) -> ToolkitDecision:
    """A toolkit whose major is torch's, which knows the targets; the one closest to torch's own version first.

    Args:
        cuda_home: the folder the person named; then no other is considered.
        any_major: another major than torch's will do where torch's own is not there.

    Raises:
        SplatfixError: ``no-matching-toolkit``, ``arch-unknown-to-torch``, with every candidate and what speaks against it.
    """
    assert torch.cuda is not None
    wanted = release_numbers(torch.cuda)
    build_archs = tuple(_served_by(target, torch) for target in targets)
    candidates = _named(facts, cuda_home) if cuda_home else list(facts.machine.toolkits.value or ())
    rejected: list[RoadNotTaken] = []
    fitting: list[tuple[tuple[int, int], Toolkit, tuple[int, ...]]] = []
    for toolkit in candidates:
        objection = _objection(toolkit, wanted, build_archs, any_major=any_major)
        if objection:
            rejected.append(RoadNotTaken(f"toolkit {toolkit.root}", objection))
            continue
        version = release_numbers(toolkit.version or "")
        distance = abs(version[1] - wanted[1]) if len(version) > 1 else 99
        fitting.append(((abs(version[0] - wanted[0]), distance), toolkit, version))
    if not fitting:
        raise _no_toolkit(torch.cuda, targets, rejected, cuda_home)
    fitting.sort(key=lambda item: (item[0], len(item[1].missing), [-n for n in item[2]]))
    _, best, version = fitting[0]
    rejected += [
        RoadNotTaken(
            f"toolkit {other.root}",
            f"also fits (CUDA {other.version}), farther from torch's CUDA {torch.cuda}",
        )
        for _, other, _ in fitting[1:]
    ]
    why = f"CUDA {best.version}, torch was built with {torch.cuda}; found via {', '.join(best.found_via)}"
    return ToolkitDecision(best, version, tuple(dict.fromkeys(build_archs)), why, tuple(rejected))


def choose_compilers(
    facts: Facts, torch: Torch, toolkit: Toolkit, version: tuple[int, ...]
) -> CompilerDecision:
    """A pair of host compilers inside nvcc's limits (its own host_config.h) and torch's table.

    CC and CXX as the person set them come first, then the plain names, then the newest versioned pair.

    Raises:
        SplatfixError: ``no-host-compiler`` with every candidate and what speaks against it.
    """
    rejected: list[RoadNotTaken] = []
    found = facts.machine.compilers.value or ()
    for cxx in sorted((item for item in found if item.kind in ("g++", "clang++", "cl")), key=_preference):
        objection = _compiler_objection(cxx, torch, toolkit, version)
        cc = cxx.path if cxx.kind == "cl" else _partner(cxx, found)
        if objection is None and cc is None:
            objection = "the C compiler of the same version is not there"
        if objection is None and cc is not None:
            why = f"{cxx.kind} {cxx.version}, inside nvcc's and torch's limits; found via {', '.join(cxx.found_via)}"
            return CompilerDecision(cc, cxx.path, cxx.version or "", why, tuple(rejected))
        rejected.append(RoadNotTaken(f"compiler {cxx.path}", objection or ""))
    raise _no_compiler(toolkit, rejected)


def _served_by(target: Arch, torch: Torch) -> Arch:
    """The target itself, or the newest architecture torch knows whose machine code the target runs (12.0 for 12.1)."""
    known = [Arch.parse(item) for item in torch.knows_archs]
    if not known or target in known:
        return target
    older = [arch for arch in known if not arch.variant and cubin_runs_on(arch, target)]
    if older and not target.variant:
        return max(older)
    raise SplatfixError(
        "arch-unknown-to-torch",
        f"torch {torch.version} does not know {target.sm}: its TORCH_CUDA_ARCH_LIST takes "
        f"{', '.join(torch.knows_archs)}.",
        meaning="It would stop with 'Unknown CUDA arch' before compiling, and it has no kernels for this GPU either.",
        todo=(_newer_torch(target),),
    )


def _newer_torch(target: Arch) -> str:
    from splatfix.knowledge.cpp_extension import first_release_for_arch

    release = first_release_for_arch(target)
    if release is None:
        return "Use a newer torch; see https://pytorch.org/get-started/locally/"
    return f"Use torch {release} or newer in that environment; see https://pytorch.org/get-started/locally/"


def _objection(
    toolkit: Toolkit, wanted: tuple[int, ...], build_archs: Iterable[Arch], *, any_major: bool = False
) -> str | None:
    version = release_numbers(toolkit.version or "")
    if toolkit.nvcc is None or not version:
        return toolkit.error or "it has no nvcc"
    if version[0] != wanted[0] and not any_major:
        return f"CUDA {toolkit.version}: torch refuses another major than its own {wanted[0]}"
    for arch in build_archs:
        listed = arch.sm in toolkit.archs if toolkit.archs and not arch.variant else None
        by_table = toolkit_supports((version[0], version[1]), arch)
        if listed is False or (listed is None and by_table is False):
            return f"CUDA {toolkit.version}: its nvcc cannot compile for {arch.sm}"
    vital = [item for item in toolkit.missing if item in _VITAL]
    return f"it is incomplete: {', '.join(vital)} missing" if vital else None


# Without these nothing compiles or links. The others (cublas, cusparse, cusolver) come from torch's own CUDA packages.
_VITAL = (
    "bin/nvcc",
    "include/cuda_runtime.h",
    "include/cuda_runtime_api.h",
    "lib64/libcudart.so",
    "lib/x64/cudart.lib",
)


def _named(facts: Facts, cuda_home: str) -> list[Toolkit]:
    from pathlib import Path

    real = str(Path(cuda_home).expanduser().resolve())
    named = [item for item in facts.machine.toolkits.value or () if str(Path(item.root).resolve()) == real]
    if not named:
        raise SplatfixError(
            "no-toolkit-there",
            f"There is no CUDA toolkit in {cuda_home}.",
            meaning="A toolkit root holds bin/nvcc and include/cuda_runtime.h.",
            todo=("Give the root folder, for example --cuda-home /usr/local/cuda-13.0",),
        )
    return named


def _no_toolkit(
    cuda: str, targets: Sequence[Arch], rejected: Sequence[RoadNotTaken], cuda_home: str | None
) -> SplatfixError:
    major = cuda.partition(".")[0]
    seen = (
        "; ".join(f"{road.what.removeprefix('toolkit ')}: {road.why}" for road in rejected)
        or "none was found"
    )
    where = f"The toolkit in {cuda_home} does not fit" if cuda_home else "No toolkit on this machine fits"
    lost = [arch for arch in targets if (_last_major(arch) or int(major)) < int(major)]
    if lost:
        return _needs_older_cuda(cuda, lost)
    todo = (
        f"Install a CUDA {major} toolkit ({cuda} is torch's own), or name one with --cuda-home.",
        "NVIDIA's archive: https://developer.nvidia.com/cuda-toolkit-archive",
        f"With conda: conda install -c nvidia cuda-toolkit={cuda}",
    )
    return SplatfixError(
        "no-matching-toolkit",
        f"{where} torch's CUDA {cuda} and {', '.join(arch.sm for arch in targets)}: {seen}.",
        meaning="Extensions must be compiled by a toolkit of the same CUDA major as torch, and it must know the GPU.",
        todo=todo,
        details={"rejected": [{"what": road.what, "why": road.why} for road in rejected]},
    )


def _last_major(arch: Arch) -> int | None:
    """The last CUDA major that compiles for an architecture; None while the newest still does."""
    info = arch_info(arch)
    return info.last_toolkit[0] if info and info.last_toolkit else None


def _needs_older_cuda(cuda: str, lost: Sequence[Arch]) -> SplatfixError:
    names, last = ", ".join(arch.sm for arch in lost), min(_last_major(arch) or 0 for arch in lost)
    builds = builds_for_arch(lost[0])
    older = [item.build for item in builds if item.build.cuda[0] <= last]
    return SplatfixError(
        "arch-dropped-by-cuda",
        f"No CUDA {cuda.partition('.')[0]} toolkit compiles for {names}: the last that does is CUDA {last}.",
        meaning="torch's CUDA and the toolkit's must have one major, so this torch cannot serve that GPU.",
        todo=(
            *((pip_command(older[0].torch, older[0].tag),) if older else ()),
            f"Then install a CUDA {last} toolkit and call splatfix install again.",
        ),
    )


def _preference(compiler: Compiler) -> tuple[int, list[int], str]:
    by_variable = "CXX" in compiler.found_via
    plain = compiler.path.replace("\\", "/").rsplit("/", 1)[-1] in ("g++", "g++.exe", "cl.exe", "cl")
    rank = 0 if by_variable else 1 if plain else 2 if compiler.kind == "g++" else 3
    return rank, [-n for n in release_numbers(compiler.version or "")], compiler.path


def _compiler_objection(
    compiler: Compiler, torch: Torch, toolkit: Toolkit, version: tuple[int, ...]
) -> str | None:
    numbers = release_numbers(compiler.version or "")
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
    verdict = compiler_verdict("gcc" if family == "gcc" else "clang", numbers, version, torch.version)
    if verdict in ("too-new", "too-old"):
        return f"{family} {compiler.version} is {verdict.replace('-', ' ')} for torch {torch.version} with CUDA {toolkit.version}"
    return None


def _partner(cxx: Compiler, found: Iterable[Compiler]) -> str | None:
    """The C compiler beside this C++ compiler: same folder and version, name without the pluses."""
    folder, _, name = cxx.path.replace("\\", "/").rpartition("/")
    kind = {"g++": "gcc", "clang++": "clang"}[cxx.kind]
    wanted = f"{folder}/{name.replace(cxx.kind, kind)}"
    same = [item for item in found if item.kind == kind and item.version == cxx.version]
    exact = [item.path for item in same if item.path.replace("\\", "/") == wanted]
    return next(iter(exact + [item.path for item in same]), None)


def _no_compiler(toolkit: Toolkit, rejected: Sequence[RoadNotTaken]) -> SplatfixError:
    seen = (
        "; ".join(f"{road.what.removeprefix('compiler ')}: {road.why}" for road in rejected)
        or "none was found"
    )
    most = toolkit.gcc_max or 13
    return SplatfixError(
        "no-host-compiler",
        f"No host compiler fits nvcc {toolkit.version} and torch: {seen}.",
        meaning="nvcc hands the C++ half of every file to gcc or clang, and both nvcc and torch limit its version.",
        todo=(
            f"Install one, at most gcc {most}. On Debian and Ubuntu: sudo apt-get install g++-{most}",
            f"With conda: conda install -c conda-forge gxx={most}",
        ),
        details={"rejected": [{"what": road.what, "why": road.why} for road in rejected]},
    )


def release_numbers(text: str) -> tuple[int, ...]:
    """``2.11.0+cu130`` -> (2, 11, 0); the first three numbers, fewer when there are fewer."""
    return tuple(int(n) for n in re.findall(r"\d+", text)[:3])
