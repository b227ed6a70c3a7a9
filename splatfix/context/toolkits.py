"""Which toolkit a build by splatfix uses: of torch's CUDA major, complete, and able to compile for the targets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from splatfix.context.commands import see_options
from splatfix.context.compilers import brings_own_glibc, glibc_clash
from splatfix.context.gpus import Gpus
from splatfix.context.model import Choice, Rejected
from splatfix.context.torch_wheels import builds_for_all, install_command, preference
from splatfix.core.errors import Problem
from splatfix.core.step import Step, run, say
from splatfix.core.versions import release
from splatfix.facts import Facts, Toolkit, Torch, resolved_folder
from splatfix.knowledge import Arch, cubin_runs_on, toolkit_supports
from splatfix.knowledge.archs import arch_info, known_archs
from splatfix.knowledge.cpp_extension import first_release_for_arch
from splatfix.knowledge.drivers import ptx_isa_of_cuda, ptx_jit_ok


@dataclass(frozen=True)
class BuildToolkit:
    """The toolkit a build by splatfix takes, and what it compiles for with it."""

    toolkit: Toolkit
    version: tuple[int, ...]
    build_archs: tuple[Arch, ...]
    """What to compile for so that every target is served: the targets, or for some an older arch they run."""
    why: str
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
) -> Choice[BuildToolkit]:
    """A toolkit whose major is torch's, which knows the targets; the one closest to torch's own version first.

    Where there is none, the problem is ``no-matching-toolkit``, ``arch-dropped-by-cuda``, ``arch-unknown-to-torch`` or
    ``no-toolkit-there``, with every candidate and why it was rejected.

    Args:
        cuda_home: the folder the person named; then no other is considered.
        instead: a toolkit that is not there yet, considered in place of those that are.
        any_major: another major than torch's will do where torch's own is not there.
    """
    wanted, looked_at = release(torch.cuda), (instead,) if instead else candidates(facts, cuda_home)
    if isinstance(problem := _unserved(targets, torch) or looked_at, Problem):
        return Choice(None, problem=problem)
    assert not isinstance(looked_at, Problem)
    rejected: list[Rejected] = []
    fitting: list[tuple[tuple[int, int], Toolkit, tuple[int, ...], tuple[Arch, ...]]] = []
    for toolkit in looked_at:
        build_archs = tuple(build_arch(target, torch, toolkit) or target for target in targets)
        objection = objection_to(facts, toolkit, wanted, build_archs, any_major=any_major)
        if objection:
            rejected.append(Rejected(f"toolkit {toolkit.root}", objection))
            continue
        version = release(toolkit.version)
        minors = abs(version[1] - wanted[1]) if len(version) > 1 else 99
        fitting.append(((abs(version[0] - wanted[0]), minors), toolkit, version, build_archs))
    if not fitting:
        problem = _no_toolkit(facts, torch, targets, rejected, cuda_home)
        return Choice(None, tuple(rejected), problem)
    fitting.sort(key=lambda item: (item[0], len(item[1].missing), [-n for n in item[2]]))
    _, best, version, build_archs = fitting[0]
    for distance, other, _, _ in fitting[1:]:
        how = "no nearer to" if distance == fitting[0][0] else "farther from"
        why = f"also fits (CUDA {other.version}), {how} torch's CUDA {torch.cuda}"
        rejected.append(Rejected(f"toolkit {other.root}", why))
    why = f"CUDA {best.version}, torch was built with {torch.cuda}; found via {', '.join(best.found_via)}"
    archs = tuple(dict.fromkeys(build_archs))
    return Choice(BuildToolkit(best, version, archs, why), tuple(rejected))


def build_arch(target: Arch, torch: Torch, toolkit: Toolkit | None = None) -> Arch | None:
    """The target itself, or the newest architecture whose machine code it runs (12.0 for 12.1), as far as torch and the
    toolkit know them; None when there is none. A torch whose list is not known takes the target."""
    known = [Arch.parse(item) for item in torch.knows_archs]
    version = release(toolkit.version) if toolkit else ()

    def compiles(arch: Arch) -> bool:
        return len(version) < 2 or toolkit is None or compiles_for(toolkit, version, arch)

    if (not known or target in known) and compiles(target):
        return target
    older = [
        arch
        for arch in known or known_archs()
        if not arch.variant and cubin_runs_on(arch, target) and compiles(arch)
    ]
    return max(older) if older and not target.variant else None


def _unserved(targets: Iterable[Arch], torch: Torch) -> Problem | None:
    """That torch knows nothing that serves one of these, with any toolkit; None where it does."""
    target = next((one for one in targets if build_arch(one, torch) is None), None)
    if target is None:
        return None
    return Problem(
        "arch-unknown-to-torch",
        f"torch {torch.version} does not support {target.sm}: its TORCH_CUDA_ARCH_LIST takes "
        f"{', '.join(torch.knows_archs)}.",
        meaning="It would stop with 'Unknown CUDA arch' before compiling, and it has no kernels for this GPU either.",
        todo=(_newer_torch(target),),
    )


def _newer_torch(target: Arch) -> Step:
    release = first_release_for_arch(target)
    if release is None:
        return say("Use a newer torch; see https://pytorch.org/get-started/locally/")
    minor = ".".join(release.split(".")[:2])  # the patch read stands for its minor
    return say(
        f"Use torch {minor} or newer in that environment; see https://pytorch.org/get-started/locally/"
    )


def objection_to(
    facts: Facts,
    toolkit: Toolkit,
    wanted: tuple[int, ...],
    build_archs: Iterable[Arch],
    *,
    any_major: bool = False,
) -> str | None:
    """What speaks against compiling for these architectures with this toolkit beside a torch of CUDA ``wanted``."""
    version = release(toolkit.version)
    if toolkit.nvcc is None or not version:
        return toolkit.error or "it has no nvcc"
    if version[0] != wanted[0] and not any_major:
        return f"CUDA {toolkit.version}: torch refuses another major than its own {wanted[0]}"
    for arch in build_archs:
        if not compiles_for(toolkit, version, arch):
            return f"CUDA {toolkit.version}: its nvcc cannot compile for {arch.sm}"
    if (clash := glibc_clash(facts, toolkit)) and not _has_other_glibc(facts):
        return f"its headers clash with those of glibc {facts.machine.glibc} ({clash})"
    vital = [item for item in toolkit.missing if item in _VITAL]
    return f"it is incomplete: {', '.join(vital)} missing" if vital else None


def _has_other_glibc(facts: Facts) -> bool:
    """A compiler with an older C library of its own is here, or can be had without root: conda's."""
    interpreter = facts.environment.interpreter.value
    in_conda = interpreter is not None and interpreter.kind == "conda"
    return in_conda or any(brings_own_glibc(item) for item in facts.machine.compilers.value or ())


