"""GPUs and the NVIDIA driver: NVML, libcuda, nvidia-smi, /proc, the device tree, the PCI bus."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from splatfix.core.codec import parse_json
from splatfix.facts.machine import adapters as pci
from splatfix.facts.model.fact import Fact, absent, unknown
from splatfix.facts.model.machine import CudaDevice, Driver, Gpu
from splatfix.facts.system.live import System
from splatfix.facts.system.parallel import Job

_LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
_TIMEOUT = 8.0
# cuInit wakes every GPU that no persistence daemon keeps awake, a second or two each.
_CUDA_TIMEOUT = 20.0
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_LIBCUDA_PROBE = Path(__file__).with_name("probe_cuda.py")
_SMI_FIELDS = "index,name,compute_cap,driver_version,memory.total,pci.bus_id,uuid"
_WSL = "/usr/lib/wsl/lib"
# GPU of each Tegra chip (compat.md section 1); the device tree names the chip on every Jetson.
_TEGRA = {
    "tegra210": ("5.3", "Maxwell"),
    "tegra186": ("6.2", "Pascal"),
    "tegra194": ("7.2", "Volta"),
    "tegra234": ("8.7", "Ampere"),
    "tegra264": ("11.0", "Blackwell"),
}
SYSCTL_NAMES = ("hw.memsize", "hw.logicalcpu", "machdep.cpu.brand_string")


@dataclass(frozen=True)
class Found:
    """The machine's GPUs and what drives them; see :class:`splatfix.facts.model.machine.MachineFacts`."""

    gpus: Fact[tuple[Gpu, ...]]
    driver: Fact[Driver]
    cuda: Fact[tuple[CudaDevice, ...]]
    cuda_unfiltered: Fact[tuple[CudaDevice, ...]] = dataclasses.field(default_factory=Fact)


def probe(system: System) -> Found:
    """GPUs and NVIDIA driver of a machine, and CUDA's own list.

    Order for the GPUs: NVML, then libcuda, then nvidia-smi, then /proc/driver/nvidia, then the device tree of a Jetson, then
    the PCI bus; the first that shows NVIDIA GPUs wins, and ``found_via`` names the misses. What it leaves open, the PCI bus
    fills in; cards that only the bus shows come from there too. An empty tuple means that every source was tried and no
    GPU is there; unknown means that something of NVIDIA's is there but nothing could be asked.

    libcuda is asked in any case, because NVML answers on many a machine where CUDA does not start.
    """
    if system.name == "darwin":
        return Found(*_of_a_mac(system), absent("no CUDA for macOS", "macOS"))
    on_bus = pci.cards(system)
    kernel = _kernel_module(system)
    nvidia_on_bus = any(card.vendor == "nvidia" for card in on_bus)
    traces = nvidia_on_bus or _anything_of_nvidia(system)
    asked = Job(lambda: libcuda(system)) if traces else None
    reply = system.nvml()
    nvml = _from_nvml(reply)
    misses = [f"NVML: {reply.get('error') or 'it shows no GPU'}"]
    if nvml is None and asked is None:
        via = "; ".join([*misses, "no NVIDIA device files, no NVIDIA card on the PCI bus"])
        nothing = absent("no NVIDIA driver on this machine", via)
        return Found(Fact(on_bus, via), nothing, nothing)
    by_cuda, cuda, why = asked.value() if asked else libcuda(system)
    if nvml is not None and (nvml.gpus or not nvidia_on_bus):
        known = dataclasses.replace(
            nvml,
            cuda=by_cuda.cuda if cuda.known else nvml.cuda or by_cuda.cuda,
            cuda_error=by_cuda.cuda_error,
        )
        driver = Fact(_driver(system, kernel, known, reply), _via("NVML", kernel))
        return Found(Fact(_completed(nvml.gpus, on_bus), "NVML"), driver, cuda, by_cuda.unfiltered)
    misses += why
    best = by_cuda if by_cuda.gpus else None
    best = best or nvidia_smi(system, misses) or proc_files(system) or jetson(system) or Answer("")
    known = dataclasses.replace(best, cuda=by_cuda.cuda, cuda_error=by_cuda.cuda_error)
    made = _driver(system, kernel, known, reply)
    # a libcuda tells its level without any driver loaded
    driver = (
        Fact(made, _via(known.via, kernel) or "libcuda")
        if made.version or (made.cuda and (known.gpus or _anything_of_nvidia(system)))
        else absent("no NVIDIA driver is loaded on this machine", "; ".join(misses))
    )
    gpus = _completed(known.gpus, on_bus)
    if any(gpu.vendor == "nvidia" for gpu in gpus):
        via = known.via if known.gpus else "; ".join([*misses, "/sys/bus/pci/devices"])
        return Found(Fact(gpus, via), driver, cuda, by_cuda.unfiltered)
    return Found(unknown("; ".join(misses)), driver, cuda, by_cuda.unfiltered)


