"""The module of compiled functions that gsplat 1.5.3 asks for (`from gsplat import csrc`), in PyTorch and by our CUDA kernels.

gsplat's own Python stays as it is: it finds its functions here by name. float32 and float64 on any device; float32 on CUDA is
handed to the kernels of gsplat_cuda.py where they can be had (gsplat_dispatch.py).

Contract (gsplat 1.5.3, Apache-2.0; what its CUDA kernels give)
---------------------------------------------------------------
Projection   pinhole, orthographic and fisheye. Culled outside [near, far], where the blurred determinant is not above 0, where
             the opacity (compensated) is below 1/255, where both radii are at most radius_clip, outside the image. The ratios
             x / z and y / z are clamped to the image and 0.15 of its size around it, for the Jacobian only. eps2d is added to the
             diagonal; compensation sqrt(max(0, det / det_blurred)), whose gradient is damped by 1e-6.
             radius = ceil(min(3.33, sqrt(2 ln(255 opacity))) sigma) in x and in y; quaternions are normalized.
Tiles        all those that the rectangle of the radii touches; order by image, tile, depth in float32, then index.
Pixel        centers at +0.5; alpha = min(0.999, opacity e^-sigma); skipped where sigma < 0 or alpha < 1/255; a pixel ends before
             the contribution that would take its transmittance to 1e-4 or below. Where alpha is capped it has no gradient.
Surfels      as surfels.py tells, but for those numbers, a radius of 3.33 sigma, no depth of the ray's own: the last channel of
             the colors is the depth of the median and of the distortion, sum over i > j of 2 w_i w_j (d_i - d_j). The gradient of
             `densify` is that of the transform's (0, 2) and (1, 2) times its (2, 2).
Masks        a tile that is False shows its background, with alpha 0.

Deviations: where a Gaussian is culled, the projection gives zeros (CUDA: whatever lay in memory).
Refused by name: unscented transforms, f-theta and other distortions, rolling shutters, drawing from the world, packed surfels.
"""

from __future__ import annotations

import enum
from typing import Any, Callable, NoReturn

from splatfix.kernels.gsplat_points import (
    adam,
    quat_scale_to_covar_preci_bwd,
    quat_scale_to_covar_preci_fwd,
    relocation,
    spherical_harmonics_bwd,
    spherical_harmonics_fwd,
)
from splatfix.kernels.gsplat_projection import (
    projection_2dgs_fused_bwd,
    projection_2dgs_fused_fwd,
    projection_ewa_3dgs_fused_bwd,
    projection_ewa_3dgs_fused_fwd,
    projection_ewa_3dgs_packed_bwd,
    projection_ewa_3dgs_packed_fwd,
    projection_ewa_simple_bwd,
    projection_ewa_simple_fwd,
)
from splatfix.kernels.gsplat_rasterizer import (
    rasterize_to_indices_3dgs,
    rasterize_to_pixels_3dgs_bwd,
    rasterize_to_pixels_3dgs_fwd,
)
from splatfix.kernels.gsplat_surfels import (
    rasterize_to_indices_2dgs,
    rasterize_to_pixels_2dgs_bwd,
    rasterize_to_pixels_2dgs_fwd,
)
from splatfix.kernels.gsplat_tiles import intersect_offset, intersect_tile

