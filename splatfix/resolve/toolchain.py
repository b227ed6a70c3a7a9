"""Which toolkit a build uses: of torch's CUDA major, complete, and able to compile for the targets, or PTX for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from splatfix.checks.build_room import brings_own_glibc, glibc_clash
from splatfix.core.errors import SplatfixError
from splatfix.facts import Facts, Toolkit, Torch
from splatfix.knowledge import Arch, cubin_runs_on, toolkit_supports
from splatfix.knowledge.archs import arch_info, known_archs
from splatfix.knowledge.cpp_extension import first_release_for_arch
from splatfix.knowledge.drivers import ptx_isa_of_cuda, ptx_jit_ok
from splatfix.knowledge.torch_releases import builds_for_arch, pip_command
from splatfix.resolve.plan import RoadNotTaken
from splatfix.resolve.targets import driver_level


@dataclass(frozen=True)
class ToolkitDecision:
    """The toolkit a build takes, what it compiles for with it, and what was looked at beside it."""

    toolkit: Toolkit
    version: tuple[int, ...]
    build_archs: tuple[Arch, ...]
    """What to compile for so that every target is served: the targets, or for some an older arch they run."""
    why: str
    rejected: tuple[RoadNotTaken, ...]
    ptx: Arch | None = None
    """Compiled as PTX too, for targets that this nvcc cannot name; None: every target gets machine code."""
    unsure: str = ""
    """What is not known about that PTX; "" when nothing is open."""


def choose_toolkit(
    facts: Facts,
    torch: Torch,
    targets: Sequence[Arch],
    cuda_home: str | None = None,
    *,
    instead: Toolkit | None = None,
    any_major: bool = False,
) -> ToolkitDecision:
    """A toolkit whose major is torch's, which knows the targets; the one closest to torch's own version first.

    Args:
        cuda_home: the folder the person named; then no other is considered.
        instead: a toolkit that is not there yet, considered in place of those that are.
        any_major: another major than torch's will do where torch's own is not there.

    Raises:
        SplatfixError: ``no-matching-toolkit``, ``arch-unknown-to-torch``, with every candidate and what speaks against it.
    """
    assert torch.cuda is not None
    wanted = release_numbers(torch.cuda)
    for target in targets:
        _served_by(target, torch)  # says so where torch itself knows nothing that serves it
    candidates = (instead,) if instead else _candidates(facts, cuda_home)
    rejected: list[RoadNotTaken] = []
    fitting: list[tuple[tuple[int, int], Toolkit, tuple[int, ...], tuple[Arch, ...]]] = []
    for toolkit in candidates:
        build_archs = tuple(_build_arch(target, torch, toolkit) or target for target in targets)
        objection = _objection(facts, toolkit, wanted, build_archs, any_major=any_major)
        if objection:
            rejected.append(RoadNotTaken(f"toolkit {toolkit.root}", objection))
            continue
        version = release_numbers(toolkit.version or "")
        distance = abs(version[1] - wanted[1]) if len(version) > 1 else 99
        fitting.append(((abs(version[0] - wanted[0]), distance), toolkit, version, build_archs))
    if not fitting:
        raise _no_toolkit(torch.cuda, targets, rejected, _seen(facts, rejected), cuda_home)
    fitting.sort(key=lambda item: (item[0], len(item[1].missing), [-n for n in item[2]]))
    _, best, version, build_archs = fitting[0]
    rejected += [
        RoadNotTaken(
            f"toolkit {other.root}",
            f"also fits (CUDA {other.version}), farther from torch's CUDA {torch.cuda}",
        )
        for _, other, _, _ in fitting[1:]
    ]
    why = f"CUDA {best.version}, torch was built with {torch.cuda}; found via {', '.join(best.found_via)}"
    return ToolkitDecision(best, version, tuple(dict.fromkeys(build_archs)), why, tuple(rejected))


def choose_ptx(
    facts: Facts, torch: Torch, targets: Sequence[Arch], cuda_home: str | None = None
) -> ToolkitDecision:
    """A toolkit of torch's major that is here, with PTX of its newest architecture for the targets that it cannot name.

    Machine code runs within one major only, so a sm_90 cubin does not load on sm_120; PTX for compute_90 does, if the
    driver reads the PTX version that this toolkit writes. Source: CUDA's compatibility guides; CUDA error 222.

    Raises:
        SplatfixError: ``no-ptx-road`` with every candidate and what speaks against it.
    """
    assert torch.cuda is not None
    wanted = release_numbers(torch.cuda)
    rejected: list[RoadNotTaken] = []
    fitting: list[tuple[tuple[int, int], ToolkitDecision]] = []
    for toolkit in _candidates(facts, cuda_home):
        answer = _ptx_with(facts, toolkit, torch, wanted, targets)
        if isinstance(answer, str):
            rejected.append(RoadNotTaken(f"toolkit {toolkit.root}", answer))
        else:
            fitting.append(((len(toolkit.missing), abs(answer.version[1] - wanted[1])), answer))
    if not fitting:
        words = ", ".join(arch.sm for arch in targets)
        raise SplatfixError(
            "no-ptx-road",
            f"No toolkit here makes PTX that serves {words}: {_seen(facts, rejected)}.",
            meaning="PTX must come from a toolkit of torch's CUDA major, and be old enough for the driver.",
            todo=("Use a toolkit that knows the GPU: splatfix install --dry-run --why names the ways.",),
        )
    return min(fitting, key=lambda item: item[0])[1]


def _ptx_with(
    facts: Facts, toolkit: Toolkit, torch: Torch, wanted: tuple[int, ...], targets: Sequence[Arch]
) -> ToolkitDecision | str:
    """The decision for one toolkit, or what speaks against it."""
    objection = _objection(facts, toolkit, wanted, ())
    if objection:
        return objection
    version = release_numbers(toolkit.version or "")
    found = {arch: _build_arch(arch, torch, toolkit) for arch in targets}
    named = [own for own in found.values() if own is not None]
    lacking = [arch for arch, own in found.items() if own is None]
    if not lacking:
        why = f"CUDA {toolkit.version} compiles machine code for every target"
        return ToolkitDecision(toolkit, version, tuple(named), why, ())
    base = _ptx_base(toolkit, version, torch, below=min(lacking).plain)
    if base is None:
        return f"CUDA {toolkit.version} knows no older architecture whose PTX {lacking[0].sm} could take"
    isa, unsure = ptx_isa_of_cuda((version[0], version[1])), ""
    for arch in lacking:
        level = driver_level(facts, arch)
        reads = _driver_reads(isa, level)
        if isa and reads is False:
            return f"its PTX {isa[0]}.{isa[1]} is newer than a driver of CUDA {level} translates (error 222)"
        unsure = unsure if reads else f"whether the driver translates PTX of CUDA {toolkit.version}"
    why = f"CUDA {toolkit.version} writes {base.compute} PTX, which every GPU from {base.sm} on can be given"
    return ToolkitDecision(toolkit, version, tuple(named), why, (), base, unsure)


def _ptx_base(toolkit: Toolkit, version: tuple[int, ...], torch: Torch, *, below: Arch) -> Arch | None:
    """The newest desktop architecture below another that both know, whose PTX is to be translated for it."""
    older = (
        arch
        for arch in known_archs()
        if arch < below
        and not _is_tegra(arch)
        and _compiles_for(toolkit, version, arch)
        and (not torch.knows_archs or arch.cc in torch.knows_archs)
    )
    return max(older, default=None)


def _driver_reads(isa: tuple[int, int] | None, level: str | None) -> bool | None:
    """Whether a driver of this CUDA level translates PTX of this version; None: not known."""
    numbers = release_numbers(level or "")
    return ptx_jit_ok(isa, (numbers[0], numbers[1])) if isa and len(numbers) > 1 else None


def _build_arch(target: Arch, torch: Torch, toolkit: Toolkit | None = None) -> Arch | None:
    """The target itself, or the newest architecture whose machine code it runs (12.0 for 12.1), as far as torch and the
    toolkit know them; None when there is none. A torch whose list is not known takes the target."""
    known = [Arch.parse(item) for item in torch.knows_archs]
    version = release_numbers(toolkit.version or "") if toolkit else ()

    def compiles(arch: Arch) -> bool:
        return len(version) < 2 or toolkit is None or _compiles_for(toolkit, version, arch)

    if (not known or target in known) and compiles(target):
        return target
    older = [
        arch
        for arch in known or known_archs()
        if not arch.variant and cubin_runs_on(arch, target) and compiles(arch)
    ]
    return max(older) if older and not target.variant else None


def _served_by(target: Arch, torch: Torch) -> Arch:
    """As ``_build_arch`` with any toolkit; an error where torch knows nothing that serves the target."""
    found = _build_arch(target, torch)
    if found is not None:
        return found
    raise SplatfixError(
        "arch-unknown-to-torch",
        f"torch {torch.version} does not know {target.sm}: its TORCH_CUDA_ARCH_LIST takes "
        f"{', '.join(torch.knows_archs)}.",
        meaning="It would stop with 'Unknown CUDA arch' before compiling, and it has no kernels for this GPU either.",
        todo=(_newer_torch(target),),
    )


def _newer_torch(target: Arch) -> str:
    release = first_release_for_arch(target)
    if release is None:
        return "Use a newer torch; see https://pytorch.org/get-started/locally/"
    minor = ".".join(release.split(".")[:2])  # the patch read stands for its minor
    return f"Use torch {minor} or newer in that environment; see https://pytorch.org/get-started/locally/"


def _objection(
    facts: Facts,
    toolkit: Toolkit,
    wanted: tuple[int, ...],
    build_archs: Iterable[Arch],
    *,
    any_major: bool = False,
) -> str | None:
    version = release_numbers(toolkit.version or "")
    if toolkit.nvcc is None or not version:
        return toolkit.error or "it has no nvcc"
    if version[0] != wanted[0] and not any_major:
        return f"CUDA {toolkit.version}: torch refuses another major than its own {wanted[0]}"
    for arch in build_archs:
        if not _compiles_for(toolkit, version, arch):
            return f"CUDA {toolkit.version}: its nvcc cannot compile for {arch.sm}"
    if (clash := glibc_clash(facts, toolkit)) and not _has_other_glibc(facts):
        return f"its headers clash with those of glibc {facts.machine.glibc} ({clash})"
    vital = [item for item in toolkit.missing if item in _VITAL]
    return f"it is incomplete: {', '.join(vital)} missing" if vital else None


def _is_tegra(arch: Arch) -> bool:
    info = arch_info(arch)
    return info is not None and info.tegra


def _has_other_glibc(facts: Facts) -> bool:
    """A compiler with an older C library of its own is here, or can be had without root: conda's."""
    interpreter = facts.environment.interpreter.value
    in_conda = interpreter is not None and interpreter.kind == "conda"
    return in_conda or any(brings_own_glibc(item) for item in facts.machine.compilers.value or ())


