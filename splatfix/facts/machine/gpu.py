"""A machine's GPUs and its NVIDIA driver, put together from all who can list them."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any

from splatfix.facts.machine import adapters, gpu_sources, libcuda, mac
from splatfix.facts.machine.gpu_sources import GpuList
from splatfix.facts.machine.libcuda import CudaAnswer
from splatfix.facts.model.fact import Fact, absent, unknown
from splatfix.facts.model.machine import CudaDevice, Driver, Gpu
from splatfix.facts.system.live import System
from splatfix.facts.system.parallel import Job
from splatfix.facts.system.text import captured, whole_number

_LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
# What a driver or a board of NVIDIA's leaves to be seen, also inside containers: WSL's device, a Tegra's files.
_TRACES = (
    "/proc/driver/nvidia",
    "/dev/nvidiactl",
    "/dev/dxg",
    "/sys/module/nvidia",
    "/dev/nvhost-gpu",
    "/etc/nv_tegra_release",
)
_PROC_VERSION, _SYS_VERSION = "/proc/driver/nvidia/version", "/sys/module/nvidia/version"
_VERSION = r"[0-9]{3,4}\.[0-9]{1,4}(?:\.[0-9]{1,4})?"
_MAC_VENDORS = ("AMD", "Intel", "NVIDIA")


@dataclass(frozen=True)
class GpuFacts:
    """The machine's GPUs and what drives them; see :class:`splatfix.facts.model.machine.MachineFacts`."""

    gpus: Fact[tuple[Gpu, ...]]
    driver: Fact[Driver]
    cuda: Fact[tuple[CudaDevice, ...]]
    cuda_unfiltered: Fact[tuple[CudaDevice, ...]] = field(default_factory=Fact)


@dataclass(frozen=True)
class _KernelModule:
    """The loaded kernel module, and the file that says so."""

    version: str
    is_open: bool | None
    found_via: str


def probe(system: System) -> GpuFacts:
    """GPUs and NVIDIA driver of a machine, and CUDA's own list.

    Order for the GPUs: NVML, then libcuda, then nvidia-smi, then /proc/driver/nvidia, then the device tree of a Jetson, then
    the PCI bus; the first that shows NVIDIA GPUs wins, and ``found_via`` names the misses. What it leaves open, the PCI bus
    fills in; cards that only the bus shows come from there too. An empty tuple means that every source was tried and no
    GPU is there; unknown means that something of NVIDIA's is there but nothing could be asked.

    libcuda is asked in any case, because NVML answers on many a machine where CUDA does not start.
    """
    if system.name == "darwin":
        return _of_a_mac(system)
    on_bus = adapters.cards(system)
    nvidia_on_bus = any(card.vendor == "nvidia" for card in on_bus)
    is_likely = nvidia_on_bus or _has_traces(system)
    # under way while NVML is asked: each takes seconds on a machine whose GPUs sleep
    cuda_job = Job(lambda: libcuda.ask(system) if is_likely else None)
    reply = system.nvml()
    nvml = gpu_sources.from_nvml(reply)
    if nvml.value is None and not is_likely:
        via = f"{nvml.error}; no NVIDIA device files, no NVIDIA card on the PCI bus"
        no_driver = absent("no NVIDIA driver on this machine", via)
        return GpuFacts(Fact(on_bus, via), no_driver, no_driver)
    cuda: CudaAnswer = cuda_job.value() or libcuda.ask(system)
    if nvml.value is not None and (nvml.value.gpus or not nvidia_on_bus):
        return _by_nvml(system, nvml.value, reply, cuda, on_bus)
    misses = [nvml.error or "NVML: it shows no GPU", *cuda.misses]
    return _without_nvml(system, misses, reply, cuda, on_bus)


def device_files(system: System) -> Fact[tuple[str, ...]]:
    """The driver's files in /dev."""
    if system.name != "linux":
        return unknown(f"{system.name} has none")
    return Fact(tuple(name for name in system.listdir("/dev") if name.startswith("nvidia")), "/dev")


def _of_a_mac(system: System) -> GpuFacts:
    no_driver = absent("no NVIDIA driver for macOS", "macOS")
    no_cuda = absent("no CUDA for macOS", "macOS")
    via = " ".join(mac.DISPLAYS)
    gpus: list[Gpu] = []
    for name, _ in mac.displays(system)[0]:
        vendor = next((vendor for vendor in _MAC_VENDORS if vendor in name), "Apple").lower()
        memory = None
        if vendor == "apple":  # CPU and GPU share it
            memory = whole_number(mac.sysctl(system).get("hw.memsize"))
        gpus.append(Gpu(len(gpus), name, vendor, memory_total=memory))
    if not gpus:
        return GpuFacts(unknown(f"{via} shows no GPU"), no_driver, no_cuda)
    return GpuFacts(Fact(tuple(gpus), via), no_driver, no_cuda)


def _by_nvml(
    system: System, nvml: GpuList, reply: dict[str, Any], cuda: CudaAnswer, on_bus: tuple[Gpu, ...]
) -> GpuFacts:
    # what CUDA says of its level counts: a forward-compatibility package raises it above NVML's
    level = cuda.level if cuda.devices.known else nvml.cuda or cuda.level
    kernel = _kernel_module(system)
    driver = _driver(system, kernel, nvml.driver, level, reply, cuda)
    return GpuFacts(
        Fact(_completed(nvml.gpus, on_bus), "NVML"),
        Fact(driver, _joined_via("NVML", kernel)),
        cuda.devices,
        cuda.unfiltered,
    )


