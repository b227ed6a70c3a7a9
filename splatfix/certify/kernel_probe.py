"""Runs inside the target environment: one implementation of one kernel, called and held against a float64 reference.

A process of its own for each: an illegal address leaves no CUDA call of its process usable, and a crash takes the process along.
It prints a JSON object of what is about to run, and one of how it went. Imports splatfix.kernels, and torch once it is needed;
Python 3.8.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import importlib.util
import json
import re
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, Dict, Optional

from splatfix.certify.inside.loaded import is_dropin
from splatfix.kernels.native import needs_gpu


def find_module(name: str) -> Optional[ModuleSpec]:
    """Return where a module is; nothing is imported, for that may crash."""
    top, *parts = name.split(".")
    spec = importlib.util.find_spec(top)
    for part in parts:
        if spec is None:
            break
        spec = PathFinder.find_spec(part, spec.submodule_search_locations or [])
    return spec


def library_of(name: str) -> Optional[Path]:
    """Return the compiled file of a module: its own, or that of its ``_C`` or ``_cuda`` part."""
    top, _, part = name.partition(".")
    for one in (top, f"{top}_cuda", f"{top}.{part or '_C'}"):
        spec = find_module(one)
        if spec is not None and spec.origin and spec.origin.endswith(tuple(EXTENSION_SUFFIXES)):
            return Path(spec.origin)
    return None


def described(name: str) -> Dict[str, str]:
    """Return kind, version and file of an implementation. Kinds: ``torch``, ``ours``, ``drop-in`` (made by splatfix), ``native``
    (compiled), or ``python``."""
    top, library, version = name.partition(".")[0], library_of(name), ""
    kind = "python"
    if top == "torch":
        kind = "torch"
    elif top == "splatfix":
        kind = "ours"
    elif library is not None:
        kind = "native"
    elif is_dropin(top):
        kind = "drop-in"
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        version = importlib.metadata.version(top.replace("_", "-"))
    spec = find_module(top)
    return {"kind": kind, "version": version, "file": str(library or (spec and spec.origin) or "")}


# What a kernel leaves behind that failed, or that never ran: without its code, "num_rendered" is a random number. What else is
# raised is about the call ("must be a CUDA tensor").
_KERNEL_FAILED = re.compile(
    r"CUDA error|cudaError|CUBLAS_|out of memory|allocate|negative dimension|overflow|device-side|"
    r"no kernel image|illegal memory|invalid device function|misaligned|launch failure"
)
# Why a GPU of which nothing is wrong cannot be used now; a kernel that failed asks for terabytes.
_BUSY = re.compile(r"busy or unavailable|CUBLAS_STATUS_ALLOC_FAILED|tried to allocate", re.IGNORECASE)
_ABSURD = re.compile(r"tried to allocate (\d{13,} bytes|\d{4,}\.\d+ GiB|\S+ [TPE]iB)", re.IGNORECASE)


def judged(error: Exception, kind: str) -> Dict[str, Any]:
    """Return what an exception of a kernel's call says of it: that it failed, or that nothing was measured."""
    text = f"{type(error).__name__}: {error}"
    first = text.partition("\n")[0]
    if _BUSY.search(text) and not _ABSURD.search(text):
        return {"outcome": "not-measured", "detail": first}
    # the call of our own kernels is ours too: there it is no excuse
    if kind in ("torch", "ours", "drop-in") or _KERNEL_FAILED.search(text):
        return {"outcome": "failed", "detail": text}
    return {"outcome": "not-measured", "detail": f"splatfix calls it otherwise than it wants: {first}"}


def half_that_ran(kernel: str, name: str, device: str) -> Dict[str, Any]:
    """Tell which of its implementations a drop-in with CUDA kernels took for its last call, as ``detail``."""
    package = name.partition(".")[0]
    compilers = [module for module in (f"{name}._nvrtc", f"{package}._nvrtc") if find_module(module)]
    if not compilers:
        return {"detail": ""}
    if device == "cpu":
        return {"detail": "in its PyTorch half: no GPU ran its CUDA code", "pytorch_half": True}
    rows = {"gsplat": "gsplat rasterize_to_pixels_3dgs_fwd", "diff_surfel_rasterization": "surfels"}
    ran = getattr(sys.modules.get(compilers[0]), "ran", {}).get(rows.get(package, kernel), "")
    texts = {"": "", "nvrtc": "its CUDA kernels ran"}
    return {"detail": texts.get(ran, f"pure PyTorch ran: {ran.partition(': ')[2]}")}


def run_check(kernel: str, name: str, kind: str, device: str) -> Dict[str, Any]:
    """Compare one implementation with the reference; an exception is its result."""
    from splatfix.certify.kernel_calls import NotMeasured, check, start_cuda  # torch takes seconds

    module = None
    try:
        if device != "cpu":
            start_cuda(device)
        library = library_of(name)
        if device == "cpu" and kind != "torch" and library is not None and needs_gpu(library):
            raise NotMeasured("a CUDA extension, which needs a GPU")
        module = importlib.import_module(name)
        result = check(kernel, module, device, kind in ("ours", "drop-in"))
    except NotMeasured as reason:
        return {"outcome": "not-measured", "detail": str(reason)}
    except Exception as error:  # noqa: BLE001 - a broken extension may raise anything: that is its result
        # gsplat imports its compiled module when something is drawn
        if module is not None and not isinstance(error, ImportError):
            return judged(error, kind)
        detail = f"does not import: {type(error).__name__}: {error}"
        return {"outcome": "failed", "imported": False, "detail": detail}
    if kind == "drop-in":
        half = half_that_ran(kernel, name, device)
        result.update(half, detail="; ".join(filter(None, (result["detail"], half["detail"]))))
    return result


def main() -> int:
    """Check one implementation on one device and print two JSON objects: what runs, and the result; nothing of one that is not
    installed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kernel")
    parser.add_argument("implementation")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    name = options.implementation
    if find_module(name) is None:
        return 0
    row: Dict[str, Any] = {"name": options.kernel, "implementation": name}
    row.update(described(name), outcome="failed", detail="it was started")
    sys.stdout.write(f"\n{json.dumps(row)}\n")  # on a line of its own, whatever the module prints
    sys.stdout.flush()
    row.update(run_check(options.kernel, name, row["kind"], options.device))
    sys.stdout.write(f"\n{json.dumps(row)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
