"""Checks of what a build needs around it: architectures, memory, swap, ninja, one copy of CUB, libraries to link."""

import re
from collections.abc import Iterator, Sequence

from splatfix.checks.evidence import variable
from splatfix.checks.registry import Check, checks_of
from splatfix.context import Context, Target
from splatfix.context.architectures import own_choice, own_variables, understood, written
from splatfix.context.compilers import brings_own_glibc, glibc_clash
from splatfix.context.coverage import usual_archs
from splatfix.core.step import Step, prepend_variable, say, set_variable
from splatfix.core.versions import major_minor, release
from splatfix.core.words import counted
from splatfix.knowledge import Arch
from splatfix.knowledge.archs import cubin_runs_on, ptx_runs_on, toolkit_supports
from splatfix.knowledge.cpp_extension import ArchEntry, ArchList, ArchListError, behaviour, expand_arch_list
from splatfix.model import ArchVariable, Evidence, Finding, Torch

check = checks_of("build")

_NAME = "TORCH_CUDA_ARCH_LIST"


@check("arch-list-malformed")
def arch_list_malformed(context: Context, this: Check) -> Iterator[Finding]:
    text, torch = context.variables.get(_NAME), context.torch
    if text and torch is not None and context.torch_cuda is not None:
        result, evidence = context.arch_list, variable(context, _NAME)
        if isinstance(result, ArchList):
            yield this.ok(evidence=evidence, entries=" ".join(map(str, result.entries)))
        elif isinstance(result, ArchListError) and not _may_be_known(result.item, torch):
            rules = "rules of torch/utils/cpp_extension.py"
            yield this.fail(
                _fault(result.item),
                evidence=(evidence, Evidence("torch says", result.exception, rules)),
                remedy=_mended(text, torch),
                torch=torch,
                text=text,
                entry=result.item,
            )
    read_by: dict[str, tuple[ArchVariable, str]] = {}
    for item in context.sources_to_build:
        for own in own_variables(item.source):
            read_by[own.name] = (own, item.source.label)
    for name, (own, label) in read_by.items():
        value = context.variables.get(name)
        if not value or understood(own, value):
            continue
        # 8.6+PTX;sm_120 -> 8.6, 12.0
        numbers = re.findall(r"(\d{1,2})\.?(\d[af]?)(?!\d)", value)
        archs = Arch.known_among(".".join(number) for number in numbers)
        yield this.fail(
            subject=name,
            evidence=variable(context, name),
            remedy=set_variable(name, written(own, archs) or None),
            label=label,
            example=written(own, [Arch(8, 6)]),
            name=name,
            value=value,
        )


def _may_be_known(item: str, torch: Torch) -> bool:
    """Tell whether this torch lists the number, or is newer than splatfix's tables and the item looks like a name."""
    rules = behaviour(torch.version)
    newer = rules is None or not rules.same_minor
    a_name = re.fullmatch(r"[A-Z][a-z]+(\+\w+)*", item) is not None
    return item.removesuffix("+PTX") in torch.knows_archs or (newer and a_name)


def _fault(item: str) -> str:
    """Name the case in which torch does not know an entry of the list."""
    if not item:
        return "empty"
    if not item.isascii():
        return "foreign"
    if re.search(r"[,:/]", item):
        return "separator"
    if re.fullmatch(r"(sm_|compute_)?\d{2,3}[af]?(\+PTX)?", item):
        return "notation"
    return "strange"


def _mended(text: str, torch: Torch) -> tuple[Step, ...]:
    """Mend the list to what was meant, where torch would take that; else without the entries that torch does not know."""
    entries = [entry for entry in re.split(r"[^\w.+]+", text) if entry]
    dotted = [
        re.sub(r"^(?:sm_|compute_)?(\d{1,2})(\d[af]?)(\+PTX)?$", r"\1.\2\3", entry) for entry in entries
    ]
    good = [entry for entry in dotted if isinstance(expand_arch_list(entry, torch.version), ArchList)]
    if good:
        return (set_variable(_NAME, ";".join(dict.fromkeys(good))),)
    return (set_variable(_NAME, None), say("Without it torch compiles for the GPUs that it sees."))


@check("arch-list-unbuildable")
def arch_list_unbuildable(context: Context, this: Check) -> Iterator[Finding]:
    toolkit, entries = context.build_toolkit, _entries(context)
    if toolkit is None or not toolkit.archs:
        return
    cuda = major_minor(toolkit.version) or (0, 0)
    refused = []
    for entry in entries:
        # nvcc lists plain numbers only; from which release on it takes a letter is in the tables
        too_old_for_letter = entry.arch.variant and toolkit_supports(cuda, entry.arch) is False
        if entry.arch.plain.sm not in toolkit.archs or too_old_for_letter:
            refused.append(entry)
    if refused:
        listed = Evidence(toolkit.root, " ".join(toolkit.archs), "nvcc --list-gpu-code")
        yield this.fail(
            evidence=(variable(context, _NAME), listed),
            remedy=_list_without(context, entries, refused),
            toolkit=toolkit,
            names=", ".join(entry.arch.sm for entry in refused),
        )


