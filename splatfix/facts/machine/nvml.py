"""NVML: driver and GPUs as plain data, and a meter of what each GPU uses right now."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from splatfix.facts.system.parallel import within

_TIMEOUT = 10.0
PROC_GPUS = "/proc/driver/nvidia/gpus"
"""A folder for each GPU, by the kernel module."""
_WAKING = 4.0
"""Seconds for a GPU that no persistence daemon keeps awake: the driver initialises it anew whenever it is asked, one after the
other. Reports name one to four."""
_WSL_LIBRARY = "/usr/lib/wsl/lib/libnvidia-ml.so.1"
_LIBRARY_NOT_FOUND = 12
_SM, _MEMORY = 1, 2  # nvmlClockType_t
_UNCORRECTED, _VOLATILE = 1, 0  # nvmlMemoryErrorType_t, nvmlEccCounterType_t
# nvmlComputeMode_t: by thread (old), none, by process
_COMPUTE_MODES = {1: "exclusive", 2: "prohibited", 3: "exclusive"}


def for_all(seconds: float, gpus: int) -> float:
    """How long to wait for a driver with so many GPUs, where one GPU may take so many seconds."""
    return seconds + _WAKING * max(0, gpus - 1)


def _timeout() -> float:
    """Seconds until a driver that hangs (a GPU that fell off the bus) is given up."""
    return for_all(_TIMEOUT, len(list(Path(PROC_GPUS).glob("*"))))


def ask() -> dict[str, Any]:
    """NVML's answers, or the reason why it gave none.

    Returns:
        ``{"error": str, "error_code": int | None}`` when NVML could not be started; else ``driver`` (text), ``cuda`` (integer as
        ``cuDriverGetVersion`` gives it, e.g. 13000, or None) and ``gpus``: what :func:`_gpu` makes of each, None for what a card
        does not answer. A card that NVML gives no handle for has its ``index`` and NVML's ``error_code``.
    """
    answer = within(_timeout(), _ask)
    return answer.value or {"error": f"NVML: {answer.error}", "error_code": None}


def _ask() -> dict[str, Any]:
    nvml = _started()
    if isinstance(nvml, tuple):
        return dict(zip(("error", "error_code"), nvml, strict=True))
    try:
        return {
            "driver": nvml.ask("SystemGetDriverVersion"),
            "cuda": nvml.ask("SystemGetCudaDriverVersion_v2"),
            "gpus": [_gpu(nvml, index) for index in range(nvml.ask("DeviceGetCount") or 0)],
        }
    finally:
        nvml.ask("Shutdown")


def _library_is_there() -> bool:
    """What the binding would find when it starts, asked first: importing the binding costs a twentieth of a diagnosis. On WSL it
    may be off the loader's path; once it is loaded, the loader finds it by its name."""
    for name in ("libnvidia-ml.so.1", _WSL_LIBRARY):
        with contextlib.suppress(OSError):
            ctypes.CDLL(name)
            return True
    return sys.platform != "linux"


def _started() -> _Nvml | tuple[str, int]:
    """NVML, or why it does not start: in words, and its code."""
    if not _library_is_there():
        return "NVML Shared Library Not Found", _LIBRARY_NOT_FOUND
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return str(error), int(error.value)
    return _Nvml(pynvml)


class _Nvml:
    """The binding with NVML started."""

    def __init__(self, binding: Any) -> None:
        self.binding = binding

    def ask(self, call: str, *arguments: Any) -> Any:
        """The call's answer, or None for what this card or driver does not answer (NVML's own error)."""
        try:
            return getattr(self.binding, f"nvml{call}")(*arguments)
        except self.binding.NVMLError:
            return None

    def running(self, handle: Any, kind: str) -> Sequence[Any]:
        """The processes on a GPU. The binding's call without a number wants a driver as new as itself; the second form came
        with R450, the third with R510."""
        for form in ("v3", "v2"):
            processes: Sequence[Any] | None = self.ask(f"DeviceGet{kind}RunningProcesses_{form}", handle)
            if processes is not None:
                return processes
        return ()


