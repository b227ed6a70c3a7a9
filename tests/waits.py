"""Stands in for `torch.cuda.set_sync_debug_mode` on the CPU: what of a step would wait for a GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

READ = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "unique2", "bincount", "equal")
"""Operations whose result, or its size, Python has to know."""
HANDED_OVER = "lift_fresh"
"""Numbers of Python that become a tensor: a copy to the GPU, for which the host waits. One alone is an argument of a kernel."""


class Waits(TorchDispatchMode):
    """Writes down each operation for which a GPU would be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().partition(".")[0].removeprefix("aten::")
        is_masked = name == "index" and any(_is_mask(index) for index in args[1])
        if is_masked or name in READ or (name == HANDED_OVER and args[0].dim()):
            self.found.append(func.name())
        return func(*args, **(kwargs or {}))


def _is_mask(index: Any) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)