def compiles_for(toolkit: Toolkit, version: tuple[int, ...], arch: Arch) -> bool:
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


def candidates(facts: Facts, cuda_home: str | None) -> tuple[Toolkit, ...] | Problem:
    """The toolkits of this machine, or the one in the folder that the person named."""
    if not cuda_home:
        return facts.machine.toolkits.value or ()
    root = str(resolved_folder(cuda_home) or PurePath(cuda_home))
    named = tuple(item for item in facts.machine.toolkits.value or () if item.root == root)
    if not named:
        return Problem(
            "no-toolkit-there",
            f"There is no CUDA toolkit in {cuda_home}.",
            meaning="A toolkit root holds bin/nvcc and include/cuda_runtime.h.",
            todo=(say("Give the root folder, for example --cuda-home /usr/local/cuda-13.0"),),
        )
    return named


def what_was_seen(facts: Facts, rejected: Sequence[Rejected]) -> str:
    """What was looked at, for a sentence; that nothing could be looked at is another thing than that nothing is there."""
    if rejected:
        return "; ".join(f"{item.what.removeprefix('toolkit ')}: {item.why}" for item in rejected)
    toolkits = facts.machine.toolkits
    return (
        "none was found" if toolkits.value is not None else f"which are here is not known ({toolkits.error})"
    )


def _no_toolkit(
    facts: Facts, torch: Torch, targets: Sequence[Arch], rejected: Sequence[Rejected], cuda_home: str | None
) -> Problem:
    cuda = torch.cuda or ""
    major, seen = cuda.partition(".")[0], what_was_seen(facts, rejected)
    where = f"The toolkit in {cuda_home} does not fit" if cuda_home else "No toolkit on this machine fits"
    lost = [arch for arch in targets if (_last_major(arch) or int(major)) < int(major)]
    if lost:
        return _needs_older_cuda(facts, cuda, targets, lost)
    todo = (
        say(f"Install a CUDA {major} toolkit ({cuda} is torch's own), or name one with --cuda-home."),
        say("NVIDIA's archive: https://developer.nvidia.com/cuda-toolkit-archive"),
        run("conda", "install", "-c", f"nvidia/label/cuda-{cuda}.0", "cuda-toolkit", text="With conda"),
    )
    return Problem(
        "no-matching-toolkit",
        f"{where} torch's CUDA {cuda} and {', '.join(arch.sm for arch in targets)}: {seen}.",
        meaning="Extensions must be compiled by a toolkit of the same CUDA major as torch, and it must support the GPU.",
        todo=todo,
        details={"rejected": [{"what": item.what, "why": item.why} for item in rejected]},
    )


def _last_major(arch: Arch) -> int | None:
    """The last CUDA major that compiles for an architecture; None while the newest still does."""
    info = arch_info(arch)
    return info.last_toolkit[0] if info and info.last_toolkit else None


