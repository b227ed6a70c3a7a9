"""torch's own arithmetic, for the probe that runs inside the target environment: what every kernel and every training stands on.

Each operation in single precision where training runs, and its gradient, against the same in double precision on the CPU.
Imports torch and the references only; Python 3.8.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, Tuple

import torch
from torch import Tensor

from splatfix.certify.kernel_references import largest_error, measured, relative_error

SINGLE = 1e-5
"""Relative to the largest expected value; measured: 7e-7 at most, more where a hundred thousand numbers are added."""
TF32 = 1.2e-3
"""Where torch allows it, as it does for convolutions on a GPU: rounded like it on a CPU 4e-4; as bfloat16, 2e-3 to 3e-3."""
SIZES = (27, 2439)
"""Rows of 41 numbers: a thousand numbers, and a hundred thousand."""


def _keys(x: Tensor) -> Tensor:
    """Return one of 7 for each number: duplicates, as the keys of tiles, and rows in which a GPU's atomics meet."""
    return (x.detach().flatten() * 512).long() % 7


OPERATIONS: Dict[str, Tuple[Callable[[Tensor], Tensor], float]] = {
    "matrix product": (lambda x: x @ x[:17].t(), SINGLE),
    # as SSIM blurs: every channel by itself, with a window of 11 x 11, and zeros outside of the image
    "convolution": (
        lambda x: torch.nn.functional.conv2d(
            x.reshape(1, 3, -1, 41), x.flatten()[:363].reshape(3, 1, 11, 11), padding=5, groups=3
        ),
        10 * SINGLE,
    ),
    "sort": (lambda x: torch.sort(x.flatten(), stable=True)[0], SINGLE),
    "sort by keys": (lambda x: x.flatten()[torch.sort(_keys(x), stable=True)[1]], SINGLE),
    # single sums in any order: their errors add up
    "index_add": (lambda x: x.new_zeros(7).index_add(0, _keys(x), x.flatten() + 1), 10 * SINGLE),
    "scatter_add": (lambda x: x.new_zeros(7).scatter_add(0, _keys(x), x.flatten() + 1), 10 * SINGLE),
    "cumulative sum": (lambda x: (x.flatten() + 1).cumsum(0), 10 * SINGLE),
    "exponential": (lambda x: x.exp(), SINGLE),
    "square root": (lambda x: (x + 2).sqrt(), SINGLE),
    "sigmoid": (lambda x: x.sigmoid(), SINGLE),
}
"""Of numbers from -1 to 1, and what is allowed; ten times that of gradients."""


def check_arithmetic(device: str) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """Check every operation at both sizes."""
    # what every trainer takes for granted
    made, recorded = torch.empty(0), torch.is_grad_enabled()
    if made.dtype is not torch.float32 or made.device.type != "cpu" or not recorded:
        detail = f"torch makes tensors of {made.dtype} on {made.device}, and records gradients: {recorded}"
        yield "something sets that when Python starts", {"outcome": "failed", "detail": detail}
    rounded = {}
    if device != "cpu":
        rounded["matrix product"] = torch.backends.cuda.matmul.allow_tf32
        rounded["convolution"] = torch.backends.cudnn.allow_tf32
    for rows in SIZES:
        generator = torch.Generator().manual_seed(1)
        numbers = torch.rand(rows, 41, generator=generator) * 2 - 1
        for name, (operation, allowed) in OPERATIONS.items():
            if rounded.get(name):
                allowed = TF32
            exact = numbers.double().requires_grad_(True)
            given = numbers.to(device, copy=True).requires_grad_(True)
            expected, actual = operation(exact), operation(given)
            weights = torch.randn(expected.shape, generator=generator)
            torch.autograd.backward((expected * weights.double()).sum())
            torch.autograd.backward((actual * weights.to(device)).sum())
            error, slope = relative_error(actual, expected), largest_error([given], [exact])
            yield f"{name} of {numbers.numel()} numbers", measured(error, allowed, slope, 10 * allowed)
