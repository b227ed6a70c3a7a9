"""The renderer on gsplat's CUDA kernels (1.0 and later)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from smoke_trainer.errors import RendererUnavailable
from smoke_trainer.model import Splats
from smoke_trainer.renderers.base import RenderCamera, Renderer, RenderOutput

NEAR_PLANE = 0.2  # where the reference rasterizer culls


class GsplatRenderer(Renderer):
    """gsplat.rasterization behind the protocol."""

    kind = "gsplat"
    name = "gsplat"

    def __init__(self, device: torch.device, antialiasing: bool) -> None:
        self._gsplat = _import_gsplat(device)
        self._mode = "antialiased" if antialiasing else "classic"
        self.version = str(getattr(self._gsplat, "__version__", "unknown"))
        self.engine = "cuda"

    def render(self, camera: RenderCamera, splats: Splats, background: Tensor) -> RenderOutput:
        """Draw; gsplat's screen positions are in pixels, hence the scale of W/2, H/2 to NDC units."""
        used = (splats.sh_degree + 1) ** 2
        colors, _, meta = self._gsplat.rasterization(
            splats.means,
            splats.rotations,
            splats.scales,
            splats.opacities[:, 0],
            splats.shs[:, :used],
            camera.world_to_view.T[None].contiguous(),
            camera.intrinsics[None],
            camera.width,
            camera.height,
            near_plane=NEAR_PLANE,
            eps2d=0.3,
            sh_degree=splats.sh_degree,
            packed=False,
            backgrounds=background[None],
            rasterize_mode=self._mode,
        )
        points: Tensor = meta["means2d"]
        if points.requires_grad:
            points.retain_grad()
        radii: Tensor = meta["radii"]
        if radii.dim() == 3:  # from 1.5 on one radius per axis
            radii = radii.amax(dim=-1)
        scale = (0.5 * camera.width, 0.5 * camera.height)
        return RenderOutput(colors[0].permute(2, 0, 1), radii.reshape(-1), points, scale)


def _import_gsplat(device: torch.device) -> Any:
    if device.type != "cuda":
        raise RendererUnavailable(
            f"gsplat cannot draw on {device.type}",
            "its rasterizer exists as CUDA kernels only, although the package imports without them",
            "use --device cuda on a machine with an NVIDIA GPU, or --renderer torch",
        )
    try:
        import gsplat
        from gsplat.cuda import _backend
    except Exception as error:  # noqa: BLE001  (a broken extension may raise anything while it loads)
        raise RendererUnavailable(
            f"gsplat cannot be imported: {type(error).__name__}: {error}",
            "it is not installed here, or its extension does not fit this torch",
            "install gsplat for this torch, or use --renderer torch",
        ) from None
    if getattr(_backend, "_C", None) is None:
        raise RendererUnavailable(
            "gsplat is installed without its CUDA extension",
            "it found neither a compiled extension nor nvcc to build one",
            "install a CUDA toolkit that fits torch, or a gsplat wheel with the extension",
        )
    return gsplat
