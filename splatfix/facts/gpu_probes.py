"""The roads to the GPUs other than NVML, each parsing one program's or file's own words; a miss says why."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import dataclass
from pathlib import Path

from splatfix.facts.model import Gpu
from splatfix.facts.system import System

_TIMEOUT = 8.0
_LIBCUDA_PROBE = Path(__file__).with_name("probe_cuda.py")
_SMI_FIELDS = "index,name,compute_cap,driver_version,memory.total,memory.free,pci.bus_id,uuid"
_WSL = "/usr/lib/wsl/lib"

# GPU of each Tegra chip (compat.md section 1); the device tree names the chip on every Jetson.
_TEGRA = {
    "tegra210": ("5.3", "Maxwell"),
    "tegra186": ("6.2", "Pascal"),
    "tegra194": ("7.2", "Volta"),
    "tegra234": ("8.7", "Ampere"),
    "tegra264": ("11.0", "Blackwell"),
}


@dataclass(frozen=True)
class Answer:
    """What one road showed; the parts it cannot know are None or empty."""

    via: str
    gpus: tuple[Gpu, ...] = ()
    cuda: str | None = None
    driver: str | None = None
    cuda_error: int | None = None


def libcuda(system: System, misses: list[str]) -> Answer | None:
    """Ask libcuda, loaded in a child of splatfix's own Python."""
    if system.name == "windows":
        names: tuple[str, ...] = ("nvcuda.dll",)
    elif system.exists(f"{_WSL}/libcuda.so.1"):
        names = (f"{_WSL}/libcuda.so.1", "libcuda.so.1")  # that folder may be off the loader's path
    else:
        names = ("libcuda.so.1",)
    failed: Answer | None = None
    for library in names:
        done = system.run([system.python, str(_LIBCUDA_PROBE), library], _TIMEOUT)
        reply = _object(done.stdout)
        if reply is None:
            misses.append(f"{library}: {done.why() or 'no readable answer'}")
        elif "error" in reply:
            misses.append(f"libcuda: {reply['error']}")
        elif reply.get("init") != 0:
            code = reply.get("init")
            misses.append(f"{library}: cuInit gives error {code}")
            failed = Answer(
                "libcuda",
                cuda=cuda_level(reply.get("cuda")),
                cuda_error=code if isinstance(code, int) else None,
            )
        else:
            return Answer("libcuda", _cuda_gpus(reply.get("gpus")), cuda_level(reply.get("cuda")))
    return failed


def nvidia_smi(system: System, misses: list[str]) -> Answer | None:
    """Ask nvidia-smi, WSL's own first."""
    programs = [f"{_WSL}/nvidia-smi"] if system.exists(f"{_WSL}/nvidia-smi") else []
    for program in [*programs, "nvidia-smi"]:
        done = system.run([program, f"--query-gpu={_SMI_FIELDS}", "--format=csv,noheader,nounits"], _TIMEOUT)
        if not done.ok:
            # its reason stands on stdout: "Failed to initialize NVML: Driver/library version mismatch"
            said = (
                next((line for line in done.stdout.splitlines() if line.strip()), "")
                if not done.error
                else ""
            )
            misses.append(f"nvidia-smi: {said.strip() or done.why()}")
            continue
        gpus, driver = [], None
        for row in csv.reader(io.StringIO(done.stdout), skipinitialspace=True):
            gpu = _smi_gpu([cell.strip() for cell in row])
            if gpu is None:
                misses.append(f"nvidia-smi: unexpected line {','.join(row)[:80]!r}")
            else:
                gpus.append(gpu)
                driver = row[3].strip()
        if gpus:
            return Answer("nvidia-smi", tuple(gpus), driver=driver)
    return None