__all__ = [
    "ANGLE_TO_PIXELDIST",
    "FISHEYE",
    "FTHETA",
    "GLOBAL",
    "ORTHO",
    "PINHOLE",
    "PIXELDIST_TO_ANGLE",
    "ROLLING_BOTTOM_TO_TOP",
    "ROLLING_LEFT_TO_RIGHT",
    "ROLLING_RIGHT_TO_LEFT",
    "ROLLING_TOP_TO_BOTTOM",
    "CameraModelType",
    "FThetaCameraDistortionParameters",
    "FThetaPolynomialType",
    "ShutterType",
    "UnscentedTransformParameters",
    "adam",
    "intersect_offset",
    "intersect_tile",
    "projection_2dgs_fused_bwd",
    "projection_2dgs_fused_fwd",
    "projection_2dgs_packed_bwd",
    "projection_2dgs_packed_fwd",
    "projection_ewa_3dgs_fused_bwd",
    "projection_ewa_3dgs_fused_fwd",
    "projection_ewa_3dgs_packed_bwd",
    "projection_ewa_3dgs_packed_fwd",
    "projection_ewa_simple_bwd",
    "projection_ewa_simple_fwd",
    "projection_ut_3dgs_fused",
    "quat_scale_to_covar_preci_bwd",
    "quat_scale_to_covar_preci_fwd",
    "rasterize_to_indices_2dgs",
    "rasterize_to_indices_3dgs",
    "rasterize_to_pixels_2dgs_bwd",
    "rasterize_to_pixels_2dgs_fwd",
    "rasterize_to_pixels_3dgs_bwd",
    "rasterize_to_pixels_3dgs_fwd",
    "rasterize_to_pixels_from_world_3dgs_bwd",
    "rasterize_to_pixels_from_world_3dgs_fwd",
    "relocation",
    "spherical_harmonics_bwd",
    "spherical_harmonics_fwd",
]


class CameraModelType(enum.IntEnum):
    """How a camera projects."""

    PINHOLE = 0
    ORTHO = 1
    FISHEYE = 2
    FTHETA = 3


class ShutterType(enum.IntEnum):
    """In which order the rows of an image are exposed; only GLOBAL, all at once, is drawn."""

    ROLLING_TOP_TO_BOTTOM = 0
    ROLLING_LEFT_TO_RIGHT = 1
    ROLLING_BOTTOM_TO_TOP = 2
    ROLLING_RIGHT_TO_LEFT = 3
    GLOBAL = 4


class FThetaPolynomialType(enum.IntEnum):
    """What an f-theta polynomial maps; what would use it is refused."""

    PIXELDIST_TO_ANGLE = 0
    ANGLE_TO_PIXELDIST = 1


class UnscentedTransformParameters:
    """Only carries what gsplat sets: what would use it is refused."""


class FThetaCameraDistortionParameters:
    """Only carries what gsplat sets: what would use it is refused."""


# gsplat looks for "CameraModelType.PINHOLE" part by part, each time on the module itself.
PINHOLE, ORTHO, FISHEYE, FTHETA = CameraModelType
(
    ROLLING_TOP_TO_BOTTOM,
    ROLLING_LEFT_TO_RIGHT,
    ROLLING_BOTTOM_TO_TOP,
    ROLLING_RIGHT_TO_LEFT,
    GLOBAL,
) = ShutterType
PIXELDIST_TO_ANGLE, ANGLE_TO_PIXELDIST = FThetaPolynomialType


def _refused(name: str, option: str, instead: str) -> Callable[..., NoReturn]:
    """A function that says that it is not here, which option asked for it, and what to do."""

    def call(*_arguments: Any) -> NoReturn:
        raise NotImplementedError(
            f"splatfix's module for gsplat has no {name}, which {option} asks for: {instead}, "
            "or compile gsplat itself, which brings it."
        )

    call.__name__ = name
    return call


_UNSCENTED = (
    "with_ut=True (unscented transforms, distortions, f-theta, rolling shutters)",
    "undistort the images and leave it out",
)
_WORLD = ("with_eval3d=True", "leave it out")
_PACKED = ("packed=True of 2DGS", "call with packed=False")
projection_ut_3dgs_fused = _refused("projection_ut_3dgs_fused", *_UNSCENTED)
rasterize_to_pixels_from_world_3dgs_fwd = _refused("rasterize_to_pixels_from_world_3dgs_fwd", *_WORLD)
rasterize_to_pixels_from_world_3dgs_bwd = _refused("rasterize_to_pixels_from_world_3dgs_bwd", *_WORLD)
projection_2dgs_packed_fwd = _refused("projection_2dgs_packed_fwd", *_PACKED)
projection_2dgs_packed_bwd = _refused("projection_2dgs_packed_bwd", *_PACKED)
