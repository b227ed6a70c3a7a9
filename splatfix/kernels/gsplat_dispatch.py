"""What the functions of gsplat's module share: the CUDA kernels of gsplat_cuda.py where they serve a call, and gradients."""

from __future__ import annotations

import functools
from typing import Any, Callable, List, Optional, Sequence, TypeVar

import torch
from torch import Tensor

_Result = TypeVar("_Result")


def served(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """The function, without a gradient of its own, as compiled ones have none.

    float32 on CUDA goes to the kernel of its name, with the same arguments, where that is here and serves the call.
    """
    name = function.__name__

    @functools.wraps(function)
    @torch.no_grad()
    def call(*arguments: Any) -> _Result:
        like = next(argument for argument in arguments if isinstance(argument, Tensor))
        if not like.is_cuda:
            return function(*arguments)
        try:
            from splatfix.kernels.gsplat_cuda import KERNELS, refusal
            from splatfix.kernels.nvrtc import by_kernels
        except ImportError:  # a copy without them
            return function(*arguments)
        # in a tuple: one of the functions gives back None
        result: Any = by_kernels(
            f"gsplat {name}",
            like,
            lambda: (KERNELS[name](*arguments),),
            lambda: refusal(name, *arguments),
        )
        if result is None:
            return function(*arguments)
        served_result: _Result = result[0]
        return served_result

    return call


def gradients(
    function: Callable[..., Sequence[Tensor]],
    inputs: Sequence[Optional[Tensor]],
    upstream: Sequence[Optional[Tensor]],
    needed: Optional[Sequence[bool]] = None,
) -> List[Optional[Tensor]]:
    """Gradients of the inputs, from those of what `function` makes of them; None where an input is None or not needed.

    Args:
        upstream: one for each output; None counts as 0.
    """
    wanted = [item is not None and (needed is None or needed[k]) for k, item in enumerate(inputs)]
    leaves = [
        None if item is None else item.detach().requires_grad_(wish) for item, wish in zip(inputs, wanted)
    ]
    targets = [leaf for leaf, wish in zip(leaves, wanted) if wish and leaf is not None]
    with torch.enable_grad():
        outputs = function(*leaves)
    flow = [
        (output, given.to(output.dtype))
        for output, given in zip(outputs, upstream)
        if given is not None and output.requires_grad
    ]
    found: Sequence[Optional[Tensor]] = [None] * len(targets)
    if flow and targets:
        into, given = zip(*flow)
        found = torch.autograd.grad(into, targets, given, allow_unused=True)
    left = iter(found)
    result: List[Optional[Tensor]] = []
    for leaf, wish in zip(leaves, wanted):
        gradient = next(left) if wish else None
        if wish and gradient is None and leaf is not None:
            gradient = torch.zeros_like(leaf)
        result.append(gradient)
    return result
