"""What really ran: for each part of a run the module that its function came from, its file's digest, and its calls."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, Optional, Tuple


def implementation_of(entry: Any, name: str, version: str, engine: str, calls: int) -> Dict[str, Any]:
    """What ran as one part, for result.json; `entry` is its function, its class, or the compiled module itself. None for what
    it does not tell."""
    module, file = origin_of(entry)
    return {
        "name": name,
        "version": version,
        "engine": engine_in_use(name, engine),
        "module": module,
        "file": None if file is None else _short(file),
        "sha256": None if file is None else digest_of(file),
        "calls": calls,
    }


def origin_of(entry: Any) -> Tuple[Optional[str], Optional[Path]]:
    """The module of a function, class or module, and its file: the compiled one where it has one; None for what it hides."""
    module = getattr(entry, "__module__", None)
    if isinstance(entry, ModuleType):
        module = entry.__name__
    if module is None:
        return None, None
    library = library_of(module)
    source = getattr(sys.modules.get(module), "__file__", None)
    if library is None and source:
        return module, Path(source)
    return module, library


def engine_in_use(module: str, engine: str) -> str:
    """`nvrtc` where the kernels of a module, a drop-in's or ours, ran as CUDA code that NVRTC compiled (see `ran` in
    splatfix/kernels/nvrtc.py); else what it was said to run on."""
    package = module.partition(".")[0]
    kernel = {
        "splatfix": module.rpartition(".")[2],
        "fused_ssim": "ssim",
        "simple_knn": "knn",
        "diff_surfel_rasterization": "surfels",
        "gsplat": "gsplat rasterize_to_pixels_3dgs_fwd",
    }.get(package, "rasterizer")
    compiler = "splatfix.kernels.nvrtc"
    if package != "splatfix":  # a drop-in carries a copy of its own
        compiler = f"{package}._nvrtc" if package != "gsplat" else "gsplat.csrc._nvrtc"
    compiled_by: str = getattr(sys.modules.get(compiler), "ran", {}).get(kernel, "")
    return compiled_by if compiled_by == "nvrtc" else engine


def library_of(module: str) -> Optional[Path]:
    """The compiled file of an imported module or of its extension module; None for splatfix's drop-ins."""
    names = (module, f"{module}._C", f"{module}_cuda", f"{module}.csrc")
    files = [getattr(sys.modules.get(name), "__file__", None) or "" for name in names]
    return next((Path(file) for file in files if file.endswith((".so", ".pyd"))), None)


def _short(file: Path) -> str:
    """Its path from the entry of sys.path that it was found in."""
    for parent in file.parents:
        if str(parent) in sys.path:
            return file.relative_to(parent).as_posix()
    return str(file)


def digest_of(file: Path) -> Optional[str]:
    """SHA-256 of a file; None where it cannot be read."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return None
