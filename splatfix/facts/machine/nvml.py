"""NVML: driver and GPUs as plain data, and a meter of what each GPU uses right now."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from splatfix.facts.system.parallel import within

_TIMEOUT = 10.0
_WSL_LIBRARY = "/usr/lib/wsl/lib/libnvidia-ml.so.1"
_LIBRARY_NOT_FOUND = 12
_SM, _MEMORY = 1, 2  # nvmlClockType_t
# nvmlComputeMode_t: by thread (old), none, by process
_COMPUTE_MODES = {1: "exclusive", 2: "prohibited", 3: "exclusive"}


def ask(timeout: float = _TIMEOUT) -> dict[str, Any]:
    """NVML's answers, or the reason why it gave none.

    Args:
        timeout: seconds until a driver that hangs (a GPU that fell off the bus) is given up.

    Returns:
        ``{"error": str, "error_code": int | None}`` when NVML could not be started; else ``driver`` (text), ``cuda``
        (integer as ``cuDriverGetVersion`` gives it, e.g. 13000, or None) and ``gpus``, a list of ``index``, ``name``,
        ``cc`` ([major, minor]), ``memory_total`` (bytes), ``bus_id``, ``uuid``, ``max_clocks`` ([SM, memory] in MHz),
        ``power_limit`` and ``default_power_limit`` (mW), ``compute_mode`` and ``compute_processes``, ``mig``,
        ``mig_devices`` (names) and ``mig_uuids``; what a card does not answer is None. A card that NVML gives no handle for
        has its ``index`` and NVML's ``error_code``.
    """
    answer = within(timeout, _ask)
    return answer.value or {"error": f"NVML: {answer.error}", "error_code": None}


def _library_is_there() -> bool:
    """What the binding would find when it starts: asked first, because importing the binding costs a twentieth
    of a diagnosis on a machine that has no NVIDIA driver at all."""
    if sys.platform != "linux" or "pynvml" in sys.modules:
        return True
    for name in ("libnvidia-ml.so.1", _WSL_LIBRARY):
        with contextlib.suppress(OSError):
            ctypes.CDLL(name)
            return True
    return False


def _ask() -> dict[str, Any]:
    if not _library_is_there():
        return {"error": "NVML Shared Library Not Found", "error_code": _LIBRARY_NOT_FOUND}
    import pynvml

    try:
        start_nvml(pynvml)
    except pynvml.NVMLError as error:
        return {"error": str(error), "error_code": int(error.value)}
    try:
        return {
            "driver": as_text(attempt(pynvml, pynvml.nvmlSystemGetDriverVersion)),
            "cuda": attempt(pynvml, pynvml.nvmlSystemGetCudaDriverVersion_v2),
            "gpus": [_gpu(pynvml, index) for index in range(attempt(pynvml, pynvml.nvmlDeviceGetCount) or 0)],
        }
    finally:
        pynvml.nvmlShutdown()


def start_nvml(pynvml: Any) -> None:
    """Start NVML; on WSL its library may be off the loader's path; it is then loaded by its full path first."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if int(error.value) != _LIBRARY_NOT_FOUND:
            raise
        try:
            ctypes.CDLL(_WSL_LIBRARY)  # once it is loaded, the loader finds it by its name
        except OSError:
            raise error from None
        pynvml.nvmlInit()


