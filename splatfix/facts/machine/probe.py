"""What is true of the machine itself: system, model, container, deciding environment variables, and all other probes."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import asdict

from splatfix.facts.machine import (
    adapters,
    compilers,
    confinement,
    gpu,
    health,
    libraries,
    mac,
    resources,
    toolkits,
)
from splatfix.facts.source.variable_names import is_arch_variable, is_switch
from splatfix.facts.system.live import System, captured
from splatfix.facts.system.parallel import parallel
from splatfix.facts.tables import TABLES
from splatfix.model import Fact, MachineFacts, Resources, unknown

# No probe may hold up a diagnosis of a machine with one GPU longer than this; children end earlier, at timeouts of their own.
LIMIT = 60.0

_DECIDING = re.compile("|".join(TABLES["deciding_variables"]))
# What boards say that nobody gave a name.
_NO_NAMES = ("System Product Name", "To Be Filled By O.E.M.", "Default string")


def probe(
    system: System, environment: str = "", brought: Callable[[], Sequence[str]] = tuple
) -> MachineFacts:
    """Return everything about the machine; the probes run side by side, and one that hangs or breaks costs only its own fact.

    Args:
        environment: the target environment's folder, whose compilers are looked at too.
        brought: gives the folders of that environment's NVIDIA packages; it may wait until its Python has answered.
    """
    answers = parallel(
        gpu.for_all_gpus(system, LIMIT),
        {
            "gpus": lambda: gpu.probe(system),
            "toolkits": lambda: toolkits.probe(system, brought()),
            "compilers": lambda: compilers.probe(system, environment),
            "tools": lambda: compilers.tools(system),
            "resources": lambda: resources.probe(system),
            "distribution": lambda: _distribution(system),
            **{name: partial(_look, system, name) for name in _FACTS},
        },
    )
    lost = unknown(answers["gpus"].error)
    gpus: gpu.GpuFacts = answers["gpus"].value or gpu.GpuFacts(lost, lost, lost)
    kernel = (system.read("/proc/sys/kernel/osrelease") or "").strip()
    facts = {name: answers[name] for name in (*_FACTS, "toolkits", "compilers")}
    family, _, version = (facts["libc"].value or "").partition(" ")
    container = _container(system)
    return MachineFacts(
        system=system.name,
        machine=system.machine,
        kernel=kernel,
        distribution=answers["distribution"].value or "",
        glibc=version if family == "glibc" else None,
        model=_model(system),
        container=container,
        confinement=confinement.probe(system) if container else Fact(),
        wsl="microsoft" in kernel.lower(),
        **asdict(gpus),
        **facts,
        tools=answers["tools"].value or {},
        resources=answers["resources"].value or Resources(),
        variables={name: system.env[name] for name in filter(_decides, sorted(system.env))},
    )


def _decides(variable: str) -> bool:
    return bool(_DECIDING.fullmatch(variable)) or is_arch_variable(variable) or is_switch(variable)


def _look(system: System, name: str) -> Fact[Any]:
    only, look = _FACTS[name]
    if only and system.name != only:
        return unknown(f"looked at on {only.capitalize()} only")
    return look(system)


def _distribution(system: System) -> str:
    if system.name == "windows":
        reply = resources.windows_system(system)
        return f"{reply.Caption} {reply.Version}".strip()
    if system.name == "darwin":
        text = system.run(["sw_vers"]).stdout
        values = dict(re.findall(r"^(\w+):\s*(.*)$", text, re.MULTILINE))
        return f"{values.get('ProductName', 'macOS')} {values.get('ProductVersion', '')}".strip()
    return captured(r'^PRETTY_NAME="?([^"\n]+)', system.read("/etc/os-release") or "", re.MULTILINE)


def _libc(system: System) -> Fact[str]:
    done = system.run(["getconf", "GNU_LIBC_VERSION"])
    glibc = captured(r"glibc (\d+\.\d+)", done.stdout)
    if glibc:
        return Fact(f"glibc {glibc}", "getconf GNU_LIBC_VERSION")
    ldd = system.run(["ldd", "--version"])
    text = ldd.stdout + ldd.stderr  # musl's says so on stderr and ends with 1
    if "musl" in text:
        version = captured(r"Version (\d[\d.]*)", text)
        return Fact(f"musl {version}".strip(), "ldd --version")
    return unknown(f"getconf GNU_LIBC_VERSION: {done.why() or 'no version in its answer'}")


def _model(system: System) -> str:
    """The machine's name from its device tree (Jetson), its firmware, or its chip (Mac); "" when nothing says one."""
    if system.name == "darwin":
        return mac.sysctl(system).get("machdep.cpu.brand_string", "").strip()
    for path in ("/proc/device-tree/model", "/sys/class/dmi/id/product_name"):
        name = (system.read(path) or "").replace("\0", "").strip()
        if name and name not in _NO_NAMES:
            return name
    return ""


def _container(system: System) -> str | None:
    """Which kind of container this is, by the marks that each kind leaves; None outside one."""
    if "KUBERNETES_SERVICE_HOST" in system.env:
        return "kubernetes"
    groups = system.read("/proc/1/cgroup") or ""
    kinds: list[str] = [kind for path, kind in TABLES["container_files"].items() if system.exists(path)]
    kinds += [kind for mark, kind in TABLES["container_groups"].items() if mark in groups]
    if kinds:
        return kinds[0]
    # systemd-nspawn and lxc set it; a RUN of BuildKit and containerd's own containers leave no mark but their mounts
    return (system.env.get("container") or "").strip() or confinement.kind_by_mounts(system)


# those that give a fact each, by the name of their field; and of which system alone ("" for all)
_FACTS: Mapping[str, tuple[str, Callable[[System], Fact[Any]]]] = {
    "adapters": ("", adapters.probe),
    "libc": ("linux", _libc),
    "device_files": ("linux", gpu.device_files),
    "own_toolkits": ("", toolkits.in_cache),
    "libcuda": ("linux", libraries.loaded_libcuda),
    "linkable_libcuda": ("linux", libraries.linkable_libcuda),
    "header_copies": ("linux", libraries.header_copies),
    "missing_graphics": ("linux", libraries.missing_graphics),
    "missing_msvc_runtime": ("windows", libraries.missing_msvc_runtime),
    "container_toolkit": ("linux", libraries.container_toolkit),
    "colmap": ("", libraries.colmap),
    "xids": ("linux", health.xids),
    "disks": ("linux", health.disks),
}
