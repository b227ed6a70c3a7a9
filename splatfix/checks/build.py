"""Checks of what a build needs around it: architectures, memory, swap, ninja, one copy of CUB, libraries to link."""

import re
from collections.abc import Iterator, Sequence

from splatfix.checks.evidence import set_or_unset, variable
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
from splatfix.model import ArchVariable, Evidence, Finding, Status, Torch

check = checks_of("build")

_NAME = "TORCH_CUDA_ARCH_LIST"


@check("arch-list-malformed", "TORCH_CUDA_ARCH_LIST is written as torch reads it")
def arch_list_malformed(context: Context, this: Check) -> Iterator[Finding]:
    """torch splits TORCH_CUDA_ARCH_LIST at ';' and blanks, knows a fixed list of numbers and names, and stops every build at
    anything else: "Unknown CUDA arch (8.6；8.9) or GPU not supported" for a full-width semicolon, a comma, `sm_86`, a
    trailing ';'. fused-ssim's CUDA_ARCHITECTURES and tiny-cuda-nn's TCNN_CUDA_ARCHITECTURES want plain numbers (120, not
    12.0+PTX). Source: `_get_cuda_arch_flags` of torch/utils/cpp_extension.py, which a test holds this against."""
    text, torch = context.variables.get(_NAME), context.torch
    if text and torch is not None and context.torch_cuda is not None:
        result, evidence = context.arch_list, variable(context, _NAME)
        if isinstance(result, ArchList):
            entries = " ".join(map(str, result.entries))
            yield this.ok(f"torch reads {_NAME} as {entries}.", evidence=evidence)
        elif isinstance(result, ArchListError) and not _may_be_known(result.item, torch):
            rules = "rules of torch/utils/cpp_extension.py"
            yield this.fail(
                f"torch {torch.version} stops every build at {_NAME}={text!r}: {_what_is_wrong(result.item)}.",
                evidence=(evidence, Evidence("torch says", result.exception, rules)),
                remedy=_mended(text, torch),
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
        kind, example = "plain numbers", written(own, [Arch(8, 6)])
        if own.dotted:
            kind = "compute capabilities"
        yield this.fail(
            f"{label} reads {kind} such as {example} from {name}, not {value!r}.",
            subject=name,
            evidence=variable(context, name),
            remedy=set_or_unset(name, written(own, archs)),
        )


@check("arch-list-unbuildable", "The toolkit compiles for every entry of TORCH_CUDA_ARCH_LIST")
def arch_list_unbuildable(context: Context, this: Check) -> Iterator[Finding]:
    """One entry that nvcc does not know ends the build for all: "nvcc fatal: Unsupported gpu architecture 'compute_60'"
    (dropped by CUDA 13) or 'compute_120' (unknown before 12.8). nvcc's own list decides."""
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
        names = ", ".join(entry.arch.sm for entry in refused)
        listed = Evidence(toolkit.root, " ".join(toolkit.archs), "nvcc --list-gpu-code")
        yield this.fail(
            f"nvcc {toolkit.version} does not compile for {names}, which {_NAME} asks for.",
            evidence=(variable(context, _NAME), listed),
            remedy=_list_without(context, entries, refused),
        )


def _list_without(context: Context, entries: Sequence[ArchEntry], refused: Sequence[ArchEntry]) -> Step:
    """Set the list to what is left of it; where nothing is, to the targets."""
    accepted = [str(entry) for entry in entries if entry not in refused]
    if not accepted:
        return _for_targets(context)
    return set_variable(_NAME, ";".join(accepted))


@check("arch-list-below-minimum", "TORCH_CUDA_ARCH_LIST names only GPUs that the source supports")
def arch_list_below_minimum(context: Context, this: Check) -> Iterator[Finding]:
    """gsplat from 1.0 on and FastGS use cooperative groups that begin with compute capability 7.0. One older entry in the list
    stops the build on any machine: "namespace "cooperative_groups" has no member "labeled_partition""."""
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
            f"{needing[0]} needs compute capability 7.0; {_NAME} asks for {', '.join(map(str, old))} as well.",
            subject=needing[0],
            evidence=variable(context, _NAME),
            remedy=_list_without(context, entries, old),
        )


