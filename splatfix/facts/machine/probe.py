"""What is true of the machine itself: system, model, container, deciding environment variables, and all other probes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from splatfix.facts.machine import adapters, compilers, confinement, resources, toolkits
from splatfix.facts.machine import gpu as gpus
from splatfix.facts.machine import libraries as system_libraries
from splatfix.facts.machine.gpu import SYSCTL_NAMES
from splatfix.facts.model.fact import Fact, unknown
from splatfix.facts.model.machine import MachineFacts, Resources, Toolkit
from splatfix.facts.source.build_variables import is_arch_variable, is_cuda_switch
from splatfix.facts.system.live import System
from splatfix.facts.system.parallel import parallel

# No probe may hold up a diagnosis longer than this; children end earlier, at timeouts of their own.
LIMIT = 60.0
_TIMEOUT = 5.0

# Variables that decide something when a splatting stack is built or run.
_DECIDING = re.compile(
    r"CC|CXX|CPATH|CPLUS_INCLUDE_PATH|CUB_HOME|LIBRARY_PATH|LD_LIBRARY_PATH|LD_PRELOAD|PYTHONPATH|MAX_JOBS"
    r"|CUDA_(HOME|PATH|DEVICE_ORDER|VISIBLE_DEVICES|LAUNCH_BLOCKING)|CUDAHOSTCXX"
    r"|NVCC_(APPEND_FLAGS|PREPEND_FLAGS|CCBIN)"
    r"|NVIDIA_(DISABLE_REQUIRE|DRIVER_CAPABILITIES|REQUIRE_CUDA|VISIBLE_DEVICES)"
    r"|PYTORCH_(ALLOC_CONF|CUDA_ALLOC_CONF|NVCC)"
    r"|TORCH_(CUDA_ARCH_LIST|DONT_CHECK_COMPILER_ABI|EXTENSIONS_DIR)|CONDA_PREFIX|VIRTUAL_ENV"
    r"|VK_(DRIVER_FILES|ICD_FILENAMES)|DISTUTILS_USE_SDK|VSCMD_ARG_TGT_ARCH|WSL_DISTRO_NAME"
)


def _decides(name: str) -> bool:
    return bool(_DECIDING.fullmatch(name)) or is_arch_variable(name) or is_cuda_switch(name)


@dataclass(frozen=True)
class Packaged:
    """What the target environment's own packages bring of CUDA."""

    toolkits: tuple[tuple[str, str], ...] = ()
    """Toolkit folders, as (folder, how it came up)."""
    includes: tuple[str, ...] = ()
    """Include folders of NVIDIA's packages."""


def probe(system: System, environment: str = "", packaged: Callable[[], Packaged] = Packaged) -> MachineFacts:
    """Everything about the machine; the probes run side by side, and one that hangs or breaks costs only its own fact.

    Args:
        environment: the target environment's folder, whose compilers are looked at too.
        packaged: gives what that environment brings; it may wait until the environment was read.
    """
    found = parallel(
        LIMIT,
        {
            "gpus": lambda: gpus.probe(system),
            "adapters": lambda: adapters.probe(system),
            "toolkits": lambda: _toolkits(system, packaged),
            "compilers": lambda: compilers.probe(system, environment),
            "tools": lambda: compilers.tools(system),
            "resources": lambda: resources.probe(system),
            "libc": lambda: _libc(system),
            "distribution": lambda: _distribution(system),
            "system_libraries": lambda: _surroundings(system),
        },
    )
    why = unknown(found["gpus"][1])
    seen: gpus.Found = found["gpus"][0] or gpus.Found(why, why, why)
    kernel = (system.read("/proc/sys/kernel/osrelease") or "").strip()
    libc = _fact(found["libc"])
    container = _container(system)
    return MachineFacts(
        system=system.name,
        machine=system.machine,
        kernel=kernel,
        distribution=found["distribution"][0] or "",
        glibc=libc.value.removeprefix("glibc ") if libc.value and libc.value.startswith("glibc ") else None,
        libc=libc,
        model=_model(system),
        container=container,
        confinement=confinement.probe(system) if container else Fact(),
        wsl="microsoft" in kernel.lower(),
        gpus=seen.gpus,
        driver=seen.driver,
        cuda=seen.cuda,
        cuda_unfiltered=seen.cuda_unfiltered,
        adapters=_fact(found["adapters"]),
        toolkits=_fact(found["toolkits"]),
        compilers=_fact(found["compilers"]),
        tools=found["tools"][0] or {},
        **(found["system_libraries"][0] or {}),
        resources=found["resources"][0] or Resources(),
        variables={name: system.env[name] for name in sorted(system.env) if _decides(name)},
    )


