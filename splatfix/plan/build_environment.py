"""The environment of a build, made explicit: what is set, what is taken out, what comes first on PATH."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

from splatfix.checks.build_resources import MEMORY_PER_JOB
from splatfix.context.compilers import HostCompilers
from splatfix.facts import Facts, Source, Toolkit, Torch
from splatfix.plan.compiler_cache import compiler_cache
from splatfix.plan.plan import Reason

OWN_TOOLKIT = ("splatfix's own cache",)

# Settings of other builds. They would silently change this one: flags for nvcc may carry an architecture, a path for
# Python another torch, and pip's own settings another destination.
_TAKEN_OUT = (
    "TORCH_CUDA_ARCH_LIST",
    "CUDA_ARCHITECTURES",
    "TCNN_CUDA_ARCHITECTURES",
    "CUDAARCHS",
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


@dataclass(frozen=True)
class BuildEnvironment:
    """What a build's environment differs in from the person's own."""

    variables: Mapping[str, str]
    unset: tuple[str, ...]
    path_first: tuple[str, ...]
    reasons: tuple[Reason, ...]


def build_environment(
    facts: Facts,
    toolkit: Toolkit,
    why_toolkit: str,
    compilers: HostCompilers,
    arch_variables: Mapping[str, str],
    why_arch: str,
    jobs: int | None = None,
    source: Source | None = None,
) -> BuildEnvironment:
    """Everything a build needs to know, said in variables, so that nothing is left to what happens to be set.

    CUDA_HOME is the toolkit's real root: torch would take the folder above the first nvcc on PATH, which is wrong
    where that nvcc is a wrapper script.
    """
    interpreter = facts.environment.interpreter.value
    assert interpreter is not None
    count, why_jobs = (jobs, "as asked") if jobs else job_count(facts)
    variables = {"CUDA_HOME": toolkit.root, "CC": compilers.cc, "CXX": compilers.cxx, "MAX_JOBS": str(count)}
    variables |= arch_variables
    reasons = [
        Reason(f"CUDA_HOME={toolkit.root}: {why_toolkit}"),
        Reason(f"CC={compilers.cc}, CXX={compilers.cxx}: {compilers.why}"),
        Reason(f"MAX_JOBS={count}: {why_jobs}"),
        *(Reason(f"{name}={value}: {why_arch}") for name, value in arch_variables.items()),
    ]
    headers = _more_headers(facts.environment.torch.value, toolkit)
    if headers:
        theirs = facts.machine.variables.get("CPATH", "")
        variables["CPATH"] = os.pathsep.join([*headers, *([theirs] if theirs else [])])
        reasons += [Reason(f"CPATH={folder}: {why}") for folder, why in headers.items()]
    if source is not None:
        cached, why_cached = compiler_cache(facts, toolkit, source)
        variables |= cached
        reasons += why_cached
    unset = tuple(name for name in _TAKEN_OUT if name in facts.machine.variables and name not in variables)
    path_first = (str(PurePath(interpreter.executable).parent), str(PurePath(toolkit.nvcc or "nvcc").parent))
    return BuildEnvironment(variables, unset, path_first, tuple(reasons))


def job_count(facts: Facts) -> tuple[int, str]:
    """How many compilers may run side by side, from cores and free memory, and the sentence that says so."""
    resources = facts.machine.resources
    cores = resources.cores or os.cpu_count() or 1
    available = resources.memory_available
    if available is None:
        return cores, f"{cores} cores; free memory is not known"
    by_memory = max(1, available // MEMORY_PER_JOB)
    text = f"{cores} cores, {available / 2**30:.1f} GiB of memory free, {MEMORY_PER_JOB / 2**30:.1f} GiB for each job"
    return min(cores, by_memory), text


def _more_headers(torch: Torch | None, toolkit: Toolkit) -> dict[str, str]:
    """Folders that the compilers must search too, each with the reason."""
    found = {}
    if toolkit.found_via == OWN_TOOLKIT:
        # nvcc finds CCCL through nvcc.profile, the host compiler does not
        found[f"{toolkit.root}/include/cccl"] = "the wheels keep cub and thrust in a folder of their own"
    if borrowed := _borrowed_headers(torch, toolkit):
        short = ", ".join(item for item in toolkit.missing if item.startswith("include/"))
        found[borrowed] = f"headers that the toolkit lacks ({short})"
    return found


def _borrowed_headers(torch: Torch | None, toolkit: Toolkit) -> str:
    """Folders of torch's own CUDA packages with the cublas, cusparse and cusolver headers that a slim toolkit lacks."""
    headers = [item.removeprefix("include/") for item in toolkit.missing if item.startswith("include/cu")]
    if torch is None or not headers:
        return ""
    major = (toolkit.version or "").partition(".")[0]
    packages = Path(torch.folder).parent / "nvidia"
    # CUDA 13 packages share one folder, older ones have one each
    places = [packages / f"cu{major}", *sorted(packages.glob("cu[bs]*"))]
    found = [
        str(place / "include")
        for place in places
        if any((place / "include" / name).exists() for name in headers)
    ]
    return os.pathsep.join(found)
