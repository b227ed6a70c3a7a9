"""Who may list a machine's NVIDIA GPUs beside CUDA: NVML, nvidia-smi, the kernel module's files, a Jetson's device tree.

Each gives a fact: what it lists, or why it lists nothing.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from typing import Any, TypeGuard

from splatfix.facts.model.fact import Fact, unknown
from splatfix.facts.model.machine import Gpu
from splatfix.facts.system.live import System
from splatfix.facts.system.text import captured

_TIMEOUT = 8.0
_SMI_FIELDS = "index,name,compute_cap,driver_version,memory.total,pci.bus_id,uuid"
_SMI_ON_WSL = "/usr/lib/wsl/lib/nvidia-smi"
_PROC_GPUS = "/proc/driver/nvidia/gpus"
_DEVICE_TREE = "/proc/device-tree/compatible"
# GPU of each Tegra chip (compat.md section 1); the device tree names the chip on every Jetson.
_TEGRA = {
    "tegra210": ("5.3", "Maxwell"),
    "tegra186": ("6.2", "Pascal"),
    "tegra194": ("7.2", "Volta"),
    "tegra234": ("8.7", "Ampere"),
    "tegra264": ("11.0", "Blackwell"),
}


@dataclass(frozen=True)
class GpuList:
    """What one source lists; what it cannot know is None."""

    gpus: tuple[Gpu, ...]
    driver: str | None = None
    """Version of the user-mode driver."""
    cuda: str | None = None
    """Highest CUDA level of the driver."""


def from_nvml(reply: dict[str, Any]) -> Fact[GpuList]:
    """NVML's plain data (see :func:`splatfix.facts.machine.nvml.ask`) as GPUs; unknown when it gave none to read."""
    if "error" in reply or not isinstance(reply.get("gpus"), list):
        return unknown(f"NVML: {reply.get('error') or 'it shows no GPU'}")
    gpus = decode_gpus(reply["gpus"])
    return Fact(GpuList(gpus, _text(reply.get("driver")), cuda_level(reply.get("cuda"))), "NVML")


def nvidia_smi(system: System) -> Fact[GpuList]:
    """Ask nvidia-smi, WSL's own first."""
    misses: list[str] = []
    for program in (_SMI_ON_WSL, "nvidia-smi"):
        if program == _SMI_ON_WSL and not system.exists(program):
            continue
        done = system.run([program, f"--query-gpu={_SMI_FIELDS}", "--format=csv,noheader,nounits"], _TIMEOUT)
        if not done.ok:
            # its reason is on stdout: "Failed to initialize NVML: Driver/library version mismatch"
            first_line = "" if done.error else captured(r"^\s*(\S.*)$", done.stdout, re.MULTILINE).rstrip()
            misses.append(f"nvidia-smi: {first_line or done.why()}")
            continue
        gpus: list[Gpu] = []
        driver = None
        for row in csv.reader(io.StringIO(done.stdout), skipinitialspace=True):
            gpu = _gpu_of_row([cell.strip() for cell in row])
            if gpu is None:
                misses.append(f"nvidia-smi: unexpected line {','.join(row)[:80]!r}")
            else:
                gpus.append(gpu)
                driver = row[3].strip()
        if gpus:
            return Fact(GpuList(tuple(gpus), driver), "nvidia-smi")
    return unknown("; ".join(misses))


def proc_files(system: System) -> Fact[GpuList]:
    """Read /proc/driver/nvidia/gpus/*/information, which the kernel module writes by itself."""
    gpus: list[Gpu] = []
    for bus in system.listdir(_PROC_GPUS):
        text = system.read(f"{_PROC_GPUS}/{bus}/information") or ""
        values = dict(re.findall(r"^(Model|GPU UUID):\s*(\S.*?)\s*$", text, re.MULTILINE))
        if "Model" in values:
            uuid = values.get("GPU UUID", "").partition(" ")[0]
            gpus.append(
                Gpu(len(gpus), values["Model"], bus_id=bus, uuid=uuid or None, shown_by="kernel module")
            )
    if not gpus:
        return Fact()
    return Fact(GpuList(tuple(gpus)), _PROC_GPUS)


def jetson(system: System) -> Fact[GpuList]:
    """A Tegra board's GPU by its device tree: integrated, on no PCI bus."""
    for name in (system.read(_DEVICE_TREE) or "").split("\0"):
        chip = name.removeprefix("nvidia,")
        if chip in _TEGRA:
            cc, family = _TEGRA[chip]
            return Fact(GpuList((Gpu(0, f"{family} GPU of NVIDIA {chip}", cc=cc),)), _DEVICE_TREE)
    return Fact()


def decode_gpus(items: object) -> tuple[Gpu, ...]:
    """The GPUs that NVML or our libcuda probe told of; what is damaged of one is unknown."""
    gpus: list[Gpu] = []
    for item in items if isinstance(items, list) else ():
        if not isinstance(item, dict):
            continue
        clocks, mig = item.get("max_clocks"), item.get("mig")
        gpus.append(
            Gpu(
                index=len(gpus),
                name=_text(item.get("name")) or "unknown",
                nvml_error=as_integer(item.get("error_code")),
                compute_mode=_text(item.get("compute_mode")) or "",
                compute_processes=as_integer(item.get("compute_processes")),
                cc=_capability(item.get("cc")),
                memory_total=as_integer(item.get("memory_total")) or None,
                bus_id=_text(item.get("bus_id")),
                uuid=_text(item.get("uuid")),
                mig=mig if isinstance(mig, bool) else None,
                mig_devices=_texts(item.get("mig_devices")),
                mig_uuids=_texts(item.get("mig_uuids")),
                max_clocks=(clocks[0], clocks[1]) if _is_pair(clocks) else None,
                power_limit=as_integer(item.get("power_limit")),
                default_power_limit=as_integer(item.get("default_power_limit")),
            )
        )
    return tuple(gpus)


def cuda_level(number: object) -> str | None:
    """``13000`` -> ``13.0`` (CUDA driver API, cuDriverGetVersion)."""
    if not isinstance(number, int) or number <= 0:
        return None
    return f"{number // 1000}.{number % 1000 // 10}"


def as_integer(value: object) -> int | None:
    """None for what is none; True and False are numbers to Python."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _capability(pair: object) -> str | None:
    """``[12, 0]`` -> ``12.0``; None for what is no pair of numbers."""
    return f"{pair[0]}.{pair[1]}" if _is_pair(pair) else None


def _is_pair(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(isinstance(n, int) for n in value)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _gpu_of_row(row: list[str]) -> Gpu | None:
    if len(row) != len(_SMI_FIELDS.split(",")) or not row[0].isascii() or not row[0].isdigit():
        return None
    index, name, cc, _, total, bus, uuid = row
    # old drivers have no field for the capability, and the memory of a GB10, which is the machine's, is [N/A]
    mebibytes = captured(r"\A([0-9]{1,9})\Z", total)
    return Gpu(
        int(index),
        name,
        cc=captured(r"\A([0-9]{1,3}\.[0-9])\Z", cc) or None,
        memory_total=int(mebibytes) * 2**20 if mebibytes else None,
        bus_id=bus,
        uuid=uuid,
    )