def _without_nvml(
    system: System, misses: list[str], reply: dict[str, Any], cuda: CudaAnswer, on_bus: tuple[Gpu, ...]
) -> GpuFacts:
    listed: Fact[GpuList] = Fact()
    if cuda.gpus:
        listed = Fact(GpuList(cuda.gpus), "libcuda")
    for look in (gpu_sources.nvidia_smi, gpu_sources.proc_files, gpu_sources.jetson):
        if listed.value is None:
            listed = look(system)
            misses.append(listed.error)
    misses = list(filter(None, misses))
    from_source = listed.value or GpuList(())

    kernel = _kernel_module(system)
    made = _driver(system, kernel, from_source.driver, cuda.level, reply, cuda)
    driver: Fact[Driver] = absent("no NVIDIA driver is loaded on this machine", "; ".join(misses))
    # a libcuda tells its level without any driver loaded: in an image with CUDA, on a machine without a GPU
    if made.version or (made.cuda and (from_source.gpus or _has_traces(system))):
        driver = Fact(made, _joined_via(listed.found_via, kernel) or "libcuda")

    gpus = _completed(from_source.gpus, on_bus)
    if not any(gpu.vendor == "nvidia" for gpu in gpus):
        return GpuFacts(unknown("; ".join(misses)), driver, cuda.devices, cuda.unfiltered)
    via = listed.found_via or "; ".join([*misses, "/sys/bus/pci/devices"])
    return GpuFacts(Fact(gpus, via), driver, cuda.devices, cuda.unfiltered)


def _driver(
    system: System,
    kernel: _KernelModule | None,
    library_version: str | None,
    level: str | None,
    reply: dict[str, Any],
    cuda: CudaAnswer,
) -> Driver:
    code = reply.get("error_code")
    return Driver(
        version=kernel.version if kernel else library_version,
        cuda=level,
        open_module=kernel.is_open if kernel else None,
        library_version=library_version or _version_of_library(system),
        nvml_error=code if isinstance(code, int) else None,
        cuda_error=cuda.error_code,
    )


def _version_of_library(system: System) -> str | None:
    """The version in the real file name of the installed user-mode driver: ``libcuda.so.575.57.08``."""
    for folder in _LIBRARY_FOLDERS:
        for name in _LIBRARIES:
            path = f"{folder}/{name}"
            # a link to the file of the version, as NVIDIA's installer and all distributions make it
            version = captured(rf"\.so\.({_VERSION})$", system.realpath(path)) if system.exists(path) else ""
            if version:
                return version
    return None


def _kernel_module(system: System) -> _KernelModule | None:
    """Version and openness of the loaded kernel module, from its own /proc file (or /sys, which is silent on that)."""
    for line in (system.read(_PROC_VERSION) or "").splitlines():
        version = captured(rf"^NVRM version:.*?\s({_VERSION})\s", line + " ")
        if version:
            return _KernelModule(version, "Open Kernel Module" in line, _PROC_VERSION)
    version = (system.read(_SYS_VERSION) or "").strip()
    return _KernelModule(version, None, _SYS_VERSION) if re.fullmatch(_VERSION, version) else None


def _has_traces(system: System) -> bool:
    return system.name == "windows" or any(system.exists(path) for path in _TRACES)


def _joined_via(source: str, kernel: _KernelModule | None) -> str:
    return " and ".join(filter(None, (source, kernel.found_via if kernel else "")))


def _completed(gpus: tuple[Gpu, ...], on_bus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """GPUs that a driver showed with what the PCI bus adds; then the cards that only the bus shows."""
    bus_only = list(on_bus)
    completed: list[Gpu] = []
    for gpu in gpus:
        twin = next((card for card in bus_only if adapters.same_bus(card.bus_id, gpu.bus_id)), None)
        if twin is None:
            completed.append(gpu)
            continue
        bus_only.remove(twin)
        known_cc = gpu.cc or twin.cc
        completed.append(
            dataclasses.replace(gpu, cc=known_cc, pci_id=twin.pci_id, kernel_driver=twin.kernel_driver)
        )
    _complete_lost(completed, bus_only)
    # a source without bus numbers (an old libcuda) already showed every NVIDIA card there is to use
    if any(gpu.vendor == "nvidia" and gpu.bus_id is None for gpu in gpus):
        bus_only = [card for card in bus_only if card.vendor != "nvidia"]
    # NVIDIA's first, so that a processor's own graphics does not take CUDA's number 0
    ordered = sorted([*completed, *bus_only], key=lambda gpu: gpu.vendor != "nvidia")
    return tuple(dataclasses.replace(gpu, index=index) for index, gpu in enumerate(ordered))


def _complete_lost(gpus: list[Gpu], bus_only: list[Gpu]) -> None:
    """Match the GPUs that NVML gives no handle for with the cards that are left on the bus with NVIDIA's driver.

    NVML names no bus for them, but both count in the bus's order; where the numbers differ, nobody can tell which is which.
    """
    lost = [index for index, gpu in enumerate(gpus) if gpu.nvml_error is not None]
    twins = [card for card in bus_only if card.kernel_driver == "nvidia"]
    if len(lost) != len(twins):
        return
    for index, twin in zip(lost, twins, strict=True):
        bus_only.remove(twin)
        gpu = gpus[index]
        gpus[index] = dataclasses.replace(twin, nvml_error=gpu.nvml_error, shown_by=gpu.shown_by)
