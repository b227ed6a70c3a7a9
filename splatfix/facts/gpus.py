"""Which GPUs and which NVIDIA driver a machine has, by the most trustworthy road that answers."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

from splatfix.facts.model import Driver, Fact, Gpu, unknown
from splatfix.facts.system import System

_TIMEOUT = 5.0

# Runs in a child interpreter, because a damaged libcuda may crash the process that loads it.
# Attributes 75/76: compute capability (CUDA driver API, CUdevice_attribute).
_LIBCUDA_SCRIPT = """
import ctypes, json, sys
try:
    cuda = ctypes.CDLL(sys.argv[1])
except OSError as error:
    print(json.dumps({"error": str(error)})); sys.exit()
code = cuda.cuInit(0)
version = ctypes.c_int(); cuda.cuDriverGetVersion(ctypes.byref(version))
out = {"init": code, "cuda": version.value, "gpus": []}
count = ctypes.c_int()
if code == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0:
    for index in range(count.value):
        device = ctypes.c_int(); name = ctypes.create_string_buffer(256)
        major = ctypes.c_int(); minor = ctypes.c_int(); total = ctypes.c_size_t()
        cuda.cuDeviceGet(ctypes.byref(device), index)
        cuda.cuDeviceGetName(name, 256, device)
        cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device)
        cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
        cuda.cuDeviceTotalMem_v2(ctypes.byref(total), device)
        out["gpus"].append({"index": index, "name": name.value.decode("utf-8", "replace"),
                            "cc": [major.value, minor.value], "memory_total": total.value})
