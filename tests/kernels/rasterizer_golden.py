"""Small arrays of what the CUDA rasterizer gives, kept under tests/records, so that machines without a GPU hold ours against it.

Made on a GPU with `diff_gaussian_rasterization` (the Inria v1 family, no mip variant) installed:

    python -m tests.kernels.rasterizer_golden tests/records/rasterizer_cuda.npz
"""

import importlib
import json
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from splatfix.kernels.rasterizer import GaussianRasterizationSettings, GaussianRasterizer
from tests.tables import data

from .compare import in_precision
from .gaussian_cases import clouded
from .scenes import Inputs

Scene = tuple[GaussianRasterizationSettings, Inputs]
Arrays = Mapping[str, np.ndarray]


class V1Settings(GaussianRasterizationSettings):
    """The twelve fields of the first generation, as the extension names them."""

    _fields = GaussianRasterizationSettings._fields[:12]


def upstream(settings: V1Settings) -> GaussianRasterizer:
    """Return ours with the extension's gradients: without the factor `scale_modifier` in those of `scales`."""
    return GaussianRasterizer(GaussianRasterizationSettings(*settings)._replace(upstream_gradients=True))


OURS = SimpleNamespace(GaussianRasterizationSettings=V1Settings, GaussianRasterizer=upstream)
"""As the extension's module."""
LIMITS = {"radii": 0.0, "color": 1e-2, "pixels": 1e-3}
"""Largest differences: single precision on either side, in another order; of gradients 1e-2."""

SCENES = data(__file__)["scenes"]


def scene_of(name: str) -> Scene:
    settings, inputs, *_ = clouded(**SCENES[name])
    if name == "opaque":  # opacities up to 1, so that the cap at 0.99 and the stop at 1e-4 act
        inputs["opacities"] = inputs["opacities"].sqrt().clamp(max=1.0)
    return settings, inputs


def draw(native: Any, device: str, scene: Scene) -> dict[str, np.ndarray]:
    """Image, radii and every gradient of one scene."""
    settings = in_precision(scene[0], torch.float32, device)
    leaves = {name: tensor.float().to(device).requires_grad_() for name, tensor in scene[1].items()}
    leaves["means2D"] = torch.zeros_like(leaves["means3D"]).requires_grad_()
    fields = native.GaussianRasterizationSettings._fields
    chosen = native.GaussianRasterizationSettings(**{name: getattr(settings, name) for name in fields})
    color, radii = native.GaussianRasterizer(chosen)(**leaves)[:2]
    upstream = torch.randn(color.shape, generator=torch.Generator().manual_seed(3)).to(color.device)
    gradients = torch.autograd.grad(color, list(leaves.values()), upstream)
    tensors = {"color": color.detach(), "radii": radii, "upstream": upstream}
    tensors |= {f"grad_{name}": gradient for name, gradient in zip(leaves, gradients, strict=True)}
    return {name: tensor.cpu().numpy() for name, tensor in tensors.items()}


def make(native: Any, device: str, path: Path, made_with: dict[str, Any]) -> None:
    """Write inputs and results of every scene, and with what they were made."""
    arrays: dict[str, np.ndarray] = {"made_with": np.array(json.dumps(made_with))}
    for name in SCENES:
        scene = scene_of(name)
        for key, tensor in scene[1].items():
            arrays[f"{name}/input/{key}"] = tensor.float().numpy()
        for key, array in draw(native, device, scene).items():
            arrays[f"{name}/{key}"] = array
    np.savez_compressed(path, **arrays)


def check(ours: Any, path: Path, device: str = "cpu") -> dict[str, dict[str, float]]:
    """Differences per scene. Raises ValueError where the stored inputs are not those that this torch makes."""
    kept = np.load(path)
    table: dict[str, dict[str, float]] = {}
    for name in SCENES:
        settings, inputs = scene_of(name)
        for key in inputs:
            stored = torch.from_numpy(kept[f"{name}/input/{key}"])
            if not torch.allclose(stored, inputs[key].float(), rtol=1e-6, atol=1e-7):
                raise ValueError(
                    f"scene {name}: the stored {key} differ from what this torch makes of the seed"
                )
            inputs[key] = stored
        drawn = draw(ours, device, (settings, inputs))
        table[name] = differences(drawn, {key: kept[f"{name}/{key}"] for key in drawn})
    return table


def differences(result: Arrays, expected: Arrays) -> dict[str, float]:
    """Of the image (largest, and the share of pixels off by more than 1e-4), the share of radii off by more than one pixel,
    and of every gradient relative to its largest entry; NaN counts as infinite.
    """
    assert [result[name].shape for name in result] == [expected[name].shape for name in result]
    errors = {name: np.abs(result[name].astype(np.float64) - expected[name]) for name in result}
    table = {
        "color": _worst(errors["color"]),
        "pixels": float(np.mean(~(errors["color"] <= 1e-4))),
        "radii": float(np.mean(~(errors["radii"] <= 1))),
    }
    for name, error in errors.items():
        if name.startswith("grad_"):
            table[name] = _worst(error) / max(float(np.abs(expected[name]).max()), 1e-12)
    return table


def _worst(errors: np.ndarray) -> float:
    return float(errors.max()) if np.isfinite(errors).all() else float("inf")


def beyond(row: Mapping[str, float]) -> list[str]:
    """What is beyond its limit, in words."""
    off = [name for name, value in row.items() if not value <= LIMITS.get(name, 1e-2)]
    return [f"{name} {row[name]:.1e}" for name in off]


def main() -> None:
    path, native = Path(sys.argv[1]), importlib.import_module("diff_gaussian_rasterization")
    binary = str(getattr(getattr(native, "_C", None), "__file__", ""))
    if not torch.cuda.is_available() or not binary.endswith((".so", ".pyd")):
        sys.exit(
            "these arrays can only be made on a CUDA GPU, and by the compiled extension, not by a drop-in"
        )
    made_with = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "gpu": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "settings": list(native.GaussianRasterizationSettings._fields),
    }
    make(native, "cuda", path, made_with)
    print(f"written: {path}, {path.stat().st_size} bytes; how far our rasterizer on the CPU is off:")
    print(json.dumps(check(OURS, path)))


if __name__ == "__main__":
    main()
