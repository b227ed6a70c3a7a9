"""The renderers: our own in PyTorch, gsplat, and the packages named `diff_gaussian_rasterization`. None replaces another.

What rendering means (Kerbl et al. 2023, section 4 and 6), whichever renderer does it: each Gaussian's covariance
R S S^T R^T, seen through the camera, becomes an ellipse on screen; its spherical harmonics, seen from the camera, become
a colour. A pixel takes the Gaussians that cover it from front to back, each with alpha = opacity * exp(-d^2 / 2), d being
its distance from the centre in standard deviations, and adds colour * alpha * (1 - what is already covered).
All of it is differentiable, so that one backward pass tells every parameter how it should change.
"""

from __future__ import annotations

import importlib.util
import inspect
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, FrozenSet, Optional, Tuple, Union

import torch
from torch import Tensor

import splatfix
from smoke_trainer.backends import Part, engine_of, import_extension, to_device
from smoke_trainer.data.scene import View
from smoke_trainer.errors import RendererUnavailable
from smoke_trainer.model import Splats
from splatfix.kernels import rasterizer

NEAR, FAR = 0.01, 100.0
NEAR_PLANE = 0.2  # where the reference rasterizer culls
MODULE = "diff_gaussian_rasterization"
# Settings that only one variant has, in the order of looking.
VARIANTS: Tuple[Tuple[FrozenSet[str], str], ...] = (
    (frozenset({"require_coord"}), "rade-gs"),
    (frozenset({"kernel_size", "subpixel_offset"}), "mip-splatting"),
    (frozenset({"pixel_weights"}), "taming-3dgs"),
    (frozenset({"get_flag", "metric_map"}), "fastgs"),
    (frozenset({"antialiasing"}), "dr_aa"),
    (frozenset(), "inria-v1"),
)
MIP_KERNEL_SIZE = 0.1  # mip-splatting's 2D filter, its own default


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


@dataclass(frozen=True)
class RenderOutput:
    """What a renderer returns.

    `color` [3, H, W]; `radii` [P] in pixels, 0 where not visible; `means2d` is a tensor whose `.grad[..., :2]`, times
    `to_ndc`, is the gradient of the loss by screen positions in NDC units after the backward pass.
    """

    color: Tensor
    radii: Tensor
    means2d: Tensor
    to_ndc: Tuple[float, float] = (1.0, 1.0)

    def grad2d(self) -> Optional[Tensor]:
        """The norm [P] of the gradient of `means2d` in NDC units, which decides on densification; None if there is none."""
        grad = self.means2d.grad
        if grad is None:
            return None
        plane: Tensor = grad.reshape(-1, grad.shape[-1])[:, :2]
        # by numbers rather than by a tensor of them, which would be copied to the GPU, and waited for
        columns = [plane[:, axis] * factor for axis, factor in enumerate(self.to_ndc)]
        norms: Tensor = torch.linalg.vector_norm(torch.stack(columns, dim=1), dim=1)
        return norms


def reference_settings(
    camera: RenderCamera, splats: Splats, background: Tensor, antialiasing: bool
) -> Dict[str, Any]:
    """The fields that the reference rasterizer and its descendants share, by name."""
    return {
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
        "antialiasing": antialiasing,
    }


class GsplatRenderer(Part):
    """gsplat's CUDA kernels (1.0 and later), or splatfix's drop-in for its compiled module, which runs on any device."""

    kind = "gsplat"

    def __init__(self, device: torch.device, antialiasing: bool) -> None:
        no_cpu = "use --device cuda on a machine with a GPU, --renderer torch, or `splatfix install gsplat --backend pure`"
        # Nothing is imported before: gsplat may compile itself at its import.
        spec = importlib.util.find_spec("gsplat")
        folders = (spec.submodule_search_locations or ()) if spec else ()
        has_dropin = any(Path(folder, "csrc", "__init__.py").is_file() for folder in folders)
        if device.type != "cuda" and not has_dropin:
            raise RendererUnavailable(
                f"gsplat cannot run on {device.type}",
                "its rasterizer has CUDA kernels only, although the package imports without them",
                no_cpu,
            )
        hint = "install gsplat for this torch, or use --renderer torch"
        self._gsplat = import_extension("gsplat", hint)
        compiled = getattr(import_extension("gsplat.cuda._backend", hint), "_C", None)
        if compiled is None:
            raise RendererUnavailable(
                "gsplat is installed without its CUDA extension",
                "it found neither a compiled extension nor nvcc to build one",
                "`splatfix install gsplat --backend nvrtc`, a toolkit that matches torch, or a gsplat wheel with the extension",
            )
        # from 1.5 on the compiled module may be a list of operators, which does not say where it comes from
        entry = compiled if isinstance(compiled, ModuleType) else self._gsplat.rasterization
        version = getattr(self._gsplat, "__version__", "unknown")
        super().__init__("gsplat", version, engine_of("gsplat", device, no_cpu), entry)
        self._mode = "antialiased" if antialiasing else "classic"

    def render(self, camera: RenderCamera, splats: Splats, background: Tensor) -> RenderOutput:
        """Render with gradients to all of `splats`; gsplat's `means2d` are in pixels, one NDC unit is W/2 or H/2 of them."""
        self.calls += 1
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
        radii: Tensor = meta["radii"]
        if radii.dim() == 3:  # from 1.5 on one radius per axis
            radii = radii.amax(dim=-1)
        to_ndc = (0.5 * camera.width, 0.5 * camera.height)
        return RenderOutput(colors[0].permute(2, 0, 1), radii.reshape(-1), meta["means2d"], to_ndc)