print(json.dumps(out))
"""

_SMI_FIELDS = "index,name,compute_cap,driver_version,memory.total,memory.free,pci.bus_id,uuid"
_NVIDIA_VENDOR = "0x10de"


def probe(system: System, python: str) -> tuple[Fact[tuple[Gpu, ...]], Fact[Driver]]:
    """GPUs and driver of a machine.

    Order: NVML, then libcuda in a child of ``python``, then nvidia-smi, then /proc, then the PCI bus; the first that
    shows GPUs wins, and the misses are told in ``found_via``. An empty tuple means that every road was tried and no
    NVIDIA GPU is there; unknown means that something of NVIDIA's is there but nothing could be asked.

    Args:
        python: any working interpreter, to load libcuda in a child process.
    """
    misses: list[str] = []
    kernel = _kernel_module(system)
    reply = system.nvml()
    if "error" not in reply:
        return _from_nvml(system, reply, kernel)
    misses.append(f"NVML: {reply['error']}")
    if not _anything_of_nvidia(system):
        cards = _pci_cards(system)
        if not cards:
            via = "; ".join([*misses, "no NVIDIA device files, no PCI device of vendor 10de"])
            return Fact((), via), Fact(None, via, "no NVIDIA driver on this machine")
    by_libcuda = _from_libcuda(system, python, misses)
    by_smi = None if by_libcuda else _from_smi(system, misses)
    gpus, cuda, smi_driver = by_libcuda or by_smi or ((), None, None)
    version = (kernel[0] if kernel else None) or smi_driver
    via = "/proc/driver/nvidia/version" if kernel else ("nvidia-smi" if smi_driver else "")
    driver: Fact[Driver] = (
        Fact(Driver(version, cuda, kernel[1] if kernel else None), via or "libcuda")
        if version or cuda
        else Fact(None, "; ".join(misses), "no NVIDIA driver is loaded on this machine")
    )
    if gpus:
        return Fact(tuple(gpus), "libcuda" if by_libcuda else "nvidia-smi"), driver
    cards = _pci_cards(system)
    if cards:
        return Fact(cards, "; ".join([*misses, "/sys/bus/pci/devices"])), driver
    return unknown("; ".join(misses)), driver


def _from_nvml(
    system: System, reply: dict[str, Any], kernel: tuple[str, bool] | None
) -> tuple[Fact[tuple[Gpu, ...]], Fact[Driver]]:
    gpus = tuple(
        Gpu(
            index=item["index"],
            name=item.get("name") or "unknown",
            cc=_cc(item.get("cc")),
            memory_total=item.get("memory_total"),
            memory_free=item.get("memory_free"),
            bus_id=item.get("bus_id"),
            uuid=item.get("uuid"),
            mig=item.get("mig"),
            display=item.get("display"),
        )
        for item in reply["gpus"]
    )
    driver = Driver(
        version=kernel[0] if kernel else reply["driver"],
        cuda=_cuda_level(reply.get("cuda")),
        open_module=kernel[1] if kernel else None,
        library_version=reply["driver"],
    )
    return Fact(gpus, "NVML"), Fact(driver, "NVML" + (" and /proc/driver/nvidia/version" if kernel else ""))


def _kernel_module(system: System) -> tuple[str, bool] | None:
    """Version and openness of the loaded kernel module, from its own /proc file (or /sys, without openness)."""
    text = system.read("/proc/driver/nvidia/version")
    if text:
        for line in text.splitlines():
            match = re.match(r"NVRM version:.*?\s(\d{3,}\.\d+(?:\.\d+)?)\s", line + " ")
            if match:
                return match.group(1), "Open Kernel Module" in line
    plain = system.read("/sys/module/nvidia/version")
    if plain and re.fullmatch(r"\d{3,}\.\d+(\.\d+)?", plain.strip()):
        return plain.strip(), False
    return None


def _libcuda_names(system: System) -> tuple[str, ...]:
    if system.name == "windows":
        return ("nvcuda.dll",)
    wsl = "/usr/lib/wsl/lib/libcuda.so.1"
    return (wsl, "libcuda.so.1") if system.exists(wsl) else ("libcuda.so.1",)


def _from_libcuda(
    system: System, python: str, misses: list[str]
) -> tuple[tuple[Gpu, ...], str | None, str | None] | None:
    for library in _libcuda_names(system):
        done = system.run([python, "-c", _LIBCUDA_SCRIPT, library], _TIMEOUT)
        try:
            reply = json.loads(done.stdout)
        except ValueError:
            misses.append(f"{library}: {done.why() or 'no readable answer'}")
            continue
        if "error" in reply:
            misses.append(f"libcuda: {reply['error']}")
            continue
        if reply["init"] != 0:
            misses.append(f"{library}: cuInit gives error {reply['init']}")
            continue
        gpus = tuple(
            Gpu(g["index"], g["name"], cc=_cc(g["cc"]), memory_total=g["memory_total"]) for g in reply["gpus"]
        )
        return gpus, _cuda_level(reply["cuda"]), None
    return None


def _from_smi(system: System, misses: list[str]) -> tuple[tuple[Gpu, ...], str | None, str | None] | None:
    names = ["/usr/lib/wsl/lib/nvidia-smi"] if system.exists("/usr/lib/wsl/lib/nvidia-smi") else []
    for program in [*names, "nvidia-smi"]:
        done = system.run([program, f"--query-gpu={_SMI_FIELDS}", "--format=csv,noheader,nounits"], _TIMEOUT)
        if not done.ok:
            misses.append(f"nvidia-smi: {done.why()}")
            continue
        gpus, driver = [], None
        for row in csv.reader(io.StringIO(done.stdout), skipinitialspace=True):
            if len(row) != len(_SMI_FIELDS.split(",")):
                misses.append(f"nvidia-smi: unexpected line {','.join(row)!r}")
                continue
            index, name, cc, driver, total, free, bus, uuid = (cell.strip() for cell in row)
            gpus.append(
                Gpu(
                    int(index),
                    name,
                    cc=cc if re.fullmatch(r"\d+\.\d", cc) else None,
                    memory_total=int(total) * 2**20 if total.isdigit() else None,
                    memory_free=int(free) * 2**20 if free.isdigit() else None,
                    bus_id=bus,
                    uuid=uuid,
                )
            )
        if gpus:
            return tuple(gpus), None, driver
    return None


def _anything_of_nvidia(system: System) -> bool:
    traces = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg", "/sys/module/nvidia", "/dev/nvhost-gpu")
    return system.name == "windows" or any(system.exists(path) for path in traces)


def _pci_cards(system: System) -> tuple[Gpu, ...]:
    """Display controllers of NVIDIA on the PCI bus, known even where no driver is loaded."""
    base = "/sys/bus/pci/devices"
    cards: list[Gpu] = []
    for name in system.listdir(base):
        vendor = (system.read(f"{base}/{name}/vendor") or "").strip()
        kind = (system.read(f"{base}/{name}/class") or "").strip()
        if vendor != _NVIDIA_VENDOR or not kind.startswith(("0x0300", "0x0302")):
            continue
        device = (system.read(f"{base}/{name}/device") or "").strip()
        cards.append(Gpu(len(cards), f"NVIDIA PCI device {device.removeprefix('0x')}", bus_id=name))
    return tuple(cards)


def _cc(pair: list[int] | None) -> str | None:
    return f"{pair[0]}.{pair[1]}" if pair else None


def _cuda_level(number: int | None) -> str | None:
    """``13000`` -> ``13.0`` (CUDA driver API, cuDriverGetVersion)."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else None
