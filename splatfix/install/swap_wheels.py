"""Makes drop-in wheels: our pure-PyTorch kernels under the name, module and signatures of an extension."""

from __future__ import annotations

import json
from pathlib import Path

from splatfix import __version__
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.resources import kernels_folder
from splatfix.core.step import run
from splatfix.install.dropin_templates import face_of
from splatfix.install.wheel_file import MANIFEST, write_wheel
from splatfix.plan.swap_table import Swap

_HEAD = '"""{what} in plain PyTorch: a drop-in that splatfix {version} put in the place of the CUDA extension."""\n'


def make_swap_wheel(swap: Swap, version: str, folder: Path) -> Path:
    """Write the wheel of a drop-in into ``folder``.

    Raises:
        SplatfixError: ``splatfix-incomplete`` when this installation of splatfix lacks a kernel.
    """
    folder.mkdir(parents=True, exist_ok=True)
    head = _HEAD.format(what=swap.name, version=__version__)
    files = {path: (head + text).encode() for path, text in face_of(swap).items()}
    files.setdefault(f"{swap.module}/__init__.py", head.encode())
    for kernel in swap.kernels:
        files[f"{swap.module}/_{kernel}"] = _kernel(kernel)
    manifest = {
        "schema_version": 1,
        "kind": "swap",
        "splatfix": __version__,
        "replaces": swap.module,
        "variant": swap.variant,
        "note": swap.note,
    }
    files[f"{_info(swap, version)}/{MANIFEST}"] = (json.dumps(manifest, indent=2) + "\n").encode()
    return write_wheel(
        folder, swap.distribution, version, files, f"Drop-in for {swap.name} in plain PyTorch, by splatfix"
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
            todo=(run("pip", "install", "--force-reinstall", "splatfix", text="Reinstall splatfix"),),
            exit_code=Exit.UNDETERMINED,
        ) from error


def _info(swap: Swap, version: str) -> str:
    return f"{swap.distribution.replace('-', '_')}-{version}.dist-info"
