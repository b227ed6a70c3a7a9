"""Which toolkit a build by splatfix uses: of torch's CUDA major, complete, and able to compile for the targets."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from msgspec import Struct

from splatfix.context.compilers import brings_own_glibc, glibc_clash
from splatfix.context.gpus import Gpus
from splatfix.context.model import Choice, NoToolkit, OtherOption, UnknownArch, looked_at, rejected_all
from splatfix.context.toolchain import compiles_for
from splatfix.context.torch_wheels import builds_for_all, install_command, preference
from splatfix.core.codec import to_json
from splatfix.core.errors import Rejected
from splatfix.core.reading import resolved_folder
from splatfix.core.step import say
from splatfix.core.versions import dotted, release
from splatfix.knowledge import Arch
from splatfix.knowledge.archs import arch_info, known_archs, newest_serving
from splatfix.knowledge.cpp_extension import first_release_for_arch
from splatfix.knowledge.drivers import ptx_isa_of_cuda
from splatfix.model import Facts, Toolkit, Torch


class BuildToolkit(Struct, frozen=True):
    """The toolkit a build by splatfix takes, and what it compiles for with it."""

    toolkit: Toolkit
    build_archs: tuple[Arch, ...]
    """What to compile for so that every target is served: the targets, or for some an older arch they run."""
    why: str
    ptx: Arch | None = None
    """Compiled as PTX too, for targets that this nvcc cannot name; None: every target gets machine code."""
    unsure: str = ""
    """What is not known about that PTX; "" when nothing is open."""

    @property
    def version(self) -> tuple[int, ...]:
        """The toolkit's release, as numbers."""
        return release(self.toolkit.version)


def choose_toolkit(
    facts: Facts,
    torch: Torch,
    targets: Sequence[Arch],
    cuda_home: str | None = None,
    *,
    instead: Toolkit | None = None,
    any_major: bool = False,
) -> Choice[BuildToolkit]:
    """Choose a toolkit whose major is torch's, which knows the targets; the one closest to torch's own version first.

    Where there is none, the problem is ``no-matching-toolkit``, ``arch-dropped-by-cuda``, ``arch-unknown-to-torch`` or
    ``no-toolkit-there``, with every candidate and why it was rejected.

    Args:
        cuda_home: the folder the person named; then no other is considered.
        instead: a toolkit that is not there yet, considered in place of those that are.
        any_major: another major than torch's will do where torch's own is not there.
    """
    unknown = _unserved(targets, torch)
    if unknown:
        return Choice(None, problem=unknown)
    cuda = release(torch.cuda)
    toolkits = _candidates(facts, cuda_home)
    if instead is not None:
        toolkits = (instead,)
    if isinstance(toolkits, Rejected):
        return Choice(None, problem=toolkits)
    fitting: list[BuildToolkit] = []
    objections: dict[str, str] = {}
    for toolkit in toolkits:
        build_archs = tuple(build_arch(target, torch, toolkit) or target for target in targets)
        objection = _objection_to(facts, toolkit, cuda, build_archs, any_major=any_major)
        if objection:
            objections[toolkit.root] = objection
            continue
        via = ", ".join(toolkit.found_via)
        reason = f"CUDA {toolkit.version}, torch was built with {torch.cuda}; found via {via}"
        fitting.append(BuildToolkit(toolkit, tuple(dict.fromkeys(build_archs)), reason))
    if not fitting:
        problem = _no_toolkit(facts, torch, targets, objections, cuda_home)
        return Choice(None, rejected_all("toolkit", objections), problem)

    def rank(choice: BuildToolkit) -> tuple[int, int, int, list[int]]:
        # one that tells no minor comes after all that do
        major, minor = (*choice.version, 99)[:2]
        newest_first = [-number for number in choice.version]
        return abs(major - cuda[0]), abs(minor - cuda[1]), len(choice.toolkit.missing), newest_first

    best, *others = sorted(fitting, key=rank)
    for other in others:
        farther = "farther from"
        if rank(other)[:2] == rank(best)[:2]:
            farther = "no nearer to"
        reason = f"also fits (CUDA {other.toolkit.version}), {farther} torch's CUDA {torch.cuda}"
        objections[other.toolkit.root] = reason
    return Choice(best, rejected_all("toolkit", objections))