def proc_files(system: System) -> Answer | None:
    """Read /proc/driver/nvidia/gpus/*/information, which the kernel module writes by itself."""
    base = "/proc/driver/nvidia/gpus"
    gpus: list[Gpu] = []
    for bus in system.listdir(base):
        text = system.read(f"{base}/{bus}/information") or ""
        model = re.search(r"^Model:\s*(\S.*?)\s*$", text, re.MULTILINE)
        uuid = re.search(r"^GPU UUID:\s*(\S+)", text, re.MULTILINE)
        if model:
            gpus.append(Gpu(len(gpus), model.group(1), bus_id=bus, uuid=uuid.group(1) if uuid else None))
    return Answer(base, tuple(gpus)) if gpus else None


def jetson(system: System) -> Answer | None:
    """A Tegra board's GPU by its device tree: integrated, on no PCI bus."""
    chips = (system.read("/proc/device-tree/compatible") or "").split("\0")
    chip = next((c.removeprefix("nvidia,") for c in chips if c.removeprefix("nvidia,") in _TEGRA), None)
    if chip is None:
        return None
    cc, family = _TEGRA[chip]
    return Answer("/proc/device-tree/compatible", (Gpu(0, f"{family} GPU of NVIDIA {chip}", cc=cc),))


def apple(system: System) -> Answer | None:
    """The GPUs of a Mac, as system_profiler tells them."""
    done = system.run(["system_profiler", "SPDisplaysDataType"], _TIMEOUT)
    gpus: list[Gpu] = []
    for block in re.split(r"^\s+Chipset Model:", done.stdout, flags=re.MULTILINE)[1:]:
        name = block.splitlines()[0].strip()
        vendor = next((v for v in ("AMD", "Intel", "NVIDIA") if v in name), "Apple").lower()
        shared = _sysctl_memory(system) if vendor == "apple" else None  # one memory for CPU and GPU
        gpus.append(Gpu(len(gpus), name, vendor, memory_total=shared, display="Online: Yes" in block))
    return Answer("system_profiler SPDisplaysDataType", tuple(gpus)) if gpus else None


def _sysctl_memory(system: System) -> int | None:
    match = re.search(r"hw\.memsize: ([0-9]{1,18})\b", system.run(["sysctl", *SYSCTL_NAMES], _TIMEOUT).stdout)
    return int(match.group(1)) if match else None


SYSCTL_NAMES = ("hw.memsize", "hw.logicalcpu", "machdep.cpu.brand_string")


def cuda_level(number: object) -> str | None:
    """``13000`` -> ``13.0`` (CUDA driver API, cuDriverGetVersion)."""
    return f"{number // 1000}.{number % 1000 // 10}" if isinstance(number, int) and number > 0 else None


def capability(pair: object) -> str | None:
    """``[12, 0]`` -> ``12.0``; None for what is no pair of numbers."""
    if isinstance(pair, (list, tuple)) and len(pair) == 2 and all(isinstance(n, int) for n in pair):
        return f"{pair[0]}.{pair[1]}"
    return None


def _object(text: str) -> dict[str, object] | None:
    try:
        reply = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return reply if isinstance(reply, dict) else None


def _cuda_gpus(items: object) -> tuple[Gpu, ...]:
    found: list[Gpu] = []
    for item in items if isinstance(items, list) else ():
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            continue
        memory, bus = item.get("memory_total"), item.get("bus_id")
        found.append(
            Gpu(
                len(found),
                item["name"],
                cc=capability(item.get("cc")),
                memory_total=memory if isinstance(memory, int) and memory > 0 else None,
                bus_id=bus if isinstance(bus, str) else None,
            )
        )
    return tuple(found)


def _smi_gpu(row: list[str]) -> Gpu | None:
    if len(row) != len(_SMI_FIELDS.split(",")) or not row[0].isascii() or not row[0].isdigit():
        return None
    index, name, cc, _, total, free, bus, uuid = row
    return Gpu(
        int(index),
        name,
        cc=cc
        if re.fullmatch(r"[0-9]{1,3}\.[0-9]", cc)
        else None,  # old drivers have no such field, GB10's memory is [N/A]
        memory_total=_mebibytes(total),
        memory_free=_mebibytes(free),
        bus_id=bus,
        uuid=uuid,
    )


def _mebibytes(text: str) -> int | None:
    return int(text) * 2**20 if re.fullmatch(r"[0-9]{1,9}", text) else None
