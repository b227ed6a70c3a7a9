"""Tensors from the host to the device of a run."""

from __future__ import annotations

import torch
from torch import Tensor


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """`values` on `device`. A GPU is not waited for: from pageable memory it copies only once all its work before is done, so
    the values go through pinned memory."""
    if values.device == device:
        return values
    if device.type != "cuda" or values.device.type != "cpu":
        return values.to(device)
    # Nothing here holds the pinned copy, and nothing has to: a non-blocking copy marks its block with an event on the current
    # stream, before which torch's caching host allocator gives it to nobody else.
    return values.pin_memory().to(device, non_blocking=True)
