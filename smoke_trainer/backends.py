"""The parts that a run is computed with, and what really ran: the device, and our own or an extension's SSIM and kNN.

SSIM (Wang et al. 2004) compares two images by the mean, variance and covariance of every 11x11 window, weighted by a
Gaussian of 1.5 pixels: ((2 m1 m2 + c1) (2 s12 + c2)) / ((m1^2 + m2^2 + c1) (s1^2 + s2^2 + c2)), averaged; 1 for equal ones.
The distance of a point is the mean of the squared distances to its three nearest neighbours.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Optional

import torch
from torch import Tensor

import splatfix
from smoke_trainer.errors import RendererUnavailable, UsageError
from smoke_trainer.record import Implementation
from splatfix.kernels.native import needs_gpu


def check_device(name: str) -> torch.device:
    """A torch device that exists here, or an error that says why not. A GPU has its index: before torch 2.5
    `mem_get_info` wants one."""
    counts = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    kind, _, number = name.partition(":")
    if kind not in counts or not (number or "0").isdecimal():
        raise UsageError(f"unknown device {name!r}", hint="choose cpu or cuda")
    count, index = counts[kind], int(number or 0)
    if index >= count:
        raise RendererUnavailable(
            f"--device {name} is not available: this torch, built for CUDA {torch.version.cuda}, finds {count} of that kind",
            "nothing ran; the CPU is never used in its place",
            "run `splatfix diagnose`, or use --device cpu",
        )
    return torch.device(kind, index) if kind == "cuda" else torch.device(kind)


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


class Part:
    """One part of a run, for the report: `name`, `version` and `engine` are what runs, `entry` the function, class or compiled
    module that does it, `calls` how often; `kind` is the name by which a renderer is chosen."""

    kind: Optional[str] = None
    calls = 0

    def __init__(self, name: str, version: object, engine: str, entry: Any) -> None:
        self.name = name
        self.version = str(version)
        self.engine = engine
        self.entry = entry

    def implementation(self) -> Implementation:
        """Return the module that the function came from, and its file with its digest; None for what it does not tell."""
        module = getattr(self.entry, "__module__", None)
        if isinstance(self.entry, ModuleType):
            module = self.entry.__name__
        path, file, sha256 = None, None, None
        if module is not None:
            path = library_of(module) or getattr(sys.modules.get(module), "__file__", None)
        if path is not None:
            with contextlib.suppress(OSError):
                sha256 = hashlib.sha256(Path(path).read_bytes()).hexdigest()
            file = str(path)
            for parent in Path(path).parents:  # from the entry of sys.path that it was found in
                if str(parent) in sys.path:
                    file = Path(path).relative_to(parent).as_posix()
                    break
        engine = engine_in_use(self.name, self.engine)
        return Implementation(self.name, self.version, engine, self.kind, module, file, sha256, self.calls)


class Kernel(Part):
    """A function that counts its calls."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.calls += 1
        return self.entry(*arguments, **named)


def make_ssim(choice: str, device: torch.device) -> Kernel:
    """`kernels` (ours) or `fused-ssim` (the extension, or its drop-in): (images [B,C,H,W], gt) -> scalar."""
    return _kernel("splatfix.kernels.ssim" if choice == "kernels" else "fused_ssim", "fused_ssim", device)


def make_knn(choice: str, device: torch.device) -> Kernel:
    """`kernels` (ours) or `simple-knn` (the extension, or its drop-in): points [P, 3] -> mean squared distances [P]."""
    return _kernel("splatfix.kernels.knn" if choice == "kernels" else "simple_knn._C", "distCUDA2", device)


def _kernel(module: str, function: str, device: torch.device) -> Kernel:
    loaded = import_extension(module, "run `splatfix diagnose`, or omit the option to use our kernel")
    version = getattr(loaded, "__version__", "unknown")
    if module.startswith("splatfix."):
        version = splatfix.__version__
    engine = engine_of(module, device, "use --device cuda, or our kernels")
    return Kernel(module, version, engine, getattr(loaded, function))


def import_extension(module: str, hint: str) -> Any:
    """Import a compiled extension, or a drop-in of it; raises RendererUnavailable with `hint` where that fails."""
    try:
        return importlib.import_module(module)
    except Exception as error:  # noqa: BLE001  (a broken extension may raise anything while it loads)
        raise RendererUnavailable(
            f"{module} cannot be imported: {type(error).__name__}: {error}",
            "it is not installed, or does not match this torch or this GPU",
            hint,
        ) from None


def engine_of(module: str, device: torch.device, hint: str) -> str:
    """Name what an imported extension runs on; raises RendererUnavailable for one with CUDA code anywhere but on CUDA."""
    library = library_of(module)
    if library is None:
        return f"torch-{device.type}"
    if device.type != "cuda" and needs_gpu(Path(library)):
        raise RendererUnavailable(f"{module} cannot run on {device.type}", "it has CUDA kernels only", hint)
    return device.type


def library_of(module: str) -> Optional[str]:
    """The compiled file of an imported module or of its extension module; None for splatfix's drop-ins."""
    for name in (module, f"{module}._C", f"{module}_cuda", f"{module}.csrc"):
        file = getattr(sys.modules.get(name), "__file__", None) or ""
        if file.endswith((".so", ".pyd")):
            return str(file)
    return None


def engine_in_use(module: str, engine: str) -> str:
    """`nvrtc` where the kernels of a module, a drop-in's or ours, ran as CUDA code that NVRTC compiled (see `ran` in
    splatfix/kernels/nvrtc.py), and the compiled search tree that our kNN used; else what it was said to run on."""
    package = module.partition(".")[0]
    kernels = {
        "splatfix": module.rpartition(".")[2],
        "fused_ssim": "ssim",
        "simple_knn": "knn",
        "diff_surfel_rasterization": "surfels",
        "gsplat": "gsplat rasterize_to_pixels_3dgs_fwd",
    }
    # a drop-in carries a copy of its own
    compilers = {"splatfix": "splatfix.kernels.nvrtc", "gsplat": "gsplat.csrc._nvrtc"}
    compiler = sys.modules.get(compilers.get(package, f"{package}._nvrtc"))
    if getattr(compiler, "ran", {}).get(kernels.get(package, "rasterizer")) == "nvrtc":
        return "nvrtc"
    last_engine = getattr(sys.modules.get(module), "last_engine", None)
    if last_engine is not None and last_engine() not in ("torch", "none"):
        return str(last_engine())
    return engine
