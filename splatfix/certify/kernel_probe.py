"""Runs inside the target environment: one implementation of one kernel, called and held against a float64 reference.

A process of its own for each: an illegal address leaves no CUDA call of its process usable, and a crash takes the process along.
It prints a JSON object of what is about to run, and one of how it went. Imports torch and splatfix.kernels; Python 3.8.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import json
import re
import sys
import warnings
from importlib.machinery import EXTENSION_SUFFIXES, all_suffixes
from pathlib import Path
from typing import Any, Dict, FrozenSet, List, Optional

import torch

from splatfix.certify.kernel_agreement import judge, keep
from splatfix.certify.kernel_calls import CHECKS, NotMeasured
from splatfix.certify.kernel_references import BLANK
from splatfix.kernels.native import needs_gpu


def is_installed(name: str) -> bool:
    """Whether the module can be found; nothing is imported, for that may crash."""
    top, _, part = name.partition(".")
    if not part:
        return importlib.util.find_spec(top) is not None
    folders = folders_of(top)
    files = [f"{part}{suffix}" for suffix in all_suffixes()] + [f"{part}/__init__.py"]
    return any((folder / file).is_file() for folder in folders for file in files)


def library_of(name: str) -> Optional[Path]:
    """The compiled file of a module: its own, or that of its ``_C`` or ``_cuda`` part. Nothing is imported."""
    top, _, part = name.partition(".")
    for one in (top, f"{top}_cuda"):
        spec = importlib.util.find_spec(one)
        if spec is not None and spec.origin and spec.origin.endswith(tuple(EXTENSION_SUFFIXES)):
            return Path(spec.origin)
    for folder in folders_of(top):
        for suffix in EXTENSION_SUFFIXES:
            file = folder / f"{part or '_C'}{suffix}"
            if file.is_file():
                return file
    return None


def folders_of(package: str) -> List[Path]:
    """Where the modules of a package are; none where it is a module, or is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        return []
    return [Path(folder) for folder in spec.submodule_search_locations or ()]


@functools.lru_cache(maxsize=None)
def dropins() -> FrozenSet[str]:
    """Modules that installed drop-ins of splatfix replace; read once, because environments can be large."""
    replaced = []
    for distribution in importlib.metadata.distributions():
        try:
            manifest = json.loads(distribution.read_text("splatfix.json") or "null")
        except ValueError:  # a damaged manifest is none
            continue
        if isinstance(manifest, dict) and manifest.get("kind") == "drop-in":
            replaced.append(str(manifest.get("replaces")))
    return frozenset(replaced)


def kind_of(name: str) -> str:
    """``torch``, ``ours``, ``drop-in`` (made by splatfix), ``native`` (compiled), or ``python``."""
    if name == "torch":
        return "torch"
    if name.startswith("splatfix."):
        return "ours"
    if library_of(name) is not None:
        return "native"
    if name.partition(".")[0] in dropins():
        return "drop-in"
    return "python"


def origin_of(name: str) -> Dict[str, str]:
    """Version and file of a module; nothing is imported."""
    top = name.partition(".")[0]
    spec = importlib.util.find_spec(top)
    version = ""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        version = importlib.metadata.version(top.replace("_", "-"))
    return {"version": version, "file": str(library_of(name) or (spec.origin if spec else "") or "")}


# What an extension says when the fault lies with the call, before any kernel runs.
_REFUSED = re.compile(
    r"incompatible function arguments|must have dimensions|must be a CUDA tensor|must be contiguous|[Ee]xpected scalar type|"
    r"Expected all tensors|missing \d+ required|unexpected keyword"
)
# What a kernel leaves behind that failed, or that never ran: without its code, "num_rendered" is a random number.
_KERNEL_FAILED = re.compile(r"CUDA|cuda|out of memory|allocate|negative dimension|overflow|device-side")
_ALLOCATION = re.compile(r"tried to allocate ([0-9.]+) ?(bytes|[KMGTPE]iB)", re.IGNORECASE)
_UNITS = {"bytes": 1, **{f"{unit}ib": 1024**power for power, unit in enumerate("kmgtpe", 1)}}
_ABSURD = 1 << 40  # bytes: far beyond what the checks draw
# Why a GPU of which nothing is wrong cannot be used now.
_BUSY = re.compile(r"busy or unavailable|CUBLAS_STATUS_ALLOC_FAILED")


def is_occupied(text: str) -> bool:
    """Whether an error says that others use the GPU or its memory; a failed kernel asks for terabytes."""
    requested = _ALLOCATION.search(text)
    if requested is not None:
        return bool(float(requested[1]) * _UNITS[requested[2].lower()] < _ABSURD)
    return _BUSY.search(text) is not None


def failed_in_kernel(error: BaseException, device: str) -> bool:
    """Whether an exception of an extension shows that its kernel failed, rather than that it was called wrongly."""
    text = str(error)
    if _REFUSED.search(text):
        return False
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _KERNEL_FAILED.search(text)):
        return True
    if device == "cpu":
        return False
    try:
        torch.cuda.synchronize()  # whatever was launched before the exception
    except RuntimeError:
        return True
    return False


