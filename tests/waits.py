"""Stands in for `torch.cuda.set_sync_debug_mode` on the CPU: what of a step would wait for a GPU."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

READ = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "unique2", "bincount", "equal")
"""Operations whose result, or its size, Python has to know."""
LEAVE = ("tolist", "numpy", "cpu", "__array__")
"""Methods that copy nothing on a CPU, and are no operations there: from a GPU they wait for what they copy."""


class Waits:
    """Writes down each operation for which a GPU would be waited for."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._modes = ExitStack()

    def __enter__(self) -> Waits:
        self._modes.enter_context(_Operations(self.found))
        self._modes.enter_context(_Calls(self.found))
        return self

    def __exit__(self, *error: object) -> None:
        self._modes.close()


class _Operations(TorchDispatchMode):
    def __init__(self, found: list[str]) -> None:
        super().__init__()
        self._found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().partition(".")[0].removeprefix("aten::")
        masks = (torch.bool, torch.uint8)
        is_masked = name == "index" and any(at is not None and at.dtype in masks for at in args[1])
        if is_masked or name in READ:
            self._found.append(func.name())
        return func(*args, **(kwargs or {}))


class _Calls(TorchFunctionMode):
    def __init__(self, found: list[str]) -> None:
        super().__init__()
        self._found = found

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in LEAVE or _is_copied(name, args, kwargs or {}):
            self._found.append(name)
        return func(*args, **(kwargs or {}))


def _is_copied(name: str, args: Any, named: Any) -> bool:
    """Tell what a GPU would be waited for: numbers of Python that a tensor there is made of or indexed by; what is moved there,
    unless that is said not to block, as it is of pinned memory. Without a device a tensor stays on the host."""
    if name in ("__getitem__", "__setitem__"):
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        return any(isinstance(one, list) for one in index)
    if name in ("to", "cuda"):
        given = (*args[1:], named.get("device"))
        is_moved = name == "cuda" or any(isinstance(one, (str, torch.device)) for one in given)
        return is_moved and not named.get("non_blocking")
    return name == "new_tensor" or (name in ("tensor", "as_tensor") and named.get("device") is not None)