def device_files(system: System) -> Fact[tuple[str, ...]]:
    """The driver's files in /dev."""
    if system.name != "linux":
        return unknown(f"{system.name} has none")
    return Fact(tuple(name for name in system.listdir("/dev") if name.startswith("nvidia")), "/dev")


def _of_a_mac(system: System) -> tuple[Fact[tuple[Gpu, ...]], Fact[Driver]]:
    gpus: list[Gpu] = []
    for name, _ in pci.mac_displays(system)[0]:
        vendor = next((v for v in ("AMD", "Intel", "NVIDIA") if v in name), "Apple").lower()
        shared = _sysctl_memory(system) if vendor == "apple" else None  # one memory for CPU and GPU
        gpus.append(Gpu(len(gpus), name, vendor, memory_total=shared))
    via = " ".join(pci.MAC_DISPLAYS)
    found: Fact[tuple[Gpu, ...]] = Fact(tuple(gpus), via) if gpus else unknown(f"{via} shows no GPU")
    return found, absent("no NVIDIA driver for macOS", "macOS")


def _from_nvml(reply: dict[str, Any]) -> Answer | None:
    """NVML's plain data (see :func:`splatfix.facts.machine.nvml.ask`) as GPUs; None when it gave none to read."""
    if "error" in reply or not isinstance(reply.get("gpus"), list):
        return None
    return Answer("NVML", _gpus(reply["gpus"]), cuda_level(reply.get("cuda")), _text(reply.get("driver")))


def _gpus(items: object) -> tuple[Gpu, ...]:
    """The GPUs that NVML or our libcuda probe told of; what is damaged of one is unknown."""
    gpus: list[Gpu] = []
    for item in items if isinstance(items, list) else ():
        if not isinstance(item, dict):
            continue
        clocks = item.get("max_clocks")
        gpus.append(
            Gpu(
                index=len(gpus),
                name=_text(item.get("name")) or "unknown",
                nvml_error=_whole(item.get("error_code")),
                compute_mode=_text(item.get("compute_mode")) or "",
                compute_processes=_whole(item.get("compute_processes")),
                cc=capability(item.get("cc")),
                memory_total=_whole(item.get("memory_total")) or None,
                bus_id=_text(item.get("bus_id")),
                uuid=_text(item.get("uuid")),
                mig=item["mig"] if isinstance(item.get("mig"), bool) else None,
                mig_devices=_texts(item.get("mig_devices")),
                mig_uuids=_texts(item.get("mig_uuids")),
                max_clocks=(clocks[0], clocks[1]) if _is_pair(clocks) else None,
                power_limit=_whole(item.get("power_limit")),
                default_power_limit=_whole(item.get("default_power_limit")),
            )
        )
    return tuple(gpus)


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
                pci_id=twin.pci_id,
                kernel_driver=twin.kernel_driver,
            )
        found.append(gpu)
    # what NVML gives no handle for is what is left on the bus with NVIDIA's driver; both count by bus
    lost = [place for place, gpu in enumerate(found) if gpu.nvml_error is not None]
    twins = [card for card in left if card.kernel_driver == "nvidia"]
    for place, twin in zip(lost, twins, strict=False) if len(lost) == len(twins) else ():
        left.remove(twin)
        found[place] = dataclasses.replace(
            twin, nvml_error=found[place].nvml_error, shown_by=found[place].shown_by
        )
    # a source without bus numbers (an old libcuda) already showed every NVIDIA card there is to use
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


def _via(source: str, kernel: tuple[str, bool | None] | None) -> str:
    said = "/proc/driver/nvidia/version" if kernel and kernel[1] is not None else "/sys/module/nvidia/version"
    return " and ".join(part for part in (source, said if kernel else "") if part)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass(frozen=True)
class Answer:
    """What one source showed; the parts it cannot know are None or empty."""

    via: str
    gpus: tuple[Gpu, ...] = ()
    cuda: str | None = None
    driver: str | None = None
    cuda_error: int | None = None
    unfiltered: Fact[tuple[CudaDevice, ...]] = dataclasses.field(default_factory=Fact)


def libcuda(system: System) -> tuple[Answer, Fact[tuple[CudaDevice, ...]], list[str]]:
    """What libcuda says, loaded in a child of splatfix's own Python; its devices in its own order; the misses on the way."""
    if system.name == "windows":
        names: tuple[str, ...] = ("nvcuda.dll",)
    elif system.exists(f"{_WSL}/libcuda.so.1"):
        names = (f"{_WSL}/libcuda.so.1", "libcuda.so.1")  # that folder may be off the loader's path
    else:
        names = ("libcuda.so.1",)
    misses: list[str] = []
    failed = Answer("libcuda")
    there = False
    for library in names:
        done = system.run([system.python, str(_LIBCUDA_PROBE), library], _CUDA_TIMEOUT)
        reply = _object(done.stdout)
        if reply is not None and "error" in reply:
            misses.append(f"libcuda: {reply['error']}")
            continue
        there = True
        if reply is None:
            misses.append(f"{library}: {done.why() or 'no readable answer'}")
            killed = done.returncode is not None and done.returncode < 0 and not done.error
            failed = Answer("libcuda", cuda_error=done.returncode) if killed else failed
        elif reply.get("init") != 0:
            code = _whole(reply.get("init"))
            misses.append(f"{library}: cuInit gives error {code}")
            level, every = cuda_level(reply.get("cuda")), Fact[tuple[CudaDevice, ...]]()
            if code == _NO_DEVICE and "CUDA_VISIBLE_DEVICES" in system.env:
                code, every = _unfiltered(system, library)
            failed = Answer("libcuda", cuda=level, cuda_error=code, unfiltered=every)
        else:
            gpus = _gpus(reply.get("gpus"))
            return Answer("libcuda", gpus, cuda_level(reply.get("cuda"))), _devices(gpus, library), misses
    why = "; ".join(misses)
    return failed, unknown(why) if there else absent(why, "the loader's search"), misses


