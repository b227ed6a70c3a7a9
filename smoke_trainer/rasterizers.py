"""How rasterizers are called: those with the face of Inria's, and gsplat's. Imports torch only.

The smoke trainer draws by it, and certify's probe of kernels, which holds them against references.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Dict, Tuple

import torch
from torch import Tensor

from smoke_trainer.backends import to_device
from smoke_trainer.errors import RendererUnavailable

NEAR, FAR = 0.01, 100.0
NEAR_PLANE = 0.2  # where the reference rasterizer culls


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
    def of(view: Any, device: torch.device) -> RenderCamera:
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
            return to_device(values.float().contiguous(), device)

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


class Reference:
    """The rasterizer of a module, Inria's or one of its descendants.

    The fields of its settings and the arguments of its forward tell the variants apart; every one is filled by name.
    """

    def __init__(self, module: Any) -> None:
        self.module = module.__name__
        kind = "Triangle" if hasattr(module, "TriangleRasterizer") else "Gaussian"
        self._rasterizer = getattr(module, f"{kind}Rasterizer")
        self._settings = getattr(module, f"{kind}RasterizationSettings")
        parameters = inspect.signature(self._rasterizer.forward).parameters
        self.arguments = set(parameters)
        # a wrapper that hands its arguments on wants those of all variants
        if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
            self.arguments |= {"means3D", "means2D", "opacities", "shs", "scales", "rotations"}
        # others are left at the default that a drop-in or our own rasterizer has for them
        defaults = set(getattr(self._settings, "_field_defaults", {})) - {"antialiasing"}
        self.fields = [name for name in self._settings._fields if name not in defaults]

    def settings(self, camera: RenderCamera, splats: Any, background: Tensor, **chosen: Any) -> Any:
        """Return the settings for a picture, as the variant's own trainer fills them; ``chosen`` go before."""
        values: Dict[str, Any] = {
            "image_height": camera.height,
            "image_width": camera.width,
            "tanfovx": camera.tan_half_x,
            "tanfovy": camera.tan_half_y,
            "bg": background,
            "scale_modifier": 1.0,
            "viewmatrix": camera.world_to_view,
            "projmatrix": camera.world_to_clip,
            "sh_degree": splats.sh_degree,
            "campos": camera.position,
            "prefiltered": False,
            "debug": False,
            # beyond Inria's first twelve
            "antialiasing": False,
            "kernel_size": 0.0,  # RaDe-GS; Mip-Splatting has more
            "pixel_weights": None,
            "require_depth": False,
            "require_coord": False,
            "mult": 1.0,  # the whole ellipse; FastGS trains with less
            "get_flag": False,
        }
        if "metric_map" in self.fields:
            pixels = camera.height * camera.width
            values["metric_map"] = torch.zeros(pixels, dtype=torch.int32, device=background.device)
        if "subpixel_offset" in self.fields:
            values["subpixel_offset"] = torch.zeros(camera.height, camera.width, 2, device=background.device)
        values.update(chosen)
        if unknown := [name for name in self.fields if name not in values]:
            raise RendererUnavailable(
                f"the installed {self.module} has unknown settings: {', '.join(unknown)}",
                "it is none of the known variants, and a guessed value would make the result meaningless",
                "run `splatfix diagnose` to see which package provides the module",
            )
        return self._settings(**{name: values[name] for name in self.fields})

    def draw(
        self, camera: RenderCamera, splats: Any, background: Tensor, means2d: Tensor, **chosen: Any
    ) -> Any:
        """Return what a variant gives: color [3, H, W], radii [P], and more. ``splats`` have the names of :class:`Splats`,
        ``chosen`` are settings and arguments by name; the gradient of ``means2d`` is in NDC units."""
        inputs: Dict[str, Any] = {
            "means3D": splats.means,
            "means2D": means2d,
            "opacities": splats.opacities,
            "shs": splats.shs,
            "scales": splats.scales,
            "rotations": splats.rotations,
            **chosen,
        }
        if "scores" in self.arguments:
            inputs["scores"] = torch.zeros_like(splats.opacities)
        if "means2D_abs" in self.arguments:
            inputs["means2D_abs"] = torch.zeros_like(means2d, requires_grad=means2d.requires_grad)
        if "dc" in self.arguments:
            inputs["dc"], inputs["shs"] = splats.shs[:, :1].contiguous(), splats.shs[:, 1:].contiguous()
        rasterizer = self._rasterizer(self.settings(camera, splats, background, **chosen))
        return rasterizer(**{name: value for name, value in inputs.items() if name in self.arguments})


def draw_gsplat(
    gsplat: Any, camera: RenderCamera, splats: Any, background: Tensor, mode: str
) -> Tuple[Tensor, Tensor, Tensor]:
    """Return color [3, H, W], radii [P] and the projected means, whose gradient is in pixels, of gsplat's own Python."""
    used = (splats.sh_degree + 1) ** 2
    colors, _, meta = gsplat.rasterization(
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
        rasterize_mode=mode,
    )
    radii: Tensor = meta["radii"]
    if radii.dim() == 3:  # from 1.5 on one radius per axis
        radii = radii.amax(dim=-1)
    return colors[0].permute(2, 0, 1), radii.reshape(-1), meta["means2d"]
