"""A machine's GPUs and its NVIDIA driver, put together from all who can list them."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from splatfix.core.codec import fitting, json_object
from splatfix.core.runner import Completed
from splatfix.facts.machine import adapters, mac
from splatfix.facts.machine.libraries import system_folders
from splatfix.facts.machine.nvml import PROC_GPUS, for_all
from splatfix.facts.system.live import System, captured, whole_number
from splatfix.facts.system.parallel import Job
from splatfix.facts.tables import TABLES
from splatfix.model import CudaDevice, Driver, Fact, Gpu, absent, unknown

_PROC_VERSION, _SYS_VERSION = "/proc/driver/nvidia/version", "/sys/module/nvidia/version"
_VERSION = r"[0-9]{3,4}\.[0-9]{1,4}(?:\.[0-9]{1,4})?"
_CUDA_TIMEOUT = 20.0
# A child of splatfix's own Python runs it: a damaged driver may crash or hang whoever loads libcuda.
_CUDA_PROBE = Path(__file__).with_name("probe_cuda.py")
_CUDA_ON_WSL = "/usr/lib/wsl/lib/libcuda.so.1"
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_DEVICE_TREE = "/proc/device-tree/compatible"


class GpuFacts(Struct, frozen=True):
    """The machine's GPUs and what drives them; see :class:`splatfix.model.machine.MachineFacts`."""

    gpus: Fact[tuple[Gpu, ...]]
    driver: Fact[Driver]
    cuda: Fact[tuple[CudaDevice, ...]]
    cuda_unfiltered: Fact[tuple[CudaDevice, ...]] = Fact()


class _Listing(Struct, frozen=True):
    """What NVML, or CUDA itself, says of GPUs and driver; what it cannot know is None."""

    gpus: tuple[Gpu, ...] = ()
    miss: str = ""
    """Why it was asked in vain; "" where it answered."""
    version: str | None = None
    """Of the driver's user-mode library."""
    level: str | None = None
    """Highest CUDA level of the driver, such as ``13.0``; a libcuda tells it without any driver loaded."""
    code: int | None = None
    """NVML's or ``cuInit``'s, or the negative number of the signal that ended the child that asked; None when it started."""
    devices: Fact[tuple[CudaDevice, ...]] = Fact()
    """In CUDA's own order. Absent: no libcuda that the loader takes; unknown: it did not start, or did not answer."""
    unfiltered: Fact[tuple[CudaDevice, ...]] = Fact()
    """The devices without CUDA_VISIBLE_DEVICES, asked where there is none with it."""


class _Answer(Struct, frozen=True):
    """What NVML and our libcuda probe tell; ``cc`` and ``error_code`` also of each GPU."""

    error: str = ""
    driver: str | None = None
    cuda: int | None = None
    """As ``cuDriverGetVersion`` gives it: 12090."""
    init: int | None = None
    """``cuInit``'s code."""
    error_code: int | None = None
    cc: tuple[int, int] | None = None
    gpus: tuple[dict[str, Any], ...] | None = None