def _compiles_for(toolkit: Toolkit, version: tuple[int, ...], arch: Arch) -> bool:
    """What nvcc itself lists; where it was not asked (or for a letter), the table; what neither knows may be tried."""
    if toolkit.archs and not arch.variant:
        return arch.sm in toolkit.archs
    return toolkit_supports((version[0], version[1]), arch) is not False


# Without these nothing compiles or links. The others (cublas, cusparse, cusolver) come from torch's own CUDA packages.
_VITAL = (
    "bin/nvcc",
    "include/cuda_runtime.h",
    "include/cuda_runtime_api.h",
    "lib64/libcudart.so",
    "lib/x64/cudart.lib",
)


def _candidates(facts: Facts, cuda_home: str | None) -> Sequence[Toolkit]:
    """The toolkits of this machine, or the one in the folder that the person named."""
    if not cuda_home:
        return facts.machine.toolkits.value or ()
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


def _seen(facts: Facts, rejected: Sequence[RoadNotTaken]) -> str:
    """What was looked at, for a sentence; that nothing could be looked at is another thing than that nothing is there."""
    if rejected:
        return "; ".join(f"{road.what.removeprefix('toolkit ')}: {road.why}" for road in rejected)
    toolkits = facts.machine.toolkits
    return (
        "none was found" if toolkits.value is not None else f"which are here is not known ({toolkits.error})"
    )


def _no_toolkit(
    cuda: str, targets: Sequence[Arch], rejected: Sequence[RoadNotTaken], seen: str, cuda_home: str | None
) -> SplatfixError:
    major = cuda.partition(".")[0]
    where = f"The toolkit in {cuda_home} does not fit" if cuda_home else "No toolkit on this machine fits"
    lost = [arch for arch in targets if (_last_major(arch) or int(major)) < int(major)]
    if lost:
        return _needs_older_cuda(cuda, lost)
    todo = (
        f"Install a CUDA {major} toolkit ({cuda} is torch's own), or name one with --cuda-home.",
        "NVIDIA's archive: https://developer.nvidia.com/cuda-toolkit-archive",
        f'With conda: conda install -c "nvidia/label/cuda-{cuda}.0" cuda-toolkit',
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


def release_numbers(text: str) -> tuple[int, ...]:
    """``2.11.0+cu130`` -> (2, 11, 0); the first three numbers, fewer when there are fewer."""
    return tuple(int(n) for n in re.findall(r"\d+", text)[:3])