@functools.lru_cache(maxsize=None)
def no_gpu() -> str:
    """That torch finds no GPU, with the reason, which it gives in a warning and only once; "" where it finds one."""
    with warnings.catch_warnings(record=True) as text:
        warnings.simplefilter("always")
        if torch.cuda.is_available():
            return ""
    reasons = [" ".join(str(item.message).split()) for item in text]
    return ": ".join(["torch finds no GPU", *reasons]).rstrip(".")


def make_current(device: str) -> None:
    """Make the GPU the current one, on which extensions launch, and CUDA start on it, before anything of theirs is loaded."""
    try:
        torch.cuda.set_device(torch.device(device).index or 0)  # which refuses "cuda" without a number
        torch.zeros(1, device=device)
    except RuntimeError as error:
        raise NotMeasured(f"CUDA does not start on {device}: {str(error).partition(chr(10))[0]}") from None


def unrun_kernels(name: str, device: str) -> str:
    """The CUDA kernels of a drop-in, which the CPU cannot run; "" on a GPU, and for a drop-in without any."""
    top, _, part = name.partition(".")
    if device != "cpu" or top not in dropins():
        return ""
    for folder in folders_of(top):
        for place in (folder, folder / part):  # gsplat's drop-in is a package within it
            if (place / "_nvrtc.py").is_file():
                return "its CUDA code"
    return ""


def kernels_that_ran(kernel: str, name: str) -> str:
    """Which of its two implementations a drop-in with CUDA kernels took for its last call; "" for all else."""
    package, row = name.partition(".")[0], kernel
    if kernel == "gsplat":
        package, row = name, "gsplat rasterize_to_pixels_3dgs_fwd"
    ran = getattr(sys.modules.get(f"{package}._nvrtc"), "ran", {}).get(row, "")
    texts = {"": "", "nvrtc": "its CUDA kernels ran"}
    return texts.get(ran, f"pure PyTorch ran: {ran.partition(': ')[2]}")


def run_check(kernel: str, name: str, kind: str, device: str, own: Optional[Path] = None) -> Dict[str, Any]:
    """Compare one implementation with the reference, and with splatfix's own, whose results are kept in the file ``own``; an
    exception is its result."""
    try:
        if device != "cpu":
            if reason := no_gpu():
                raise NotMeasured(reason)
            make_current(device)
        library = library_of(name)
        if device == "cpu" and kind != "torch" and library is not None and needs_gpu(library):
            raise NotMeasured("a CUDA extension, which needs a GPU")
        module = importlib.import_module(name)
    except NotMeasured as stop:
        return dict(BLANK, outcome="not-measured", detail=str(stop))
    except Exception as error:  # noqa: BLE001 - a broken extension may raise anything while it loads
        return _not_imported(error)
    try:
        result = CHECKS[kernel](module, device, kind in ("ours", "drop-in"))
        ran = result.pop("ran", None)
        if own is not None and ran is not None:
            if kind == "ours":
                keep(own, ran)
            else:
                result = judge(own, ran, result)
        ran_by = kernels_that_ran(kernel, name)
        if unrun := unrun_kernels(name, device):
            ran_by = f"in its PyTorch half: no GPU ran {unrun}"
        detail = "; ".join(filter(None, (result["detail"], ran_by)))
        return dict(result, detail=detail, pytorch_half=bool(unrun))
    except NotMeasured as reason:
        return dict(BLANK, outcome="not-measured", detail=str(reason))
    except ImportError as error:  # gsplat imports its compiled module when something is drawn
        return _not_imported(error)
    except Exception as error:  # noqa: BLE001 - any exception of a kernel is its result
        text = f"{type(error).__name__}: {error}"
        if is_occupied(text):
            return dict(BLANK, outcome="not-measured", detail=text.partition("\n")[0])
        # the call of our own kernels is ours too: there it is no excuse
        if kind in ("torch", "ours", "drop-in") or failed_in_kernel(error, device):
            return dict(BLANK, outcome="failed", detail=text)
        first = text.partition("\n")[0]
        return dict(
            BLANK, outcome="not-measured", detail=f"splatfix calls it otherwise than it wants: {first}"
        )


def _not_imported(error: BaseException) -> Dict[str, Any]:
    text = f"does not import: {type(error).__name__}: {error}"
    return dict(BLANK, outcome="failed", imported=False, detail=text)


def main() -> int:
    """Check one implementation on one device and print two JSON objects: what runs, and the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kernel", choices=sorted(CHECKS))
    parser.add_argument("implementation")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--own", type=Path, help="file for the results of splatfix's own kernel")
    options = parser.parse_args()
    name = options.implementation
    row = {"name": options.kernel, "implementation": name, "kind": ""}
    if not name.startswith("splatfix.") and not is_installed(name):
        result = dict(BLANK, outcome="not-measured", detail="not installed in this environment")
    else:
        row.update(kind=kind_of(name), **origin_of(name))
        _say(dict(row, outcome="failed", detail="it was started"))
        result = run_check(options.kernel, name, row["kind"], options.device, options.own)
    _say({**row, **result})
    return 0


def _say(row: Dict[str, Any]) -> None:
    sys.stdout.write(f"\n{json.dumps(row)}\n")  # on a line of its own, whatever the module has printed
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