def _needs_older_cuda(facts: Facts, cuda: str, targets: Sequence[Arch], lost: Sequence[Arch]) -> Problem:
    names, last = ", ".join(arch.sm for arch in lost), min(_last_major(arch) or 0 for arch in lost)
    fitting = (item.build for item in builds_for_all(targets, facts) if item.build.cuda[0] <= last)
    older = min(fitting, key=lambda item: preference(facts, item, targets), default=None)
    words = ", ".join(arch.sm for arch in targets)
    todo = (
        (
            install_command(older, facts)[1],
            say(f"Then install a CUDA {last} toolkit and call splatfix install again."),
        )
        if older
        else (
            say(f"No torch build in the tables supports {words} here."),
            see_options(facts),
        )
    )
    return Problem(
        "arch-dropped-by-cuda",
        f"No CUDA {cuda.partition('.')[0]} toolkit compiles for {names}: the last that does is CUDA {last}.",
        meaning="torch's CUDA and the toolkit's must have one major, so this torch cannot support that GPU.",
        todo=todo,
    )


def choose_ptx(
    facts: Facts, torch: Torch, targets: Sequence[Arch], cuda_home: str | None = None
) -> Choice[BuildToolkit]:
    """A toolkit of torch's major that is here, with PTX of its newest architecture for the targets that it cannot name.

    Machine code runs within one major only, so a sm_90 cubin does not load on sm_120; PTX for compute_90 does, if the
    driver reads the PTX version that this toolkit writes. Source: CUDA's compatibility guides; CUDA error 222.

    Where there is none, the problem is ``ptx-unavailable`` with every candidate and why it was rejected;
    ``arch-unknown-to-torch`` for a target with a letter (``sm_100a``), in whose place no PTX of another can stand.
    """
    looked_at = candidates(facts, cuda_home)
    lettered = _unserved((target for target in targets if target.variant), torch)
    if isinstance(problem := lettered or looked_at, Problem):
        return Choice(None, problem=problem)
    assert not isinstance(looked_at, Problem)
    wanted = release(torch.cuda)
    rejected: list[Rejected] = []
    fitting: list[tuple[tuple[int, int], BuildToolkit]] = []
    for toolkit in looked_at:
        answer = _ptx_with(facts, toolkit, torch, wanted, targets)
        if isinstance(answer, str):
            rejected.append(Rejected(f"toolkit {toolkit.root}", answer))
        else:
            fitting.append(((len(toolkit.missing), abs(answer.version[1] - wanted[1])), answer))
    if not fitting:
        words = ", ".join(arch.sm for arch in targets)
        problem = Problem(
            "ptx-unavailable",
            f"No toolkit here produces PTX that runs on {words}: {what_was_seen(facts, rejected)}.",
            meaning="PTX must come from a toolkit of torch's CUDA major, and be old enough for the driver.",
            todo=(
                say("Use a toolkit that supports the GPU."),
                see_options(facts),
            ),
        )
        return Choice(None, tuple(rejected), problem)
    return Choice(min(fitting, key=lambda item: item[0])[1], tuple(rejected))


def _ptx_with(
    facts: Facts, toolkit: Toolkit, torch: Torch, wanted: tuple[int, ...], targets: Sequence[Arch]
) -> BuildToolkit | str:
    """The decision for one toolkit, or what speaks against it."""
    objection = objection_to(facts, toolkit, wanted, ())
    if objection:
        return objection
    version = release(toolkit.version)
    found = {arch: build_arch(arch, torch, toolkit) for arch in targets}
    named = [own for own in found.values() if own is not None]
    lacking = [arch for arch, own in found.items() if own is None]
    if not lacking:
        why = f"CUDA {toolkit.version} compiles machine code for every target"
        return BuildToolkit(toolkit, version, tuple(named), why)
    base = _ptx_base(toolkit, version, torch, below=min(lacking).plain)
    if base is None:
        return f"CUDA {toolkit.version} supports no older architecture whose PTX {lacking[0].sm} could take"
    isa, unsure = ptx_isa_of_cuda((version[0], version[1])), ""
    for arch in lacking:
        level = Gpus(facts).driver_level(arch)
        reads = _driver_reads(isa, level)
        if isa and reads is False:
            return f"its PTX {isa[0]}.{isa[1]} is newer than a driver of CUDA {level} translates (error 222)"
        unsure = unsure if reads else f"whether the driver translates PTX of CUDA {toolkit.version}"
    why = f"CUDA {toolkit.version} writes {base.compute} PTX, which every GPU from {base.sm} on can be given"
    return BuildToolkit(toolkit, version, tuple(named), why, base, unsure)


def _ptx_base(toolkit: Toolkit, version: tuple[int, ...], torch: Torch, *, below: Arch) -> Arch | None:
    """The newest desktop architecture below another that both know, whose PTX is to be translated for it."""
    older = (
        arch
        for arch in known_archs()
        if arch < below
        and not _is_tegra(arch)
        and compiles_for(toolkit, version, arch)
        and (not torch.knows_archs or arch.cc in torch.knows_archs)
    )
    return max(older, default=None)


def _driver_reads(isa: tuple[int, int] | None, level: str | None) -> bool | None:
    """Whether a driver of this CUDA level translates PTX of this version; None: not known."""
    numbers = release(level)
    return ptx_jit_ok(isa, (numbers[0], numbers[1])) if isa and len(numbers) > 1 else None


def _is_tegra(arch: Arch) -> bool:
    info = arch_info(arch)
    return info is not None and info.tegra
