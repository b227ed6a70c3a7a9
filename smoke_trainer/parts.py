"""The replaceable parts of a run beside the renderer: SSIM and the nearest-neighbour distance, ours or an extension's.

SSIM (Wang et al. 2004) compares two images by the mean, variance and covariance of every 11x11 window, weighted by a
Gaussian of 1.5 pixels: ((2 m1 m2 + c1) (2 s12 + c2)) / ((m1^2 + m2^2 + c1) (s1^2 + s2^2 + c2)), averaged; 1 for equal ones.
The distance of a point is the mean of the squared distances to its three nearest neighbours.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Callable, NamedTuple

import torch
from torch import Tensor

from smoke_trainer.errors import RendererUnavailable, UsageError


class Part(NamedTuple):
    """A function with the name, version and engine that go into the report."""

    function: Callable[..., Tensor]
    name: str
    version: str
    engine: str

    def as_json(self) -> Any:
        """For result.json."""
        return {"name": self.name, "version": self.version, "engine": self.engine}


def make_ssim(choice: str, device: torch.device) -> Part:
    """`kernels` (ours) or `fused-ssim` (the extension, or its drop-in): (images [B,C,H,W], truth) -> scalar."""
    if choice == "kernels":
        return _ours("splatfix.kernels.ssim", "fused_ssim", device)
    if choice == "fused-ssim":
        return _extension("fused_ssim", "fused_ssim", device)
    raise UsageError(f"there is no SSIM called {choice!r}", remedy="choose kernels or fused-ssim")


def make_knn(choice: str, device: torch.device) -> Part:
    """`kernels` (ours) or `simple-knn` (the extension, or its drop-in): points [P, 3] -> mean squared distances [P]."""
    if choice == "kernels":
        return _ours("splatfix.kernels.knn", "distCUDA2", device)
    if choice == "simple-knn":
        return _extension("simple_knn._C", "distCUDA2", device)
    raise UsageError(f"there is no kNN called {choice!r}", remedy="choose kernels or simple-knn")


def as_it_ran(part: Part) -> Part:
    """The part with the engine that answered its latest call: our kNN takes a compiled tree where one is installed."""
    last_engine = getattr(sys.modules.get(part.name), "last_engine", None)
    if last_engine is None or last_engine() == "torch":
        return part
    return part._replace(engine=last_engine())


def _ours(module: str, function: str, device: torch.device) -> Part:
    import splatfix

    found = getattr(importlib.import_module(module), function)
    return Part(found, module, splatfix.__version__, f"torch-{device.type}")


def _extension(module: str, function: str, device: torch.device) -> Part:
    try:
        loaded = importlib.import_module(module)
        found = getattr(loaded, function)
    except Exception as error:  # noqa: BLE001  (a broken extension may raise anything while it loads)
        raise RendererUnavailable(
            f"{module} cannot be imported: {type(error).__name__}: {error}",
            "it is not installed here, or does not fit this torch",
            "run `splatfix diagnose`, or leave the option out to use our kernel",
        ) from None
    engine = engine_of(module, device, "run", "use --device cuda, or our kernels")
    return Part(found, module, str(getattr(loaded, "__version__", "unknown")), engine)


def engine_of(module: str, device: torch.device, does: str, remedy: str) -> str:
    """What an imported extension runs on; raises RendererUnavailable for a compiled one anywhere but on CUDA."""
    if not is_compiled(module):
        return f"torch-{device.type}"
    if device.type != "cuda":
        raise RendererUnavailable(
            f"{module} cannot {does} on {device.type}", "it has CUDA kernels only", remedy
        )
    return "cuda"


def is_compiled(module: str) -> bool:
    """Whether an imported module, or the part that it hands its work to, is compiled; splatfix's drop-ins are not."""
    names = (module, f"{module}._C", f"{module}_cuda")
    files = [getattr(sys.modules.get(name), "__file__", None) or "" for name in names]
    return any(file.endswith((".so", ".pyd")) for file in files)