def _devices(gpus: tuple[Gpu, ...], library: str) -> Fact[tuple[CudaDevice, ...]]:
    return Fact(tuple(CudaDevice(g.name, g.cc, g.memory_total, g.bus_id, g.uuid) for g in gpus), library)


def _unfiltered(system: System, library: str) -> tuple[int, Fact[tuple[CudaDevice, ...]]]:
    """What libcuda lists once CUDA_VISIBLE_DEVICES is taken away, and the code that is left to explain: that of no device
    where this helps, or could not be asked, else the one without the variable."""
    done = system.run([system.python, str(_LIBCUDA_PROBE), library, "--unfiltered"], _CUDA_TIMEOUT)
    reply = _object(done.stdout) or {}
    code = _whole(reply.get("init"))
    if code == 0:
        return _NO_DEVICE, _devices(_gpus(reply.get("gpus")), library)
    if code is None:
        return _NO_DEVICE, Fact()
    return code, unknown(f"cuInit gives error {code} without CUDA_VISIBLE_DEVICES too")


def nvidia_smi(system: System, misses: list[str]) -> Answer | None:
    """Ask nvidia-smi, WSL's own first."""
    programs = [f"{_WSL}/nvidia-smi"] if system.exists(f"{_WSL}/nvidia-smi") else []
    for program in [*programs, "nvidia-smi"]:
        done = system.run([program, f"--query-gpu={_SMI_FIELDS}", "--format=csv,noheader,nounits"], _TIMEOUT)
        if not done.ok:
            # its reason is on stdout: "Failed to initialize NVML: Driver/library version mismatch"
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
            gpus.append(
                Gpu(
                    len(gpus),
                    model.group(1),
                    bus_id=bus,
                    uuid=uuid.group(1) if uuid else None,
                    shown_by="kernel module",
                )
            )
    return Answer(base, tuple(gpus)) if gpus else None


def jetson(system: System) -> Answer | None:
    """A Tegra board's GPU by its device tree: integrated, on no PCI bus."""
    chips = (system.read("/proc/device-tree/compatible") or "").split("\0")
    chip = next((c.removeprefix("nvidia,") for c in chips if c.removeprefix("nvidia,") in _TEGRA), None)
    if chip is None:
        return None
    cc, family = _TEGRA[chip]
    return Answer("/proc/device-tree/compatible", (Gpu(0, f"{family} GPU of NVIDIA {chip}", cc=cc),))


def _sysctl_memory(system: System) -> int | None:
    match = re.search(r"hw\.memsize: ([0-9]{1,18})\b", system.run(["sysctl", *SYSCTL_NAMES], _TIMEOUT).stdout)
    return int(match.group(1)) if match else None


def cuda_level(number: object) -> str | None:
    """``13000`` -> ``13.0`` (CUDA driver API, cuDriverGetVersion)."""
    return f"{number // 1000}.{number % 1000 // 10}" if isinstance(number, int) and number > 0 else None


def capability(pair: object) -> str | None:
    """``[12, 0]`` -> ``12.0``; None for what is no pair of numbers."""
    return f"{pair[0]}.{pair[1]}" if _is_pair(pair) else None


def _is_pair(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(isinstance(n, int) for n in value)


def _object(text: str) -> dict[str, object] | None:
    try:
        reply = parse_json(text)
    except ValueError:
        return None
    return reply if isinstance(reply, dict) else None


def _smi_gpu(row: list[str]) -> Gpu | None:
    if len(row) != len(_SMI_FIELDS.split(",")) or not row[0].isascii() or not row[0].isdigit():
        return None
    index, name, cc, _, total, bus, uuid = row
    return Gpu(
        int(index),
        name,
        cc=cc
        if re.fullmatch(r"[0-9]{1,3}\.[0-9]", cc)
        else None,  # old drivers have no such field, GB10's memory is [N/A]
        memory_total=_mebibytes(total),
        bus_id=bus,
        uuid=uuid,
    )


def _mebibytes(text: str) -> int | None:
    return int(text) * 2**20 if re.fullmatch(r"[0-9]{1,9}", text) else None
