"""Stand-in for a GPU in a rehearsal: torch's calls for ``cuda`` land on the CPU.

Copied into an environment under test and imported by its ``.pth``; torch itself is changed only once it is imported. What
it answers about the card comes from ``SPLATFIX_REHEARSAL_GPU`` (JSON: name, cc, memory in bytes, uuid). Numbers of a real GPU
never come from here; what runs through it is marked as rehearsed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
import types
from typing import Any


class WhenTorchIsImported:
    @classmethod
    def find_spec(cls, name: str, *_: Any) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(cls)  # type: ignore[arg-type]
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (run(module), land_on_cpu(module))  # type: ignore[method-assign,func-returns-value]
        return spec


def land_on_cpu(torch: Any) -> None:
    """Replace what asks for a GPU."""
    from torch.overrides import TorchFunctionMode

    about = json.loads(os.environ["SPLATFIX_REHEARSAL_GPU"])

    def here(value: Any) -> Any:
        named = isinstance(value, str) and value.partition(":")[0] == "cuda"
        return torch.device("cpu") if named or getattr(value, "type", "") == "cuda" else value

    class OnCpu(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.device:
                return func(*args, **(kwargs or {}))
            if getattr(func, "__name__", "") in ("cuda", "pin_memory"):
                return args[0]
            return func(*map(here, args), **{name: here(value) for name, value in (kwargs or {}).items()})

    OnCpu().__enter__()

    def count(*_: Any) -> int:
        """As CUDA does: up to the first that is none, and none where one comes twice."""
        entries = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")
        fits = [one == "0" or (one.startswith("GPU-") and about["uuid"].startswith(one)) for one in entries]
        return int(fits[0] and sum(fits) == 1)

    class Event:
        def __init__(self, **_: Any) -> None:
            self.at = 0.0

        def record(self, *_: Any) -> None:
            self.at = time.perf_counter()

        def elapsed_time(self, other: Event) -> float:
            return 1000 * (other.at - self.at)

        def query(self) -> bool:
            return True

        synchronize = query

    def answering(value: Any) -> Any:
        return lambda *_, **__: value  # each its own: torch's compiler tells functions apart by identity

    major, minor = map(int, about["cc"].split("."))
    card = {
        "name": about["name"],
        "total_memory": about["memory"],
        "uuid": about["uuid"].removeprefix("GPU-"),
    }
    nothing = "init empty_cache reset_peak_memory_stats manual_seed_all set_sync_debug_mode"
    zero = "memory_allocated max_memory_allocated memory_reserved max_memory_reserved current_device"
    answers = {
        **dict.fromkeys(nothing.split()),
        **dict.fromkeys(zero.split(), 0),
        "is_current_stream_capturing": False,
        "get_device_name": about["name"],
        "get_device_capability": (major, minor),
        "get_device_properties": types.SimpleNamespace(**card, major=major, minor=minor),
        "mem_get_info": (about["memory"], about["memory"]),
    }
    for name, value in answers.items():
        setattr(torch.cuda, name, answering(value))
    # the real one refuses "cuda" without a number
    torch.cuda.set_device = lambda device: torch.cuda._utils._get_device_index(device) and None
    # an error that was left behind, as an illegal address leaves it, is raised where one waits
    torch.cuda.synchronize, torch.cuda.Event = lambda *_: torch.zeros(1), Event
    torch.cuda.device_count, torch.cuda.is_available = count, lambda: count() > 0
    if hasattr(torch._C, "_cuda_getDeviceCount"):  # by it torch's compiler knows a build for CUDA
        torch._C._cuda_getDeviceCount = count


sys.meta_path.insert(0, WhenTorchIsImported)  # type: ignore[arg-type]
