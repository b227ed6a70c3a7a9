"""gsplat's functions on our CUDA kernels: the same names and arguments as in `gsplat_csrc.py`."""

from __future__ import annotations

from typing import Any, Callable, Dict

__all__ = ["KERNELS", "refusal"]

KERNELS: Dict[str, Callable[..., Any]] = {}
"""By the name of the function."""


def refusal(name: str, *arguments: Any) -> str:
    """Why the kernels do not serve this call; empty where they do."""
    if name not in KERNELS:
        return f"there is no CUDA kernel for {name} yet"
    return ""
