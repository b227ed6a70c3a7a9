"""Whether anything can run here: asked before the first step, answered in one line."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

from splatfix.core.runner import ProcessRunner
from splatfix.facts.machine import nvml

from .context import CHILDREN, SOURCES

# The kernels' and the trainer's; what splatfix and builds of extensions import; pytest. Looked for by their metadata:
# asking for the module pip would turn off setuptools' distutils in this process.
NEEDED = (
    "torch",
    "numpy",
    "pillow",
    "typer",
    "rich",
    "packaging",
    "nvidia-ml-py",
    "pip",
    "setuptools",
    "wheel",
    "ninja",
    "pytest",
    *(() if sys.version_info >= (3, 11) else ("tomli",)),
)


def missing(needed: Iterable[str] | None = None) -> list[str]:
    """The distributions that this Python lacks."""
    return [name for name in (NEEDED if needed is None else needed) if not _is_there(name)]


def _is_there(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def what_to_carry(lacking: Iterable[str]) -> str:
    """What is missing and how to bring it, in a line."""
    names = " ".join(lacking)
    return (
        f"this Python lacks {names.replace(' ', ', ')}. Carry the wheels in the folder of the sources: "
        f"python3 -m pip download --no-deps --only-binary=:all: --dest DIR {names}; make gpu-check GPU_SOURCES=DIR"
    )


def unpack_wheels(sources: Path | None, site: Path) -> str:
    """Unpack the wheels that lie beside the sources, and let this Python find them; the folder, or "" where there are none."""
    wheels = sorted(sources.glob("*.whl")) if sources else []
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    if not wheels:
        return ""
    sys.path.append(str(site))
    importlib.invalidate_caches()
    return str(site)


def sources_in(folder: Path | None) -> tuple[dict[str, str], list[str]]:
    """The sources of a folder by their names, and what else lies there."""
    if folder is None:
        return {}, []
    there = {path.name: str(path) for path in sorted(folder.iterdir()) if path.is_dir()}
    known = {name: place for name, place in there.items() if name in SOURCES}
    return known, sorted(there.keys() - known.keys())


def machine() -> tuple[dict[str, str], str]:
    """GPU, torch and Python for the record; and why nothing can be run on a GPU, "" where it can."""
    argv = [sys.executable, CHILDREN / "about_torch.py"]
    done = ProcessRunner().run(argv, timeout=120, env=dict(os.environ))
    about = {"python": ".".join(map(str, sys.version_info[:3]))}
    try:
        torch = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return about, f"torch cannot be asked: {done.why() or 'no readable answer'}"
    about |= {"torch": str(torch["torch"]), "cuda": str(torch["cuda"])}
    if torch["cuda"] is None:
        return about, f"torch {torch['torch']} of {sys.executable} is built without CUDA"
    if not torch["gpus"]:
        said = done.stderr.strip().splitlines()
        seen = "nvidia-smi is there" if shutil.which("nvidia-smi") else "no nvidia-smi is there"
        return about, f"torch {torch['torch']} sees no GPU ({said[-1].strip() if said else seen})"
    first = torch["gpus"][0]
    told = nvml.ask()
    about["driver"] = told.get("driver") or f"unknown ({told.get('error', 'NVML does not tell it')})"
    about |= {"gpu": str(first["name"]), "capability": str(first["cc"]), "gpus": str(len(torch["gpus"]))}
    return about, ""
