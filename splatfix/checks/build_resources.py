"""Checks of what a build needs around it: memory, swap, ninja, one copy of CUB, libraries to link, headers that agree."""

from __future__ import annotations

from collections.abc import Iterator

from splatfix.checks.model import Evidence, Finding, Status
from splatfix.checks.registry import Check, check
from splatfix.context import Context
from splatfix.context.compilers import brings_own_glibc, glibc_clash
from splatfix.core.step import prepend_variable, say, set_variable
from splatfix.core.versions import release
from splatfix.core.words import counted

MEMORY_PER_JOB = 5 * 2**29
"""What one nvcc job on a file that includes torch's headers takes at its worst, with some air (measured: 1.5 to 2.3 GB).
The installer plans with the same number."""
# gsplat's own limit for its build at first use, where MAX_JOBS is not set (gsplat/cuda/_backend.py).
_GSPLAT_JOBS = 10


@check("build-out-of-memory", family="build", title="Enough memory for the compilers that ninja starts")
def build_out_of_memory(context: Context, this: Check) -> Iterator[Finding]:
    """ninja starts as many compilers as there are cores and two more, unless MAX_JOBS says otherwise; each nvcc on a file with
    torch's headers may take 2.5 GiB. When memory and swap end, the kernel kills one: "nvcc error: 'cicc' died due to signal
    9". Only as many jobs count as there are files to compile."""
    room = context.machine.resources
    memory = room.memory_available or room.memory_total
    jobs, what = _jobs_ahead(context)
    if jobs == 0 or not memory:
        return
    have, need = memory + (room.swap_total or 0), jobs * MEMORY_PER_JOB
    fits = max(1, have // MEMORY_PER_JOB)
    evidence = (
        Evidence(
            "memory",
            f"{memory / 2**30:.1f} GiB free, {(room.swap_total or 0) / 2**30:.1f} GiB of swap",
            "/proc/meminfo",
        ),
        Evidence(
            "jobs",
            f"{jobs} at once for {what}",
            f"MAX_JOBS={context.variables.get('MAX_JOBS', 'not set')}, {counted(room.cores or 0, 'core')}",
        ),
    )
    compilers = counted(jobs, "compiler")
    if need <= have or jobs == 1:
        yield this.ok(f"Memory holds {compilers} at once.", evidence=evidence)
    else:
        yield this.warn(
            f"Building {what} starts {compilers} at once (up to {need / 2**30:.0f} GiB); {have / 2**30:.0f} GiB are here.",
            evidence=evidence,
            remedy=set_variable("MAX_JOBS", str(fits)),
        )


@check("wsl-without-swap", family="build", title="WSL2 has swap to fall back on")
def wsl_without_swap(context: Context, this: Check) -> Iterator[Finding]:
    """WSL2 gives Linux half of Windows' memory, and its `.wslconfig` can turn swap off; a build that then runs out takes the
    whole of WSL down ("Wsl/Service/E_UNEXPECTED") instead of one compiler. Source: Microsoft's page on .wslconfig."""
    room = context.machine.resources
    if not context.machine.wsl or room.swap_total is None or room.memory_total is None:
        return
    enough = 32 * 2**30  # gsplat's ten jobs
    evidence = (
        Evidence("swap", f"{room.swap_total / 2**30:.1f} GiB", "/proc/meminfo"),
        Evidence("memory", f"{room.memory_total / 2**30:.1f} GiB", "/proc/meminfo"),
    )
    if room.swap_total == 0 and room.memory_total < enough:
        yield this.warn(
            f"WSL2 has {room.memory_total / 2**30:.0f} GiB of memory and no swap.",
            evidence=evidence,
            remedy=(
                "In %UserProfile%\\.wslconfig on Windows write [wsl2], then swap=16GB below it; then, on Windows: "
                "wsl --shutdown"
            ),
        )
    else:
        yield this.ok("WSL2 has memory and swap for a build.", evidence=evidence)


@check("glibc-cuda-math-conflict", family="build", title="The toolkit's math headers agree with glibc's")
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


@check("ninja-not-on-path", family="build", title="ninja is where torch calls it")
def ninja_not_on_path(context: Context, this: Check) -> Iterator[Finding]:
    """torch calls `ninja` by its name. In an environment that is not activated (an IDE, cron, a full path to python) its bin
    folder is not on PATH: what compiles at first use then ends in "Ninja is required to load C++ extensions", and a
    setup.py compiles one file after the other. Source: `verify_ninja_availability` of torch/utils/cpp_extension.py."""
    python = context.interpreter
    if context.torch_cuda is None or python is None or "ninja" in context.machine.tools:
        return
    if not context.distribution("ninja") or not context.builds_ahead:
        return
    later = context.compiles_at_first_use
    folder = f"{python.prefix}\\Scripts" if context.windows else f"{python.prefix}/bin"
    yield this.finding(
        Status.WARN if later else Status.SKIP,
        "ninja is in the environment, but not on PATH"
        + (
            f": {', '.join(later)} cannot compile at the first import."
            if later
            else "; activate it before a build."
        ),
        evidence=Evidence(
            "ninja", f"not on PATH, but in {python.prefix}", context.environment.distributions.found_via
        ),
        remedy=prepend_variable("PATH", folder),
    )


@check("linker-cudart-missing", family="build", title="The linker finds the toolkit's libcudart")
def linker_cudart_missing(context: Context, this: Check) -> Iterator[Finding]:
    """torch's builder hands the linker `$CUDA_HOME/lib64`; from 2.1 on `lib` where there is no lib64. conda keeps libcudart.so
    in `lib` or `targets/.../lib`, and the link ends in "cannot find -lcudart". Source: `CUDAExtension` in cpp_extension.py;
    nerfstudio with torch 2.0 and conda's CUDA."""
    toolkit, torch = context.build_toolkit, context.torch
    if toolkit is None or torch is None or context.torch_cuda is None or context.machine.system != "linux":
        return
    if not toolkit.cudart_in or toolkit.has_lib64 is None:
        return  # none at all is told by cuda-headers-missing
    falls_back = release(torch.version)[:2] >= (2, 1) and not toolkit.has_lib64
    searched = "lib" if falls_back else "lib64"
    by_itself = [place for place in toolkit.cudart_in if toolkit.root == "/usr" and place.startswith("lib")]
    if searched in toolkit.cudart_in or by_itself:
        return
    folder = f"{toolkit.root}/{toolkit.cudart_in[0]}"
    yield this.warn(
        f"torch {torch.version} makes the linker search {toolkit.root}/{searched}; libcudart.so is in {toolkit.cudart_in[0]}.",
        evidence=Evidence(
            toolkit.root, f"libcudart.so in {', '.join(toolkit.cudart_in)}", "; ".join(toolkit.found_via)
        ),
        remedy=prepend_variable("LIBRARY_PATH", folder),
    )


@check("linker-libcuda-missing", family="build", title="The linker finds libcuda where a source needs it")
def linker_libcuda_missing(context: Context, this: Check) -> Iterator[Finding]:
    """tiny-cuda-nn and a few more link the driver's library by `-lcuda`. The file libcuda.so comes with the driver's development
    package; in containers and on build machines only the toolkit's stub has it, in WSL2 it lies in /usr/lib/wsl/lib. The
    link then ends in "cannot find -lcuda"."""
    linkable, toolkit = context.machine.linkable_libcuda, context.build_toolkit
    stubs = f"{toolkit.root}/lib64/stubs" if toolkit else "lib64/stubs of a CUDA toolkit"
    asking = [item.source for item in context.sources_to_build if "cuda" in item.source.libraries]
    if not asking or linkable.value is None or linkable.value or context.machine.system != "linux":
        return
    yield this.warn(
        f"{asking[0].label} links -lcuda, and the linker finds no libcuda.so.",
        subject=asking[0].label,
        evidence=Evidence("libcuda.so", "nowhere", linkable.found_via),
        remedy=(prepend_variable("LIBRARY_PATH", "/usr/lib/wsl/lib"),)
        if context.machine.wsl
        else (
            context.install(asking[0].folder, text="This gives the linker one"),
            say(
                f"Other builds need its folder on LIBRARY_PATH: {stubs}, where it is there, or the driver's."
            ),
        ),
    )


@check("cub-thrust-mismatch", family="build", title="One copy of CUB and Thrust is in the include path")
def cub_thrust_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    """CUB and Thrust have come with the toolkit since CUDA 11. A second copy that compilers search first (pytorch3d's setup.py
    puts CUB_HOME in front) mixes two versions in one file: "#error: The version of CUB in your include path is not
    compatible with this release of Thrust". One that is searched after the toolkit (CPATH, conda's nvidiacub, Debian's
    libthrust-dev) is only named. Source: thrust/system/cuda/config.h and gcc's manual on CPATH."""
    toolkit, copies = context.build_toolkit, context.machine.header_copies
    if toolkit is None or not toolkit.cub or context.torch_cuda is None:
        return
    for item in copies.value or ():
        inside = item.folder.startswith(f"{toolkit.root}/") or toolkit.root in ("/usr", item.folder)
        in_front = item.via == "CUB_HOME"  # all others come after the -I of the toolkit
        other = [name for name in (item.cub, item.thrust) if name and name != toolkit.cub]
        if inside or not other:
            continue
        yield this.finding(
            Status.WARN if in_front else Status.SKIP,
            f"{item.folder} holds CUB or Thrust {other[0]}, the toolkit's are {toolkit.cub}"
            + ("." if in_front else "; it is searched after the toolkit's."),
            subject=item.folder,
            evidence=(
                Evidence(
                    item.folder,
                    f"CUB {item.cub or 'not there'}, Thrust {item.thrust or 'not there'}",
                    item.via,
                ),
                Evidence(toolkit.root, f"CUB {toolkit.cub}", "cub/version.cuh"),
            ),
            remedy=f"Take {item.folder} out of {item.via}, or remove that separate cub or thrust package.",
        )


def _jobs_ahead(context: Context) -> tuple[int, str]:
    """How many compilers the builds ahead start at most at once, and for what; (0, "") where nothing is to be built."""
    cores = context.machine.resources.cores
    asked = context.variables.get("MAX_JOBS", "")
    if cores is None or not context.builds_ahead:
        return 0, ""
    ninja = "ninja" in context.machine.tools or context.distribution("ninja")
    limit = (int(asked) if asked.isdigit() and int(asked) else cores + 2) if ninja else 1
    most, what = 0, ""
    for item in context.sources_to_build:
        files = sum(name.endswith(".cu") for module in item.source.modules for name in module.sources)
        if min(limit, files) > most:
            most, what = min(limit, files), item.source.label
    if "gsplat" in context.compiles_at_first_use:
        gsplat = limit if asked else min(limit, _GSPLAT_JOBS)
        most, what = max((most, what), (gsplat, "gsplat"))
    return most, what
