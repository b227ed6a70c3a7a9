"""The environment of a build, made explicit: what is set and unset, and how many compilers run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from msgspec import Struct

from splatfix.checks.build import MEMORY_PER_JOB
from splatfix.context.architectures import ArchChoice
from splatfix.context.compilers import HostCompilers
from splatfix.context.toolkits import BuildToolkit
from splatfix.core.words import counted
from splatfix.facts import is_arch_variable, lending_folders
from splatfix.model import Facts, Source, Toolkit
from splatfix.model.steps import Reason
from splatfix.plan.tools import OWN_TOOLKIT

# Settings of other builds. They would silently change this one: flags for nvcc may carry an architecture, a path for
# Python another torch, and pip's own settings another destination.
_REMOVED = (
    "TORCH_CUDA_ARCH_LIST",
    "CUDA_PATH",
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "NVCC_CCBIN",
    "CUDAHOSTCXX",
    "PYTORCH_NVCC",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
)


def build_environment(
    facts: Facts,
    source: Source,
    chosen: BuildToolkit,
    compilers: HostCompilers,
    archs: ArchChoice,
    jobs: Jobs,
) -> tuple[dict[str, str], list[Reason]]:
    """Decide everything a build needs to know, in variables, so that nothing is left to what happens to be set; and why.

    CUDA_HOME is the toolkit's real root: torch would take the folder above the first nvcc on PATH, which is wrong
    where that nvcc is a wrapper script.
    """
    toolkit = chosen.toolkit
    variables: dict[str, str] = {}
    reasons: list[Reason] = []

    def decide(names: Mapping[str, str], why: str, found_via: str = "") -> None:
        variables.update(names)
        reasons.extend(Reason(f"{name}={value}: {why}", found_via) for name, value in names.items())

    decide({"CUDA_HOME": toolkit.root}, chosen.why)
    variables |= {"CC": compilers.cc, "CXX": compilers.cxx}
    reasons.append(Reason(f"CC={compilers.cc}, CXX={compilers.cxx}: {compilers.why}"))
    decide(jobs.variables, jobs.why)
    decide(archs.variables, archs.why)
    decide(
        source.switches.on, "its setup.py compiles CUDA code then, also where no GPU is in sight", "setup.py"
    )
    decide(source.switches.also, "its setup.py compiles nothing of its own without it", "setup.py")
    # folders that the compilers must search too
    headers, torch = {}, facts.environment.torch.value
    if toolkit.found_via == OWN_TOOLKIT:
        # nvcc finds CCCL through nvcc.profile, the host compiler does not
        headers[f"{toolkit.root}/include/cccl"] = "the wheels keep cub and thrust in a folder of their own"
    lacking = [item.removeprefix("include/") for item in toolkit.missing if item.startswith("include/cu")]
    if torch and lacking and (borrowed := lending_folders(torch, toolkit.version or "", lacking)):
        short = ", ".join(item for item in toolkit.missing if item.startswith("include/"))
        headers[os.pathsep.join(borrowed)] = f"headers that the toolkit lacks ({short})"
    reasons += [Reason(f"CPATH={folder}: {why}") for folder, why in headers.items()]
    cached, why_cached = compiler_cache(facts, toolkit, source)
    variables |= cached
    reasons += why_cached
    if headers:
        # what the user has there is searched after what the build cannot do without
        theirs = facts.machine.variables.get("CPATH", "")
        variables["CPATH"] = os.pathsep.join(filter(None, [*headers, theirs]))
    if not archs.variables:
        reasons.append(Reason(archs.why))
    return variables, reasons


def variables_removed(facts: Facts, source: Source) -> tuple[str, ...]:
    """Return the variables that are set here and that a build of this source must not see."""
    removed = [*_REMOVED, *filter(is_arch_variable, facts.machine.variables), *source.switches.off]
    return tuple(name for name in removed if name in facts.machine.variables)


class Jobs(Struct, frozen=True):
    """How many compilers a build may run at once, and why."""

    count: int
    why: str

    @property
    def variables(self) -> dict[str, str]:
        """What tells builders."""
        return {"MAX_JOBS": str(self.count)}


def job_count(facts: Facts) -> Jobs:
    """Tell how many compilers may run at once, from cores and free memory."""
    resources = facts.machine.resources
    cores = resources.cores or os.cpu_count() or 1
    available = resources.memory_available
    if available is None:
        return Jobs(cores, f"{counted(cores, 'core')}; free memory is not known")
    by_memory = max(1, available // MEMORY_PER_JOB)
    text = f"{counted(cores, 'core')}, {available / 2**30:.1f} GiB of memory free, {MEMORY_PER_JOB / 2**30:.1f} GiB for each job"
    return Jobs(min(cores, by_memory), text)


# ccache first: it needs no server, and knows nvcc's -MD.
_COMPILER_CACHES = ("ccache", "sccache")


def compiler_cache(
    facts: Facts, toolkit: Toolkit, source: Source
) -> tuple[dict[str, str], tuple[Reason, ...]]:
    """Return variables that put a compiler cache of this machine in front of nvcc and the C++ compiler, and why.

    Torch's builder takes the nvcc to call from PYTORCH_NVCC, and only when it builds with ninja (torch/utils/
    cpp_extension.py, _write_ninja_file); CMake takes launchers from variables of its own (CMake 3.17).
    """
    program = next((name for name in _COMPILER_CACHES if name in facts.machine.tools), None)
    if program is None or facts.machine.system == "windows":
        return {}, ()
    version = facts.machine.tools[program]
    if source.uses_torch_builder:
        nvcc = f"{program} {toolkit.nvcc or f'{toolkit.root}/bin/nvcc'}"
        variables = {"PYTORCH_NVCC": nvcc}
        text = f"PYTORCH_NVCC={nvcc}: {program} {version} is here; what it has compiled before is not compiled again"
        if program == "sccache":
            # torch's own comment there: sccache does not support nvcc's -MD
            variables["TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES"] = "1"
        return variables, (
            Reason(text, "PATH"),
            Reason(f"CXX is called through {program} too, by a script of its name in the scratch folder"),
        )
    if "CMakeLists.txt" in source.build_files:
        variables = {f"CMAKE_{language}_COMPILER_LAUNCHER": program for language in ("C", "CXX", "CUDA")}
        return variables, (
            Reason(f"CMAKE_*_COMPILER_LAUNCHER={program}: {program} {version} is here", "PATH"),
        )
    return {}, ()


def share_jobs(total: Jobs, sources: Sequence[Source]) -> list[Jobs]:
    """Share out among several builds the compilers that may run at once; one that compiles nothing takes none away."""
    # files that are compiled one by one, as far as setup.py names them; 0 of what compiles nothing
    files = []
    for source in sources:
        built = source.uses_torch_builder or "CMakeLists.txt" in source.build_files
        compiles = built or source.modules or source.needs_cuda
        files.append((len(source.files) or total.count) if compiles else 0)
    if sum(map(bool, files)) < 2:
        parts, reason = [total.count] * len(sources), total.why
    else:
        parts, reason = shares(total.count, files), f"its share of {total.count} ({total.why})"
    return [
        Jobs(part, reason) if count else Jobs(1, "it compiles nothing")
        for part, count in zip(parts, files, strict=True)
    ]


def shares(total: int, files: Sequence[int]) -> list[int]:
    """Return how many of ``total`` compilers each build gets, in order, when all files take equally long.

    By the number of files (0: it compiles nothing), never more than a build has, and at least one: those for whom none is
    left wait until an earlier one has ended.
    """
    parts: list[int] = []
    free = total
    for index, count in enumerate(files):
        fair = round(free * count / (sum(files[index:]) or 1))
        parts.append(max(1, min(count, fair)))
        free = max(0, free - min(count, parts[-1]))
    return parts
