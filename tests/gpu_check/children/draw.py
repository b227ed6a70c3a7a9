"""Draws one frozen scene and pulls one frozen gradient back: image, radii, every gradient, into an .npz.

    draw RENDERER DEVICE FILE [VARIANT]

RENDERER is one of smoke_trainer's, or `reference`: our kernel in float64 on the CPU, with what VARIANT adds to the base
rasterizer. Prints what drew as JSON.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from kernels.compare import in_precision
from kernels.scenes import cloud, look_at

from smoke_trainer.model import Splats
from smoke_trainer.renderers import MIP_KERNEL_SIZE, RenderCamera, RenderOutput, make_renderer
from splatfix.kernels.rasterizer import rasterize

WIDTH, HEIGHT, COUNT = 120, 90, 500
ORDER = ("means3D", "scales", "rotations", "opacities", "shs")
"""Of Splats."""


def scene() -> tuple[Any, dict[str, torch.Tensor], torch.Tensor]:
    """Camera, Gaussians and upstream gradient, all in float32 values; opacities stay below gsplat's and Inria's caps."""
    settings, inputs = look_at(WIDTH, HEIGHT), cloud(COUNT, size=(0.02, 0.3))
    inputs["opacities"] = inputs["opacities"] * 0.9
    upstream = torch.randn(3, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(3))
    return settings, {name: tensor.float() for name, tensor in inputs.items()}, upstream


def camera_of(settings: Any, device: torch.device | str) -> RenderCamera:
    """The camera as the trainer's renderers take it."""
    width, height = settings.image_width, settings.image_height
    focal_x, focal_y = width / (2 * settings.tanfovx), height / (2 * settings.tanfovy)
    intrinsics = torch.tensor([[focal_x, 0.0, width / 2], [0.0, focal_y, height / 2], [0.0, 0.0, 1.0]])
    there = in_precision(settings, torch.float32, device)
    matrices = (there.viewmatrix, there.projmatrix, intrinsics.to(device), there.campos)
    return RenderCamera(width, height, settings.tanfovx, settings.tanfovy, *matrices)


def reference(settings: Any, inputs: dict[str, torch.Tensor], variant: str) -> tuple[Any, torch.Tensor]:
    """Our kernel in float64 on float32's inputs."""
    points = torch.zeros(COUNT, 3, dtype=torch.float64, requires_grad=True)
    exact = in_precision(in_precision(settings, torch.float32), torch.float64)
    if variant == "mip-splatting":
        offsets = torch.zeros(HEIGHT, WIDTH, 2, dtype=torch.float64)
        exact = exact._replace(kernel_size=MIP_KERNEL_SIZE, subpixel_offset=offsets)
    return rasterize(exact, means2D=points, **inputs), points


def main() -> None:
    name, device, target, variant = (*sys.argv[1:4], *(sys.argv[4:] or [""]))
    settings, given, upstream = scene()
    if name == "reference":
        leaves = {key: tensor.double().requires_grad_() for key, tensor in given.items()}
        drawn, points = reference(settings, leaves, variant)
        output = RenderOutput(drawn.color, drawn.radii, points)
        engine = "float64"
    else:
        chosen_device = torch.device(device)
        renderer = make_renderer(name, chosen_device)
        leaves = {key: tensor.to(chosen_device).requires_grad_() for key, tensor in given.items()}
        splats = Splats(*(leaves[key] for key in ORDER), sh_degree=settings.sh_degree)
        background = settings.bg.float().to(chosen_device)
        output = renderer.render(camera_of(settings, chosen_device), splats, background)
        if name == "gsplat":
            output.means2d.retain_grad()
        variant, engine = getattr(renderer, "variant", ""), renderer.engine
    (output.color * upstream.to(output.color)).sum().backward()
    screen = output.grad2d()
    arrays = {"color": output.color, "radii": output.radii, "grad_screen": screen}
    arrays.update({f"grad_{key}": leaf.grad for key, leaf in leaves.items()})
    absent = [key for key, array in arrays.items() if array is None]
    result = {key: array.detach().cpu().numpy() for key, array in arrays.items() if array is not None}
    partial = Path(f"{target}.{os.getpid()}.npz")
    np.savez_compressed(partial, **result)
    partial.replace(target)
    print(json.dumps({"variant": variant, "engine": engine, "absent": absent}))


if __name__ == "__main__":
    main()