def _list_without(context: Context, entries: Sequence[ArchEntry], refused: Sequence[ArchEntry]) -> Step:
    """Set the list to what is left of it; where nothing is, to the targets."""
    accepted = [str(entry) for entry in entries if entry not in refused]
    if not accepted:
        return _for_targets(context)
    return set_variable(_NAME, ";".join(accepted))


@check("arch-list-below-minimum")
def arch_list_below_minimum(context: Context, this: Check) -> Iterator[Finding]:
    gsplat = context.distribution("gsplat")
    modern_gsplat = gsplat is None or release(gsplat.version)[:1] >= (1,)
    needing = []
    for name in context.builds_ahead:
        if (name == "gsplat" and modern_gsplat) or name.endswith("_fastgs"):
            needing.append(name)
    entries = _entries(context)
    old = [entry for entry in entries if release(entry.arch.cc) < (7, 0)]
    if needing and old:
        yield this.fail(
            subject=needing[0],
            evidence=variable(context, _NAME),
            remedy=_list_without(context, entries, old),
            name=needing[0],
            old=", ".join(map(str, old)),
        )


@check("arch-list-misses-gpu")
def arch_list_misses_gpu(context: Context, this: Check) -> Iterator[Finding]:
    entries = _entries(context)
    for target in context.targets:
        if entries and not any(_serves(item, target, context) for item in entries):
            yield this.warn(
                subject=target.label,
                evidence=Evidence(_NAME, " ".join(map(str, entries)), "environment variable"),
                remedy=_for_targets(context),
                value=context.variables[_NAME],
                target=target,
            )


def _serves(entry: ArchEntry, target: Target, context: Context) -> bool:
    if cubin_runs_on(entry.arch, target.arch):
        return True
    if not entry.ptx or not ptx_runs_on(entry.arch, target.arch):
        return False
    # where the PTX version or the driver's level is not known, nothing is known to refuse it
    toolkit = context.build_toolkit
    return toolkit is None or context.compiles_ptx(toolkit.version, target.arch) is not False


@check("arch-clamped")
def arch_clamped(context: Context, this: Check) -> Iterator[Finding]:
    torch, targets = context.torch, context.own_targets
    if torch is None or not targets or context.goal.targets or context.has_working_gpu is not True:
        return
    result, own_archs = context.own_arch_list, usual_archs(torch.code)
    own_code = Evidence("torch's own code", " ".join(own_archs), "fat binaries of libtorch_cuda")
    evidence, remedy = (variable(context, _NAME), own_code), _for_targets(context)
    # a GPU whose number torch does not know at all is told by arch-unknown-to-torch
    if isinstance(result, ArchListError) and result.item in own_archs:
        yield this.fail(evidence=evidence, remedy=remedy, torch=torch, exception=result.exception)
    if not isinstance(result, ArchList):
        return
    entries = " ".join(map(str, result.entries))
    for target in targets:
        serves = context.judge(torch.code, target.arch).usable
        if serves and not any(cubin_runs_on(arch, target.arch) for arch in result.cubins):
            yield this.warn(
                subject=target.label,
                evidence=evidence,
                remedy=remedy,
                torch=torch,
                entries=entries,
                target=target,
            )


@check("no-gpu-at-build")
def no_gpu_at_build(context: Context, this: Check) -> Iterator[Finding]:
    torch = context.torch
    if torch is None or torch.cuda is None or context.has_working_gpu is not False or not context.toolkits:
        return
    gpus = Evidence("GPUs", "none that torch would see", context.machine.gpus.found_via)
    choosing_themselves = set()
    for item in context.sources_to_build:
        choice = own_choice(item.source, context.archs, torch.version)
        if choice is None:
            continue
        own, label = choice[0], item.source.label
        choosing_themselves.add(label)
        # with a target, arch-list-ignored names the variable and its value
        if not context.targets and not context.variables.get(own.name):
            yield this.warn(
                "own-variable",
                subject=item.path,
                evidence=(variable(context, own.name), gpus),
                name=own.name,
                label=label,
                example=written(own, [Arch(12, 0)]),
            )
    if context.variables.get(_NAME, "native") != "native":
        return
    builds = [name for name in context.builds_ahead if name not in choosing_themselves]
    evidence, remedy = (variable(context, _NAME), gpus), _for_targets(context)
    if builds:
        yield this.warn(evidence=evidence, remedy=remedy, builds=", ".join(builds))
    elif not choosing_themselves:
        yield this.skip(evidence=evidence, remedy=remedy)


