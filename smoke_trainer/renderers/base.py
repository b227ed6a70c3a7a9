"""The protocol that every renderer fulfils, and the camera in the matrices that rasterizers take.

What drawing means (Kerbl et al. 2023, section 4 and 6), whichever renderer does it: each Gaussian's covariance
R S S^T R^T, seen through the camera, becomes an ellipse on screen; its spherical harmonics, seen from the camera, become
a colour. A pixel takes the Gaussians that cover it from front to back, each with alpha = opacity * exp(-d^2 / 2), d being
its distance from the centre in standard deviations, and adds colour * alpha * (1 - what is already covered).
All of it is differentiable, so that one backward pass tells every parameter how it should change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

import torch
from torch import Tensor

from smoke_trainer.data.scene import View
from smoke_trainer.errors import UsageError
from smoke_trainer.model import Splats

NAMES = ("torch", "gsplat", "inria")
NEAR, FAR = 0.01, 100.0


@dataclass(frozen=True)
class RenderCamera:
    """A view as tensors on a device.

    Matrices are transposed (points are row vectors), as the reference rasterizer wants them. The projection holds the
    principal point; pixel centres are at +0.5, so the reference's screen position ((ndc + 1) W - 1) / 2 agrees.
    """

    width: int
    height: int
    tan_half_x: float
    tan_half_y: float
    world_to_view: Tensor  # [4, 4], transposed
    world_to_clip: Tensor  # [4, 4], transposed
    intrinsics: Tensor  # [3, 3]
    position: Tensor  # [3]

    @staticmethod
    def of(view: View, device: torch.device) -> RenderCamera:
        """Matrices of one view."""
        camera = view.camera
        pose = torch.tensor(view.world_to_camera, dtype=torch.float64)
        clip = torch.zeros(4, 4, dtype=torch.float64)
        clip[0, 0] = 2.0 * camera.fx / camera.width
        clip[1, 1] = 2.0 * camera.fy / camera.height
        clip[0, 2] = 2.0 * camera.cx / camera.width - 1.0
        clip[1, 2] = 2.0 * camera.cy / camera.height - 1.0
        clip[2, 2] = FAR / (FAR - NEAR)
        clip[2, 3] = -FAR * NEAR / (FAR - NEAR)
        clip[3, 2] = 1.0
        intrinsics = [[camera.fx, 0.0, camera.cx], [0.0, camera.fy, camera.cy], [0.0, 0.0, 1.0]]

        def on_device(values: Tensor) -> Tensor:
            return values.to(device=device, dtype=torch.float32).contiguous()

        return RenderCamera(
            camera.width,
            camera.height,
            camera.width / (2.0 * camera.fx),
            camera.height / (2.0 * camera.fy),
            on_device(pose.T),
            on_device((clip @ pose).T),
            on_device(torch.tensor(intrinsics)),
            on_device(torch.tensor(view.position)),
        )


@dataclass(frozen=True)
class RenderOutput:
    """What a renderer gives back.

    `color` [3, H, W]; `radii` [P] in pixels, 0 where unseen; `screen_points` is a tensor whose `.grad[..., :2]`, times
    `screen_scale`, is the gradient of the loss with respect to screen positions in NDC units after backward.
    """

    color: Tensor
    radii: Tensor
    screen_points: Tensor
    screen_scale: Tuple[float, float] = (1.0, 1.0)

    def screen_gradient(self) -> Optional[Tensor]:
        """The norm [P] of the screen-space gradient that decides on densification; None if none arrived."""
        grad = self.screen_points.grad
        if grad is None:
            return None
        plane: Tensor = grad.reshape(-1, grad.shape[-1])[:, :2]
        norms: Tensor = torch.linalg.vector_norm(plane * plane.new_tensor(self.screen_scale), dim=1)
        return norms


class Renderer:
    """Draws splats. Subclasses set what ends up in the report: the name it is asked for by, and what really runs."""

    kind = ""
    name = ""
    version = ""
    engine = ""

    def render(self, camera: RenderCamera, splats: Splats, background: Tensor) -> RenderOutput:
        """Draw with gradients to all of `splats`; background [3]."""
        raise NotImplementedError


def make_renderer(name: str, device: torch.device, antialiasing: bool = False) -> Renderer:
    """The renderer of that name, checked to be able to run on the device; raises RendererUnavailable or UsageError."""
    if name == "torch":
        from smoke_trainer.renderers.torch_ import TorchRenderer

        return TorchRenderer(device, antialiasing)
    if name == "gsplat":
        from smoke_trainer.renderers.gsplat_ import GsplatRenderer

        return GsplatRenderer(device, antialiasing)
    if name == "inria":
        from smoke_trainer.renderers.inria import InriaRenderer

        return InriaRenderer(device, antialiasing)
    raise UsageError(f"there is no renderer called {name!r}", remedy=f"choose one of: {', '.join(NAMES)}")
