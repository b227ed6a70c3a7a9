"""Small arrays of what the CUDA rasterizer gives, kept under tests/records, so that machines without a GPU hold ours against it.

Made on a GPU with `diff_gaussian_rasterization` (the Inria v1 family, no mip variant) installed:

    python -m tests.kernels.rasterizer_golden tests/records/rasterizer_cuda.npz

Exit code 3: they cannot be made here, and why is said.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Optional

import numpy as np
import torch
from torch import Tensor

from splatfix.kernels.rasterizer import GaussianRasterizationSettings

from .rasterizer_compare import cloud, look_at

Scene = tuple[GaussianRasterizationSettings, dict[str, Tensor]]

SCENES: dict[str, Callable[[], Scene]] = {
    "harmonics": lambda: (look_at(52, 38), cloud(60, seed=1)),
    "degree-0": lambda: (look_at(40, 40, sh_degree=0), cloud(40, seed=2, degree=0)),
    "precomputed": lambda: (look_at(37, 29), cloud(60, seed=3, precomputed=True, covariance=True)),
    "near-and-behind": lambda: (
        look_at(45, 33, distance=1.0),
        cloud(60, seed=4, spread=1.4, size=(0.02, 0.2)),
    ),
    "opaque": lambda: (look_at(33, 33, roll=0.0), opaque(cloud(60, seed=5, spread=0.4, size=(0.1, 0.5)))),
    "scaled": lambda: (look_at(40, 28, scale_modifier=0.4), cloud(60, seed=6, size=(0.003, 0.6))),
}


def opaque(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Opacities up to 1, so that the cap at 0.99 and the stop at 1e-4 act."""
    return dict(inputs, opacities=inputs["opacities"].sqrt().clamp(max=1.0))


def on(device: str, scene: Scene) -> tuple[GaussianRasterizationSettings, dict[str, Tensor], Tensor]:
    """Settings, leaves and means2D in float32 on a device."""
    settings, inputs = scene
    matrices = {
        name: getattr(settings, name).float().to(device)
        for name in ("bg", "viewmatrix", "projmatrix", "campos")
    }
    leaves = {name: tensor.float().to(device).requires_grad_() for name, tensor in inputs.items()}
    means2D = torch.zeros_like(leaves["means3D"]).requires_grad_()
    return settings._replace(**matrices), leaves, means2D


def variant(native: Any) -> Optional[str]:
    """Why these arrays cannot come from this build, or None."""
    fields = set(native.GaussianRasterizationSettings._fields)
    strange = fields - {"antialiasing"} - set(look_at(1, 1)._fields[:12])
    return f"it is another variant, with the settings {sorted(strange)}" if strange else None


def draw(native: Any, device: str, scene: Scene) -> dict[str, Tensor]:
    """Image, radii and every gradient of one scene, on the CPU."""
    settings, leaves, means2D = on(device, scene)
    fields = native.GaussianRasterizationSettings._fields
    chosen = native.GaussianRasterizationSettings(**{name: getattr(settings, name) for name in fields})
    color, radii = native.GaussianRasterizer(chosen)(means2D=means2D, **leaves)[:2]
    upstream = torch.randn(color.shape, generator=torch.Generator().manual_seed(3)).to(color.device)
    gradients = torch.autograd.grad(color, [*leaves.values(), means2D], upstream)
    result = {"color": color.detach().cpu(), "radii": radii.cpu(), "upstream": upstream.cpu()}
    return result | {f"grad_{name}": g.cpu() for name, g in zip([*leaves, "means2D"], gradients, strict=True)}


def make(native: Any, device: str, path: Path, made_with: dict[str, Any]) -> None:
    """Write inputs and results of every scene, and with what they were made."""
    arrays: dict[str, np.ndarray] = {"made_with": np.array(json.dumps(made_with))}
    for name, build in SCENES.items():
        scene = build()
        for key, tensor in scene[1].items():
            arrays[f"{name}/input/{key}"] = tensor.float().numpy()
        for key, tensor in draw(native, device, scene).items():
            arrays[f"{name}/{key}"] = tensor.numpy()
    np.savez_compressed(path, **arrays)


def check(ours: Any, path: Path, device: str = "cpu") -> dict[str, dict[str, float]]:
    """Differences per scene: of the image and the gradients (relative to the largest value), and the share of radii that are
    off by more than one. Raises ValueError where the stored inputs are not those that this torch makes."""
    kept = np.load(path)
    table: dict[str, dict[str, float]] = {}
    for name, build in SCENES.items():
        settings, inputs = build()
        for key in inputs:
            stored = torch.from_numpy(kept[f"{name}/input/{key}"])
            if not torch.allclose(stored, inputs[key].float(), rtol=1e-6, atol=1e-7):
                raise ValueError(
                    f"scene {name}: the stored {key} differ from what this torch makes of the seed"
                )
            inputs[key] = stored
        drawn = draw(ours, device, (settings, inputs))
        row = {
            "radii": float(
                ((drawn["radii"] - torch.from_numpy(kept[f"{name}/radii"])).abs() > 1).float().mean()
            )
        }
        error = (drawn["color"] - torch.from_numpy(kept[f"{name}/color"])).abs()
        row["color"], row["color_off"] = float(error.max()), float((error > 1e-4).float().mean())
        for key, value in drawn.items():
            if key.startswith("grad_"):
                expected = torch.from_numpy(kept[f"{name}/{key}"])
                row[key] = float((value - expected).abs().max() / expected.abs().max().clamp_min(1e-9))
        table[name] = row
    return table


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path)
    path: Path = parser.parse_args().path
    if not torch.cuda.is_available():
        print("torch sees no CUDA GPU: these arrays can only be made on one")
        return 3
    try:
        native = importlib.import_module("diff_gaussian_rasterization")
    except ImportError as error:
        print(f"diff_gaussian_rasterization cannot be imported here ({error}): splatfix install builds it")
        return 3
    binary = getattr(native, "_C", None)
    if binary is None or not str(getattr(binary, "__file__", "")).endswith((".so", ".pyd")):
        print("the installed diff_gaussian_rasterization is no CUDA build (a swap of splatfix, perhaps)")
        return 3
    why = variant(native)
    if why:
        print(f"the installed diff_gaussian_rasterization cannot make them: {why}")
        return 3
    made_with = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "gpu": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "settings": list(native.GaussianRasterizationSettings._fields),
    }
    make(native, "cuda", path, made_with)
    print(f"written: {path}, {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
