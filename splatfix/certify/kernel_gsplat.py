"""gsplat's ``rasterization``, called as Inria's rasterizer is, so that the probe holds both against one reference.

Runs inside the target environment; imports torch, and gsplat when it is called. Python 3.8.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import torch
from torch import Tensor


class GaussianRasterizationSettings(NamedTuple):
    """Those of Inria's that mean something to gsplat."""

    image_height: int
    image_width: int
    tanfovx: float
    tanfovy: float
    bg: Tensor
    viewmatrix: Tensor
    sh_degree: int
    antialiasing: bool


class GaussianRasterizer(torch.nn.Module):
    """One camera."""

    def __init__(self, raster_settings: GaussianRasterizationSettings) -> None:
        super().__init__()
        self.settings = raster_settings

    def forward(
        self,
        means3D: Tensor,
        means2D: Tensor,
        opacities: Tensor,
        shs: Tensor,
        scales: Tensor,
        rotations: Tensor,
    ) -> Any:
        """Color [3, H, W] and radii [P]; ``means2D`` gets the gradient that densification goes by."""
        camera = self.settings
        width, height = camera.image_width, camera.image_height
        intrinsics = torch.eye(3, device=means3D.device)
        intrinsics[0, 0], intrinsics[0, 2] = 0.5 * width / camera.tanfovx, 0.5 * width
        intrinsics[1, 1], intrinsics[1, 2] = 0.5 * height / camera.tanfovy, 0.5 * height
        colors, _, meta = importlib.import_module("gsplat").rasterization(
            means3D,
            rotations,
            scales,
            opacities[:, 0],
            shs,
            camera.viewmatrix.t()[None].contiguous(),
            intrinsics[None],
            width,
            height,
            sh_degree=camera.sh_degree,
            packed=False,
            backgrounds=camera.bg[None],
            rasterize_mode="antialiased" if camera.antialiasing else "classic",
        )

        def keep(gradient: Tensor) -> None:
            means2D.grad = torch.nn.functional.pad(gradient[0], (0, means2D.shape[1] - 2))

        if meta["means2d"].requires_grad:
            meta["means2d"].register_hook(keep)
        radii = meta["radii"][0]
        if radii.dim() == 2:  # from 1.5 on one for each axis
            radii = radii.amax(dim=1)
        return colors[0].permute(2, 0, 1), radii