def _candidates(facts: Facts, cuda_home: str | None) -> tuple[Toolkit, ...] | Rejected:
    """Return the toolkits of this machine, or the one in the folder that the person named."""
    toolkits = facts.machine.toolkits.value or ()
    if not cuda_home:
        return toolkits
    root = str(resolved_folder(cuda_home) or PurePath(cuda_home))
    named = tuple(item for item in toolkits if item.root == root)
    if not named:
        return Rejected.of("context.no-toolkit-there", cuda_home=cuda_home)
    return named


def build_arch(target: Arch, torch: Torch, toolkit: Toolkit | None = None) -> Arch | None:
    """Return the target itself, or the newest architecture whose machine code it runs (12.0 for 12.1), as far as torch and the
    toolkit know them; None when there is none. A torch whose list is not known takes the target."""
    known = [Arch.parse(name) for name in torch.knows_archs]

    def compiles(arch: Arch) -> bool:
        return toolkit is None or compiles_for(toolkit, arch)

    if (not known or target in known) and compiles(target):
        return target
    # what a letter stands for (sm_90a) no older architecture has
    if target.variant:
        return None
    return newest_serving(filter(compiles, known or known_archs()), target)


def _unserved(targets: Iterable[Arch], torch: Torch) -> UnknownArch | None:
    """Say that torch knows nothing that serves one of these, with any toolkit; None where it does."""
    target = next((one for one in targets if build_arch(one, torch) is None), None)
    if target is None:
        return None
    first = first_release_for_arch(target)
    newer = "a newer torch"
    if first:
        # the patch that was read stands for its minor
        newer = f"torch {dotted(release(first)[:2])} or newer in that environment"
    return UnknownArch.of(
        "context.arch-unknown-to-torch",
        torch_version=torch.version,
        sm=target.sm,
        knows_archs=torch.knows_archs,
        newer=newer,
    )


def _objection_to(
    facts: Facts,
    toolkit: Toolkit,
    cuda: tuple[int, ...],
    build_archs: Iterable[Arch],
    *,
    any_major: bool = False,
) -> str | None:
    """Say what speaks against compiling for these architectures with this toolkit beside a torch of this CUDA."""
    version = release(toolkit.version)
    if toolkit.nvcc is None or not version:
        return toolkit.error or "it has no nvcc"
    if version[0] != cuda[0] and not any_major:
        return f"CUDA {toolkit.version}: torch refuses another major than its own {cuda[0]}"
    for arch in build_archs:
        if not compiles_for(toolkit, arch):
            return f"CUDA {toolkit.version}: its nvcc cannot compile for {arch.sm}"
    clash = glibc_clash(facts, toolkit)
    interpreter = facts.environment.interpreter.value
    # a compiler with an older C library of its own is here, or can be had without root: conda's
    in_conda = interpreter is not None and interpreter.kind == "conda"
    other_glibc = in_conda or any(map(brings_own_glibc, facts.machine.compilers.value or ()))
    if clash and not other_glibc:
        return f"its headers clash with those of glibc {facts.machine.glibc} ({clash})"
    vital = [name for name in toolkit.missing if name in _VITAL]
    if vital:
        return f"it is incomplete: {', '.join(vital)} missing"
    return None


# Without these nothing compiles or links. The others (cublas, cusparse, cusolver) come from torch's own CUDA packages.
_VITAL = (
    "bin/nvcc",
    "include/cuda_runtime.h",
    "include/cuda_runtime_api.h",
    "lib64/libcudart.so",
    "lib/x64/cudart.lib",
)


def _no_toolkit(
    facts: Facts,
    torch: Torch,
    targets: Sequence[Arch],
    objections: Mapping[str, str],
    cuda_home: str | None,
) -> Rejected:
    cuda = torch.cuda or ""
    major = cuda.partition(".")[0]
    dropped = [arch for arch in targets if (_last_major(arch) or int(major)) < int(major)]
    if dropped:
        latest = min(_last_major(arch) or 0 for arch in dropped)
        builds = [item.build for item in builds_for_all(targets, facts) if item.build.cuda[0] <= latest]
        if not builds:
            none = say(f"No torch build in the tables supports {', '.join(map(str, targets))} here.")
            return OtherOption.of(
                "context.arch-dropped-by-cuda",
                major=major,
                dropped=tuple(dropped),
                latest=latest,
                todo=(none,),
            )
        older = min(builds, key=lambda build: preference(facts, build, targets))
        _, command = install_command(older, facts)
        todo = (command, say(f"Then install a CUDA {latest} toolkit and call splatfix install again."))
        return Rejected.of(
            "context.arch-dropped-by-cuda", major=major, dropped=tuple(dropped), latest=latest, todo=todo
        )
    subject = "No toolkit on this machine fits"
    if cuda_home:
        subject = f"The toolkit in {cuda_home} does not fit"
    return NoToolkit.of(
        "context.no-matching-toolkit",
        subject=subject,
        cuda=cuda,
        major=major,
        targets=tuple(targets),
        considered=looked_at(facts.machine.toolkits, objections, len(objections)),
        details={"rejected": to_json(rejected_all("toolkit", objections))},
    )


