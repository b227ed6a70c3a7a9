"""Tensors from the host to the device of a run."""

from __future__ import annotations

import torch
from torch import Tensor


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """`values` on `device`. A GPU is not waited for: from pageable memory it copies only once all its work before is done, so
    the values go through pinned memory, which torch's allocator keeps until the copy is over."""
    if device.type != "cuda" or values.device.type != "cpu":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)