@check("arch-list-misses-gpu", "TORCH_CUDA_ARCH_LIST has code for the GPU")
def arch_list_misses_gpu(context: Context, this: Check) -> Iterator[Finding]:
    """A list left over from another machine or a container image builds extensions that this GPU cannot run: no machine code
    of its major, and no PTX that its driver can compile. Nothing says so before the first kernel."""
    entries = _entries(context)
    if not entries:
        return
    for target in context.targets:
        if not any(_serves(item, target, context) for item in entries):
            yield this.warn(
                f"{_NAME}={context.variables[_NAME]} builds nothing that {target.label} can run.",
                subject=target.label,
                evidence=Evidence(_NAME, " ".join(map(str, entries)), "environment variable"),
                remedy=_for_targets(context),
            )


@check("arch-clamped", "torch's builder does not clamp the GPU's architecture")
def arch_clamped(context: Context, this: Check) -> Iterator[Finding]:
    """With TORCH_CUDA_ARCH_LIST unset torch compiles for the visible GPUs, but clamps each to the newest architecture of its
    own code: an RTX 5090 beside a torch that ends at sm_90 gets "9.0+PTX", which is compiled at the first use and
    lacks everything that is newer. A list that is set is not clamped. Source: `_get_cuda_arch_flags` (torch 2.0 to 2.15)."""
    torch, targets = context.torch, context.own_targets
    if torch is None or not targets or context.goal.targets or context.has_working_gpu is not True:
        return
    result, own_archs = context.own_arch_list, usual_archs(torch.code)
    evidence = (
        variable(context, _NAME),
        Evidence("torch's own code", " ".join(own_archs), "fat binaries of libtorch_cuda"),
    )
    # a GPU whose number torch does not know at all is told by arch-unknown-to-torch
    if isinstance(result, ArchListError) and result.item in own_archs:
        yield this.fail(
            f"torch {torch.version} cannot work out the GPUs' architectures ({result.exception}).",
            evidence=evidence,
            remedy=_for_targets(context),
        )
    if not isinstance(result, ArchList):
        return
    entries = " ".join(map(str, result.entries))
    for target in targets:
        serves = context.judge(torch.code, target.arch).usable
        if serves and not any(cubin_runs_on(arch, target.arch) for arch in result.cubins):
            yield this.warn(
                f"torch {torch.version} would build for {entries} instead of {target.label}.",
                subject=target.label,
                evidence=evidence,
                remedy=_for_targets(context),
            )


@check("no-gpu-at-build", "The build knows which GPU to compile for")
def no_gpu_at_build(context: Context, this: Check) -> Iterator[Finding]:
    """With TORCH_CUDA_ARCH_LIST unset and no GPU visible (docker build, a login node, CI) torch's builder ends in "IndexError:
    list index out of range"; fused-ssim falls back to 7.5, 8.0 and 8.9 without PTX. Source: `_get_cuda_arch_flags`.
    `splatfix install --target` sets the list itself."""
    torch = context.torch
    if torch is None or torch.cuda is None or context.has_working_gpu is not False or not context.toolkits:
        return
    gpus = Evidence("GPUs", "none that torch would see", context.machine.gpus.found_via)
    choosing_themselves = set()
    for item in context.sources_to_build:
        choice = own_choice(item.source, context.archs, torch.version)
        if choice is None:
            continue
        own = choice[0]
        choosing_themselves.add(item.source.label)
        # with a target, arch-list-ignored names the variable and its value
        if not context.targets and not context.variables.get(own.name):
            example = written(own, [Arch(12, 0)])
            yield this.warn(
                f"No GPU is visible and {own.name} is not set: a build of {item.source.label} would not know which GPU to "
                "compile for.",
                subject=item.path,
                evidence=(variable(context, own.name), gpus),
                remedy=say(f"Set {own.name} to the GPU that is meant, e.g. {example} for an RTX 50 card."),
            )
    if context.variables.get(_NAME, "native") != "native":
        return
    builds = [name for name in context.builds_ahead if name not in choosing_themselves]
    if builds or not choosing_themselves:
        report, subject = this.skip, ""
        if builds:
            report, subject = this.warn, f" of {', '.join(builds)}"
        yield report(
            f"No GPU is visible and {_NAME} is not set: a build{subject} would not know which GPU to compile for.",
            evidence=(variable(context, _NAME), gpus),
            remedy=_for_targets(context),
        )


