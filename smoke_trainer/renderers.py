"""The renderers: our own in PyTorch, gsplat, and the packages named `diff_gaussian_rasterization`. None replaces another.

What rendering means (Kerbl et al. 2023, section 4 and 6), whichever renderer does it: each Gaussian's covariance
R S S^T R^T, seen through the camera, becomes an ellipse on screen; its spherical harmonics, seen from the camera, become
a colour. A pixel takes the Gaussians that cover it from front to back, each with alpha = opacity * exp(-d^2 / 2), d being
its distance from the centre in standard deviations, and adds colour * alpha * (1 - what is already covered).
All of it is differentiable, so that one backward pass tells every parameter how it should change.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import FrozenSet, Optional, Tuple, Union

import torch
from torch import Tensor

import splatfix
from smoke_trainer.backends import Part, engine_of, import_extension
from smoke_trainer.errors import RendererUnavailable
from smoke_trainer.model import Splats
from smoke_trainer.rasterizers import Reference, RenderCamera, draw_gsplat
from splatfix.kernels import rasterizer

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
        color, radii, means2d = draw_gsplat(self._gsplat, camera, splats, background, self._mode)
        return RenderOutput(color, radii, means2d, (0.5 * camera.width, 0.5 * camera.height))


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
        self._reference = Reference(self._module)
        fields: Tuple[str, ...] = tuple(self._module.GaussianRasterizationSettings._fields)
        self._antialiasing = antialiasing
        hint = "use --device cuda on a machine with an NVIDIA GPU, or --renderer torch"
        engine = engine_of(self.module, device, hint)
        # no variant tells its version
        variant = next(name for own, name in VARIANTS if own <= set(fields))
        super().__init__(self.module, variant, engine, self._module.GaussianRasterizer)
        if antialiasing and "antialiasing" not in fields:
            raise RendererUnavailable(
                f"the installed {MODULE} ({self.version}) has no antialiasing",
                "its settings have no such field",
                "omit --antialiasing, or install Inria's dr_aa branch",
            )

    def render(self, camera: RenderCamera, splats: Splats, background: Tensor) -> RenderOutput:
        """Render with gradients to all of `splats`; that of `means2d` is in NDC units already."""
        self.calls += 1
        means2d = torch.zeros_like(splats.means, requires_grad=torch.is_grad_enabled())
        kernel_size = MIP_KERNEL_SIZE if self.version == "mip-splatting" else 0.0
        chosen = {"antialiasing": self._antialiasing, "kernel_size": kernel_size}
        drawn = self._reference.draw(camera, splats, background, means2d, **chosen)
        # Every known variant starts with (color, radii); GOF's color carries six more channels.
        return RenderOutput(drawn[0][:3], drawn[1], means2d)


class TorchRenderer(InriaRenderer):
    """Our own rasterizer in PyTorch, on any device, by the calls that it shares with Inria's."""

    kind = "torch"
    module = rasterizer.__name__

    def __init__(self, device: torch.device, antialiasing: bool) -> None:
        super().__init__(device, antialiasing)
        self.version = splatfix.__version__


Renderer = Union[GsplatRenderer, InriaRenderer]


def make_renderer(name: str, device: torch.device, antialiasing: bool = False) -> Renderer:
    """The renderer of that name; raises RendererUnavailable for one that cannot run here."""
    if name == "gsplat":
        return GsplatRenderer(device, antialiasing)
    return (TorchRenderer if name == "torch" else InriaRenderer)(device, antialiasing)