def probe(system: System) -> GpuFacts:
    """GPUs and NVIDIA driver of a machine, and CUDA's own list.

    Order for the GPUs: NVML (which is what nvidia-smi asks), then libcuda, then /proc/driver/nvidia, then the device tree of
    a Jetson, then the PCI bus; the first that shows NVIDIA GPUs wins, and ``found_via`` names the misses. What it leaves open,
    the PCI bus fills in; cards that only the bus shows come from there too. An empty tuple means that every source was tried
    and no GPU is there; unknown means that something of NVIDIA's is there but nothing could be asked.

    libcuda is asked in any case, because NVML answers on many a machine where CUDA does not start.
    """
    if system.name == "darwin":
        return _of_a_mac(system)
    on_bus = adapters.cards(system)
    nvidia_on_bus = any(card.vendor == "nvidia" for card in on_bus)
    has_traces = system.name == "windows" or any(system.exists(path) for path in TABLES["driver_traces"])
    is_likely = nvidia_on_bus or has_traces
    # under way while NVML is asked: each takes seconds on a machine whose GPUs sleep
    cuda_job = Job(lambda: _ask_cuda(system) if is_likely else None)
    nvml = _of_nvml(system.nvml())
    if nvml.miss and not is_likely:
        via = f"{nvml.miss}; no NVIDIA device files, no NVIDIA card on the PCI bus"
        no_driver = absent("no NVIDIA driver on this machine", via)
        return GpuFacts(Fact(on_bus, via), no_driver, no_driver)
    cuda: _Listing = cuda_job.value() or _ask_cuda(system)
    by_nvml = not nvml.miss and bool(nvml.gpus or not nvidia_on_bus)
    shown, via, misses = nvml.gpus, "NVML", ""
    if not by_nvml:
        misses = "; ".join(filter(None, (nvml.miss or "NVML: it shows no GPU", cuda.miss)))
        others = {"libcuda": cuda.gpus, PROC_GPUS: _of_proc_files(system), _DEVICE_TREE: _of_jetson(system)}
        via, shown = next(((via, gpus) for via, gpus in others.items() if gpus), ("", ()))
    version, is_open, module_via = _kernel_module(system)
    level = cuda.level
    # what CUDA says of its level counts: a forward-compatibility package raises it above NVML's
    if not cuda.devices.known and nvml.level:
        level = nvml.level
    driver = Driver(
        version=version or nvml.version,
        cuda=level,
        open_module=is_open,
        library_version=nvml.version or _version_of_library(system),
        nvml_error=nvml.code,
        cuda_error=cuda.code,
    )
    # a libcuda tells its level without any driver loaded: in an image with CUDA, on a machine without a GPU
    if not by_nvml and not driver.version and not (driver.cuda and (shown or has_traces)):
        driver_fact = absent("no NVIDIA driver is loaded on this machine", misses)
    else:
        driver_fact = Fact(driver, " and ".join(filter(None, (via, module_via))) or "libcuda")
    gpus = _completed(shown, cuda.gpus, on_bus)
    gpu_fact = Fact(gpus, via or f"{misses}; {adapters.DEVICES}")
    if not by_nvml and not any(gpu.vendor == "nvidia" for gpu in gpus):
        gpu_fact = unknown(misses)
    return GpuFacts(gpu_fact, driver_fact, cuda.devices, cuda.unfiltered)


def for_all_gpus(system: System, seconds: float) -> float:
    """A time limit for what asks all GPUs of the machine, where one may take so many seconds."""
    return for_all(seconds, len(system.listdir(PROC_GPUS)))


def device_files(system: System) -> Fact[tuple[str, ...]]:
    """The driver's files in /dev."""
    return Fact(tuple(name for name in system.listdir("/dev") if name.startswith("nvidia")), "/dev")


def _of_a_mac(system: System) -> GpuFacts:
    via = " ".join(mac.DISPLAYS)
    gpus: list[Gpu] = []
    for name, _ in mac.displays(system)[0]:
        vendor = next((vendor for vendor in ("AMD", "Intel", "NVIDIA") if vendor in name), "Apple").lower()
        memory = None
        if vendor == "apple":  # CPU and GPU share it
            memory = whole_number(mac.sysctl(system).get("hw.memsize"))
        gpus.append(Gpu(len(gpus), name, vendor, memory_total=memory))
    shown = Fact(tuple(gpus), via)
    if not gpus:
        shown = unknown(f"{via} shows no GPU")
    no_cuda = absent("no CUDA for macOS", "macOS")
    return GpuFacts(shown, absent("no NVIDIA driver for macOS", "macOS"), no_cuda)


