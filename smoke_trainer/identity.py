"""What really ran: for each part of a run the module that its function came from, its file's digest, and its calls."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Dict, Optional


class Counted:
    """A function of a part, which counts its calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.calls = 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.calls += 1
        return self.function(*arguments, **named)


def origin_of(function: Any) -> Dict[str, Optional[str]]:
    """The module that defines a function or class (or that itself is given), its `file` (the compiled one where it has
    one), and that file's `sha256`; None for what it does not tell."""
    module = function.__name__ if isinstance(function, ModuleType) else getattr(function, "__module__", None)
    loaded = sys.modules.get(module or "")
    file = library_of(module) if module else None
    if file is None and getattr(loaded, "__file__", None):
        file = Path(str(loaded.__file__))  # type: ignore[union-attr]
    return {"module": module, "file": None if file is None else _short(file), "sha256": digest_of(file)}


def engine_in_use(module: str, engine: str) -> str:
    """`nvrtc` or `warp` where the kernels of a module, a drop-in's or ours, ran as CUDA code that NVRTC or Warp compiled
    (see `ran` in splatfix/kernels/nvrtc.py); else what it was said to run on."""
    package = module.partition(".")[0]
    kernel = {
        "splatfix": module.rpartition(".")[2],
        "fused_ssim": "ssim",
        "simple_knn": "knn",
        "diff_surfel_rasterization": "surfels",
    }.get(package, "rasterizer")
    loaded = sys.modules.get("splatfix.kernels.nvrtc" if package == "splatfix" else f"{package}._nvrtc")
    ran: str = getattr(loaded, "ran", {}).get(kernel, "")
    return ran if ran in ("nvrtc", "warp") else engine


def library_of(module: str) -> Optional[Path]:
    """The compiled file of an imported module or of its extension module; None for splatfix's drop-ins."""
    names = (module, f"{module}._C", f"{module}_cuda", f"{module}.csrc")
    files = [getattr(sys.modules.get(name), "__file__", None) or "" for name in names]
    return next((Path(file) for file in files if file.endswith((".so", ".pyd"))), None)


def _short(file: Path) -> str:
    """Its path from the entry of sys.path that it was found in."""
    above = [parent for parent in file.parents if str(parent) in sys.path]
    return file.relative_to(above[0]).as_posix() if above else str(file)


def digest_of(file: Optional[Path]) -> Optional[str]:
    """SHA-256 of a file; None where it cannot be read."""
    if file is None:
        return None
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return None
