"""Graphics devices as seen without CUDA: cards on the PCI bus, and the adapters Vulkan or Metal offers."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from splatfix.core.codec import parse_json
from splatfix.core.runner import Completed
from splatfix.facts.model.fact import Fact, unknown
from splatfix.facts.model.machine import Adapter, Gpu
from splatfix.facts.system.live import System, which_all

_TABLE = Path(__file__).with_name("pci_gpus.json")
_DATABASES = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids", "/usr/share/pci.ids")
_DEVICES = "/sys/bus/pci/devices"
VENDORS = {"10de": "nvidia", "1002": "amd", "8086": "intel"}
_VENDOR_NAMES = {"10de": "NVIDIA", "1002": "AMD", "8086": "Intel"}

# Compute capability by the chip's code name, which the PCI database gives before its brackets (CUDA architecture table,
# compat.md section 1: GA10x is 8.6 beside GA100's 8.0, GB20B is the GB10 of DGX Spark, GB10B is Thor).
_CHIPS = (
    (r"GM10[78]", "5.0"),
    (r"GM20\d", "5.2"),
    (r"GP100", "6.0"),
    (r"GP10\d", "6.1"),
    (r"GV100", "7.0"),
    (r"TU1\d\d", "7.5"),
    (r"GA100", "8.0"),
    (r"GA10\d", "8.6"),
    (r"AD10\d", "8.9"),
    (r"GH100", "9.0"),
    (r"GB10[02]", "10.0"),
    (r"GB110", "10.3"),
    (r"GB10B", "11.0"),
    (r"GB20B", "12.1"),
    (r"GB20\d", "12.0"),
    (r"GR100", "10.7"),
)
_TIMEOUT = 8.0
MAC_DISPLAYS = ("system_profiler", "SPDisplaysDataType")
_MANIFESTS = ("/etc/vulkan/icd.d", "/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d")
_KINDS = {"DISCRETE_GPU": "discrete", "INTEGRATED_GPU": "integrated", "VIRTUAL_GPU": "virtual", "CPU": "cpu"}


def cards(system: System) -> tuple[Gpu, ...]:
    """Every display controller and 3D accelerator of NVIDIA, AMD and Intel on the PCI bus, in bus order.

    ``cc`` is filled where the card's chip says it; ``kernel_driver`` tells what drives the card, "" for nothing.
    """
    found: list[Gpu] = []
    for bus in system.listdir(_DEVICES):
        vendor = _hex(system, f"{_DEVICES}/{bus}/vendor")
        # class 03: display controller (00 VGA, 02 3D); 1200: processing accelerator, as AMD Instinct shows itself
        kind = _hex(system, f"{_DEVICES}/{bus}/class")
        if vendor not in VENDORS or not (
            kind.startswith("03") or (kind.startswith("1200") and vendor == "1002")
        ):
            continue
        device = _hex(system, f"{_DEVICES}/{bus}/device")
        text = _database_name(system, vendor, device)
        chip = next((cc for pattern, cc in _CHIPS if re.match(pattern, text)), None)
        found.append(
            Gpu(
                index=len(found),
                name=_marketing_name(vendor, device, text),
                vendor=VENDORS[vendor],
                cc=chip if vendor == "10de" else None,
                memory_total=_vram(system, bus),
                bus_id=bus,
                pci_id=f"{vendor}:{device}",
                kernel_driver=_driver(system, bus),
                shown_by="bus",
            )
        )
    return tuple(found)


def same_bus(first: str | None, second: str | None) -> bool:
    """NVML's ``00000000:01:00.0`` and the kernel's ``0000:01:00.0`` name one slot."""
    return bool(first and second) and _slot(first or "") == _slot(second or "")


def _slot(bus: str) -> tuple[int, ...]:
    numbers = re.split(r"[:.]", bus.lower())
    return tuple(int(n, 16) for n in numbers) if all(re.fullmatch(r"[0-9a-f]+", n) for n in numbers) else ()


def _hex(system: System, path: str) -> str:
    return (system.read(path) or "").strip().lower().removeprefix("0x")


def _driver(system: System, bus: str) -> str:
    link = f"{_DEVICES}/{bus}/driver"
    return system.realpath(link).rsplit("/", 1)[-1] if system.exists(link) else ""


def _vram(system: System, bus: str) -> int | None:
    """amdgpu writes the card's memory in bytes; other drivers have no such file."""
    text = (system.read(f"{_DEVICES}/{bus}/mem_info_vram_total") or "").strip()
    return int(text) if re.fullmatch("[0-9]{1,15}", text) else None