class InriaRenderer(Part):
    """The installed package named `diff_gaussian_rasterization`. Nine packages share that name.

    The fields of its settings, the arguments of its forward and the number of values that it returns tell the variants
    apart; every field and argument is then filled by name. The compiled ones run on CUDA only; the drop-ins of
    `splatfix install --backend pure` are plain PyTorch and run on any device.
    """

    kind = "inria"
    module = MODULE

    def __init__(self, device: torch.device, antialiasing: bool) -> None:
        self._module = import_extension(self.module, "run `splatfix diagnose`, or use --renderer torch")
        self._fields: Tuple[str, ...] = tuple(self._module.GaussianRasterizationSettings._fields)
        self._arguments = set(inspect.signature(self._module.GaussianRasterizer.forward).parameters)
        self._antialiasing = antialiasing
        hint = "use --device cuda on a machine with an NVIDIA GPU, or --renderer torch"
        engine = engine_of(self.module, device, hint)
        # no variant tells its version
        variant = next(name for own, name in VARIANTS if own <= set(self._fields))
        super().__init__(self.module, variant, engine, self._module.GaussianRasterizer)
        if antialiasing and "antialiasing" not in self._fields:
            raise RendererUnavailable(
                f"the installed {MODULE} ({self.version}) has no antialiasing",
                "its settings have no such field",
                "omit --antialiasing, or install Inria's dr_aa branch",
            )

    def render(self, camera: RenderCamera, splats: Splats, background: Tensor) -> RenderOutput:
        """Render with gradients to all of `splats`; that of `means2d` is in NDC units already."""
        self.calls += 1
        means2d = torch.zeros_like(splats.means, requires_grad=torch.is_grad_enabled())
        inputs: Dict[str, Any] = {
            "means3D": splats.means,
            "means2D": means2d,
            "opacities": splats.opacities,
            "shs": splats.shs,
            "scales": splats.scales,
            "rotations": splats.rotations,
        }
        if "dc" in self._arguments:
            inputs["dc"], inputs["shs"] = splats.shs[:, :1].contiguous(), splats.shs[:, 1:].contiguous()
        if "scores" in self._arguments:
            inputs["scores"] = torch.zeros_like(splats.opacities)
        if "means2D_abs" in self._arguments:
            inputs["means2D_abs"] = torch.zeros_like(means2d, requires_grad=means2d.requires_grad)
        settings = self._settings(camera, splats, background)
        drawn = self._module.GaussianRasterizer(settings)(**inputs)
        # Every known variant starts with (color, radii); GOF's color carries six more channels.
        return RenderOutput(drawn[0][:3], drawn[1], means2d)

    def _settings(self, camera: RenderCamera, splats: Splats, background: Tensor) -> Any:
        values: Dict[str, Any] = {
            **reference_settings(camera, splats, background, self._antialiasing),
            "kernel_size": MIP_KERNEL_SIZE if self.version == "mip-splatting" else 0.0,
            "pixel_weights": None,
            "require_depth": False,
            "require_coord": False,
            "mult": 1.0,
            "get_flag": False,
        }
        if "metric_map" in self._fields:
            pixels = camera.height * camera.width
            values["metric_map"] = torch.zeros(pixels, dtype=torch.int32, device=background.device)
        if "subpixel_offset" in self._fields:
            values["subpixel_offset"] = torch.zeros(camera.height, camera.width, 2, device=background.device)
        defaults = getattr(self._module.GaussianRasterizationSettings, "_field_defaults", {})
        unknown = [field for field in self._fields if field not in values and field not in defaults]
        if unknown:
            raise RendererUnavailable(
                f"the installed {MODULE} has unknown settings: {', '.join(unknown)}",
                "it is none of the known variants, and a guessed value would make the result meaningless",
                "run `splatfix diagnose` to see which package provides the module",
            )
        known = {field: values[field] for field in self._fields if field in values}
        return self._module.GaussianRasterizationSettings(**known)


class TorchRenderer(InriaRenderer):
    """Our own rasterizer in PyTorch, on any device, by the calls that it shares with Inria's."""

    kind = "torch"
    module = rasterizer.__name__

    def __init__(self, device: torch.device, antialiasing: bool) -> None:
        super().__init__(device, antialiasing)
        self.version = splatfix.__version__
        # the others are for the variants that it stands in for, and have defaults
        self._fields = self._fields[: self._fields.index("antialiasing") + 1]


Renderer = Union[GsplatRenderer, InriaRenderer]


def make_renderer(name: str, device: torch.device, antialiasing: bool = False) -> Renderer:
    """The renderer of that name; raises RendererUnavailable for one that cannot run here."""
    if name == "gsplat":
        return GsplatRenderer(device, antialiasing)
    return (TorchRenderer if name == "torch" else InriaRenderer)(device, antialiasing)