def _gpu(nvml: _Nvml, index: int) -> dict[str, Any]:
    try:
        handle = nvml.binding.nvmlDeviceGetHandleByIndex(index)
    except nvml.binding.NVMLError as error:
        return {"index": index, "error_code": int(error.value)}
    mode = _COMPUTE_MODES.get(nvml.ask("DeviceGetComputeMode", handle) or 0)
    pci = nvml.ask("DeviceGetPciInfo", handle)
    mig = nvml.ask("DeviceGetMigMode", handle)
    remapped = nvml.ask("DeviceGetRemappedRows", handle)
    pending, failed = (None, None) if remapped is None else map(bool, remapped[2:4])
    clocks = [nvml.ask("DeviceGetMaxClockInfo", handle, kind) for kind in (_SM, _MEMORY)]
    is_mig = bool(mig[0]) if mig else None
    processes, instances = None, []
    for place in range(nvml.ask("DeviceGetMaxMigDeviceCount", handle) or 0) if is_mig else ():
        instance = nvml.ask("DeviceGetMigDeviceHandleByIndex", handle, place)
        # no instance where the place is free; a name is as NVIDIA A100-SXM4-40GB MIG 1g.5gb
        if name := instance and nvml.ask("DeviceGetName", instance):
            instances.append((name, nvml.ask("DeviceGetUUID", instance) or ""))
    # asked only where one more program would be refused
    if mode == "exclusive":
        processes = len(nvml.running(handle, "Compute"))
    return {
        "index": index,
        "name": nvml.ask("DeviceGetName", handle),
        "cc": list(nvml.ask("DeviceGetCudaComputeCapability", handle) or ()) or None,
        "memory_total": _number(nvml.ask("DeviceGetMemoryInfo", handle), "total"),
        "bus_id": getattr(pci, "busId", None),
        "uuid": nvml.ask("DeviceGetUUID", handle),
        "max_clocks": None if None in clocks else clocks,
        "power_limit": nvml.ask("DeviceGetEnforcedPowerLimit", handle),
        "default_power_limit": nvml.ask("DeviceGetPowerManagementDefaultLimit", handle),
        "compute_mode": mode,
        "compute_processes": processes,
        "uncorrected_errors": nvml.ask("DeviceGetTotalEccErrors", handle, _UNCORRECTED, _VOLATILE),
        "remap_pending": pending,
        "remap_failed": failed,
        "mig": is_mig,
        "mig_devices": [name for name, _ in instances],
        "mig_uuids": [uuid for _, uuid in instances],
    }


def _number(answer: Any, name: str) -> int | None:
    value = getattr(answer, name, None)
    return None if value is None else int(value)


class GpuUse(Struct, frozen=True):
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
    uuid: str | None = None


class NvmlMeter:
    """NVML, started once and asked many times."""

    def __init__(self) -> None:
        self._timeout = _timeout()
        self._nvml: _Nvml | None = None
        self.problem = ""
        """Why nothing can be measured, in words; "" when it can."""
        started = within(self._timeout, _started)
        if isinstance(started.value, _Nvml):
            self._nvml = started.value
        else:
            self.problem = f"NVML: {started.value[0]}" if started.value else started.error

    def read(self) -> tuple[GpuUse, ...]:
        """Every GPU now; () where nothing can be measured. A driver that stops answering is not asked again."""
        if self.problem:
            return ()
        gpus = within(self._timeout, self._read)
        if gpus.value is None:
            self.problem = f"NVML: {gpus.error}"
        return gpus.value or ()

    def _read(self) -> tuple[GpuUse, ...]:
        assert self._nvml is not None
        nvml, gpus = self._nvml, []
        for index in range(nvml.ask("DeviceGetCount") or 0):
            handle = nvml.ask("DeviceGetHandleByIndex", index)
            if handle is None:
                gpus.append(GpuUse(index, "unknown", None, None, None, {}))
                continue
            memory = nvml.ask("DeviceGetMemoryInfo", handle)
            processes: dict[int, int | None] = {}
            # a process that computes and draws is in both lists with the same figure
            for kind in ("Compute", "Graphics"):
                for item in nvml.running(handle, kind):
                    processes[int(item.pid)] = _number(item, "usedGpuMemory")
            name, uuid = nvml.ask("DeviceGetName", handle) or "unknown", nvml.ask("DeviceGetUUID", handle)
            total, used = _number(memory, "total"), _number(memory, "used")
            utilisation = _number(nvml.ask("DeviceGetUtilizationRates", handle), "gpu")
            gpus.append(GpuUse(index, name, total, used, utilisation, processes, uuid))
        return tuple(gpus)
