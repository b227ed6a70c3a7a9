"""Asks NVML about driver and GPUs and gives back its raw answers as plain data."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable
from typing import Any

from splatfix.facts.parallel import within

_TIMEOUT = 10.0
_WSL_LIBRARY = "/usr/lib/wsl/lib/libnvidia-ml.so.1"
_LIBRARY_NOT_FOUND = 12


def ask(timeout: float = _TIMEOUT) -> dict[str, Any]:
    """NVML's answers, or the reason why it gave none.

    Args:
        timeout: seconds until a driver that hangs (a GPU that fell off the bus) is given up.

    Returns:
        ``{"error": str, "error_code": int | None}`` when NVML could not be started; else ``driver`` (text), ``cuda``
        (integer as ``cuDriverGetVersion`` gives it, e.g. 13000, or None) and ``gpus``, a list of ``index``, ``name``,
        ``cc`` ([major, minor]), ``memory_total``/``memory_free`` (bytes), ``bus_id``, ``uuid``, ``mig``,
        ``mig_devices`` (names), ``display``; what a card does not answer is None.
    """
    answer, problem = within(timeout, _ask)
    return answer if answer is not None else {"error": f"NVML: {problem}", "error_code": None}


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
    """Start NVML; on WSL its library may lie off the loader's path, so it is loaded by hand and tried again."""
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
    handle = attempt(pynvml, pynvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return {"index": index, "name": "unknown (the driver gives no handle: GPU lost?)"}
    memory = attempt(pynvml, pynvml.nvmlDeviceGetMemoryInfo, handle)
    pci = attempt(pynvml, pynvml.nvmlDeviceGetPciInfo, handle)
    cc = attempt(pynvml, pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    mig = attempt(pynvml, pynvml.nvmlDeviceGetMigMode, handle)
    return {
        "index": index,
        "name": as_text(attempt(pynvml, pynvml.nvmlDeviceGetName, handle)),
        "cc": list(cc) if cc else None,
        "memory_total": int(memory.total) if memory else None,
        "memory_free": int(memory.free) if memory else None,
        "bus_id": as_text(pci.busId) if pci else None,
        "uuid": as_text(attempt(pynvml, pynvml.nvmlDeviceGetUUID, handle)),
        "mig": bool(mig[0]) if mig else None,
        "mig_devices": _mig_devices(pynvml, handle) if mig and mig[0] else [],
        "display": _yes(attempt(pynvml, pynvml.nvmlDeviceGetDisplayMode, handle)),
    }


def _mig_devices(pynvml: Any, handle: Any) -> list[str]:
    """Names such as ``NVIDIA A100-SXM4-40GB MIG 1g.5gb`` of the instances that a card is cut into."""
    places = range(attempt(pynvml, pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0)
    instances = (
        attempt(pynvml, pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, place) for place in places
    )
    names = (
        as_text(attempt(pynvml, pynvml.nvmlDeviceGetName, item)) for item in instances if item is not None
    )
    return [name for name in names if name]


def attempt(pynvml: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """The call's answer, or None for what this card or driver does not answer (NVML's own error)."""
    try:
        return call(*arguments)
    except pynvml.NVMLError:
        return None


def as_text(value: Any) -> str | None:
    """Older bindings answer in bytes, newer ones in text."""
    if value is None:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _yes(value: Any) -> bool | None:
    return None if value is None else bool(value)
