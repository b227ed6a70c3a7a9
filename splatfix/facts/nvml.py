"""Asks NVML about driver and GPUs and gives back its raw answers as plain data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def ask() -> dict[str, Any]:
    """NVML's answers, or the reason why it gave none.

    Returns:
        ``{"error": str, "error_code": int | None}`` when NVML could not be started; else ``driver`` (text), ``cuda``
        (integer as ``cuDriverGetVersion`` gives it, e.g. 13000, or None) and ``gpus``, a list of ``index``, ``name``,
        ``cc`` ([major, minor]), ``memory_total``/``memory_free`` (bytes), ``bus_id``, ``uuid``, ``mig``, ``display``;
        what a card does not answer is None.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return {"error": str(error), "error_code": int(error.value)}
    try:
        return {
            "driver": _try(pynvml, pynvml.nvmlSystemGetDriverVersion),
            "cuda": _try(pynvml, pynvml.nvmlSystemGetCudaDriverVersion_v2),
            "gpus": [_gpu(pynvml, index) for index in range(_try(pynvml, pynvml.nvmlDeviceGetCount) or 0)],
        }
    finally:
        pynvml.nvmlShutdown()


def _gpu(pynvml: Any, index: int) -> dict[str, Any]:
    handle = _try(pynvml, pynvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return {"index": index, "name": "unknown (the driver gives no handle: GPU lost?)"}
    memory = _try(pynvml, pynvml.nvmlDeviceGetMemoryInfo, handle)
    pci = _try(pynvml, pynvml.nvmlDeviceGetPciInfo, handle)
    cc = _try(pynvml, pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    mig = _try(pynvml, pynvml.nvmlDeviceGetMigMode, handle)
    return {
        "index": index,
        "name": _text(_try(pynvml, pynvml.nvmlDeviceGetName, handle)),
        "cc": list(cc) if cc else None,
        "memory_total": int(memory.total) if memory else None,
        "memory_free": int(memory.free) if memory else None,
        "bus_id": _text(pci.busId) if pci else None,
        "uuid": _text(_try(pynvml, pynvml.nvmlDeviceGetUUID, handle)),
        "mig": bool(mig[0]) if mig else None,
        "display": _yes(_try(pynvml, pynvml.nvmlDeviceGetDisplayMode, handle)),
    }


def _try(pynvml: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """The call's answer, or None for what this card or driver does not answer (NVML's own error)."""
    try:
        return call(*arguments)
    except pynvml.NVMLError:
        return None


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _yes(value: Any) -> bool | None:
    return None if value is None else bool(value)
