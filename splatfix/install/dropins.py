"""Makes drop-in wheels: our pure-PyTorch kernels under the name, module and signatures of a CUDA extension.

The templates hold what stands beside the copied kernels: the original's names, signatures and errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from splatfix import __version__
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.resources import kernels_folder
from splatfix.core.step import run
from splatfix.install.rasterizer_templates import compiled_half, rasterizer_package
from splatfix.install.wheels import MANIFEST_VERSION, add_manifest, write_wheel
from splatfix.knowledge.dropins import Dropin
from splatfix.knowledge.stacks import variant

_HEAD = '"""{name} {how}: a drop-in by splatfix {version} for the CUDA extension."""\n'
_HOW = {"pure": "in plain PyTorch", "nvrtc": "with CUDA kernels through NVRTC", "warp": "on gswarp"}

_CALLS = re.compile(rb"from \._(ssim|knn|rasterizer|contributions)_cuda import")

_FUSED_SSIM = '''
from ._ssim import fused_ssim as _fused_ssim
from ._ssim import fused_ssim3d as _fused_ssim3d

allowed_padding = ["same", "valid"]


def fused_ssim(img1, img2, padding="same", train=True):
    """Mean SSIM of [B, C, H, W] images as a scalar; the gradient goes to img1."""
    assert padding in allowed_padding
    return _fused_ssim(img1, img2, padding, train)


def fused_ssim3d(img1, img2, padding="same", train=True):
    """Mean SSIM of [B, C, D, H, W] volumes as a scalar; the gradient goes to img1."""
    assert padding in allowed_padding
    return _fused_ssim3d(img1, img2, padding, train)
'''

_SIMPLE_KNN = """
from ._knn import distCUDA2

__all__ = ["distCUDA2"]
"""


def make_dropin_wheel(
    dropin: Dropin,
    version: str,
    folder: Path,
    compiled: Mapping[str, bytes] | None = None,
    *,
    gswarp: bool = False,
) -> Path:
    """Write the wheel of a drop-in into ``folder``.

    Args:
        compiled: code of its CUDA kernels by file name, which it then carries with their sources; None for pure PyTorch.
        gswarp: it calls gswarp for tensors on a GPU.

    Raises:
        SplatfixError: ``splatfix-incomplete`` when this installation of splatfix lacks a kernel.
    """
    folder.mkdir(parents=True, exist_ok=True)
    backend = "pure"
    if gswarp:
        backend = "warp"
    elif compiled is not None:
        backend = "nvrtc"
    head = _HEAD.format(name=dropin.name, how=_HOW[backend], version=__version__)
    files = {path: (head + text).encode() for path, text in _templates(dropin).items()}
    files.setdefault(f"{dropin.module}/__init__.py", head.encode())
    for kernel in dropin.kernels:
        files[f"{dropin.module}/_{kernel}"] = _kernel(kernel)
    if compiled is not None:
        for kernel in dropin.cuda:
            name = kernel if kernel.startswith("cuda/") else f"_{kernel}"
            files[f"{dropin.module}/{name}"] = _kernel(kernel)
        files |= {f"{dropin.module}/cuda/{name}": code for name, code in compiled.items()}
    if gswarp:  # what calls our own kernels calls it
        files = {path: _CALLS.sub(rb"from ._on_warp import", text) for path, text in files.items()}
        files |= {f"{dropin.module}/_{name}": _kernel(name) for name in ("nvrtc.py", "on_warp.py")}
    summary = f"Drop-in for {dropin.name} {_HOW[backend]}, by splatfix"
    path = write_wheel(folder, dropin.distribution, version, files, summary)
    manifest = {
        "schema_version": MANIFEST_VERSION,
        "kind": "drop-in",
        "splatfix": __version__,
        "replaces": dropin.module,
        "variant": dropin.variant,
        "backend": backend,
        "note": "",
    }
    if backend == "pure":
        manifest["note"] = dropin.note  # it speaks of the speed and limits of plain PyTorch
    add_manifest(path, manifest)
    return path


def _kernel(name: str) -> bytes:
    path = kernels_folder() / name
    try:
        # in the wheel a kernel's neighbors have the names that they have there
        return path.read_bytes().replace(b"from splatfix.kernels.", b"from ._")
    except OSError as error:
        raise SplatfixError(
            "splatfix-incomplete",
            f"splatfix's own {path} cannot be read: {error.strerror or error}.",
            meaning="Nothing was changed.",
            todo=(run("pip", "install", "--force-reinstall", "splatfix", text="Reinstall splatfix"),),
            exit_code=Exit.UNDETERMINED,
        ) from error


def _templates(dropin: Dropin) -> dict[str, str]:
    """Files of the drop-in beside its kernels and manifest, by path: their Python source without the first docstring."""
    if dropin.distribution == "fused-ssim":
        return {dropin.api: _FUSED_SSIM}
    if dropin.distribution == "simple-knn":
        return {dropin.api: _SIMPLE_KNN}
    row = variant(dropin.serves[0])
    assert row is not None
    return {dropin.api: rasterizer_package(row), f"{dropin.module}/_C.py": compiled_half(row)}
