"""Graphics devices as seen without CUDA: cards on the PCI bus, and the adapters Vulkan or Metal offers."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from splatfix.facts.machine import mac
from splatfix.facts.system.live import System, captured, which_all, whole_number
from splatfix.model import Adapter, Fact, Gpu, unknown

_TABLE = Path(__file__).with_name("pci_gpus.json")
DEVICES = "/sys/bus/pci/devices"
_VENDORS = {"10de": "NVIDIA", "1002": "AMD", "8086": "Intel"}
_MANIFESTS = ("/etc/vulkan/icd.d", "/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d")
_KINDS = {"DISCRETE_GPU": "discrete", "INTEGRATED_GPU": "integrated", "VIRTUAL_GPU": "virtual", "CPU": "cpu"}


def cards(system: System) -> tuple[Gpu, ...]:
    """Every display controller and 3D accelerator of NVIDIA, AMD and Intel on the PCI bus, in bus order.

    ``cc`` is filled where the card's chip says it; ``kernel_driver`` tells what drives the card, "" for nothing.
    """
    gpus: list[Gpu] = []
    for bus in system.listdir(DEVICES):
        folder = f"{DEVICES}/{bus}"
        vendor, pci_class = _hex(system, f"{folder}/vendor"), _hex(system, f"{folder}/class")
        # class 03: display controller (00 VGA, 02 3D); 1200: processing accelerator, as AMD Instinct shows itself
        is_gpu = pci_class.startswith("03") or (vendor == "1002" and pci_class.startswith("1200"))
        if vendor not in _VENDORS or not is_gpu:
            continue
        device, cc = _hex(system, f"{folder}/device"), None
        chip = _table()["devices"].get(f"{vendor}:{device}", "")
        # the brand's name stands in brackets: GB203 [GeForce RTX 5080]
        name = captured(r"\[(.+)\]", chip) or chip or f"PCI device {device}"
        if vendor == "10de":
            cc = next((cc for pattern, cc in _table()["chips"].items() if re.match(pattern, chip)), None)
        link = f"{folder}/driver"
        gpus.append(
            Gpu(
                index=len(gpus),
                name=f"{_VENDORS[vendor]} {name}",
                vendor=_VENDORS[vendor].lower(),
                cc=cc,
                # amdgpu writes the card's memory in bytes; other drivers have no such file
                memory_total=whole_number(system.read(f"{folder}/mem_info_vram_total")),
                bus_id=bus,
                pci_id=f"{vendor}:{device}",
                kernel_driver=system.realpath(link).rsplit("/", 1)[-1] if system.exists(link) else "",
                shown_by="bus",
            )
        )
    return tuple(gpus)


def same_bus(first: str | None, second: str | None) -> bool:
    """Tell whether two names are of one slot, as NVML's ``00000000:01:00.0`` and the kernel's ``0000:01:00.0``."""
    return bool(first and second and first.lower().lstrip("0") == second.lower().lstrip("0"))


def _hex(system: System, path: str) -> str:
    return (system.read(path) or "").strip().lower().removeprefix("0x")


@cache
def _table() -> Any:
    """Names of devices, and compute capabilities by the beginnings of these names."""
    return json.loads(_TABLE.read_text(encoding="utf-8"))


def probe(system: System) -> Fact[tuple[Adapter, ...]]:
    """The adapters by name; unknown, with the installed Vulkan drivers named, where nothing here can list them."""
    if system.name == "darwin":
        return _metal(system)
    named = system.env.get("VK_DRIVER_FILES") or system.env.get("VK_ICD_FILENAMES")
    if named:
        paths = named.split(":")
    else:
        paths = [f"{folder}/{name}" for folder in _MANIFESTS for name in system.listdir(folder)]
    drivers = [path.rsplit("/", 1)[-1] for path in paths if path.endswith(".json") and system.exists(path)]
    installed = f"Vulkan drivers: {', '.join(drivers) or 'none'}"
    if not which_all(system, "vulkaninfo"):
        if system.name == "linux" and not drivers:
            return Fact((), "no driver manifest in " + ", ".join(_MANIFESTS))
        return unknown("vulkaninfo is not installed", installed if system.name == "linux" else "")
    done = system.run(["vulkaninfo", "--summary"])
    adapters = []
    # the blocks ``GPU0:``, ``GPU1:``...
    for block in re.split(r"^GPU\d+:\s*$", done.stdout, flags=re.MULTILINE)[1:]:
        values = dict(re.findall(r"^\s+(\w+)\s*=\s*(.*?)\s*$", block, re.MULTILINE))
        if values.get("deviceName"):
            kind = values.get("deviceType", "").removeprefix("PHYSICAL_DEVICE_TYPE_")
            driver = " ".join(filter(None, (values.get("driverName"), values.get("driverInfo"))))
            adapters.append(Adapter(values["deviceName"], "vulkan", _KINDS.get(kind, "other"), driver))
    # it ends with an error on many a machine whose adapters it has listed
    if not adapters and not done.ok:
        return unknown(f"vulkaninfo --summary: {done.why()}", installed)
    return Fact(tuple(adapters), f"vulkaninfo --summary; {installed}")


def _metal(system: System) -> Fact[tuple[Adapter, ...]]:
    displays, done = mac.displays(system)
    adapters = []
    for name, block in displays:
        metal = captured(r"^\s+Metal(?: Support| Family)?:\s*(.+?)\s*$", block, re.MULTILINE)
        if metal:
            bus = captured(r"^\s+Bus:\s*(Built-In)", block, re.MULTILINE)
            adapters.append(Adapter(name, "metal", "integrated" if bus else "discrete", metal))
    via = " ".join(mac.DISPLAYS)
    if not adapters and not done.ok:
        return unknown(f"{via}: {done.why()}")
    return Fact(tuple(adapters), via)
