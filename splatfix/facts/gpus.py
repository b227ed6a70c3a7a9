"""Which GPUs and which NVIDIA driver a machine has, by the most trustworthy road that answers."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from splatfix.facts import gpu_probes, pci
from splatfix.facts.gpu_probes import Answer, capability, cuda_level
from splatfix.facts.model import Driver, Fact, Gpu, unknown
from splatfix.facts.system import System

_LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")


def probe(system: System) -> tuple[Fact[tuple[Gpu, ...]], Fact[Driver]]:
    """GPUs and NVIDIA driver of a machine.

    Order: NVML, then libcuda in a child process, then nvidia-smi, then /proc/driver/nvidia, then the device tree of a
    Jetson, then the PCI bus; the first that shows NVIDIA GPUs wins, and the misses are told in ``found_via``. What it
    leaves open, the PCI bus fills in; cards of other makers come from there too. An empty tuple means that every road
    was tried and no GPU is there; unknown means that something of NVIDIA's is there but nothing could be asked.
    """
    if system.name == "darwin":
        return _of_a_mac(system)
    on_bus = pci.cards(system)
    kernel = _kernel_module(system)
    reply = system.nvml()
    nvml = _from_nvml(reply)
    if nvml is not None and (nvml.gpus or not any(card.vendor == "nvidia" for card in on_bus)):
        gpus, via = _completed(nvml.gpus, on_bus), "NVML"
        return Fact(gpus, via), Fact(_driver(system, kernel, nvml, reply), _via("NVML", kernel))
    misses = [f"NVML: {reply.get('error') or 'it shows no GPU'}"]
    if not _anything_of_nvidia(system) and not any(card.vendor == "nvidia" for card in on_bus):
        via = "; ".join([*misses, "no NVIDIA device files, no NVIDIA card on the PCI bus"])
        return Fact(on_bus, via), Fact(None, via, "no NVIDIA driver on this machine")
    by_cuda = gpu_probes.libcuda(system, misses)
    best = by_cuda if by_cuda and by_cuda.gpus else None
    best = (
        best
        or gpu_probes.nvidia_smi(system, misses)
        or gpu_probes.proc_files(system)
        or gpu_probes.jetson(system)
    )
    known = dataclasses.replace(
        best or Answer(""),
        cuda=by_cuda.cuda if by_cuda else None,
        cuda_error=by_cuda.cuda_error if by_cuda else None,
    )
    made = _driver(system, kernel, known, reply)
    driver: Fact[Driver] = (
        Fact(made, _via(known.via, kernel) or "libcuda")
        if made.version or made.cuda
        else Fact(None, "; ".join(misses), "no NVIDIA driver is loaded on this machine")
    )
    gpus = _completed(known.gpus, on_bus)
    if any(gpu.vendor == "nvidia" for gpu in gpus):
        told = known.via if known.gpus else "; ".join([*misses, "/sys/bus/pci/devices"])
        return Fact(gpus, told), driver
    return unknown("; ".join(misses)), driver


def _of_a_mac(system: System) -> tuple[Fact[tuple[Gpu, ...]], Fact[Driver]]:
    answer = gpu_probes.apple(system)
    no_driver: Fact[Driver] = Fact(None, "macOS", "there is no NVIDIA driver for this system")
    if answer is None:
        return unknown("system_profiler SPDisplaysDataType shows no GPU"), no_driver
    return Fact(answer.gpus, answer.via), no_driver


def _from_nvml(reply: dict[str, Any]) -> Answer | None:
    """NVML's plain data (see :func:`splatfix.facts.nvml.ask`) as GPUs; None when it gave none to read."""
    items = reply.get("gpus")
    if "error" in reply or not isinstance(items, list):
        return None
    gpus: list[Gpu] = []
    for item in items:
        if not isinstance(item, dict):
            continue
        mig_devices = item.get("mig_devices")
        gpus.append(
            Gpu(
                index=len(gpus),
                name=_text(item.get("name")) or "unknown",
                cc=capability(item.get("cc")),
                memory_total=_whole(item.get("memory_total")),
                memory_free=_whole(item.get("memory_free")),
                bus_id=_text(item.get("bus_id")),
                uuid=_text(item.get("uuid")),
                mig=item["mig"] if isinstance(item.get("mig"), bool) else None,
                display=item["display"] if isinstance(item.get("display"), bool) else None,
                mig_devices=tuple(map(str, mig_devices)) if isinstance(mig_devices, list) else (),
            )
        )
    return Answer("NVML", tuple(gpus), cuda_level(reply.get("cuda")), _text(reply.get("driver")))


