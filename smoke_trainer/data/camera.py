"""Cameras, lens distortion (COLMAP and OpenCV conventions), and the pinhole that replaces a distorted camera."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from smoke_trainer.errors import SceneError

Array = np.ndarray
MAX_SIDE = 100_000  # pixels; a larger image means that the numbers are not what they seem
WIDEST_FIELD = 1000.0  # image size in focal lengths: 179.8 degrees, which no pinhole has


@dataclass(frozen=True)
class Distortion:
    """OpenCV's radial (k1, k2, k3) and tangential (p1, p2) coefficients; SIMPLE_RADIAL and RADIAL use the first ones."""

    k1: float = 0.0
    k2: float = 0.0
    p1: float = 0.0
    p2: float = 0.0
    k3: float = 0.0

    @property
    def is_zero(self) -> bool:
        return not any(astuple(self))


@dataclass(frozen=True)
class Camera:
    """Size and focal lengths in pixels, principal point with pixel centres at +0.5 (COLMAP's convention), and the lens: a pinhole
    where that bends nothing."""

    width: int
    height: int
    fx: float
    fy: float
    cx: float
    cy: float
    lens: Distortion = field(default=Distortion(), repr=False)  # beside it in a scene's fingerprint

    def __post_init__(self) -> None:
        """Raise ValueError for numbers that make no camera: infinite, without a focal length, a field of view of 180 degrees."""
        sides = 0 < self.width <= MAX_SIDE and 0 < self.height <= MAX_SIDE
        finite = all(map(math.isfinite, (self.fx, self.fy, self.cx, self.cy, *astuple(self.lens))))
        widest = self.width <= WIDEST_FIELD * self.fx and self.height <= WIDEST_FIELD * self.fy
        if not (sides and finite and widest):
            raise ValueError("impossible camera")

    def resized(self, width: int, height: int) -> Camera:
        """The same field of view on another pixel grid."""
        sx, sy = width / self.width, height / self.height
        return Camera(width, height, self.fx * sx, self.fy * sy, self.cx * sx, self.cy * sy, self.lens)

    def pinhole(self, factor: float) -> Camera:
        """The pinhole of the same grid, with a focal length `factor` times as long."""
        return Camera(self.width, self.height, self.fx * factor, self.fy * factor, self.cx, self.cy)


def unsupported(path: Path, model: object) -> SceneError:
    """Build the error for a camera model that no pinhole replaces here."""
    return SceneError(
        f"{path} uses the camera model {model}, which cannot be undistorted here",
        "only pinholes with OpenCV's k1 k2 k3 p1 p2 are read (COLMAP's models up to OPENCV)",
        "undistort the images with the tool that made them, such as `colmap image_undistorter`, and train on its output",
    )


def distort_points(points: Array, lens: Distortion) -> Array:
    """Ideal image-plane positions [..., 2] (x/z, y/z) to where the lens puts them (OpenCV's model)."""
    x, y = points[..., 0], points[..., 1]
    r2 = x * x + y * y
    radial = 1.0 + r2 * (lens.k1 + r2 * (lens.k2 + r2 * lens.k3))
    dx = 2.0 * lens.p1 * x * y + lens.p2 * (r2 + 2.0 * x * x)
    dy = lens.p1 * (r2 + 2.0 * y * y) + 2.0 * lens.p2 * x * y
    return np.stack([x * radial + dx, y * radial + dy], axis=-1)


def source_positions(rows: Array, columns: Array, target: Camera, source: Camera) -> Array:
    """For pixels of the ideal `target`, where to look in the distorted image: [..., 2], pixel centres at +0.5."""
    x = (columns + 0.5 - target.cx) / target.fx
    y = (rows + 0.5 - target.cy) / target.fy
    bent = distort_points(np.stack([x, y], axis=-1), source.lens)
    return np.asarray(bent * [source.fx, source.fy] + [source.cx, source.cy])


@lru_cache(maxsize=64)  # many images share one camera
def pinhole_for(source: Camera) -> Camera:
    """The pinhole of the same size that replaces a distorted camera.

    Its focal length is enlarged just enough that every pixel falls inside the image (no blank border), found by
    bisection between 1x and 4x. All pixels of the border are tested, and a grid inside: a lens bends smoothly, and a scene
    may have a camera for each of its images.
    """
    if source.lens.is_zero:
        return source.pinhole(1.0)
    tested = np.zeros((source.height, source.width), dtype=bool)
    tested[[0, -1]] = True
    tested[:, [0, -1]] = True
    inside = [np.linspace(0, side - 1, 33).round().astype(int) for side in tested.shape]
    tested[np.ix_(*inside)] = True
    rows, columns = np.nonzero(tested)

    def fits(factor: float) -> bool:
        pixels = source_positions(rows, columns, source.pinhole(factor), source)
        return bool(((pixels >= 0.0) & (pixels <= [source.width, source.height])).all())

    low, high = 1.0, 4.0
    if fits(low):
        return source.pinhole(low)
    for _ in range(12):
        middle = 0.5 * (low + high)
        if fits(middle):
            high = middle
        else:
            low = middle
    return source.pinhole(high)