def _last_major(arch: Arch) -> int | None:
    """Return the last CUDA major that compiles for an architecture; None while the newest still does."""
    info = arch_info(arch)
    if info is None or info.last_toolkit is None:
        return None
    return info.last_toolkit[0]


def choose_ptx(
    facts: Facts, torch: Torch, targets: Sequence[Arch], cuda_home: str | None = None
) -> Choice[BuildToolkit]:
    """Choose a toolkit of torch's major that is here, with PTX of its newest architecture for the targets that it cannot name.

    Machine code runs within one major only, so a sm_90 cubin does not load on sm_120; PTX for compute_90 does, if the
    driver reads the PTX version that this toolkit writes. Source: CUDA's compatibility guides; CUDA error 222.

    Where there is none, the problem is ``ptx-unavailable`` with every candidate and why it was rejected;
    ``arch-unknown-to-torch`` for a target with a letter (``sm_100a``), in whose place no PTX of another can stand.
    """
    unknown = _unserved((target for target in targets if target.variant), torch)
    if unknown:
        return Choice(None, problem=unknown)
    cuda = release(torch.cuda)
    toolkits = _candidates(facts, cuda_home)
    if isinstance(toolkits, Rejected):
        return Choice(None, problem=toolkits)
    fitting: list[BuildToolkit] = []
    objections: dict[str, str] = {}
    for toolkit in toolkits:
        decision = _objection_to(facts, toolkit, cuda, ()) or _ptx_with(facts, toolkit, torch, targets)
        if isinstance(decision, str):
            objections[toolkit.root] = decision
        else:
            fitting.append(decision)
    rejected = rejected_all("toolkit", objections)
    if fitting:
        # of torch's major, the nearest minor
        return Choice(
            min(fitting, key=lambda one: (len(one.toolkit.missing), abs(one.version[1] - cuda[1]))), rejected
        )
    problem = OtherOption.of(
        "context.ptx-unavailable",
        targets=tuple(targets),
        considered=looked_at(facts.machine.toolkits, objections, len(objections)),
        todo=(say("Use a toolkit that supports the GPU."),),
    )
    return Choice(None, rejected, problem)


def _ptx_with(facts: Facts, toolkit: Toolkit, torch: Torch, targets: Sequence[Arch]) -> BuildToolkit | str:
    """Return the decision for one toolkit, or what speaks against it."""
    version = release(toolkit.version)
    named: list[Arch] = []
    unnamed: list[Arch] = []
    for target in targets:
        arch = build_arch(target, torch, toolkit)
        if arch is None:
            unnamed.append(target)
        else:
            named.append(arch)
    if not unnamed:
        reason = f"CUDA {toolkit.version} compiles machine code for every target"
        return BuildToolkit(toolkit, tuple(named), reason)
    # the newest desktop architecture below them that both know, whose PTX is to be translated for them
    older = []
    for arch in known_archs():
        known_to_torch = not torch.knows_archs or arch.cc in torch.knows_archs
        info = arch_info(arch)
        tegra = info is not None and info.tegra
        if arch < min(unnamed).plain and known_to_torch and not tegra and compiles_for(toolkit, arch):
            older.append(arch)
    base = max(older, default=None)
    if base is None:
        return f"CUDA {toolkit.version} supports no older architecture whose PTX {unnamed[0].sm} could take"
    gpus, unsure = Gpus(facts), ""
    for target in unnamed:
        reads = gpus.compiles_ptx(toolkit.version, target)
        if reads is False:
            isa, level = ptx_isa_of_cuda((version[0], version[1])), gpus.driver_level(target)
            return (
                f"its PTX {dotted(isa or ())} is newer than a driver of CUDA {level} translates (error 222)"
            )
        if reads is None:
            unsure = f"whether the driver translates PTX of CUDA {toolkit.version}"
    reason = (
        f"CUDA {toolkit.version} writes {base.compute} PTX, which every GPU from {base.sm} on can be given"
    )
    return BuildToolkit(toolkit, tuple(named), reason, base, unsure)
