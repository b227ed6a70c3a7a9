"""What a run is computed with, apart from the renderer: the device, and our own or an extension's SSIM and kNN.

SSIM (Wang et al. 2004) compares two images by the mean, variance and covariance of every 11x11 window, weighted by a
Gaussian of 1.5 pixels: ((2 m1 m2 + c1) (2 s12 + c2)) / ((m1^2 + m2^2 + c1) (s1^2 + s2^2 + c2)), averaged; 1 for equal ones.
The distance of a point is the mean of the squared distances to its three nearest neighbours.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from typing import Any, Callable, Dict

import torch

import splatfix
from smoke_trainer.errors import RendererUnavailable, UsageError
from smoke_trainer.identity import implementation_of, library_of
from splatfix.kernels.native import needs_gpu

DEVICES = ("cpu", "cuda", "mps")


def use_device(name: str) -> torch.device:
    """The same as `check_device`, made the current one: extensions launch on that, and events are recorded there."""
    device = check_device(name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def check_device(name: str) -> torch.device:
    """A torch device that exists here, or an error that says why not. A GPU has its index: before torch 2.5
    `mem_get_info` wants one."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"unknown device {name!r}", hint="choose cpu or cuda") from None
    if device.type not in DEVICES:
        raise UsageError(f"cannot train on {name}", hint="choose cpu or cuda")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise _no_device(name, "torch finds no Metal device")
    if device.type == "cuda" and not torch.cuda.is_available():
        if torch.version.cuda is None:
            raise _no_device(name, "this torch was built without CUDA")
        raise _no_device(name, "torch finds no usable GPU")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise _no_device(name, f"torch finds {torch.cuda.device_count()} GPU(s), counted from cuda:0")
    if device.type == "cuda":
        return torch.device("cuda", device.index or 0)
    return device


def _no_device(name: str, reason: str) -> RendererUnavailable:
    return RendererUnavailable(
        f"--device {name} is not available: {reason}",
        "nothing ran; the CPU is never used in its place",
        "run `splatfix diagnose`, or use --device cpu",
    )


@dataclass
class CountedKernel:
    """A function that counts its calls, and the name, version and engine for the report."""

    function: Callable[..., Any]
    name: str
    version: str
    engine: str
    calls: int = 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.calls += 1
        return self.function(*arguments, **named)

    def implementation(self) -> Dict[str, Any]:
        return implementation_of(self.function, self.name, self.version, self.engine, self.calls)


def make_ssim(choice: str, device: torch.device) -> CountedKernel:
    """`kernels` (ours) or `fused-ssim` (the extension, or its drop-in): (images [B,C,H,W], gt) -> scalar."""
    if choice == "kernels":
        return _ours("splatfix.kernels.ssim", "fused_ssim", device)
    if choice == "fused-ssim":
        return _extension("fused_ssim", "fused_ssim", device)
    raise UsageError(f"unknown SSIM {choice!r}", hint="choose kernels or fused-ssim")


def make_knn(choice: str, device: torch.device) -> CountedKernel:
    """`kernels` (ours) or `simple-knn` (the extension, or its drop-in): points [P, 3] -> mean squared distances [P]."""
    if choice == "kernels":
        return _ours("splatfix.kernels.knn", "distCUDA2", device)
    if choice == "simple-knn":
        return _extension("simple_knn._C", "distCUDA2", device)
    raise UsageError(f"unknown kNN {choice!r}", hint="choose kernels or simple-knn")


def note_engine(knn: CountedKernel) -> None:
    """Give it the engine of its latest call: our kNN uses a compiled search tree if one is installed."""
    last_engine = getattr(sys.modules.get(knn.name), "last_engine", None)
    if last_engine is not None and last_engine() != "torch":
        knn.engine = last_engine()


def _ours(module: str, function: str, device: torch.device) -> CountedKernel:
    kernel = getattr(importlib.import_module(module), function)
    return CountedKernel(kernel, module, splatfix.__version__, f"torch-{device.type}")


def _extension(module: str, function: str, device: torch.device) -> CountedKernel:
    try:
        loaded = importlib.import_module(module)
        kernel = getattr(loaded, function)
    except Exception as error:  # noqa: BLE001  (a broken extension may raise anything while it loads)
        raise RendererUnavailable(
            f"{module} cannot be imported: {type(error).__name__}: {error}",
            "it is not installed, or does not match this torch",
            "run `splatfix diagnose`, or omit the option to use our kernel",
        ) from None
    engine = engine_of(module, device, "use --device cuda, or our kernels")
    return CountedKernel(kernel, module, str(getattr(loaded, "__version__", "unknown")), engine)


def engine_of(module: str, device: torch.device, hint: str) -> str:
    """What an imported extension runs on; raises RendererUnavailable for one with CUDA code anywhere but on CUDA."""
    library = library_of(module)
    if library is None:
        return f"torch-{device.type}"
    if device.type != "cuda" and needs_gpu(library):
        raise RendererUnavailable(f"{module} cannot run on {device.type}", "it has CUDA kernels only", hint)
    return device.type
