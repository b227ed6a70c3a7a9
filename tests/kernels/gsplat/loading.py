"""gsplat's own Python, unmodified, with our module in place of its compiled one."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

FACES = {"1.5.3": "splatfix.kernels.gsplat_csrc", "1.4.0": "splatfix.kernels.gsplat_csrc_14"}


def folder_of(version: str) -> Path | None:
    """Where that release lies: None for the installed one; an older one is fetched once into the user's cache."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        if importlib.metadata.version("gsplat") == version:
            return None
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "splatfix" / "test-wheels" / f"gsplat-{version}"
    if not (folder / "gsplat" / "__init__.py").is_file():
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
        fetched = subprocess.run(
            [*command, f"gsplat=={version}"], capture_output=True, text=True, check=False
        )
        if fetched.returncode:
            pytest.skip(f"gsplat {version} cannot be had: {fetched.stderr.strip().splitlines()[-1]}")
    return folder


@contextlib.contextmanager
def loaded(version: str) -> Iterator[ModuleType]:
    """The package of that release, until the end; its compiled module is ours, and nerfacc's two functions are below."""
    pytest.importorskip("jaxtyping", reason="gsplat needs it")
    folder = folder_of(version)
    before = {name: module for name, module in sys.modules.items() if _is_ours(name)}
    for name in before:
        del sys.modules[name]
    if folder is not None:
        sys.path.insert(0, str(folder))
    sys.modules["gsplat.csrc"] = importlib.import_module(FACES[version])
    sys.modules["nerfacc"] = _nerfacc()
    try:
        package = importlib.import_module("gsplat")
        assert package.__version__ == version
        yield package
    finally:
        for name in [name for name in sys.modules if _is_ours(name)]:
            del sys.modules[name]
        sys.modules.update(before)
        if folder is not None:
            sys.path.remove(str(folder))


def _is_ours(name: str) -> bool:
    return name.split(".")[0] in ("gsplat", "nerfacc")


def _nerfacc() -> ModuleType:
    """What gsplat's torch references call of nerfacc, whose own needs CUDA: blending along rays, whose samples are sorted."""
    module = ModuleType("nerfacc")

    def render_weight_from_alpha(alphas: Tensor, ray_indices: Tensor, n_rays: int) -> tuple[Tensor, Tensor]:
        passing = torch.log1p(-alphas.double())
        ahead = torch.cumsum(passing, 0) - passing
        through = torch.exp(ahead - ahead[torch.searchsorted(ray_indices, ray_indices)])
        return (alphas * through).to(alphas.dtype), through.to(alphas.dtype)

    def accumulate_along_rays(
        weights: Tensor, values: Tensor | None, ray_indices: Tensor, n_rays: int
    ) -> Tensor:
        given = weights[:, None] if values is None else weights[:, None] * values
        return given.new_zeros(n_rays, given.shape[1]).index_add(0, ray_indices, given)

    vars(module).update(
        render_weight_from_alpha=render_weight_from_alpha, accumulate_along_rays=accumulate_along_rays
    )
    return module
