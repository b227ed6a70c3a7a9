"""Stand-in for a GPU in a rehearsal: torch's calls for ``cuda`` land on the CPU, as a rehearsed trainer's do in splatfix.

Copied into an environment under test with ``splatfix/certify/inside/cuda_on_cpu.py`` as ``landing`` beside it, and imported by
its ``.pth``; torch itself is changed only once it is imported. What it answers about the card comes from
``SPLATFIX_REHEARSAL_GPU`` (JSON: name, cc, memory in bytes, uuid). Numbers of a real GPU never come from here; what runs
through it is marked as rehearsed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
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
    from landing import land  # type: ignore[import-not-found]

    about = json.loads(os.environ["SPLATFIX_REHEARSAL_GPU"])
    # by it our kernels are chosen: here they are emulated
    torch.Tensor.is_cuda = property(lambda tensor: False)
    land()

    def count(*_: Any) -> int:
        """As CUDA does: up to the first that is none, and none where one comes twice."""
        entries = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")
        fits = [one == "0" or (one.startswith("GPU-") and about["uuid"].startswith(one)) for one in entries]
        return int(fits[0] and sum(fits) == 1)

    def answering(value: Any) -> Any:
        return lambda *_, **__: value  # each its own: torch's compiler tells functions apart by identity

    major, minor = map(int, about["cc"].split("."))
    card = types.SimpleNamespace(name=about["name"], total_memory=about["memory"], major=major, minor=minor)
    card.uuid = about["uuid"].removeprefix("GPU-")
    torch.cuda.set_sync_debug_mode = answering(None)
    torch.cuda.get_device_name = answering(card.name)
    torch.cuda.get_device_capability = answering((major, minor))
    torch.cuda.get_device_properties = answering(card)
    torch.cuda.mem_get_info = answering((card.total_memory, card.total_memory))
    torch.cuda.device_count, torch.cuda.is_available = count, lambda: count() > 0
    if hasattr(torch._C, "_cuda_getDeviceCount"):  # by it torch's compiler knows a build for CUDA
        torch._C._cuda_getDeviceCount = count


sys.meta_path.insert(0, WhenTorchIsImported)  # type: ignore[arg-type]
