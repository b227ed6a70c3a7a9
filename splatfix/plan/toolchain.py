"""Which toolkit a build uses: of torch's CUDA major, complete, and able to compile for the targets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from splatfix.checks.build_resources import brings_own_glibc, glibc_clash
from splatfix.checks.torch_choice import preference
from splatfix.core.errors import SplatfixError
from splatfix.core.step import Step, run, say
from splatfix.facts import Facts, Toolkit, Torch
from splatfix.knowledge import Arch, cubin_runs_on, toolkit_supports
from splatfix.knowledge.archs import arch_info, known_archs
from splatfix.knowledge.cpp_extension import first_release_for_arch
from splatfix.plan.plan import RoadNotTaken
from splatfix.plan.torch_builds import builds_for_all, install_command
from splatfix.plan.versions import release_numbers


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
        served_by(target, torch)
    looked_at = (instead,) if instead else candidates(facts, cuda_home)
    rejected: list[RoadNotTaken] = []
    fitting: list[tuple[tuple[int, int], Toolkit, tuple[int, ...], tuple[Arch, ...]]] = []
    for toolkit in looked_at:
        build_archs = tuple(build_arch(target, torch, toolkit) or target for target in targets)
        objection = objection_to(facts, toolkit, wanted, build_archs, any_major=any_major)
        if objection:
            rejected.append(RoadNotTaken(f"toolkit {toolkit.root}", objection))
            continue
        version = release_numbers(toolkit.version or "")
        minors = abs(version[1] - wanted[1]) if len(version) > 1 else 99
        fitting.append(((abs(version[0] - wanted[0]), minors), toolkit, version, build_archs))
    if not fitting:
        raise _no_toolkit(facts, torch.cuda, targets, rejected, cuda_home)
    fitting.sort(key=lambda item: (item[0], len(item[1].missing), [-n for n in item[2]]))
    _, best, version, build_archs = fitting[0]
    for distance, other, _, _ in fitting[1:]:
        how = "no nearer to" if distance == fitting[0][0] else "farther from"
        why = f"also fits (CUDA {other.version}), {how} torch's CUDA {torch.cuda}"
        rejected.append(RoadNotTaken(f"toolkit {other.root}", why))
    why = f"CUDA {best.version}, torch was built with {torch.cuda}; found via {', '.join(best.found_via)}"
    return ToolkitDecision(best, version, tuple(dict.fromkeys(build_archs)), why, tuple(rejected))


def build_arch(target: Arch, torch: Torch, toolkit: Toolkit | None = None) -> Arch | None:
    """The target itself, or the newest architecture whose machine code it runs (12.0 for 12.1), as far as torch and the
    toolkit know them; None when there is none. A torch whose list is not known takes the target."""
    known = [Arch.parse(item) for item in torch.knows_archs]
    version = release_numbers(toolkit.version or "") if toolkit else ()

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


def served_by(target: Arch, torch: Torch) -> Arch:
    """As ``build_arch`` with any toolkit.

    Raises:
        SplatfixError: ``arch-unknown-to-torch`` where torch knows nothing that serves the target.
    """
    found = build_arch(target, torch)
    if found is not None:
        return found
    raise SplatfixError(
        "arch-unknown-to-torch",
        f"torch {torch.version} does not know {target.sm}: its TORCH_CUDA_ARCH_LIST takes "
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
    version = release_numbers(toolkit.version or "")
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


def candidates(facts: Facts, cuda_home: str | None) -> Sequence[Toolkit]:
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
            todo=(say("Give the root folder, for example --cuda-home /usr/local/cuda-13.0"),),
        )
    return named


def what_was_seen(facts: Facts, rejected: Sequence[RoadNotTaken]) -> str:
    """What was looked at, for a sentence; that nothing could be looked at is another thing than that nothing is there."""
    if rejected:
        return "; ".join(f"{road.what.removeprefix('toolkit ')}: {road.why}" for road in rejected)
    toolkits = facts.machine.toolkits
    return (
        "none was found" if toolkits.value is not None else f"which are here is not known ({toolkits.error})"
    )


def _no_toolkit(
    facts: Facts,
    cuda: str,
    targets: Sequence[Arch],
    rejected: Sequence[RoadNotTaken],
    cuda_home: str | None,
) -> SplatfixError:
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


def _needs_older_cuda(
    facts: Facts, cuda: str, targets: Sequence[Arch], lost: Sequence[Arch]
) -> SplatfixError:
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
            say(f"No torch in the tables serves {words} here; splatfix install --dry-run --why says more."),
        )
    )
    return SplatfixError(
        "arch-dropped-by-cuda",
        f"No CUDA {cuda.partition('.')[0]} toolkit compiles for {names}: the last that does is CUDA {last}.",
        meaning="torch's CUDA and the toolkit's must have one major, so this torch cannot serve that GPU.",
        todo=todo,
    )
