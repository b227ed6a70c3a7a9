"""What is true of the machine itself: system, resources, container, deciding environment variables."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from splatfix.facts import compilers, gpus, toolkits
from splatfix.facts.model import MachineFacts, Resources
from splatfix.facts.system import System

# Variables that decide something when a splatting stack is built or run.
DECIDING_VARIABLES = (
    "CC", "CXX", "CUDAHOSTCXX", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING",
    "CUDA_ARCHITECTURES", "CUDAARCHS", "CONDA_PREFIX", "CPATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "LIBRARY_PATH",
    "MAX_JOBS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_VISIBLE_DEVICES", "PYTHONPATH", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NVCC",
    "TCNN_CUDA_ARCHITECTURES", "TORCH_CUDA_ARCH_LIST", "TORCH_DONT_CHECK_COMPILER_ABI", "TORCH_EXTENSIONS_DIR",
    "VIRTUAL_ENV",
)  # fmt: skip


def probe(
    system: System, python: str, extra_toolkits: list[tuple[str, str]], environment: str
) -> MachineFacts:
    """Everything about the machine; the slow probes run side by side.

    Args:
        python: an interpreter for children that load native libraries.
        extra_toolkits: toolkit folders known from elsewhere, as (folder, how it came up).
        environment: a path in the target environment, to tell the free space there.
    """
    with ThreadPoolExecutor(max_workers=4) as pool:
        gpu_job = pool.submit(gpus.probe, system, python)
        toolkit_job = pool.submit(toolkits.probe, system, extra_toolkits)
        compiler_job = pool.submit(compilers.probe, system)
        tool_job = pool.submit(compilers.tools, system)
        found_gpus, driver = gpu_job.result()
        kernel = (system.read("/proc/sys/kernel/osrelease") or "").strip()
        return MachineFacts(
            system=system.name,
            machine=system.machine,
            kernel=kernel,
            distribution=_distribution(system),
            glibc=_glibc(system),
            container=_container(system),
            wsl="microsoft" in kernel.lower(),
            gpus=found_gpus,
            driver=driver,
            toolkits=toolkit_job.result(),
            compilers=compiler_job.result(),
            tools=tool_job.result(),
            resources=_resources(system, environment),
            variables={name: system.env[name] for name in DECIDING_VARIABLES if name in system.env},
        )


def _distribution(system: System) -> str:
    match = re.search(r'^PRETTY_NAME="?([^"\n]+)', system.read("/etc/os-release") or "", re.MULTILINE)
    return match.group(1) if match else ""


def _glibc(system: System) -> str | None:
    if system.name != "linux":
        return None
    match = re.search(r"glibc (\d+\.\d+)", system.run(["getconf", "GNU_LIBC_VERSION"], 5.0).stdout)
    return match.group(1) if match else None


def _container(system: System) -> str | None:
    if system.exists("/run/.containerenv"):
        return "podman"
    if "KUBERNETES_SERVICE_HOST" in system.env:
        return "kubernetes"
    return "docker" if system.exists("/.dockerenv") else None


def _resources(system: System, environment: str) -> Resources:
    memory = _meminfo(system.read("/proc/meminfo") or "")
    total, available = memory.get("MemTotal"), memory.get("MemAvailable")
    limit = (system.read("/sys/fs/cgroup/memory.max") or "").strip()
    if limit.isdigit() and total is not None and int(limit) < total:
        used = (system.read("/sys/fs/cgroup/memory.current") or "").strip()
        total = int(limit)
        available = min(available or total, total - int(used)) if used.isdigit() else available
    places = {"temporary": tempfile.gettempdir(), "environment": environment}
    if home := system.env.get("HOME"):
        places["cache"] = f"{home}/.cache"
    free = {name: system.free_bytes(path) for name, path in places.items()}
    return Resources(
        cores=_cores(system),
        memory_total=total,
        memory_available=available,
        swap_total=memory.get("SwapTotal"),
        disk_free={name: size for name, size in free.items() if size is not None},
    )


def _meminfo(text: str) -> Mapping[str, int]:
    """Bytes by name from /proc/meminfo, whose unit is KiB."""
    return {name: int(size) * 1024 for name, size in re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)}


def _cores(system: System) -> int | None:
    """Cores this process may use: the CPU mask's, cut down by a cgroup quota."""
    status = system.read("/proc/self/status") or ""
    mask = re.search(r"^Cpus_allowed:\s+([0-9a-f,]+)$", status, re.MULTILINE)
    cores = bin(int(mask.group(1).replace(",", ""), 16)).count("1") if mask else None
    quota = (system.read("/sys/fs/cgroup/cpu.max") or "").split()
    if cores and len(quota) == 2 and quota[0].isdigit():
        cores = max(1, min(cores, round(int(quota[0]) / int(quota[1]))))
    return cores