def _driver(
    system: System, kernel: tuple[str, bool | None] | None, answer: Answer, reply: dict[str, Any]
) -> Driver:
    code = reply.get("error_code")
    return Driver(
        version=kernel[0] if kernel else answer.driver,
        cuda=answer.cuda,
        open_module=kernel[1] if kernel else None,
        library_version=answer.driver or _library_version(system),
        nvml_error=code if isinstance(code, int) else None,
        cuda_error=answer.cuda_error,
    )


def _library_version(system: System) -> str | None:
    """The version in the real file name of the installed user-mode driver: ``libcuda.so.575.57.08``."""
    for folder in _LIBRARY_FOLDERS:
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            if system.exists(f"{folder}/{name}"):
                match = re.search(
                    r"\.so\.([0-9]{3,4}\.[0-9]{1,4}(?:\.[0-9]{1,4})?)$", system.realpath(f"{folder}/{name}")
                )
                if match:
                    return match.group(1)
    return None


def _completed(gpus: tuple[Gpu, ...], on_bus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """GPUs that a driver showed with what the PCI bus adds; then the cards that only the bus shows."""
    left = list(on_bus)
    found = []
    for gpu in gpus:
        twin = next((card for card in left if pci.same_bus(card.bus_id, gpu.bus_id)), None)
        if twin is not None:
            left.remove(twin)
            gpu = dataclasses.replace(
                gpu,
                cc=gpu.cc or twin.cc,
                display=gpu.display if gpu.display is not None else twin.display,
                pci_id=twin.pci_id,
                kernel_driver=twin.kernel_driver,
            )
        found.append(gpu)
    # a road without bus numbers (an old libcuda) already showed every NVIDIA card there is to use
    if any(gpu.vendor == "nvidia" and gpu.bus_id is None for gpu in gpus):
        left = [card for card in left if card.vendor != "nvidia"]
    # NVIDIA's first, so that a processor's own graphics does not take CUDA's number 0
    ordered = sorted([*found, *left], key=lambda gpu: gpu.vendor != "nvidia")
    return tuple(dataclasses.replace(gpu, index=i) for i, gpu in enumerate(ordered))


def _kernel_module(system: System) -> tuple[str, bool | None] | None:
    """Version and openness of the loaded kernel module, from its own /proc file (or /sys, which is silent on that)."""
    for line in (system.read("/proc/driver/nvidia/version") or "").splitlines():
        match = re.match(r"NVRM version:.*?\s([0-9]{3,4}\.[0-9]{1,4}(?:\.[0-9]{1,4})?)\s", line + " ")
        if match:
            return match.group(1), "Open Kernel Module" in line
    plain = (system.read("/sys/module/nvidia/version") or "").strip()
    return (plain, None) if re.fullmatch(r"[0-9]{3,4}\.[0-9]{1,4}(\.[0-9]{1,4})?", plain) else None


def _anything_of_nvidia(system: System) -> bool:
    traces = (
        "/proc/driver/nvidia",
        "/dev/nvidiactl",
        "/dev/dxg",
        "/sys/module/nvidia",
        "/dev/nvhost-gpu",
        "/etc/nv_tegra_release",
    )
    return system.name == "windows" or any(system.exists(path) for path in traces)


def _via(road: str, kernel: tuple[str, bool | None] | None) -> str:
    said = "/proc/driver/nvidia/version" if kernel and kernel[1] is not None else "/sys/module/nvidia/version"
    return " and ".join(part for part in (road, said if kernel else "") if part)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