def _database_name(system: System, vendor: str, device: str) -> str:
    """What our table, else the machine's own PCI database, calls the device; "" when neither knows it."""
    if known := _table().get(f"{vendor}:{device}"):
        return known
    for path in _DATABASES if device else ():
        _, _, rest = (system.read(path) or "").partition(f"\n{vendor}  ")
        for line in rest.splitlines()[1:]:
            if not line.startswith(("\t", "#")):
                break  # the next vendor
            if line.startswith(f"\t{device}  "):
                return line.strip().partition("  ")[2]
    return ""


@cache
def _table() -> dict[str, str]:
    devices: dict[str, str] = json.loads(_TABLE.read_text(encoding="utf-8"))["devices"]
    return devices


def _marketing_name(vendor: str, device: str, text: str) -> str:
    """``GB203 [GeForce RTX 5080]`` -> ``NVIDIA GeForce RTX 5080``."""
    brand = _VENDOR_NAMES[vendor]
    inside = re.search(r"\[(.+)\]", text)
    if inside:
        return f"{brand} {inside.group(1)}"
    return f"{brand} {text}" if text else f"{brand} PCI device {device}"


def probe(system: System) -> Fact[tuple[Adapter, ...]]:
    """The adapters by name; unknown, with the installed Vulkan drivers named, where nothing here can list them."""
    if system.name == "darwin":
        return _metal(system)
    manifests = vulkan_drivers(system)
    installed = f"Vulkan drivers: {', '.join(manifests) or 'none'}"
    if not which_all(system, "vulkaninfo"):
        if system.name == "linux" and not manifests:
            return Fact((), "no driver manifest in " + ", ".join(_MANIFESTS))
        return unknown("vulkaninfo is not installed", installed if system.name == "linux" else "")
    done = system.run(["vulkaninfo", "--summary"], _TIMEOUT)
    found = _summary(done.stdout)
    if not found and not done.ok:
        return unknown(f"vulkaninfo --summary: {done.why()}", installed)
    return Fact(found, f"vulkaninfo --summary; {installed}")


def vulkan_drivers(system: System) -> tuple[str, ...]:
    """The installable client drivers as ``nvidia_icd.json (libGLX_nvidia.so.0)``, from their manifests."""
    named = system.env.get("VK_DRIVER_FILES") or system.env.get("VK_ICD_FILENAMES")
    paths = (
        named.split(":")
        if named
        else [f"{folder}/{n}" for folder in _MANIFESTS for n in system.listdir(folder)]
    )
    found = []
    for path in paths:
        text = system.read(path) if path.endswith(".json") else None
        if text is not None:
            found.append(f"{path.rsplit('/', 1)[-1]} ({_library(text)})")
    return tuple(found)


def _library(manifest: str) -> str:
    try:
        return str(parse_json(manifest)["ICD"]["library_path"])
    except (ValueError, KeyError, TypeError):
        return "its manifest is damaged"


def _summary(text: str) -> tuple[Adapter, ...]:
    """The blocks ``GPU0:``, ``GPU1:``... of ``vulkaninfo --summary``."""
    found = []
    for block in re.split(r"^GPU\d+:\s*$", text, flags=re.MULTILINE)[1:]:
        values = dict(re.findall(r"^\s+(\w+)\s*=\s*(.*?)\s*$", block, re.MULTILINE))
        if name := values.get("deviceName"):
            kind = values.get("deviceType", "").removeprefix("PHYSICAL_DEVICE_TYPE_")
            driver = " ".join(filter(None, (values.get("driverName"), values.get("driverInfo"))))
            found.append(Adapter(name, "vulkan", _KINDS.get(kind, "other"), driver))
    return tuple(found)


def _metal(system: System) -> Fact[tuple[Adapter, ...]]:
    displays, done = mac_displays(system)
    found = []
    for name, block in displays:
        if metal := re.search(r"^\s+Metal(?: Support| Family)?:\s*(.+?)\s*$", block, re.MULTILINE):
            built_in = re.search(r"^\s+Bus:\s*Built-In", block, re.MULTILINE)
            found.append(Adapter(name, "metal", "integrated" if built_in else "discrete", metal.group(1)))
    via = " ".join(MAC_DISPLAYS)
    return Fact(tuple(found), via) if found or done.ok else unknown(f"{via}: {done.why()}")


def mac_displays(system: System) -> tuple[list[tuple[str, str]], Completed]:
    """Name and description of each GPU of a Mac, and the answer of system_profiler that they were read from."""
    done = system.run(MAC_DISPLAYS, _TIMEOUT)
    blocks = re.split(r"^\s+Chipset Model:", done.stdout, flags=re.MULTILINE)[1:]
    return [(block.splitlines()[0].strip(), block) for block in blocks], done