def _entries(context: Context) -> tuple[ArchEntry, ...]:
    """Return what the variable asks torch for; () when it is unset or not understood."""
    if not isinstance(context.arch_list, ArchList):
        return ()
    return context.arch_list.entries


def _serves(entry: ArchEntry, target: Target, context: Context) -> bool:
    if cubin_runs_on(entry.arch, target.arch):
        return True
    if not entry.ptx or not ptx_runs_on(entry.arch, target.arch):
        return False
    # where the PTX version or the driver's level is not known, nothing is known to refuse it
    toolkit = context.build_toolkit
    return toolkit is None or context.compiles_ptx(toolkit.version, target.arch) is not False


def _may_be_known(item: str, torch: Torch) -> bool:
    """Tell whether this torch lists the number, or is newer than splatfix's tables and the item looks like a name."""
    rules = behaviour(torch.version)
    newer = rules is None or not rules.same_minor
    a_name = re.fullmatch(r"[A-Z][a-z]+(\+\w+)*", item) is not None
    return item.removesuffix("+PTX") in torch.knows_archs or (newer and a_name)


def _what_is_wrong(item: str) -> str:
    if not item:
        return "an entry is empty (a ';' at the end, or two separators in a row)"
    if not item.isascii():
        return f"{item!r} has a full-width or foreign character in it"
    if re.search(r"[,:/]", item):
        return f"{item!r} is one entry to torch, which separates by ';' or blanks"
    if re.fullmatch(r"(sm_|compute_)?\d{2,3}[af]?(\+PTX)?", item):
        return f"{item!r} is not written as 8.6"
    return f"{item!r} is not one that this torch knows"


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


