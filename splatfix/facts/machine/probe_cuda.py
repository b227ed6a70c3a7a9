"""Runs in a child process, because a damaged libcuda may crash or hang whoever loads it: asks libcuda for its GPUs."""

import ctypes
import json
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
    gpus = []
    if code == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0:
        gpus = [_device(cuda, index) for index in range(count.value)]
    return {"init": code, "cuda": version.value, "gpus": gpus}


def _device(cuda: Any, index: int) -> dict[str, Any]:
    device, major, minor, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    name, bus = ctypes.create_string_buffer(256), ctypes.create_string_buffer(32)
    cuda.cuDeviceGet(ctypes.byref(device), index)
    cuda.cuDeviceGetName(name, 256, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(major), MAJOR, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), MINOR, device)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(total), device)
    has_bus = cuda.cuDeviceGetPCIBusId(bus, 32, device) == 0
    return {
        "index": index,
        "name": name.value.decode("utf-8", "replace"),
        "cc": [major.value, minor.value],
        "memory_total": total.value,
        "bus_id": bus.value.decode("ascii", "replace") if has_bus else None,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(ask(sys.argv[1])))
