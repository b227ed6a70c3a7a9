"""What libcuda says, asked in a child of splatfix's own Python: a damaged driver may crash or hang whoever loads it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from splatfix.core.codec import parse_json
from splatfix.facts.machine.gpu_sources import as_integer, cuda_level, decode_gpus
from splatfix.facts.model.fact import Fact, absent, unknown
from splatfix.facts.model.machine import CudaDevice, Gpu
from splatfix.facts.system.live import System

# cuInit wakes every GPU that no persistence daemon keeps awake, a second or two each.
_TIMEOUT = 20.0
_PROBE = Path(__file__).with_name("probe_cuda.py")
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_WSL_LIBRARY = "/usr/lib/wsl/lib/libcuda.so.1"


@dataclass(frozen=True)
class CudaAnswer:
    """What CUDA itself lists, and how it started."""

    devices: Fact[tuple[CudaDevice, ...]]
    """In CUDA's own order. Absent: no libcuda that the loader takes; unknown: it did not start, or did not answer."""
    gpus: tuple[Gpu, ...] = ()
    """The same as GPUs, for machines on which nothing else lists them."""
    level: str | None = None
    """Highest CUDA level of the driver, such as ``13.0``; a libcuda tells it without any driver loaded."""
    error_code: int | None = None
    """``cuInit``'s code, or the negative number of the signal that ended the child; None when it started."""
    unfiltered: Fact[tuple[CudaDevice, ...]] = field(default_factory=Fact)
    """The devices without CUDA_VISIBLE_DEVICES, asked where there is none with it."""
    misses: tuple[str, ...] = ()
    """What did not work on the way."""


def ask(system: System) -> CudaAnswer:
    """Ask the first libcuda that can be loaded."""
    misses: list[str] = []
    failed = CudaAnswer(Fact())
    is_there = False
    for library in _libraries(system):
        done = system.run([system.python, str(_PROBE), library], _TIMEOUT)
        reply = _json_object(done.stdout)
        if reply is not None and "error" in reply:
            misses.append(f"libcuda: {reply['error']}")
            continue
        is_there = True
        if reply is None:
            misses.append(f"{library}: {done.why() or 'no readable answer'}")
            if done.returncode is not None and done.returncode < 0 and not done.error:
                failed = CudaAnswer(Fact(), error_code=done.returncode)
            continue
        level = cuda_level(reply.get("cuda"))
        if reply.get("init") == 0:
            gpus = decode_gpus(reply.get("gpus"))
            return CudaAnswer(_devices(gpus, library), gpus, level, misses=tuple(misses))
        code = as_integer(reply.get("init"))
        misses.append(f"{library}: cuInit gives error {code}")
        unfiltered: Fact[tuple[CudaDevice, ...]] = Fact()
        if code == _NO_DEVICE and "CUDA_VISIBLE_DEVICES" in system.env:
            code, unfiltered = _ask_unfiltered(system, library)
        failed = CudaAnswer(Fact(), level=level, error_code=code, unfiltered=unfiltered)
    reason = "; ".join(misses)
    devices = unknown(reason) if is_there else absent(reason, "the loader's search")
    return replace(failed, devices=devices, misses=tuple(misses))


def _libraries(system: System) -> tuple[str, ...]:
    if system.name == "windows":
        return ("nvcuda.dll",)
    if system.exists(_WSL_LIBRARY):
        return (_WSL_LIBRARY, "libcuda.so.1")  # WSL's folder may be off the loader's path
    return ("libcuda.so.1",)


def _ask_unfiltered(system: System, library: str) -> tuple[int, Fact[tuple[CudaDevice, ...]]]:
    """What libcuda lists once CUDA_VISIBLE_DEVICES is taken away, and the code that is left to explain: that of no device
    where this helps, or could not be asked, else the one without the variable."""
    done = system.run([system.python, str(_PROBE), library, "--unfiltered"], _TIMEOUT)
    reply = _json_object(done.stdout) or {}
    code = as_integer(reply.get("init"))
    if code is None:
        return _NO_DEVICE, Fact()
    if code == 0:
        return _NO_DEVICE, _devices(decode_gpus(reply.get("gpus")), library)
    return code, unknown(f"cuInit gives error {code} without CUDA_VISIBLE_DEVICES too")


def _devices(gpus: tuple[Gpu, ...], library: str) -> Fact[tuple[CudaDevice, ...]]:
    devices = (CudaDevice(gpu.name, gpu.cc, gpu.memory_total, gpu.bus_id, gpu.uuid) for gpu in gpus)
    return Fact(tuple(devices), library)


def _json_object(text: str) -> dict[str, object] | None:
    try:
        reply = parse_json(text)
    except ValueError:
        return None
    return reply if isinstance(reply, dict) else None