def _entries(context: Context) -> tuple[ArchEntry, ...]:
    """Return what the variable asks torch for; () when it is unset or not understood."""
    if not isinstance(context.arch_list, ArchList):
        return ()
    return context.arch_list.entries


def _for_targets(context: Context) -> Step:
    targets = context.targets
    if not targets:
        return say(
            f"Set {_NAME} to the compute capability of the GPU that is meant, e.g. 12.0 for an RTX 50 card."
        )
    return set_variable(_NAME, ";".join(sorted({target.arch.cc for target in targets})))


MEMORY_PER_JOB = 5 * 2**29
"""What one nvcc job on a file that includes torch's headers takes at its worst, with some air (measured: 1.5 to 2.3 GB).
The installer plans with the same number."""
# Enough for ten jobs of gsplat at once: with less a build may need swap.
_WITHOUT_SWAP = 32 * 2**30
# gsplat's own limit for its build at first use, where MAX_JOBS is not set (gsplat/cuda/_backend.py).
_GSPLAT_JOBS = 10
# Of a disk: with less a single wheel of an extension is not built, and with the first not even a log is written.
_LEAST_FREE, _GOOD_FREE = 64 * 2**20, 2**30


@check("build-out-of-memory")
def build_out_of_memory(context: Context, this: Check) -> Iterator[Finding]:
    resources = context.machine.resources
    memory, swap = resources.memory_available or resources.memory_total, resources.swap_total or 0
    jobs, build = _jobs_ahead(context)
    if jobs == 0 or not memory:
        return
    available, need = memory + swap, jobs * MEMORY_PER_JOB
    report = this.warn
    if need <= available or jobs == 1:
        report = this.ok
    setting = f"MAX_JOBS={context.variables.get('MAX_JOBS', 'not set')}"
    sizes = f"{memory / 2**30:.1f} GiB free, {swap / 2**30:.1f} GiB of swap"
    cores = counted(resources.cores or 0, "core")
    yield report(
        evidence=(
            Evidence("memory", sizes, "/proc/meminfo"),
            Evidence("jobs", f"{jobs} at once for {build}", f"{setting}, {cores}"),
        ),
        build=build,
        compilers=counted(jobs, "compiler"),
        need=need / 2**30,
        available=available / 2**30,
        limit_jobs=set_variable("MAX_JOBS", str(max(1, available // MEMORY_PER_JOB))),
    )


def _jobs_ahead(context: Context) -> tuple[int, str]:
    """Count the compilers that the builds ahead start at most at once, and for what; (0, "") where nothing is to be built."""
    cores = context.machine.resources.cores
    setting = context.variables.get("MAX_JOBS", "")
    if cores is None or not context.builds_ahead:
        return 0, ""
    limit = 1  # without ninja setuptools compiles one file after the other
    if "ninja" in context.machine.tools or context.distribution("ninja"):
        limit = cores + 2
        if setting.isdigit() and int(setting) > 0:
            limit = int(setting)
    most, name = 0, ""
    for item in context.sources_to_build:
        files = sum(file.endswith(".cu") for file in item.source.files)
        if min(limit, files) > most:
            most, name = min(limit, files), item.source.label
    if "gsplat" in context.compiles_at_first_use:
        # its own limit stands aside for MAX_JOBS
        jobs = limit
        if not setting:
            jobs = min(limit, _GSPLAT_JOBS)
        most, name = max((most, name), (jobs, "gsplat"))
    return most, name


@check("wsl-without-swap")
def wsl_without_swap(context: Context, this: Check) -> Iterator[Finding]:
    swap, memory = context.machine.resources.swap_total, context.machine.resources.memory_total
    if not context.machine.wsl or swap is None or memory is None:
        return
    report = this.ok
    if swap == 0 and memory < _WITHOUT_SWAP:
        report = this.warn
    yield report(
        evidence=(
            Evidence("swap", f"{swap / 2**30:.1f} GiB", "/proc/meminfo"),
            Evidence("memory", f"{memory / 2**30:.1f} GiB", "/proc/meminfo"),
        ),
        memory=memory / 2**30,
        more=1.5 * memory / 2**30,
    )


@check("glibc-cuda-math-conflict")
def glibc_cuda_math_conflict(context: Context, this: Check) -> Iterator[Finding]:
    toolkit, compiler, glibc = context.build_toolkit, context.host_compiler, context.machine.glibc
    if toolkit is None or glibc is None or context.torch_cuda is None:
        return
    if compiler is not None and brings_own_glibc(compiler):
        return
    if glibc_clash(context.facts, toolkit):
        yield this.warn(
            evidence=(
                Evidence("glibc", glibc, context.machine.libc.found_via),
                Evidence("toolkit", f"{toolkit.version} in {toolkit.root}", "; ".join(toolkit.found_via)),
            ),
            toolkit=toolkit,
            glibc=glibc,
        )


@check("ninja-not-on-path")
def ninja_not_on_path(context: Context, this: Check) -> Iterator[Finding]:
    python, names = context.interpreter, ", ".join(context.compiles_at_first_use)
    if context.torch_cuda is None or python is None or "ninja" in context.machine.tools:
        return
    if not context.distribution("ninja") or not context.builds_ahead:
        return
    folder = f"{python.prefix}/bin"
    if context.windows:
        folder = f"{python.prefix}\\Scripts"
    state, via = f"not on PATH, but in {python.prefix}", context.environment.distributions.found_via
    report = this.warn if names else this.skip
    yield report(evidence=Evidence("ninja", state, via), remedy=prepend_variable("PATH", folder), names=names)


@check("linker-cudart-missing")
def linker_cudart_missing(context: Context, this: Check) -> Iterator[Finding]:
    toolkit, torch = context.build_toolkit, context.torch
    if toolkit is None or torch is None or context.torch_cuda is None or context.machine.system != "linux":
        return
    if not toolkit.cudart_in or toolkit.has_lib64 is None:
        return  # none at all is told by cuda-headers-missing
    searched = "lib64"
    if release(torch.version)[:2] >= (2, 1) and not toolkit.has_lib64:
        searched = "lib"
    # a distribution's own package lies where every linker looks
    of_system = toolkit.root == "/usr" and any(name.startswith("lib") for name in toolkit.cudart_in)
    if searched in toolkit.cudart_in or of_system:
        return
    where = f"libcudart.so in {', '.join(toolkit.cudart_in)}"
    yield this.warn(
        evidence=Evidence(toolkit.root, where, "; ".join(toolkit.found_via)),
        remedy=prepend_variable("LIBRARY_PATH", f"{toolkit.root}/{toolkit.cudart_in[0]}"),
        torch=torch,
        toolkit=toolkit,
        searched=searched,
    )


@check("linker-libcuda-missing")
def linker_libcuda_missing(context: Context, this: Check) -> Iterator[Finding]:
    linkable, toolkit = context.machine.linkable_libcuda, context.build_toolkit
    linking = [item.source for item in context.sources_to_build if "cuda" in item.source.libraries]
    if not linking or linkable.value is None or linkable.value or context.machine.system != "linux":
        return
    stubs, remedy = "lib64/stubs of a CUDA toolkit", None
    if toolkit is not None:
        stubs = f"{toolkit.root}/lib64/stubs"
    if context.machine.wsl:
        remedy = prepend_variable("LIBRARY_PATH", "/usr/lib/wsl/lib")
    yield this.warn(
        subject=linking[0].label,
        evidence=Evidence("libcuda.so", "nowhere", linkable.found_via),
        remedy=remedy,
        source=linking[0],
        stubs=stubs,
        install=context.install(linking[0].folder, text="This gives the linker one"),
    )


@check("cub-thrust-mismatch")
def cub_thrust_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    toolkit, copies = context.build_toolkit, context.machine.header_copies
    if toolkit is None or not toolkit.cub or context.torch_cuda is None:
        return
    for copy in copies.value or ():
        inside = copy.folder.startswith(f"{toolkit.root}/") or toolkit.root in ("/usr", copy.folder)
        others = [version for version in (copy.cub, copy.thrust) if version not in ("", None, toolkit.cub)]
        if inside or not others:
            continue
        # all others come after the -I of the toolkit
        report = this.warn if copy.via == "CUB_HOME" else this.skip
        versions = f"CUB {copy.cub or 'not there'}, Thrust {copy.thrust or 'not there'}"
        yield report(
            subject=copy.folder,
            evidence=(
                Evidence(copy.folder, versions, copy.via),
                Evidence(toolkit.root, f"CUB {toolkit.cub}", "cub/version.cuh"),
            ),
            copy=copy,
            other=others[0],
            toolkit=toolkit,
        )


@check("disk-full")
def disk_full(context: Context, this: Check) -> Iterator[Finding]:
    disks = context.machine.disks
    for disk in disks.value or ():
        report = this.ok
        if disk.free < _LEAST_FREE:
            report = this.fail
        elif disk.free < _GOOD_FREE:
            report = this.warn
        sizes = f"{disk.free / 2**30:.2f} of {disk.total / 2**30:.1f} GiB free"
        evidence = Evidence(disk.point, sizes, disks.found_via)
        yield report(subject=disk.point, evidence=evidence, disk=disk, free=disk.free / 2**30)
