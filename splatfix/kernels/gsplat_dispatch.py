"""By what a function of gsplat's module runs: the CUDA kernels of gsplat_cuda.py where they serve the call, else PyTorch."""

from __future__ import annotations

import functools
from typing import Any, Callable, TypeVar

from torch import Tensor

__all__ = ["served"]

_Result = TypeVar("_Result")


def served(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """The function; float32 on CUDA by the kernels of its name, with the same arguments, where they are here and serve it."""
    name = function.__name__

    @functools.wraps(function)
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
