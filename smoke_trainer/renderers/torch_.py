"""The renderer on our own rasterizer in plain PyTorch: runs on any device."""

from __future__ import annotations

import torch
from torch import Tensor

from smoke_trainer.model import Splats
from smoke_trainer.renderers.base import RenderCamera, Renderer, RenderOutput


class TorchRenderer(Renderer):
    """splatfix.kernels.rasterizer behind the protocol."""

    kind = "torch"
    name = "splatfix.kernels.rasterizer"

    def __init__(self, device: torch.device, antialiasing: bool) -> None:
        import splatfix
        from splatfix.kernels import rasterizer

        self._kernel = rasterizer
        self._antialiasing = antialiasing
        self.version = splatfix.__version__
        self.engine = f"torch-{device.type}"

    def render(self, camera: RenderCamera, splats: Splats, background: Tensor) -> RenderOutput:
        """Draw with analytic gradients."""
        settings = self._kernel.GaussianRasterizationSettings(
            image_height=camera.height,
            image_width=camera.width,
            tanfovx=camera.tan_half_x,
            tanfovy=camera.tan_half_y,
            bg=background,
            scale_modifier=1.0,
            viewmatrix=camera.world_to_view,
            projmatrix=camera.world_to_clip,
            sh_degree=splats.sh_degree,
            campos=camera.position,
            prefiltered=False,
            debug=False,
            antialiasing=self._antialiasing,
        )
        screen_points = torch.zeros_like(splats.means, requires_grad=torch.is_grad_enabled())
        drawn = self._kernel.rasterize(
            settings,
            splats.means,
            screen_points,
            splats.opacities,
            shs=splats.shs,
            scales=splats.scales,
            rotations=splats.rotations,
        )
        return RenderOutput(drawn.color, drawn.radii, screen_points)