def _version_of_library(system: System) -> str | None:
    """The version in the real file name of the installed user-mode driver: ``libcuda.so.575.57.08``."""
    # not where the loader would find a forward-compatibility package first
    paths = [f"{folder}/libcuda.so.1" for folder in system_folders(system)]
    # a link to the file of the version, as NVIDIA's installer and all distributions make it
    real_paths = (system.realpath(path) for path in paths if system.exists(path))
    return next(filter(None, (captured(rf"\.so\.({_VERSION})$", path) for path in real_paths)), None)


def _kernel_module(system: System) -> tuple[str, bool | None, str]:
    """Version of the loaded kernel module, whether it is the open one, and the file that says so; "" where none is loaded."""
    text = system.read(_PROC_VERSION) or ""
    line = re.search(rf"^NVRM version:.*?\s({_VERSION})(?!\S).*", text, re.MULTILINE)
    if line:
        return line[1], "Open Kernel Module" in line[0], _PROC_VERSION
    version = (system.read(_SYS_VERSION) or "").strip()
    if re.fullmatch(_VERSION, version):
        return version, None, _SYS_VERSION  # which is silent on openness
    return "", None, ""


def _of_nvml(reply: dict[str, Any]) -> _Listing:
    """NVML's plain data (see :func:`splatfix.facts.machine.nvml.ask`) as GPUs."""
    answer = fitting(_Answer, reply)
    if answer.error or answer.gpus is None:
        return _Listing(miss=f"NVML: {answer.error or 'it shows no GPU'}", code=answer.error_code)
    return _Listing(_decoded(answer.gpus), version=answer.driver or None, level=_level(answer.cuda))


def _of_proc_files(system: System) -> tuple[Gpu, ...]:
    """Read /proc/driver/nvidia/gpus/*/information, which the kernel module writes by itself."""
    gpus: list[Gpu] = []
    for bus in system.listdir(PROC_GPUS):
        text = system.read(f"{PROC_GPUS}/{bus}/information") or ""
        values = dict(re.findall(r"^(Model|GPU UUID):\s*(\S.*?)\s*$", text, re.MULTILINE))
        if "Model" in values:
            uuid = values.get("GPU UUID", "").partition(" ")[0] or None
            gpus.append(Gpu(len(gpus), values["Model"], bus_id=bus, uuid=uuid, shown_by="kernel module"))
    return tuple(gpus)


def _of_jetson(system: System) -> tuple[Gpu, ...]:
    """A Tegra board's GPU by its device tree: integrated, on no PCI bus."""
    for name in (system.read(_DEVICE_TREE) or "").split("\0"):
        chip = name.removeprefix("nvidia,")
        if chip in TABLES["tegra"]:
            cc, family = TABLES["tegra"][chip]
            return (Gpu(0, f"{family} GPU of NVIDIA {chip}", cc=cc),)
    return ()


def _ask_cuda(system: System) -> _Listing:
    library = "nvcuda.dll" if system.name == "windows" else "libcuda.so.1"
    if system.exists(_CUDA_ON_WSL):
        library = _CUDA_ON_WSL  # its folder may be off the loader's path

    def ask(*options: str) -> tuple[_Answer, Completed]:
        argv = [system.python, str(_CUDA_PROBE), library, *options]
        done = system.run(argv, for_all_gpus(system, _CUDA_TIMEOUT))
        return fitting(_Answer, json_object(done.stdout)), done

    answer, done = ask()
    level, code = _level(answer.cuda), answer.init
    if answer.error:
        reason = f"libcuda: {answer.error}"
        return _Listing(miss=reason, devices=absent(reason, "the loader's search"))
    if code is None:
        reason = f"{library}: {done.why() or 'no readable answer'}"
        if done.returncode is not None and done.returncode < 0:
            code = done.returncode  # of the signal that ended it
        return _Listing(miss=reason, devices=unknown(reason), code=code)
    if code == 0:
        gpus = _decoded(answer.gpus)
        return _Listing(gpus, level=level, devices=_devices(gpus, library))
    reason = f"{library}: cuInit gives error {code}"
    unfiltered: Fact[tuple[CudaDevice, ...]] = Fact()
    if code == _NO_DEVICE and "CUDA_VISIBLE_DEVICES" in system.env:
        # the code that is left to explain is that of no device where taking the variable away helps, or could not be
        # asked, else the one without it
        other, _ = ask("--unfiltered")
        if other.init == 0:
            unfiltered = _devices(_decoded(other.gpus), library)
        elif other.init is not None:
            code = other.init
            unfiltered = unknown(f"cuInit gives error {code} without CUDA_VISIBLE_DEVICES too")
    return _Listing((), reason, None, level, code, unknown(reason), unfiltered)


