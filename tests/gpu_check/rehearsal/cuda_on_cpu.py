"""Stand-in for a GPU in a rehearsal: torch's calls for ``cuda`` land on the CPU.

Copied into an environment under test and imported by its ``.pth``; torch itself is changed only once it is imported. What
it answers about the card comes from ``SPLATFIX_REHEARSAL_GPU`` (JSON: name, cc, memory in bytes, uuid). Numbers of a real GPU
never come from here; what runs through it is marked as rehearsed.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import json
import os
import sys
import time
from typing import Any


class _WhenTorchIsImported(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            land_on_cpu(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def visible(value: str | None, uuid: str) -> int:
    """How many of the one GPU ``CUDA_VISIBLE_DEVICES`` leaves."""
    if value is None:
        return 1
    entries = value.split(",")
    fits = [
        entry.strip() == "0" or (entry.startswith("GPU-") and uuid.startswith(entry)) for entry in entries
    ]
    return int(fits[0] and sum(fits) == 1)


def land_on_cpu(torch: Any) -> None:
    """Replace what asks for a GPU."""
    from torch.overrides import TorchFunctionMode

    about = json.loads(os.environ["SPLATFIX_REHEARSAL_GPU"])

    def here(value: Any) -> Any:
        if isinstance(value, str) and value.partition(":")[0] == "cuda":
            return "cpu"
        if isinstance(value, torch.device) and value.type == "cuda":
            return torch.device("cpu")
        return value

    class OnCpu(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.device:
                return func(*args, **(kwargs or {}))
            if getattr(func, "__name__", "") in ("cuda", "pin_memory"):
                return args[0]
            kwargs = {name: here(value) for name, value in (kwargs or {}).items()}
            return func(*[here(value) for value in args], **kwargs)

    OnCpu().__enter__()

    def count(*_: Any) -> int:
        return visible(os.environ.get("CUDA_VISIBLE_DEVICES"), about["uuid"])

    class Event:
        def __init__(self, *_: Any, **__: Any) -> None:
            self.at = 0.0

        def record(self, *_: Any) -> None:
            self.at = time.perf_counter()

        def synchronize(self) -> None:
            pass

        def query(self) -> bool:
            return True

        def elapsed_time(self, other: Event) -> float:
            return 1000 * (other.at - self.at)

    class Properties:
        name = about["name"]
        total_memory = about["memory"]
        major, minor = map(int, about["cc"].split("."))
        uuid = about["uuid"].removeprefix("GPU-")

    def synchronize(*_: Any) -> None:
        torch.zeros(1)  # an error that was left behind, as an illegal address leaves it, is raised here

    def answering(value: Any) -> Any:
        return lambda *_, **__: value  # each its own: torch's compiler tells functions apart by identity

    cuda = torch.cuda
    cuda.is_current_stream_capturing = answering(False)
    for name in [
        "init",
        "set_device",
        "empty_cache",
        "reset_peak_memory_stats",
        "manual_seed_all",
        "set_sync_debug_mode",
    ]:
        setattr(cuda, name, answering(None))
    for name in [
        "memory_allocated",
        "max_memory_allocated",
        "memory_reserved",
        "max_memory_reserved",
        "current_device",
    ]:
        setattr(cuda, name, answering(0))
    cuda.synchronize, cuda.Event = synchronize, Event
    cuda.device_count, cuda.is_available = count, lambda: count() > 0
    if hasattr(torch._C, "_cuda_getDeviceCount"):  # by it torch's compiler knows a build for CUDA
        torch._C._cuda_getDeviceCount = count
    cuda.get_device_name = lambda *_: about["name"]
    cuda.get_device_capability = lambda *_: (Properties.major, Properties.minor)
    cuda.get_device_properties = lambda *_: Properties()
    cuda.mem_get_info = lambda *_: (about["memory"], about["memory"])


sys.meta_path.insert(0, _WhenTorchIsImported())
