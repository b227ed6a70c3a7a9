"""Cameras: a pinhole's numbers and a lens's distortion coefficients, in COLMAP's conventions."""

from __future__ import annotations

import math
from dataclasses import dataclass

MAX_SIDE = 100_000  # pixels; a larger image means that the numbers are not what they seem
WIDEST_FIELD = 1000.0  # image size in focal lengths: 179.8 degrees, which no pinhole has


@dataclass(frozen=True)
class Camera:
    """A pinhole: size and focal lengths in pixels, principal point with pixel centres at +0.5 (COLMAP's convention)."""

    width: int
    height: int
    fx: float
    fy: float
    cx: float
    cy: float

    @property
    def is_possible(self) -> bool:
        """Whether these numbers make a camera: finite, focal lengths above 0, a field of view below 180 degrees."""
        sides = 0 < self.width <= MAX_SIDE and 0 < self.height <= MAX_SIDE
        finite = all(map(math.isfinite, (self.fx, self.fy, self.cx, self.cy)))
        widest = self.width <= WIDEST_FIELD * self.fx and self.height <= WIDEST_FIELD * self.fy
        return sides and finite and widest

    def resized(self, width: int, height: int) -> Camera:
        """The same field of view on another pixel grid."""
        sx, sy = width / self.width, height / self.height
        return Camera(width, height, self.fx * sx, self.fy * sy, self.cx * sx, self.cy * sy)

    def zoomed(self, factor: float) -> Camera:
        """The same grid with a focal length `factor` times as long."""
        return Camera(self.width, self.height, self.fx * factor, self.fy * factor, self.cx, self.cy)


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
        """True for a plain pinhole."""
        return not any((self.k1, self.k2, self.p1, self.p2, self.k3))


NO_DISTORTION = Distortion()
