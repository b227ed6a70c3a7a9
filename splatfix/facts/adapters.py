"""Which devices a Vulkan or Metal program would see: brush and other wgpu trainers run on those, not on CUDA."""

from __future__ import annotations

import json
import re

from splatfix.facts.model import Adapter, Fact, unknown
from splatfix.facts.system import System, which_all

_TIMEOUT = 8.0
_MANIFESTS = ("/etc/vulkan/icd.d", "/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d")
_KINDS = {
    "DISCRETE_GPU": "discrete",
    "INTEGRATED_GPU": "integrated",
    "VIRTUAL_GPU": "virtual",
    "CPU": "cpu",
}


def probe(system: System) -> Fact[tuple[Adapter, ...]]:
    """The adapters by name; unknown, with the installed Vulkan drivers named, where nothing here can list them."""
    if system.name == "darwin":
        return _metal(system)
    manifests = vulkan_drivers(system)
    told = f"Vulkan drivers: {', '.join(manifests) or 'none'}"
    if not which_all(system, "vulkaninfo"):
        if system.name == "linux" and not manifests:
            return Fact((), "no driver manifest in " + ", ".join(_MANIFESTS))
        return unknown("vulkaninfo is not installed", told if system.name == "linux" else "")
    done = system.run(["vulkaninfo", "--summary"], _TIMEOUT)
    found = _summary(done.stdout)
    if not found and not done.ok:
        return unknown(f"vulkaninfo --summary: {done.why()}", told)
    return Fact(found, f"vulkaninfo --summary; {told}")


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
        return str(json.loads(manifest)["ICD"]["library_path"])
    except (ValueError, KeyError, TypeError, RecursionError):
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
    done = system.run(["system_profiler", "SPDisplaysDataType"], _TIMEOUT)
    found = []
    for block in re.split(r"^\s+Chipset Model:", done.stdout, flags=re.MULTILINE)[1:]:
        name = block.splitlines()[0].strip()
        metal = re.search(r"^\s+Metal(?: Support| Family)?:\s*(.+?)\s*$", block, re.MULTILINE)
        if metal:
            built_in = re.search(r"^\s+Bus:\s*Built-In", block, re.MULTILINE)
            found.append(Adapter(name, "metal", "integrated" if built_in else "discrete", metal.group(1)))
    if not found and not done.ok:
        return unknown(f"system_profiler SPDisplaysDataType: {done.why()}")
    return Fact(tuple(found), "system_profiler SPDisplaysDataType")
