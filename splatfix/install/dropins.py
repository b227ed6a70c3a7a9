"""Makes drop-in wheels: our pure-PyTorch kernels under the name, module and signatures of a CUDA extension.

The templates hold what stands beside the copied kernels: the original's names, signatures and errors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from splatfix import __version__
from splatfix.core.errors import SplatfixError
from splatfix.core.resources import KERNELS
from splatfix.install.wheels import MANIFEST_VERSION, add_manifest, write_wheel
from splatfix.knowledge.dropins import Dropin
from splatfix.knowledge.faces import (
    BASE_SETTINGS,
    SUMS,
    DeclaredFace,
    role_of_argument,
    role_of_setting,
)
from splatfix.knowledge.stacks import variant

if TYPE_CHECKING:
    from jinja2 import Environment

_HEAD = '"""{name} {how}: a drop-in by splatfix {version} for the CUDA extension."""\n'
_HOW = {"pure": "in plain PyTorch", "nvrtc": "with CUDA kernels through NVRTC"}


@cache
def _templates() -> Environment:
    """The sources that stand beside the copied kernels."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # only where a drop-in is made

    return Environment(  # nosec B701
        loader=FileSystemLoader(Path(__file__).with_name("dropin_templates")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _source(name: str, **values: object) -> str:
    return _templates().get_template(f"{name}.py.j2").render(values)


def make_dropin_wheel(
    dropin: Dropin, version: str, folder: Path, compiled: Mapping[str, bytes] | None = None
) -> Path:
    """Write the wheel of a drop-in into ``folder``.

    Args:
        compiled: code of its CUDA kernels by file name, which it then carries with their sources; None for pure PyTorch.

    Raises:
        SplatfixError: ``splatfix-incomplete`` when this installation of splatfix lacks a kernel.
    """
    folder.mkdir(parents=True, exist_ok=True)
    backend = "pure" if compiled is None else "nvrtc"
    # the version is in the file itself: who finds it in site-packages years later knows where it came from
    head = _HEAD.format(name=dropin.name, how=_HOW[backend], version=__version__)
    # the source of what stands beside kernels and manifest, by path, without the first docstring
    if dropin.distribution in ("fused-ssim", "simple-knn"):
        sources = {dropin.api: _source(dropin.distribution)}
    elif dropin.host:
        served = json.dumps(dict(dropin.host_releases))
        sources = {dropin.api: _source("hosted", dropin=dropin, releases=served)}
    elif dropin.declared:
        sources = {dropin.api: _declared_package(dropin.declared)}
        sources[f"{dropin.module}/_C.py"] = _source("compiled-half", module=dropin.module, exports=())
    else:
        row = variant(dropin.serves[0])
        assert row is not None
        # the variants that drop-ins serve have settings, forward and returns; tests/knowledge holds it
        sources = {dropin.api: _source("rasterizer", row=row)}
        sources[f"{dropin.module}/_C.py"] = _source("compiled-half", module=row.module, exports=row.exports)
    files = {path: (head + text).encode() for path, text in sources.items()}
    files.setdefault(f"{dropin.folder}/__init__.py", head.encode())
    for kernel in dropin.kernels:
        files[f"{dropin.folder}/_{kernel}"] = _kernel(kernel)
    if compiled is not None:
        for kernel in dropin.cuda:
            name = kernel if kernel.startswith("cuda/") else f"_{kernel}"
            files[f"{dropin.folder}/{name}"] = _kernel(kernel)
        files |= {f"{dropin.folder}/cuda/{name}": code for name, code in compiled.items()}
    summary = f"Drop-in for {dropin.name} {_HOW[backend]}, by splatfix"
    requires: tuple[str, ...] = ()
    if dropin.host:  # so that pip names it where its host is upgraded
        releases = sorted(dropin.host_releases, key=Version)
        requires = (f"{dropin.host}>={releases[0]},<={releases[-1]}",)
    path = write_wheel(folder, dropin.distribution, version, files, summary, requires=requires)
    manifest = {
        "schema_version": MANIFEST_VERSION,
        "kind": "drop-in",
        "splatfix": __version__,
        "replaces": dropin.host or dropin.module,
        "variant": dropin.variant,
        "backend": backend,
        "note": "",
    }
    if backend == "pure":
        manifest["note"] = dropin.note  # it speaks of the speed and limits of plain PyTorch
    add_manifest(path, manifest)
    return path


def _kernel(name: str) -> bytes:
    path = KERNELS / name
    try:
        # in the wheel a kernel's neighbors have the names that they have there
        return path.read_bytes().replace(b"from splatfix.kernels.", b"from ._")
    except OSError as error:
        reason = error.strerror or error
        raise SplatfixError.of("install.splatfix-incomplete", path=path, reason=reason) from error


def _declared_package(face: DeclaredFace) -> str:
    """The package of a face that was declared."""
    option, instead = face.instead
    return _source(
        "declared",
        face=face,
        options=tuple(
            name for name in face.settings if name in BASE_SETTINGS or role_of_setting(name) == "option"
        ),
        settings={role_of_setting(name): name for name in face.settings},
        arguments={role_of_argument(name): name for name in face.forward},
        role_of=role_of_argument,
        sums=SUMS,
        option=option,
        instead=instead,
    )