def _devices(gpus: tuple[Gpu, ...], library: str) -> Fact[tuple[CudaDevice, ...]]:
    devices = (CudaDevice(gpu.name, gpu.cc, gpu.memory_total, gpu.bus_id, gpu.uuid) for gpu in gpus)
    return Fact(tuple(devices), library)


def _decoded(items: Iterable[dict[str, Any]] | None) -> tuple[Gpu, ...]:
    """The GPUs that NVML or our libcuda probe told of; what is damaged of one is unknown."""
    gpus = []
    for index, item in enumerate(items or ()):
        gpu, other = fitting(Gpu, item, index=0, name=""), fitting(_Answer, item)
        cc = ".".join(map(str, other.cc or ())) or None
        size = gpu.memory_total or None
        gpu = replace(gpu, index=index, name=gpu.name or "unknown", cc=cc, memory_total=size)
        gpus.append(replace(gpu, nvml_error=other.error_code))
    return tuple(gpus)


def _level(number: int | None) -> str | None:
    """``13000`` -> ``13.0`` (CUDA driver API, cuDriverGetVersion)."""
    if number is None or number <= 0:
        return None
    return f"{number // 1000}.{number % 1000 // 10}"


def _completed(gpus: tuple[Gpu, ...], of_cuda: tuple[Gpu, ...], on_bus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Add to the GPUs that a driver showed what CUDA and the PCI bus know of them, and the cards that only the bus shows."""
    # NVML gives none for a GPU that has the machine's memory (GB10); a MIG instance has a UUID of its own
    sizes = {device.uuid: device.memory_total for device in of_cuda if device.uuid}
    bus_only = list(on_bus)
    completed: list[Gpu] = []
    for gpu in gpus:
        gpu = replace(gpu, memory_total=gpu.memory_total or sizes.get(gpu.uuid or ""))
        twin = next((card for card in bus_only if adapters.same_bus(card.bus_id, gpu.bus_id)), None)
        if twin is not None:
            bus_only.remove(twin)
            known_cc = gpu.cc or twin.cc
            gpu = replace(gpu, cc=known_cc, pci_id=twin.pci_id, kernel_driver=twin.kernel_driver)
        completed.append(gpu)
    # NVML names no bus for the GPUs that it gives no handle for, but counts in the bus's order; where the numbers differ,
    # nobody can tell which is which
    lost = [index for index, gpu in enumerate(completed) if gpu.nvml_error is not None]
    twins = [card for card in bus_only if card.kernel_driver == "nvidia"]
    if len(lost) == len(twins):
        for index, twin in zip(lost, twins, strict=True):
            bus_only.remove(twin)
            gpu = completed[index]
            completed[index] = replace(twin, nvml_error=gpu.nvml_error, shown_by=gpu.shown_by)
    # a source without bus numbers (an old libcuda) already showed every NVIDIA card there is to use
    if any(gpu.vendor == "nvidia" and gpu.bus_id is None for gpu in gpus):
        bus_only = [card for card in bus_only if card.vendor != "nvidia"]
    # NVIDIA's first, so that a processor's own graphics does not take CUDA's number 0
    ordered = sorted([*completed, *bus_only], key=lambda gpu: gpu.vendor != "nvidia")
    return tuple(replace(gpu, index=index) for index, gpu in enumerate(ordered))