def _toolkits(system: System, packaged: Callable[[], Packaged]) -> Fact[tuple[Toolkit, ...]]:
    """The machine's own toolkits first, because asking them takes longest; then once more, where it matters, with what
    the environment brings."""
    own = toolkits.probe(system)
    brought = packaged()
    if brought.toolkits or (brought.includes and any(item.missing for item in own.value or ())):
        return toolkits.probe(system, brought.toolkits, brought.includes)
    return own


def _surroundings(system: System) -> dict[str, Fact[Any]]:
    """Facts that take a few looks at files each, by the name of their field."""
    return {
        "device_files": gpus.device_files(system),
        "libcuda": system_libraries.loaded_libcuda(system),
        "linkable_libcuda": system_libraries.linkable_libcuda(system),
        "header_copies": system_libraries.header_copies(system),
        "missing_graphics": system_libraries.missing_graphics(system),
        "missing_msvc_runtime": system_libraries.missing_msvc_runtime(system),
        "container_toolkit": system_libraries.container_toolkit(system),
        "colmap": system_libraries.colmap(system),
    }


def _fact(outcome: tuple[Any, str]) -> Fact[Any]:
    value, problem = outcome
    return value if value is not None else unknown(problem)


def _distribution(system: System) -> str:
    if system.name == "windows":
        reply = resources.windows_system(system)
        return " ".join(str(reply[name]) for name in ("Caption", "Version") if name in reply)
    if system.name == "darwin":
        said = dict(re.findall(r"^(\w+):\s*(.*)$", system.run(["sw_vers"], _TIMEOUT).stdout, re.MULTILINE))
        return f"{said.get('ProductName', 'macOS')} {said.get('ProductVersion', '')}".strip()
    match = re.search(r'^PRETTY_NAME="?([^"\n]+)', system.read("/etc/os-release") or "", re.MULTILINE)
    return match.group(1) if match else ""


def _libc(system: System) -> Fact[str]:
    if system.name != "linux":
        return unknown(f"{system.name} has none of its own")
    done = system.run(["getconf", "GNU_LIBC_VERSION"], _TIMEOUT)
    if match := re.search(r"glibc (\d+\.\d+)", done.stdout):
        return Fact(f"glibc {match.group(1)}", "getconf GNU_LIBC_VERSION")
    musl = system.run(["ldd", "--version"], _TIMEOUT)  # musl's says so on stderr and ends with 1
    said = musl.stdout + musl.stderr
    if "musl" in said:
        version = re.search(r"Version (\d[\d.]*)", said)
        return Fact(f"musl {version.group(1) if version else ''}".strip(), "ldd --version")
    if match := re.search(r"(?:GLIBC|GNU libc)\D.*?(\d+\.\d+)\s*$", said, re.MULTILINE | re.IGNORECASE):
        return Fact(f"glibc {match.group(1)}", "ldd --version")
    return unknown(f"getconf GNU_LIBC_VERSION: {done.why() or 'no version in its answer'}")


def _model(system: System) -> str:
    """The machine's name from its device tree (Jetson), its firmware, or its chip (Mac); "" when nothing says one."""
    if system.name == "darwin":
        said = system.run(["sysctl", *SYSCTL_NAMES], _TIMEOUT).stdout
        match = re.search(r"^machdep\.cpu\.brand_string: (.+)$", said, re.MULTILINE)
        return match.group(1).strip() if match else ""
    for path in ("/proc/device-tree/model", "/sys/class/dmi/id/product_name"):
        name = (system.read(path) or "").replace("\0", "").strip()
        if name and name not in ("System Product Name", "To Be Filled By O.E.M.", "Default string"):
            return name
    return ""


def _container(system: System) -> str | None:
    """Which kind of container this is, by the marks that each kind leaves; None outside one."""
    if "KUBERNETES_SERVICE_HOST" in system.env:
        return "kubernetes"
    if system.exists("/run/.containerenv"):
        return "podman"
    if system.exists("/.singularity.d"):
        return "apptainer"
    if system.exists("/.dockerenv"):
        return "docker"
    groups = system.read("/proc/1/cgroup") or ""
    for mark, name in (
        ("kubepods", "kubernetes"),
        ("/buildkit/", "buildkit"),
        ("docker", "docker"),
        ("libpod", "podman"),
        ("/lxc/", "lxc"),
    ):
        if mark in groups:
            return name
    # systemd-nspawn and lxc set it; a RUN of BuildKit and containerd's own containers leave no mark but their mounts
    return (system.env.get("container") or "").strip() or confinement.kind_by_mounts(system)
