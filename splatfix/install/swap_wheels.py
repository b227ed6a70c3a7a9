"""Makes drop-in wheels: our pure-PyTorch kernels under the name, module and signatures of an extension."""

from __future__ import annotations

import json
from pathlib import Path

from splatfix import __version__
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.resources import kernels_folder
from splatfix.install.wheel_file import MANIFEST, write_wheel
from splatfix.resolve.swaps import SWAPS, Swap

_HEAD = '"""{what} in plain PyTorch: a drop-in that splatfix {version} put in the place of the CUDA extension."""\n'

# What stands in a drop-in beside the copied kernels: the original's names, signatures and errors, and nothing else.
_FACES = {
    "fused-ssim": '''
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
''',
    "simple-knn": """
from ._knn import distCUDA2

__all__ = ["distCUDA2"]
""",
}


def make_swap_wheel(distribution: str, version: str, folder: Path) -> Path:
    """Write the wheel of a drop-in into ``folder``.

    Raises:
        SplatfixError: ``splatfix-incomplete`` when this installation of splatfix lacks a kernel.
    """
    swap = next(item for item in SWAPS if item.distribution == distribution)
    folder.mkdir(parents=True, exist_ok=True)
    head = _HEAD.format(what=swap.module, version=__version__)
    files = {swap.face: (head + _FACES[distribution]).encode()}
    if not swap.face.endswith("__init__.py"):
        files[f"{swap.module}/__init__.py"] = head.encode()
    for kernel in swap.kernels:
        files[f"{swap.module}/_{kernel}"] = _kernel(kernel)
    manifest = {
        "schema_version": 1,
        "kind": "swap",
        "splatfix": __version__,
        "replaces": swap.module,
        "note": swap.note,
    }
    files[f"{_info(swap, version)}/{MANIFEST}"] = (json.dumps(manifest, indent=2) + "\n").encode()
    return write_wheel(
        folder, distribution, version, files, f"Drop-in for {swap.module} in plain PyTorch, by splatfix"
    )


def _kernel(name: str) -> bytes:
    path = kernels_folder() / name
    try:
        return path.read_bytes()
    except OSError as error:
        raise SplatfixError(
            "splatfix-incomplete",
            f"splatfix's own {path} cannot be read: {error.strerror or error}.",
            meaning="Nothing was changed.",
            todo=("Reinstall splatfix: pip install --force-reinstall splatfix",),
            exit_code=Exit.UNDETERMINED,
        ) from error


def _info(swap: Swap, version: str) -> str:
    return f"{swap.distribution.replace('-', '_')}-{version}.dist-info"
