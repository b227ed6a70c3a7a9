"""What must be here before the first step, and what this machine and its torch are."""

import json
import sys
from pathlib import Path
from typing import Any

from splatfix.core.runner import Runner

ABOUT_TORCH = Path(__file__).with_name("about_torch.py")
PACKAGES = {name: name for name in ["torch", "numpy", "hypothesis", "packaging", "typer", "rich", "jinja2"]}
PACKAGES |= {"pillow": "PIL", "nvidia-ml-py": "pynvml"}
PACKAGES |= {name: name for name in ["msgspec", "filelock", "fastjsonschema", "tomli"]}
"""What splatfix, the trainer and the tests import, by distribution."""
PEERS = {name: name.replace("-", "_") for name in ("fused-ssim", "simple-knn", "gsplat")}
PEERS |= {"inria-v1": "diff_gaussian_rasterization"}
"""Folder in GPU_SOURCES, which `install` knows too -> package, whose wheel serves as well."""
VARIANTS = ("inria-2024", "mip-splatting", "taming-3dgs")
"""More folders: rasterizers of the same name as inria-v1, each in an environment of its own."""


def torch_says(python: str = sys.executable) -> tuple[dict[str, Any], str]:
    """Ask torch in a child for its build and its GPUs; the second says why it gave no answer."""
    done = Runner().run([python, ABOUT_TORCH], timeout=120)
    try:
        return dict(json.loads(done.stdout.splitlines()[-1])), ""
    except (ValueError, IndexError):
        return {}, f"torch cannot be asked: {done.why() or 'no readable answer'}"


def machine() -> tuple[dict[str, str], str]:
    """Return GPU, driver, torch and Python for the record; and why nothing can run on a GPU, "" where it can."""
    from splatfix.facts.machine import nvml

    torch, obstacle = torch_says()
    if obstacle or not torch["gpus"]:
        built = "is built without CUDA" if torch.get("cuda") is None else "sees no GPU"
        return {}, obstacle or f"torch {torch['torch']} of {sys.executable} {built}"
    told, first = nvml.ask(), torch["gpus"][0]
    driver = str(told.get("driver") or f"unknown ({told.get('error', 'NVML does not tell it')})")
    about = {"gpu": first["name"], "capability": first["cc"], "driver": driver, "torch": torch["torch"]}
    return {**about, "cuda": torch["cuda"], "python": sys.version.split()[0]}, ""
