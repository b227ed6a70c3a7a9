"""The renderer on `diff_gaussian_rasterization`: nine packages share that name, so its settings' fields decide.

The fields of GaussianRasterizationSettings, the arguments of the rasterizer's forward and the number of values that it
returns tell the variants apart; every field and argument is then filled by name. The real ones draw on CUDA only; the
drop-ins of `splatfix install --backend pure` are plain PyTorch under the same name, and draw on any device.
"""

from __future__ import annotations

import inspect
from typing import Any, Dict, FrozenSet, Tuple

import torch
from torch import Tensor

from smoke_trainer.errors import RendererUnavailable
from smoke_trainer.model import Splats
from smoke_trainer.parts import engine_of
from smoke_trainer.renderers.base import RenderCamera, Renderer, RenderOutput

MODULE = "diff_gaussian_rasterization"
# Fields that only one family has; looked up in this order.
MARKS: Tuple[Tuple[FrozenSet[str], str], ...] = (
    (frozenset({"require_coord"}), "rade-gs"),
    (frozenset({"kernel_size", "subpixel_offset"}), "mip-splatting"),
    (frozenset({"pixel_weights"}), "taming-3dgs"),
    (frozenset({"get_flag", "metric_map"}), "fastgs"),
    (frozenset({"antialiasing"}), "dr_aa"),
    (frozenset(), "inria-v1"),
)
# Filters that a variant without the field cannot do and one with it may: mip-splatting's 2D kernel.
MIP_KERNEL_SIZE = 0.1


def variant_of(fields: Tuple[str, ...]) -> str:
    """Which family a tuple of settings fields belongs to."""
    return next(name for marks, name in MARKS if marks <= set(fields))


class InriaRenderer(Renderer):
    """diff_gaussian_rasterization of whichever variant is installed."""

    kind = "inria"
    name = MODULE

    def __init__(self, device: torch.device, antialiasing: bool) -> None:
        self._module = _import_module()
        remedy = "use --device cuda on a machine with an NVIDIA GPU, or --renderer torch"
        self.engine = engine_of(MODULE, device, "draw", remedy)
        self._fields: Tuple[str, ...] = tuple(self._module.GaussianRasterizationSettings._fields)
        self._arguments = set(inspect.signature(self._module.GaussianRasterizer.forward).parameters)
        self._antialiasing = antialiasing
        self.variant = variant_of(self._fields)
        self.version = self.variant
        if antialiasing and "antialiasing" not in self._fields:
            raise RendererUnavailable(
                f"the installed {MODULE} ({self.variant}) has no antialiasing",
                "its settings have no such field, and drawing without it would be another experiment",
                "leave --antialiasing out, or install Inria's dr_aa branch",
            )

    def render(self, camera: RenderCamera, splats: Splats, background: Tensor) -> RenderOutput:
        """Draw; the screen points' gradient is in NDC units already."""
        screen_points = torch.zeros_like(splats.means, requires_grad=torch.is_grad_enabled())
        settings = self._settings(camera, splats, background)
        drawn = self._module.GaussianRasterizer(settings)(**self._inputs(splats, screen_points))
        if not isinstance(drawn, tuple) or len(drawn) < 2:
            raise RendererUnavailable(
                f"the installed {MODULE} returns {type(drawn).__name__}, not (color, radii, ...)",
                "it is none of the known variants",
                "run `splatfix diagnose` to see which package provides the module",
            )
        # Every known variant starts with (color, radii); GOF's color carries six more channels.
        return RenderOutput(drawn[0][:3], drawn[1], screen_points)

    def _settings(self, camera: RenderCamera, splats: Splats, background: Tensor) -> Any:
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
            "antialiasing": self._antialiasing,
            "kernel_size": MIP_KERNEL_SIZE if self.variant == "mip-splatting" else 0.0,
            "pixel_weights": None,
            "require_depth": False,
            "require_coord": False,
            "mult": 1.0,
            "get_flag": False,
            "metric_map": None,
        }
        if "subpixel_offset" in self._fields:
            values["subpixel_offset"] = torch.zeros(camera.height, camera.width, 2, device=background.device)
        defaults = getattr(self._module.GaussianRasterizationSettings, "_field_defaults", {})
        unknown = [field for field in self._fields if field not in values and field not in defaults]
        if unknown:
            raise RendererUnavailable(
                f"the installed {MODULE} asks for the unknown settings {', '.join(unknown)}",
                "it is none of the known variants, and guessing a value would make the result meaningless",
                "run `splatfix diagnose` to see which package provides the module",
            )
        known = {field: values[field] for field in self._fields if field in values}
        return self._module.GaussianRasterizationSettings(**known)

    def _inputs(self, splats: Splats, screen_points: Tensor) -> Dict[str, Any]:
        inputs: Dict[str, Any] = {
            "means3D": splats.means,
            "means2D": screen_points,
            "opacities": splats.opacities,
            "scales": splats.scales,
            "rotations": splats.rotations,
        }
        if "dc" in self._arguments:
            inputs["dc"], inputs["shs"] = splats.shs[:, :1].contiguous(), splats.shs[:, 1:].contiguous()
        else:
            inputs["shs"] = splats.shs
        if "scores" in self._arguments:
            inputs["scores"] = torch.zeros_like(splats.opacities)
        if "means2D_abs" in self._arguments:
            inputs["means2D_abs"] = torch.zeros_like(screen_points, requires_grad=screen_points.requires_grad)
        return inputs


def _import_module() -> Any:
    try:
        import diff_gaussian_rasterization
    except Exception as error:  # noqa: BLE001  (a broken extension may raise anything while it loads)
        raise RendererUnavailable(
            f"{MODULE} cannot be imported: {type(error).__name__}: {error}",
            "it is not installed here, or its extension does not fit this torch or this GPU",
            "run `splatfix diagnose`, or use --renderer torch",
        ) from None
    return diff_gaussian_rasterization