@check("build-out-of-memory", "Enough memory for the compilers that ninja starts")
def build_out_of_memory(context: Context, this: Check) -> Iterator[Finding]:
    """ninja starts as many compilers as there are cores and two more, unless MAX_JOBS says otherwise; each nvcc on a file with
    torch's headers may take 2.5 GiB. When memory and swap end, the kernel kills one: "nvcc error: 'cicc' died due to signal
    9". Only as many jobs count as there are files to compile."""
    resources = context.machine.resources
    memory, swap = resources.memory_available or resources.memory_total, resources.swap_total or 0
    jobs, build = _jobs_ahead(context)
    if jobs == 0 or not memory:
        return
    available, need = memory + swap, jobs * MEMORY_PER_JOB
    setting = f"MAX_JOBS={context.variables.get('MAX_JOBS', 'not set')}"
    cores = counted(resources.cores or 0, "core")
    sizes = f"{memory / 2**30:.1f} GiB free, {swap / 2**30:.1f} GiB of swap"
    evidence = (
        Evidence("memory", sizes, "/proc/meminfo"),
        Evidence("jobs", f"{jobs} at once for {build}", f"{setting}, {cores}"),
    )
    compilers = counted(jobs, "compiler")
    if need <= available or jobs == 1:
        yield this.ok(f"Memory holds {compilers} at once.", evidence=evidence)
        return
    yield this.warn(
        f"Building {build} starts {compilers} at once (up to {need / 2**30:.0f} GiB); {available / 2**30:.0f} GiB are here.",
        evidence=evidence,
        remedy=set_variable("MAX_JOBS", str(max(1, available // MEMORY_PER_JOB))),
    )


@check("wsl-without-swap", "WSL2 has swap to fall back on")
def wsl_without_swap(context: Context, this: Check) -> Iterator[Finding]:
    """WSL2 gives Linux half of Windows' memory, and its `.wslconfig` can turn swap off; a build that then runs out takes the
    whole of WSL down ("Wsl/Service/E_UNEXPECTED") instead of one compiler. Source: Microsoft's page on .wslconfig."""
    resources = context.machine.resources
    memory, swap = resources.memory_total, resources.swap_total
    if not context.machine.wsl or swap is None or memory is None:
        return
    evidence = (
        Evidence("swap", f"{swap / 2**30:.1f} GiB", "/proc/meminfo"),
        Evidence("memory", f"{memory / 2**30:.1f} GiB", "/proc/meminfo"),
    )
    if swap == 0 and memory < _WITHOUT_SWAP:
        more = round(1.5 * memory / 2**30)
        yield this.warn(
            f"WSL2 has {memory / 2**30:.0f} GiB of memory and no swap.",
            evidence=evidence,
            remedy=(
                f"In %UserProfile%\\.wslconfig on Windows write [wsl2], then memory={more}GB (three quarters of Windows' memory, "
                "where Linux has half of it now) and swap=16GB below it; then, on Windows: wsl --shutdown"
            ),
        )
    else:
        yield this.ok("WSL2 has memory and swap for a build.", evidence=evidence)


@check("glibc-cuda-math-conflict", "The toolkit's math headers agree with glibc's")
def glibc_cuda_math_conflict(context: Context, this: Check) -> Iterator[Finding]:
    """glibc 2.41 declares cospi, sinpi and (2.42) rsqrt with noexcept; CUDA up to 12.9 declares them without, and every .cu
    file ends in "exception specification is incompatible with that of previous function". CUDA 13 mends it. A conda
    compiler brings an older glibc of its own, and a distribution's own CUDA package is patched to fit its glibc.
    Source: patches/glibc-noexcept.toml."""
    toolkit, compiler = context.build_toolkit, context.host_compiler
    if toolkit is None or context.machine.glibc is None or context.torch_cuda is None:
        return
    if compiler is not None and brings_own_glibc(compiler):
        return
    if glibc_clash(context.facts, toolkit):
        yield this.warn(
            f"nvcc {toolkit.version} cannot compile beside glibc {context.machine.glibc}: both declare cospi, differently.",
            evidence=(
                Evidence("glibc", context.machine.glibc, context.machine.libc.found_via),
                Evidence("toolkit", f"{toolkit.version} in {toolkit.root}", "; ".join(toolkit.found_via)),
            ),
            remedy=(
                "Use CUDA 13 with a torch for it, conda's gxx_linux-64 (with an older glibc), or an older "
                "distribution's container. Where crt/math_functions.h was patched, leave this aside."
            ),
        )


@check("ninja-not-on-path", "ninja is where torch calls it")
def ninja_not_on_path(context: Context, this: Check) -> Iterator[Finding]:
    """torch calls `ninja` by its name. In an environment that is not activated (an IDE, cron, a full path to python) its bin
    folder is not on PATH: what compiles at first use then ends in "Ninja is required to load C++ extensions", and a
    setup.py compiles one file after the other. Source: `verify_ninja_availability` of torch/utils/cpp_extension.py."""
    python = context.interpreter
    if context.torch_cuda is None or python is None or "ninja" in context.machine.tools:
        return
    if not context.distribution("ninja") or not context.builds_ahead:
        return
    status, consequence = Status.SKIP, "; activate it before a build."
    if context.compiles_at_first_use:
        names = ", ".join(context.compiles_at_first_use)
        status, consequence = Status.WARN, f": {names} cannot compile at the first import."
    folder = f"{python.prefix}/bin"
    if context.windows:
        folder = f"{python.prefix}\\Scripts"
    yield this.finding(
        status,
        f"ninja is in the environment, but not on PATH{consequence}",
        evidence=Evidence(
            "ninja", f"not on PATH, but in {python.prefix}", context.environment.distributions.found_via
        ),
        remedy=prepend_variable("PATH", folder),
    )


@check("linker-cudart-missing", "The linker finds the toolkit's libcudart")
def linker_cudart_missing(context: Context, this: Check) -> Iterator[Finding]:
    """torch's builder hands the linker `$CUDA_HOME/lib64`; from 2.1 on `lib` where there is no lib64. conda keeps libcudart.so
    in `lib` or `targets/.../lib`, and the link ends in "cannot find -lcudart". Source: `CUDAExtension` in cpp_extension.py;
    nerfstudio with torch 2.0 and conda's CUDA."""
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
    yield this.warn(
        f"torch {torch.version} makes the linker search {toolkit.root}/{searched}; libcudart.so is in {toolkit.cudart_in[0]}.",
        evidence=Evidence(
            toolkit.root, f"libcudart.so in {', '.join(toolkit.cudart_in)}", "; ".join(toolkit.found_via)
        ),
        remedy=prepend_variable("LIBRARY_PATH", f"{toolkit.root}/{toolkit.cudart_in[0]}"),
    )


@check("linker-libcuda-missing", "The linker finds libcuda where a source needs it")
def linker_libcuda_missing(context: Context, this: Check) -> Iterator[Finding]:
    """tiny-cuda-nn and a few more link the driver's library by `-lcuda`. The file libcuda.so comes with the driver's development
    package; in containers and on build machines only the toolkit's stub has it, in WSL2 it lies in /usr/lib/wsl/lib. The
    link then ends in "cannot find -lcuda"."""
    linkable, toolkit = context.machine.linkable_libcuda, context.build_toolkit
    linking = [item.source for item in context.sources_to_build if "cuda" in item.source.libraries]
    if not linking or linkable.value is None or linkable.value or context.machine.system != "linux":
        return
    stubs = "lib64/stubs of a CUDA toolkit"
    if toolkit is not None:
        stubs = f"{toolkit.root}/lib64/stubs"
    others = f"Other builds need its folder on LIBRARY_PATH: {stubs}, where it is there, or the driver's."
    remedy = [context.install(linking[0].folder, text="This gives the linker one"), say(others)]
    if context.machine.wsl:
        remedy = [prepend_variable("LIBRARY_PATH", "/usr/lib/wsl/lib")]
    yield this.warn(
        f"{linking[0].label} links -lcuda, and the linker finds no libcuda.so.",
        subject=linking[0].label,
        evidence=Evidence("libcuda.so", "nowhere", linkable.found_via),
        remedy=remedy,
    )


@check("cub-thrust-mismatch", "One copy of CUB and Thrust is in the include path")
def cub_thrust_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    """CUB and Thrust have come with the toolkit since CUDA 11. A second copy that compilers search first (pytorch3d's setup.py
    puts CUB_HOME in front) mixes two versions in one file: "#error: The version of CUB in your include path is not
    compatible with this release of Thrust". One that is searched after the toolkit (CPATH, conda's nvidiacub, Debian's
    libthrust-dev) is only named. Source: thrust/system/cuda/config.h and gcc's manual on CPATH."""
    toolkit, copies = context.build_toolkit, context.machine.header_copies
    if toolkit is None or not toolkit.cub or context.torch_cuda is None:
        return
    for copy in copies.value or ():
        inside = copy.folder.startswith(f"{toolkit.root}/") or toolkit.root in ("/usr", copy.folder)
        others = [version for version in (copy.cub, copy.thrust) if version not in ("", None, toolkit.cub)]
        if inside or not others:
            continue
        # all others come after the -I of the toolkit
        report, note = this.skip, "; it is searched after the toolkit's"
        if copy.via == "CUB_HOME":
            report, note = this.warn, ""
        versions = f"CUB {copy.cub or 'not there'}, Thrust {copy.thrust or 'not there'}"
        yield report(
            f"{copy.folder} holds CUB or Thrust {others[0]}, the toolkit's are {toolkit.cub}{note}.",
            subject=copy.folder,
            evidence=(
                Evidence(copy.folder, versions, copy.via),
                Evidence(toolkit.root, f"CUB {toolkit.cub}", "cub/version.cuh"),
            ),
            remedy=f"Take {copy.folder} out of {copy.via}, or remove that separate cub or thrust package.",
        )


@check("disk-full", "The disks have room for builds and temporary files")
def disk_full(context: Context, this: Check) -> Iterator[Finding]:
    """Compilers, pip and torch's caches write into temporary folders: on a full disk they end in "No space left on device", and
    some in a message that says nothing of it. One extension of CUDA takes about a gigabyte while it is built."""
    disks = context.machine.disks
    for disk in disks.value or ():
        evidence = Evidence(
            disk.point, f"{disk.free / 2**30:.2f} of {disk.total / 2**30:.1f} GiB free", disks.found_via
        )
        summary = f"{disk.point} has {disk.free / 2**30:.1f} GiB free."
        if disk.free >= _GOOD_FREE:
            yield this.ok(summary, subject=disk.point, evidence=evidence)
            continue
        status = Status.WARN
        if disk.free < _LEAST_FREE:
            status = Status.FAIL
        remedy = "Remove what is not needed there, or set TMPDIR to a folder on another disk."
        yield this.finding(status, summary, subject=disk.point, evidence=evidence, remedy=remedy)


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
