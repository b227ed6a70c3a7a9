"""Runs in a child process, because a damaged libcuda may crash or hang whoever loads it: asks libcuda for its GPUs.

What it lists is what every CUDA program started with the same environment gets as ``cuda:0``, ``cuda:1``...: CUDA itself has
applied CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER. With ``--unfiltered`` behind the library CUDA_VISIBLE_DEVICES is taken away
first.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

# CUDA driver API, CUdevice_attribute
MAJOR, MINOR = 75, 76


def ask(library: str) -> dict[str, Any]:
    """libcuda's own words: ``init`` (cuInit's code), ``cuda`` (level as 12090), ``gpus``; or ``error``."""
    try:
        cuda = ctypes.CDLL(library)
    except OSError as error:
        return {"error": str(error)}
    version, count = ctypes.c_int(), ctypes.c_int()
    code = cuda.cuInit(0)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    cuda.cuDeviceGetCount(ctypes.byref(count))  # stays 0 where CUDA did not start
    gpus = []
    for index in range(count.value):
        device, major, minor, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
        name, bus = ctypes.create_string_buffer(256), ctypes.create_string_buffer(32)
        cuda.cuDeviceGet(ctypes.byref(device), index)
        cuda.cuDeviceGetName(name, 256, device)
        cuda.cuDeviceGetAttribute(ctypes.byref(major), MAJOR, device)
        cuda.cuDeviceGetAttribute(ctypes.byref(minor), MINOR, device)
        cuda.cuDeviceTotalMem_v2(ctypes.byref(total), device)
        cuda.cuDeviceGetPCIBusId(bus, 32, device)
        text = name.value.decode("utf-8", "replace")
        gpu = {
            "index": index,
            "name": text,
            "cc": [major.value, minor.value],
            "memory_total": total.value,
            "bus_id": bus.value.decode("ascii", "replace") or None,
            "uuid": _uuid(cuda, device, " MIG " in text),
        }
        gpus.append(gpu)
    return {"init": code, "cuda": version.value, "gpus": gpus}


def _uuid(cuda: Any, device: Any, instance: bool) -> str | None:
    """As nvidia-smi writes it. The call's second form (CUDA 11.4) knows MIG instances; old drivers have the first or none."""
    raw = (ctypes.c_ubyte * 16)()
    for call in ("cuDeviceGetUuid_v2", "cuDeviceGetUuid"):
        if hasattr(cuda, call) and getattr(cuda, call)(raw, device) == 0:
            text = bytes(raw).hex()
            parts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
            return ("MIG-" if instance and call.endswith("_v2") else "GPU-") + "-".join(parts)
    return None


if __name__ == "__main__":
    if "--unfiltered" in sys.argv[2:]:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    sys.stdout.write(json.dumps(ask(sys.argv[1])))