def _gpu(pynvml: Any, index: int) -> dict[str, Any]:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        return {"index": index, "error_code": int(error.value)}
    memory = attempt(pynvml, pynvml.nvmlDeviceGetMemoryInfo, handle)
    mode = _COMPUTE_MODES.get(attempt(pynvml, pynvml.nvmlDeviceGetComputeMode, handle) or 0)
    pci = attempt(pynvml, pynvml.nvmlDeviceGetPciInfo, handle)
    cc = attempt(pynvml, pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    mig = attempt(pynvml, pynvml.nvmlDeviceGetMigMode, handle)
    clocks = [attempt(pynvml, pynvml.nvmlDeviceGetMaxClockInfo, handle, kind) for kind in (_SM, _MEMORY)]
    is_mig = bool(mig[0]) if mig else None
    instances = _mig_devices(pynvml, handle) if is_mig else []
    running = _running(pynvml, handle, "Compute") if mode == "exclusive" else None
    return {
        "index": index,
        "name": as_text(attempt(pynvml, pynvml.nvmlDeviceGetName, handle)),
        "cc": list(cc or ()) or None,
        "memory_total": _number(memory, "total"),
        "bus_id": as_text(pci.busId) if pci else None,
        "uuid": as_text(attempt(pynvml, pynvml.nvmlDeviceGetUUID, handle)),
        "max_clocks": None if None in clocks else clocks,
        "power_limit": attempt(pynvml, pynvml.nvmlDeviceGetEnforcedPowerLimit, handle),
        "default_power_limit": attempt(pynvml, pynvml.nvmlDeviceGetPowerManagementDefaultLimit, handle),
        "compute_mode": mode,
        "compute_processes": None if running is None else len(running),
        "mig": is_mig,
        "mig_devices": [name for name, _ in instances],
        "mig_uuids": [uuid for _, uuid in instances],
    }


def _mig_devices(pynvml: Any, handle: Any) -> list[tuple[str, str]]:
    """Name (``NVIDIA A100-SXM4-40GB MIG 1g.5gb``) and UUID of each instance that a card is cut into."""
    instances = []
    for index in range(attempt(pynvml, pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        instance = attempt(pynvml, pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        if instance is None:  # a number that is free
            continue
        name = as_text(attempt(pynvml, pynvml.nvmlDeviceGetName, instance))
        uuid = as_text(attempt(pynvml, pynvml.nvmlDeviceGetUUID, instance))
        if name:
            instances.append((name, uuid or ""))
    return instances


def attempt(pynvml: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """The call's answer, or None for what this card or driver does not answer (NVML's own error)."""
    try:
        return call(*arguments)
    except pynvml.NVMLError:
        return None


def _number(answer: Any, name: str) -> int | None:
    """One number of a record that NVML fills; None where it did not answer."""
    return None if answer is None else int(getattr(answer, name))


def as_text(value: Any) -> str | None:
    """Older bindings answer in bytes, newer ones in text."""
    if value is None:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


@dataclass(frozen=True)
class GpuUse:
    """One GPU at one moment; what the driver does not answer is None.

    ``processes`` maps process ids to bytes; a process whose share the driver hides (Windows, WSL) maps to None.
    """

    index: int
    name: str
    total: int | None
    used: int | None
    utilisation: int | None
    """Per cent of the last sampling period in which a kernel ran."""
    processes: dict[int, int | None]


class GpuMeter(Protocol):
    """The seam to NVML; tests hand in recorded answers."""

    def read(self) -> tuple[GpuUse, ...]:
        """Every GPU now; () where nothing can be measured."""

    @property
    def problem(self) -> str:
        """Why nothing can be measured, in words; "" when it can."""


class NvmlMeter:
    """NVML, started once and asked many times."""

    def __init__(self, timeout: float = _TIMEOUT) -> None:
        self._timeout = timeout
        self._nvml: Any = None
        started = within(timeout, self._start)
        self.problem = started.error or started.value or ""

    def read(self) -> tuple[GpuUse, ...]:
        """See :class:`GpuMeter`. A driver that stops answering is not asked again."""
        if self.problem:
            return ()
        gpus = within(self._timeout, self._read)
        if gpus.value is None:
            self.problem = f"NVML: {gpus.error}"
            return ()
        return gpus.value

    def _start(self) -> str:
        import pynvml

        try:
            start_nvml(pynvml)
        except pynvml.NVMLError as error:
            return f"NVML: {error}"
        self._nvml = pynvml
        return ""

    def _read(self) -> tuple[GpuUse, ...]:
        count = attempt(self._nvml, self._nvml.nvmlDeviceGetCount) or 0
        return tuple(_gpu_use(self._nvml, index) for index in range(count))


def _gpu_use(nvml: Any, index: int) -> GpuUse:
    handle = attempt(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return GpuUse(index, "unknown", None, None, None, {})
    memory = attempt(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    rates = attempt(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    processes: dict[int, int | None] = {}
    # A process that computes and draws is in both lists with the same figure.
    for kind in ("Compute", "Graphics"):
        for item in _running(nvml, handle, kind):
            processes[int(item.pid)] = None if item.usedGpuMemory is None else int(item.usedGpuMemory)
    return GpuUse(
        index,
        as_text(attempt(nvml, nvml.nvmlDeviceGetName, handle)) or "unknown",
        _number(memory, "total"),
        _number(memory, "used"),
        _number(rates, "gpu"),
        processes,
    )


def _running(nvml: Any, handle: Any, kind: str) -> Sequence[Any]:
    """The processes on a GPU. The binding's call without a number wants a driver as new as itself; the second form came with
    R450, the third with R510."""
    for form in ("v3", "v2"):
        processes: Sequence[Any] | None = attempt(
            nvml, getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses_{form}"), handle
        )
        if processes is not None:
            return processes
    return ()
